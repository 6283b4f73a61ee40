"""Calls of the stateless era that wait for their client, and the signed tokens by which the client returns to them.

The revision knows no requests from server to client. When a tool asks its client in the middle of its work, the request
is answered `input_required` with a sealed handle while the call waits here in memory; the client's retry finds it by
that handle, brings the answers, and waits for what comes next: the result, or more questions.

    request 1   tools/call                 ─► the tool runs and asks
                input_required, requestState  ◄─ the call waits, outside of admission, 10 minutes at most
    request 2   the same tools/call, with
                requestState, inputResponses  ─► found by its handle, the tool goes on
                result, or input_required     ◄─

The task of request 1 runs the call to its end, long after its response was sent; the tasks of later requests only wait
until it has answered their exchange.

`requestState` is what we handed to a client and get back from it: attacker input (security.md T25). A token is
readable, not forgeable: HMAC-SHA256 under a random key of this process, bound to who asked for what with which
arguments, good for 10 minutes and for one use. A restart, or another replica, knows none of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

import anyio
from msgspec import Struct

from ...core.json import canonical, dumps, loads
from ...core.session import LOCAL
from ...errors import ToolFailure
from ..jsonrpc import INTERNAL_ERROR, REQUEST_CANCELLED, RpcError, error_message, notification_message, result_message
from .admission import Admission
from .exchange import Exchange, is_wanted, needed, supports

_SECONDS: Final = 600.0
"""Seconds that a token is good for, and that a call waits for its client before it is cancelled."""
_REMEMBERED: Final = 20_000
"""Tokens of one principal that were used and have not expired; beyond it theirs are refused until some expire."""

_logger = logging.getLogger(__name__)


class InvalidState(Exception):
    """The token is not ours, not for this request, too old or used. The reason is for the log, not for the client."""


class Binding(Struct, frozen=True):
    """The request that a token belongs to, and whose it is."""

    principal: str
    digest: bytes


def binding(principal: str, name: str, arguments: Mapping[str, Any]) -> Binding:
    """Return the binding of a token for this request."""
    request = canonical([principal, "tools/call", name, arguments])
    return Binding(principal, hashlib.blake2b(request, digest_size=32).digest())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


class StateSigner:
    """Makes and opens tokens. Lives as long as the process: its key is never written down."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, remembered: int = _REMEMBERED) -> None:
        """`clock` returns seconds; `remembered` is how many used tokens of one principal are known."""
        self._remembered = remembered
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._used: dict[str, dict[str, float]] = {}
        """Expiry of the used tokens, by principal: one that uses up its own ends no other's."""

    def seal(self, kind: str, state: str, bound: Binding) -> str:
        """Return a token that carries `state`. `kind` distinguishes the states of different makers."""
        claims = [kind, state, self._clock() + _SECONDS, secrets.token_hex(12)]
        body = _text(dumps(claims))
        return f"{body}.{self._mac(body, bound)}"

    def open(self, token: str, bound: Binding) -> tuple[str, str]:
        """Return kind and state, once. Raises `InvalidState`."""
        body, _, mac = token.partition(".")
        if not hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(body, bound).encode()):
            raise InvalidState("not sealed by us for this request")
        kind, state, expires, nonce = cast(
            "tuple[str, str, float, str]", loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        )
        if self._clock() >= expires:
            raise InvalidState("expired")
        self._use(nonce, expires, bound.principal)
        return kind, state

    def _mac(self, body: str, bound: Binding) -> str:
        return _text(hmac.digest(self._key, body.encode("utf-8", "replace") + b"." + bound.digest, "sha256"))

    def _use(self, nonce: str, expires: float, principal: str) -> None:
        used = self._used.setdefault(principal, {})
        if nonce in used:
            raise InvalidState("used before")
        if len(used) >= self._remembered:
            now = self._clock()
            used = self._used[principal] = {known: until for known, until in used.items() if until > now}
            if len(used) >= self._remembered:
                raise InvalidState("too many tokens in use")
        used[nonce] = expires


class RequestDeclaration(Protocol):
    """Capabilities and identity of the client, as its request declared them."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Capabilities of the client."""
        ...

    @property
    def log_level(self) -> str | None:
        """From which level on it takes log messages; None for none."""
        ...


def input_required(questions: Mapping[str, Any], state: str | None, stamp: Mapping[str, Any]) -> bytes:
    """Return the body of an `InputRequiredResult`."""
    shown: dict[str, Any] = {"resultType": "input_required"}
    if questions:
        shown["inputRequests"] = questions
    if state is not None:
        shown["requestState"] = state
    shown["_meta"] = stamp
    return dumps(shown)


class _Question:
    __slots__ = ("answer", "answered", "shown")

    def __init__(self, method: str, params: Mapping[str, Any]) -> None:
        self.shown = {"method": method, "params": params}
        self.answered = anyio.Event()
        self.answer: Mapping[str, Any] = {}


