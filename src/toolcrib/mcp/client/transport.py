"""Transport interface, the table of pending requests, and messages of a server, read leniently.

A `Link` is one live connection. It is opened once, loses its far end once, and is closed once; healing means making
another one. `Outgoing` is one request of ours from the moment it is sent until its outcome is taken.

Servers send NaN, lone surrogates and wrong UTF-8. An unreadable message becomes an error value for the request that it
answers. The strict reader for messages of clients is `mcp.jsonrpc.parse`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

import anyio
import orjson

from ...core.context import Context
from ...core.json import MAX_DEPTH, JsonError, JsonTooDeep, as_mapping, read_json
from ...core.memory import reserve
from ...core.patterns import regex
from ...errors import ToolFailure
from ..jsonrpc import RpcError
from ..stdio import SpooledMessage
from .spec import McpLimits
from .spooled_result import id_of_big

_LENIENT_BYTES: Final = 1024 * 1024
"""The second, forgiving parser is slow; longer messages get only the strict one."""

_ID = regex(rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")')

_ID_DIGITS: Final = 18

_logger = logging.getLogger(__name__)

Reply = Mapping[str, Any] | SpooledMessage
"""The `result` of an answer, or the whole answer on disk when it is too large to parse."""

_ANSWERS: Final = ("result", "error", "jsonrpc")
"""Members of which an answer has one; `jsonrpc` alone where JavaScript has left out a `result` that was undefined."""

_NOTES: Final = 256
"""Progress and log notices that one call may have waiting for its client; the oldest are dropped."""


class LinkLost(Exception):
    """The connection ended before the answer came.

    `written` is False when no byte of the request reached the far end, so that it cannot have run.
    """

    def __init__(self, reason: str, *, written: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.written = written


def decode(text: bytes) -> Any:
    """Parse one message; raises `ValueError`.

    Servers in the wild write NaN, lone surrogates and wrong UTF-8: a short message that the strict parser refuses is
    read again with those replaced. Its size was limited while it arrived.
    """
    try:
        return read_json(text, limit=len(text))
    except JsonTooDeep:
        raise
    except ValueError:
        if len(text) > _LENIENT_BYTES:
            raise
    try:
        value = json.loads(text.decode("utf-8", "replace"), parse_constant=lambda _: None)
        mended = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError as error:
        raise JsonTooDeep(f"nested deeper than {MAX_DEPTH} levels") from error
    return read_json(mended, limit=len(mended))


def id_of_broken(text: bytes, error: ValueError) -> int | str | None:
    """Guess which request a message answers that `decode` refused with `error`; None when it does not say."""
    if isinstance(error, JsonError) and error.value is not None:
        known = as_mapping(error.value).get("id")
        return known if isinstance(known, int | str) else None
    found = _ID.search(text[:4096]) or _ID.search(text[-256:])
    if found is None:
        return None
    try:
        value: Any = orjson.loads(found[1])
    except ValueError:
        return None
    return value if isinstance(value, int | str) else None


def request_number(key: Any) -> int | None:
    """Return the id of ours that a server means by `key`: as text or as a float too, as the SDKs read it."""
    if isinstance(key, float) and key.is_integer():
        return int(key)
    if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= _ID_DIGITS:
        return int(key)
    return key if type(key) is int else None


def messages_in(body: Any) -> list[Any]:
    """Return the messages of a body: one, or those of a batch (revision 2025-03-26)."""
    return cast("list[Any]", body) if isinstance(body, list) else [body]


def outcome_of(message: Mapping[str, Any]) -> Mapping[str, Any] | Exception:
    """Return the result of an answer, or the error it carries, or that it carries neither."""
    if message.get("error") is not None:
        return RpcError.of(message["error"])
    result = message.get("result")
    if type(result) is dict or isinstance(result, Mapping):
        return cast("Mapping[str, Any]", result)
    kind = "null" if result is None else type(result).__name__
    return ToolFailure("tool_error", f"the server answered with a result that is not an object but {kind}")


def broken_answer(error: ValueError) -> ToolFailure:
    """Return the failure of a request whose answer `decode` refused with `error`."""
    if isinstance(error, JsonTooDeep):
        return ToolFailure(
            "too_large",
            f"the server answered with JSON nested deeper than {MAX_DEPTH} levels; the tool may have run",
            hint="Check the effect before calling again; ask for a smaller or flatter part of the data.",
        )
    return ToolFailure(
        "tool_error",
        "the server answered with a message that is not valid JSON; the tool may have run",
        hint="This is a fault of the server. Check the effect before calling again.",
    )


def _taken(message: SpooledMessage) -> bytes:
    """Return the content of a message on disk, and delete its file."""
    try:
        return message.path.read_bytes()
    finally:
        message.discard()


class Outgoing:
    """One request in flight. Settled exactly once; notices that belong to it reach its client before its outcome.

    It waits on a bare future: an event costs three times as much (6.5 against 2.3 microseconds, measured here).
    """

    __slots__ = (
        "_notes",
        "_outcome",
        "_wake",
        "context",
        "headers",
        "id",
        "method",
        "params",
        "scopes",
        "start",
        "version",
    )

    def __init__(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        version: str = "",
        context: Context | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`version` is the protocol revision it is sent under; `context` is that of the call it carries.

        `headers` are sent along where the transport has any.
        """
        self.id = 0
        self.method = method
        self.params = params
        self.version = version
        self.context = context
        self.headers = headers or {}
        self.start = 0
        """Offset of the request in the bytes that were written to the transport.

        When the server ends, it shows whether a byte of the request was read, so whether the call may have run.
        """
        self.scopes: list[anyio.CancelScope] = []
        """Scopes of work on behalf of this request, which ends with it."""
        self._wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._notes: deque[tuple[str, Mapping[str, Any]]] | None = None
        self._outcome: Reply | Exception | None = None

    def assign(self, number: int) -> dict[str, Any]:
        """Give the request its id, which is the token of its progress too, and return it as a message."""
        self.id = number
        params = self.params
        if self.context is not None and self.context.progress_token is not None:
            params = {**params, "_meta": {**as_mapping(params.get("_meta")), "progressToken": number}}
        return {"jsonrpc": "2.0", "id": number, "method": self.method, "params": params}

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""
        return self._outcome is not None

    def settle(self, outcome: Reply | Exception) -> None:
        """Set the outcome; only the first one counts."""
        if self._outcome is None:
            self._outcome = outcome
            self._rouse()
            for scope in self.scopes:
                scope.cancel()
        elif isinstance(outcome, SpooledMessage):
            outcome.discard()

    def note(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notice for the client of this call; dropped without a client."""
        if self.context is None or self.context.peer is None:
            return
        if self._notes is None:
            self._notes = deque(maxlen=_NOTES)
        self._notes.append((method, params))
        self._rouse()

    async def wait(self) -> Reply:
        """Return the answer, handing notices on meanwhile; raises what the outcome is when it is an error."""
        while True:
            await self._wake
            if self._notes:
                await self.hand_on()
            if self._outcome is not None:
                break
            self._wake = asyncio.get_running_loop().create_future()
        if isinstance(self._outcome, SpooledMessage) and self._outcome.is_parsed:
            self._outcome = await self._parsed(self._outcome)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def _parsed(self, answer: SpooledMessage) -> Reply | Exception:
        """Parse an answer on disk once the call has the memory for it."""
        await reserve(answer.size)
        try:
            message = as_mapping(decode(_taken(answer)))
        except ValueError as error:
            return broken_answer(error)
        except OSError as error:
            return ToolFailure("storage", f"a result of {answer.size} bytes cannot be read again: {error.strerror}")
        if request_number(message.get("id")) != self.id:
            return ToolFailure("tool_error", "the server answered with a message that names two requests")
        return outcome_of(message)

    def _rouse(self) -> None:
        if not self._wake.done():
            self._wake.set_result(None)

    def drop(self) -> None:
        """Forget the request: it has no waiter any more."""
        self.settle(LinkLost("no caller waits for the answer"))
        if isinstance(self._outcome, SpooledMessage):
            self._outcome.discard()

    async def hand_on(self) -> None:
        """Send the queued notices to the client, oldest first."""
        peer = self.context.peer if self.context is not None else None
        while self._notes:
            method, params = self._notes.popleft()
            if peer is not None:
                await peer.notify(method, params)


class Inbound(Protocol):
    """Receiver of a server's own messages. Called on the event loop, never blocks."""

    def on_request(self, link: Link, message: Mapping[str, Any], owner: Outgoing | None) -> None:
        """The server wants an answer; `owner` is the call it belongs to, when the transport knows."""
        ...

    def on_notification(self, link: Link, message: Mapping[str, Any], owner: Outgoing | None) -> None:
        """Take a notification."""
        ...


class Link(Protocol):
    """One live connection to one server."""

    @property
    def pending(self) -> Mapping[int, Outgoing]:
        """The requests in flight."""
        ...

    @property
    def lost(self) -> anyio.Event:
        """Set once the far end is gone."""
        ...

    @property
    def reason(self) -> str:
        """Reason for the loss of the link; empty while it works."""
        ...

    @property
    def last_words(self) -> str:
        """The last output of the far end outside the protocol; empty where the transport has no such channel."""
        ...

    async def open(self) -> None:
        """Reach the far end; raises `LinkLost` when that cannot be done."""
        ...

    async def ask(self, request: Outgoing) -> Reply:
        """Send a request and return its answer; raises `RpcError`, `LinkLost` or `ToolFailure`.

        A cancellation is sent to the far end.
        """
        ...

    def agree(self, version: str) -> None:
        """The handshake ended with this revision: what is sent from now on says so where the transport wants it."""
        ...

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; dropped when the far end is gone."""
        ...

    def answer(self, reply: Mapping[str, Any]) -> None:
        """Send the answer to a request of the server: `{"id": …, "result" | "error": …}`."""
        ...

    async def close(self) -> None:
        """End it, with everything that was started for it. Safe to call twice."""
        ...


class Mux:
    """The table of requests in flight on a connection that carries many at once, and what arrives for them.

    For stdio, memory and HTTP+SSE. Streamable HTTP needs none: each request has a response of its own. The owner calls
    `ask` for each request (or `enter` and `leave` around it), `receive` with each message, and `fail` once, when the
    connection ends.
    """

    def __init__(self, link: Link, inbound: Inbound, limits: McpLimits, flooded: Callable[[str], None]) -> None:
        """`flooded` is called when the far end has sent too much that is nothing."""
        self.pending: dict[int, Outgoing] = {}
        self._link = link
        self._inbound = inbound
        self._limits = limits
        self._flooded = flooded
        self.last = 0
        """Id of the newest request."""
        self._bad = 0
        """Lines that were nothing, since the last answer."""

    async def ask(self, request: Outgoing, send: Callable[[Mapping[str, Any]], None]) -> Reply:
        """Send `request` as a message and wait for its answer; a cancellation is sent to the far end.

        Raises what `Link.ask` raises.
        """
        message = self.enter(request)
        try:
            send(message)
            return await request.wait()
        except TypeError as error:
            raise ToolFailure("invalid_arguments", f"the arguments cannot be written as JSON: {error}") from error
        except anyio.get_cancelled_exc_class():
            request.drop()
            if request.id in self.pending and request.method != "initialize":
                self._link.tell("notifications/cancelled", {"requestId": request.id, "reason": "no longer wanted"})
            raise
        finally:
            self.leave(request)

    def enter(self, request: Outgoing) -> Mapping[str, Any]:
        """Give `request` its id and return it as a message."""
        self.last += 1
        self.pending[self.last] = request
        return request.assign(self.last)

    def leave(self, request: Outgoing) -> None:
        """Take `request` out; an answer that still comes is ignored."""
        self.pending.pop(request.id, None)

    def receive(self, line: bytes | SpooledMessage, owner: Outgoing | None = None) -> None:
        """Take one message in; `owner` is the call that a message of the server's own belongs to, if that is known."""
        if isinstance(line, SpooledMessage):
            if not line.is_parsed or request_number(id_of_big(line)) in self.pending:
                self._receive_big(line)
                return
            line = _taken(line)
        try:
            message = decode(line)
        except ValueError as error:
            self._receive_broken(line, error)
            return
        for one in messages_in(message):
            try:
                self._dispatch(one, owner)
            except Exception:  # one message never ends the connection
                _logger.exception("a message of a server could not be handled")
                self.count_bad()

    def count_bad(self, number: int = 1) -> None:
        """Count what was nothing; beyond the limit the connection has to go."""
        self._bad += number
        if self._bad > self._limits.bad_messages:
            self._flooded(f"sent {self._bad} lines that are not messages or answer nothing")

    def fail(self, reason: str, written: Callable[[Outgoing], bool]) -> None:
        """End every request in flight: the connection is gone."""
        for request in list(self.pending.values()):
            request.settle(LinkLost(reason, written=written(request)))
        self.pending.clear()

    def _dispatch(self, message: Any, owner: Outgoing | None) -> None:
        members = as_mapping(message)
        if "method" in members:
            if "id" in members:
                self._inbound.on_request(self._link, members, owner)
            else:
                self._inbound.on_notification(self._link, members, owner)
        elif "id" in members and not members.keys().isdisjoint(_ANSWERS):
            self._settle(members["id"], outcome_of(members))
        else:
            self.count_bad()

    def _settle(self, key: Any, outcome: Reply | Exception) -> None:
        number = request_number(key)
        request = self.pending.pop(number, None) if number is not None else None
        if request is not None:
            self._bad = 0
            request.settle(outcome)
            return
        if isinstance(outcome, SpooledMessage):
            outcome.discard()
        if number is None or not 0 < number <= self.last:
            self.count_bad()

    def _receive_broken(self, line: bytes, error: ValueError) -> None:
        key = request_number(id_of_broken(line, error))
        if key in self.pending:
            self._settle(key, broken_answer(error))
        self.count_bad()

    def _receive_big(self, big: SpooledMessage) -> None:
        key = id_of_big(big)
        if key is None:
            big.discard()
            self.count_bad()
        else:
            self._settle(key, big)
