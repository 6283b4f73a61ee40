"""The handshake era (revisions up to 2025-11-25): a session that begins with `initialize`.

A session holds what the client declared at its beginning, its running calls, and the questions it was asked. It does
not know how bytes travel: an `Exchange` carries what belongs to a request, `outlet` what belongs to none.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import anyio
from msgspec.structs import replace

from ...core.json import dumps
from ...core.result import ToolResult
from ...errors import ToolFailure
from ..jsonrpc import (
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LATEST_HANDSHAKE,
    LOG_LEVELS,
    SERVERS_KEY,
    TASKS_VERSION,
    Id,
    Notification,
    Request,
    Response,
    RpcError,
    notification_message,
    request_message,
)
from .admission import Overloaded
from .backend import BackendSession, SessionRequest, Tasks
from .calls import CAPABILITY, ToolCall, client_name, handshake_listing, read_call, result_body, wants_task
from .dispatch import SHARED, UPDATED, Client, Handler, ListChanges, ResourceWatches, dispatch
from .exchange import Exchange, is_wanted, needed, refused, supports, take_notification
from .resources import SKILL_SETTINGS, SKILLS, read_resource_call, resource_body
from .service import Service, capabilities, overloaded

_logger = logging.getLogger(__name__)

_ROUNDS: Final = 8
"""Highest number of requests for input in one call; after them it is given up."""

Outlet = Callable[[bytes], object]
"""Takes a message that belongs to no request; never blocks, drops what the client does not take."""


class _Question:
    """Something the client was asked; answered once."""

    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.answer: Response | None = None

    def settle(self, answer: Response | None) -> None:
        self.answer = answer
        self.answered.set()


class LegacySession:
    """One session. Lives from `initialize` to `close`.

    Owned by its transport: the `Connection` of a pipe, or the `SessionTable` over HTTP, which closes it when it was
    idle for too long. Several requests run in it at a time. A message that belongs to no request goes to `outlet`, and
    is dropped while the client listens to none.
    """

    def __init__(
        self,
        service: Service,
        *,
        principal: str,
        profile: str,
        mode: str,
        instance: str = "",
        conversation: str = "",
    ) -> None:
        """`conversation` is the key of one that outlives this process. Raises `UsageError` for an unknown profile."""
        self.service = service
        self.principal = principal
        self.instance = instance
        self.key = conversation or secrets.token_hex(8)
        self._question_prefix = f"toolcrib-{secrets.token_hex(4)}"
        """Unlike that of an earlier process: the client may answer its questions late."""
        self.caller = f"{principal}\0{self.key}"
        self.version = LATEST_HANDSHAKE
        self.capabilities: Mapping[str, Any] = {}
        self.client = ""
        self.log_level = LOG_LEVELS[0]
        self.outlet: Outlet | None = None
        """Outlet for messages that belong to no request; None while the client does not listen."""
        self._hang_up: Callable[[], None] | None = None
        self.running: dict[Id, Exchange] = {}
        self._questions: dict[Id, _Question] = {}
        self._asked = 0
        self.session: BackendSession = service.backend.open_session(
            SessionRequest(
                key=self.key,
                principal=principal,
                profile=profile,
                mode=mode,
                instance=instance,
                is_stateless=False,
                is_shared=False,
                is_resumable=bool(conversation),
            )
        )
        self.changes = ListChanges(self.session, {"tools": True, "prompts": True, "resources": True})
        self.watches = ResourceWatches(self.session, self.refresh)
        self._unsubscribe = service.subscribe(self.refresh)
        self.tasks = service.backend.session_tasks(principal, self._notify)

    def initialize(self, request: Request) -> bytes:
        """Take the client's declaration and return the result's body. Raises `RpcError` with INVALID_PARAMS."""
        wanted, declared = request.params.get("protocolVersion"), request.params.get("capabilities", {})
        if not isinstance(wanted, str) or not isinstance(declared, dict):
            raise RpcError(
                INVALID_PARAMS, 'Invalid params: "protocolVersion" must be a string and "capabilities" an object'
            )
        self.version = wanted if wanted in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE
        self.capabilities = cast("Mapping[str, Any]", declared)
        self.client = client_name(request.params.get("clientInfo"))
        _logger.info("client %s connected, for %s", self.client or "without a name", self.principal)
        has: dict[str, Any] = {**capabilities(self.session.resources), "extensions": {SKILLS: SKILL_SETTINGS}}
        # Only declared capabilities may notify: without resources now, their later changes are not announced.
        self.changes = ListChanges(self.session, {"tools": True, "prompts": True, "resources": "resources" in has})
        has |= {"tasks": CAPABILITY} if self.version == TASKS_VERSION else {}
        shown = {"protocolVersion": self.version, "capabilities": has, "serverInfo": self.service.info}
        if self.session.instructions:
            shown["instructions"] = self.session.instructions
        if servers := self.session.servers:
            shown["_meta"] = {SERVERS_KEY: servers}
        return dumps(shown)

    async def request(self, request: Request, exchange: Exchange) -> bytes | None:
        """Do what is asked and return the result's body. Raises `RpcError`."""
        if request.id in self.running:
            raise RpcError(INVALID_REQUEST, "Invalid request: a request with this id is still running")
        self.running[request.id] = exchange
        methods = _METHODS_WITH_TASKS if self.version == TASKS_VERSION else _METHODS
        try:
            return await dispatch(methods, request, LegacyClient(self, exchange))
        finally:
            del self.running[request.id]

    def notification(self, message: Notification) -> None:
        """Take a notification of the client."""
        take_notification(message, self.running)

    def response(self, message: Response) -> None:
        """Take the client's answer to something we asked; answers to nothing are ignored."""
        question = self._questions.get(message.id)
        if question is not None:
            question.settle(message)

    def listen(self, outlet: Outlet, hang_up: Callable[[], None]) -> Callable[[], None]:
        """Send what belongs to no request to `outlet` from now on; returns how to stop.

        `hang_up` is called when another listener takes its place, and when the session ends.
        """
        if self._hang_up is not None:
            self._hang_up()
        self.outlet, self._hang_up = outlet, hang_up

        def stop() -> None:
            if self._hang_up is hang_up:
                self.outlet = self._hang_up = None

        return stop

    def catch_up(self) -> None:
        """Notify the client of what changed since it was listed: events have no ids by which a stream is resumed."""
        self.changes.repeat()
        self.refresh()

    def refresh(self) -> None:
        """Notify the client when its listing would now differ from the last one that it got or was notified of."""
        if self.outlet is None or self.service.stopping.is_set():
            return
        for method in self.changes.take():
            self.outlet(notification_message(method))
        for uri in self.watches.take():
            self.outlet(notification_message(UPDATED, {"uri": uri}))

    def close(self) -> None:
        """End what runs; nothing is sent any more."""
        _logger.info("client %s left", self.client or "without a name")
        self._unsubscribe()
        self.tasks.close()
        if len(self.watches):
            self.service.spawn(self.watches.close)
        if self._hang_up is not None:
            self._hang_up()
        for exchange in tuple(self.running.values()):
            exchange.withdraw()
        for question in tuple(self._questions.values()):
            question.settle(None)

    async def ask(self, exchange: Exchange, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client something in the middle of `exchange`. Raises `ToolFailure`.

        Waits without a limit of its own: the timeout of the call, its withdrawal and the end of the session end it.
        """
        if not supports(self.capabilities, needed(method, params)):
            raise ToolFailure("unavailable", f"the client did not declare what {method} takes")
        self._asked += 1
        question_id = f"{self._question_prefix}-{self._asked}"
        question = self._questions[question_id] = _Question()
        try:
            async with self.service.admission.outside():
                await exchange.ask(request_message(question_id, method, params))
                await question.answered.wait()
        except BaseException:
            with anyio.move_on_after(1, shield=True):  # the connection may take no messages any more
                await exchange.tell(notification_message("notifications/cancelled", {"requestId": question_id}))
            raise
        finally:
            del self._questions[question_id]
        if question.answer is None:
            raise ToolFailure("unavailable", f"the client went away while it was asked {method}")
        if question.answer.error is not None:
            raise refused(method, question.answer.error)
        return question.answer.result

    def _notify(self, message: bytes) -> None:
        if self.outlet is not None:
            self.outlet(message)


class LegacyClient(Client):
    """The client of one request in a session; the `Peer` of the call that the request runs."""

    __slots__ = ("_session",)

    def __init__(self, session: LegacySession, exchange: Exchange) -> None:
        super().__init__(session.service, exchange)
        self._session = session

    @property
    def session(self) -> BackendSession:
        """The conversation of the session."""
        return self._session.session

    @property
    def listing(self) -> bytes:
        """Tool definitions, as the revision of the client has them."""
        session = self._session.session
        return handshake_listing(session.listing, session.tools, self._session.version)

    @property
    def tasks(self) -> Tasks:
        """Tasks of the session's principal."""
        return self._session.tasks

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Capabilities that the client declared in `initialize`."""
        return self._session.capabilities

    @property
    def takes_requests(self) -> bool:
        """True: the client is asked in the middle of its request."""
        return True

    def head(self, fresh_ms: int | None = None) -> dict[str, Any]:
        """Return no members: results of this era have none in common."""
        return {}

    def mark_listed(self, kind: str) -> None:
        """Send no notification for what the client receives now."""
        self._session.changes.saw(kind)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification that belongs to the request."""
        if is_wanted(method, params, self._session.log_level):
            await self.exchange.tell(notification_message(method, params))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client in the middle of the request. Raises `ToolFailure`."""
        return await self._session.ask(self.exchange, method, params)

    async def set_log_level(self, request: Request) -> bytes:
        """Answer `logging/setLevel`. Raises `RpcError`."""
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f'Invalid params: "level" must be one of {", ".join(LOG_LEVELS)}')
        self._session.log_level = level
        return b"{}"

    async def watch(self, request: Request) -> bytes:
        """Answer `resources/subscribe` and `resources/unsubscribe`. Raises `RpcError`."""
        uri = request.params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, 'Invalid params: "uri" must be a string')
        watches = self._session.watches
        await self.service.warm()
        await (watches.add(uri) if request.method == "resources/subscribe" else watches.remove(uri))
        return b"{}"

    async def call(self, request: Request) -> bytes:
        """Run the call and return the body of its result, or of its task."""
        session = self._session
        is_tool = request.method == "tools/call"
        read = partial(read_call, request.params) if is_tool else partial(read_resource_call, request)
        call = read(log_level=session.log_level, client=session.client, exchange=self.exchange)
        if is_tool and session.version == TASKS_VERSION and wants_task(request.params):
            call = replace(call, takes_task=True, background=True)
        try:
            result = await self._run(call)
        except Overloaded:
            self.exchange.is_overloaded = True
            result = overloaded()
        session.refresh()
        if call.takes_task and (task := session.tasks.task_of(result)):
            self.service.spawn(lambda: session.tasks.follow(task, call.progress_token))
            return await session.tasks.created(task)
        return result_body(result, modern=False) if is_tool else resource_body(call, result, modern=False)

    async def _run(self, call: ToolCall) -> ToolResult:
        """Run the call; questions of a tool of the stateless era are put to the client here."""
        resume: dict[str, Any] | None = None
        for _ in range(_ROUNDS):
            result = await self.service.run(self.session, self._session.caller, call, self, resume)
            if result.input_required is None:
                return result
            try:
                resume = await _answers(result.input_required, self.request)
            except ToolFailure as failure:
                return ToolResult.of_failure(failure)
        return ToolResult.failed("tool_error", f"the tool asked for input {_ROUNDS} times and did not finish")


async def _ping(request: Request, client: LegacyClient) -> bytes:
    return b"{}"


async def _set_log_level(request: Request, client: LegacyClient) -> bytes:
    return await client.set_log_level(request)


async def _watch(request: Request, client: LegacyClient) -> bytes:
    return await client.watch(request)


_METHODS_WITH_TASKS: Final[Mapping[str, Handler[LegacyClient]]] = {
    **SHARED,
    "logging/setLevel": _set_log_level,
    "ping": _ping,
    "resources/subscribe": _watch,
    "resources/unsubscribe": _watch,
    "tasks/list": SHARED["tasks/get"],
    "tasks/result": SHARED["tasks/get"],
}
_METHODS: Final = {method: run for method, run in _METHODS_WITH_TASKS.items() if not method.startswith("tasks/")}


async def _answers(
    asked: Mapping[str, Any], ask: Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Ask everything in an `input_required` result, in its order, and return what the retry carries."""
    answers: dict[str, Any] = {}
    questions = cast("Mapping[str, Mapping[str, Any]]", asked.get("inputRequests") or {})
    for key, question in questions.items():
        answers[key] = await ask(question["method"], question.get("params") or {})
    resume: dict[str, Any] = {"inputResponses": answers}
    if asked.get("requestState") is not None:
        resume["requestState"] = asked["requestState"]
    return resume