class SuspendedCalls:
    """Calls that wait for their clients: at most `limit`, and half of them of one principal.

    The process's own user may have all.
    """

    def __init__(self, admission: Admission, *, limit: int, stamp: Mapping[str, Any]) -> None:
        self.admission = admission
        self.limit = limit
        self.stamp = stamp
        self._calls: dict[str, SuspendableCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def put(self, call: SuspendableCall) -> str:
        """Keep `call` and return its handle. Raises `ToolFailure` at the limit."""
        most = self.limit if call.principal == LOCAL else max(1, self.limit // 2)
        own = sum(waiting.principal == call.principal for waiting in self._calls.values())
        if len(self._calls) >= self.limit or own >= most:
            raise ToolFailure("overloaded", "too many calls wait for their clients", hint="Try again in a minute.")
        handle = secrets.token_urlsafe(18)
        self._calls[handle] = call
        return handle

    def take(self, handle: str) -> SuspendableCall | None:
        """Return the call that waits under `handle`, which is used up by it."""
        return self._calls.pop(handle, None)

    def clear(self) -> None:
        """Cancel every call that waits."""
        for call in tuple(self._calls.values()):
            call.cancel()


class SuspendableCall:
    """One running call and the request that waits for its outcome at the moment. It is the call's `Peer`.

    `_exchange` is that request; None while the client was asked and has not come back, and after the outcome. Each
    `tools/call` of the era is one, and costs nothing more unless its tool asks. `cancel` ends it at any time: it
    cancels the scope of the first request, in whose task the call runs.
    """

    def __init__(
        self,
        suspended: SuspendedCalls,
        exchange: Exchange,
        wants: RequestDeclaration,
        seal: Callable[[str], str],
        *,
        principal: str,
    ) -> None:
        self._suspended = suspended
        self.principal = principal
        self._first = exchange
        self._exchange: Exchange | None = exchange
        self._scope = exchange.scope
        self._wants = wants
        self._seal = seal
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self._done: anyio.Event | None = None
        self._back = anyio.Event()
        """Set once the client has come back since it was asked last."""
        self.handle = ""
        self.missing: Mapping[str, Any] = {}
        """Client capabilities that the tool needed and the client did not declare."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Capabilities of the waiting request."""
        return self._wants.capabilities

    @property
    def takes_requests(self) -> bool:
        """False: a question is the result of the request."""
        return False

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification along with the request that waits at the moment; dropped when none does."""
        if self._exchange is not None and is_wanted(method, params, self._wants.log_level):
            await self._exchange.tell(notification_message(method, params))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the client asked by an `input_required` result, and wait for its retry."""
        wanted = needed(method, params)
        if not supports(self.capabilities, wanted):
            self.missing = wanted
            raise ToolFailure("unavailable", f"the client did not declare what {method} takes")
        self._asked += 1
        key = f"{method.partition('/')[0]}-{self._asked}"
        question = self._questions[key] = _Question(method, params)
        try:
            if self._exchange is not None:
                await self._suspend()
            async with self._suspended.admission.outside():
                await question.answered.wait()
        finally:
            self._questions.pop(key, None)
        return question.answer

    async def resume(
        self, exchange: Exchange, wants: RequestDeclaration, answers: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Go on with the client's answers, and return once `exchange` has its own answer.

        What was not answered is asked again. Being cancelled here cancels the call.
        """
        self._scope.deadline = float("inf")  # the client is back; the call's own timeout still holds
        self._exchange, self._wants, self.handle = exchange, wants, ""
        self._back.set()
        done = self._done = anyio.Event()
        for key, question in tuple(self._questions.items()):
            if key in answers:
                del self._questions[key]
                question.answer = answers[key]
                question.answered.set()
        try:
            if self._questions:
                await self._suspend()
            await done.wait()
        except BaseException:
            self.cancel()
            raise
        if not exchange.ended:
            raise RpcError(REQUEST_CANCELLED, "Request cancelled")

    async def run(self, work: Callable[[], Awaitable[bytes]]) -> bytes | None:
        """Do the work and hand its outcome to the request that waits by then.

        The first request is still open when it is that one: the outcome is returned or raised (`RpcError`). None says
        that another request got it, or none. Where the question was settled without the client, its retry gets it.
        """
        try:
            outcome = await self._outcome(work)
            # Answered by another channel while the client was asked: its retry is still to come, and gets the outcome.
            if self._exchange is None and self.handle:
                await self._back.wait()
        finally:
            self._suspended.take(self.handle)
            if self._exchange is None or self._scope.cancel_called:
                self._release()
        return await self._hand_over(outcome)

    async def _outcome(self, work: Callable[[], Awaitable[bytes]]) -> bytes | RpcError:
        try:
            return await work()
        except RpcError as error:
            return error
        except Exception:
            _logger.exception("a call failed")
            return RpcError(INTERNAL_ERROR, "Internal error")

    async def _hand_over(self, outcome: bytes | RpcError) -> bytes | None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return None
        if exchange is self._first:
            if isinstance(outcome, RpcError):
                raise outcome
            return outcome
        try:
            if isinstance(outcome, RpcError):
                await exchange.answer(error_message(exchange.request_id, outcome))
            else:
                await exchange.answer(result_message(exchange.request_id, outcome))
        finally:
            self._release()
        return None

    def cancel(self) -> None:
        """End the work."""
        self._scope.cancel()

    def _release(self) -> None:
        if self._done is not None:
            self._done.set()

    async def _suspend(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        self.handle = self._suspended.put(self)
        self._exchange, self._back = None, anyio.Event()
        self._scope.deadline = anyio.current_time() + _SECONDS
        questions = {key: question.shown for key, question in self._questions.items()}
        body = input_required(questions, self._seal(self.handle), self._suspended.stamp)
        await exchange.answer(result_message(exchange.request_id, body))
        self._release()
