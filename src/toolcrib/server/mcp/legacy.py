"""The handshake era (revisions up to 2025-11-25): a session that begins with `initialize`.

A session holds what the client said once and for all, its running calls, and the questions it was asked. It does not
know how bytes travel: an `Exchange` carries what belongs to a request, `outlet` what belongs to none.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, cast

import anyio

from ...core.json import dumps
from ...core.result import ToolResult
from ...errors import ToolFailure
from ...mcp.jsonrpc import (
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LOG_LEVELS,
    METHOD_NOT_FOUND,
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
from ...mcp.server.admission import Overloaded
from ...mcp.server.client import is_wanted, needed, refused, supports
from ...mcp.server.exchange import Exchange
from .approving import ClientApprover
from .calls import ToolCall, read_call, result_body
from .desk import DeskSession
from .news import UPDATED, News, Watches
from .service import Service, capabilities, overloaded
from .shelf import (
    ERRANDS,
    LISTS,
    SKILL_METHODS,
    SKILL_SETTINGS,
    SKILLS,
    Errand,
    complete,
    errand_body,
    list_body,
    read_errand,
    skills_body,
)
from .tasks import task_of
from .tasks_legacy import CAPABILITY, METHODS, LegacyTasks, marked, wants_task

__all__ = ["LegacySession", "Outlet"]

_ROUNDS: Final = 8
"""How often one call may ask for input before it is given up."""

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


class _Handler(Protocol):
    async def __call__(self, request: Request, exchange: Exchange, /) -> bytes: ...


class LegacySession:
    """One session. Lives from `initialize` to `close`."""

    def __init__(self, service: Service, *, principal: str, profile: str, mode: str, instance: str = "") -> None:
        """Raise `UsageError` for a profile or mode that does not exist."""
        self.service = service
        self.principal = principal
        self.instance = instance
        self.key = secrets.token_hex(8)
        self.caller = f"{principal}\0{self.key}"
        self.version = HANDSHAKE_VERSIONS[-1]
        self.capabilities: Mapping[str, Any] = {}
        self.log_level = LOG_LEVELS[0]
        self.outlet: Outlet | None = None
        """Where messages go that belong to no request; None while the client listens nowhere."""
        self._hang_up: Callable[[], None] | None = None
        self.running: dict[Id, Exchange] = {}
        self._questions: dict[Id, _Question] = {}
        self._asked = 0
        self._desk: DeskSession = service.desk.session(
            key=self.key,
            principal=principal,
            profile=profile,
            mode=mode,
            approver=ClientApprover(),
            grows=None,
            for_client=True,
            instance=instance,
        )
        self._news = News(self._desk, {"tools": True, "prompts": True, "resources": True})
        self._watches = Watches(self._desk, self.refresh)
        self._unsubscribe = service.subscribe(self.refresh)
        self._tasks = LegacyTasks(service.desk.jobs, principal, self._tell)
        self._handlers: Mapping[str, _Handler] = {
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
            "prompts/get": self._call,
            **dict.fromkeys(LISTS, self._list_offered),
            "resources/read": self._call,
            "resources/subscribe": self._watch,
            "resources/unsubscribe": self._watch,
            **dict.fromkeys(SKILL_METHODS, self._skills),
            "ping": self._ping,
            "tools/call": self._call,
            "tools/list": self._list,
        }

    def initialize(self, request: Request) -> bytes:
        """Take the client's declaration and return the result's body. Raises `RpcError` with INVALID_PARAMS."""
        wanted, declared = request.params.get("protocolVersion"), request.params.get("capabilities", {})
        if not isinstance(wanted, str) or not isinstance(declared, dict):
            raise RpcError(
                INVALID_PARAMS, 'Invalid params: "protocolVersion" must be a string and "capabilities" an object'
            )
        self.version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        self.capabilities = cast("Mapping[str, Any]", declared)
        has: dict[str, Any] = {**capabilities(), "extensions": {SKILLS: SKILL_SETTINGS}}
        has |= {"tasks": CAPABILITY} if self.version == TASKS_VERSION else {}
        shown = {"protocolVersion": self.version, "capabilities": has, "serverInfo": self.service.info}
        if self._desk.instructions:
            shown["instructions"] = self._desk.instructions
        if servers := self._desk.servers:
            shown["_meta"] = {SERVERS_KEY: servers}
        return dumps(shown)

    async def request(self, request: Request, exchange: Exchange) -> bytes:
        """Do what is asked and return the result's body. Raises `RpcError`."""
        handler = self._handlers.get(request.method)
        if handler is None and request.method in METHODS and self.version == TASKS_VERSION:
            handler = self._task
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")
        if request.id in self.running:
            raise RpcError(INVALID_REQUEST, "Invalid request: a request with this id is still running")
        self.running[request.id] = exchange
        try:
            return await handler(request, exchange)
        finally:
            del self.running[request.id]

    def notification(self, message: Notification) -> None:
        """Take note of what the client tells; `notifications/cancelled` ends the running request it names."""
        if message.method == "notifications/cancelled":
            target = message.params.get("requestId")
            exchange = self.running.get(target) if isinstance(target, str | int) else None
            if exchange is not None:
                exchange.withdraw()

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

    def refresh(self) -> None:
        """Tell the client when what it would be listed now differs from what it was listed or told of before."""
        if self.outlet is None or self.service.stopping.is_set():
            return
        for method in self._news.take():
            self.outlet(notification_message(method))
        for uri in self._watches.take():
            self.outlet(notification_message(UPDATED, {"uri": uri}))

    def close(self) -> None:
        """End what runs; nothing is sent any more."""
        self._unsubscribe()
        self._tasks.close()
        if len(self._watches):
            self.service.spawn(self._watches.close)
        if self._hang_up is not None:
            self._hang_up()
        for exchange in tuple(self.running.values()):
            exchange.withdraw()
        for question in tuple(self._questions.values()):
            question.settle(None)

    async def ask(self, exchange: Exchange, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client something in the middle of `exchange`. Raises `ToolFailure`."""
        if not supports(self.capabilities, needed(method, params)):
            raise ToolFailure("unavailable", f"the client did not declare what {method} takes")
        self._asked += 1
        question_id = f"toolcrib-{self._asked}"
        question = self._questions[question_id] = _Question()
        try:
            async with self.service.gate.outside():
                await exchange.ask(request_message(question_id, method, params))
                await question.answered.wait()
        except BaseException:
            await _take_back(exchange, question_id)
            raise
        finally:
            del self._questions[question_id]
        if question.answer is None:
            raise ToolFailure("unavailable", f"the client went away while it was asked {method}")
        if question.answer.error is not None:
            raise refused(method, question.answer.error)
        return question.answer.result

    async def _ping(self, request: Request, exchange: Exchange) -> bytes:
        return b"{}"

    async def _set_level(self, request: Request, exchange: Exchange) -> bytes:
        level = request.params.get("level")
        if level not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f'Invalid params: "level" must be one of {", ".join(LOG_LEVELS)}')
        self.log_level = level
        return b"{}"

    async def _list(self, request: Request, exchange: Exchange) -> bytes:
        if request.params.get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, 'Invalid params: "cursor" is not ours; the list has one page')
        await self.service.warm()
        self._news.saw("tools")
        listing = self._desk.listing
        shown = listing if self.version != TASKS_VERSION else marked(listing, self._desk.tools)
        return b'{"tools":%b}' % shown

    async def _call(self, request: Request, exchange: Exchange) -> bytes:
        is_errand = request.method in ERRANDS
        read = partial(read_errand, request) if is_errand else partial(read_call, request.params)
        call = read(log_level=self.log_level)
        if not is_errand and self.version == TASKS_VERSION and wants_task(request.params):
            call = replace(call, takes_task=True, background=True)
        peer = _Peer(self, exchange)
        try:
            result = await self._run(call, peer)
        except Overloaded:
            exchange.is_overloaded = True
            result = overloaded()
        self.refresh()
        if call.takes_task and (task := task_of(result)):
            self.service.spawn(lambda: self._tasks.follow(task, call))
            return await self._tasks.created(task)
        return errand_body(call, result, modern=False) if is_errand else result_body(result, modern=False)

    async def _list_offered(self, request: Request, exchange: Exchange) -> bytes:
        await self.service.warm()
        self._news.saw("prompts" if request.method == "prompts/list" else "resources")
        return list_body(request, self._desk.shelf.offer, {})

    async def _skills(self, request: Request, exchange: Exchange) -> bytes:
        await self.service.warm()
        return skills_body(request, self._desk.shelf, {})

    async def _complete(self, request: Request, exchange: Exchange) -> bytes:
        return await complete(request, self._desk, {})

    async def _watch(self, request: Request, exchange: Exchange) -> bytes:
        uri = request.params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, 'Invalid params: "uri" must be a string')
        await (self._watches.add(uri) if request.method == "resources/subscribe" else self._watches.remove(uri))
        return b"{}"

    async def _task(self, request: Request, exchange: Exchange) -> bytes:
        return await self._tasks.answer(request.method, request.params, exchange)

    def _tell(self, message: bytes) -> None:
        if self.outlet is not None:
            self.outlet(message)

    async def _run(self, call: ToolCall, peer: _Peer) -> ToolResult:
        """Run the call; what a tool of the stateless era wants to know first, the client is asked here."""
        resume: dict[str, Any] | None = None
        for _ in range(_ROUNDS):
            desk = Errand(self._desk) if call.method in ERRANDS else self._desk
            result = await self.service.run(desk, self.caller, call, peer, resume)
            if result.input_required is None:
                return result
            try:
                resume = await _answers(result.input_required, peer.request)
            except ToolFailure as failure:
                return ToolResult.of_failure(failure)
        return ToolResult.failed("tool_error", f"the tool asked for input {_ROUNDS} times and did not finish")


class _Peer:
    """The client, as the tool of one call sees it."""

    __slots__ = ("_exchange", "_session")

    def __init__(self, session: LegacySession, exchange: Exchange) -> None:
        self._session = session
        self._exchange = exchange

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._session.capabilities

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        if is_wanted(method, params, self._session.log_level):
            await self._exchange.tell(notification_message(method, params))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._session.ask(self._exchange, method, params)


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


async def _take_back(exchange: Exchange, question_id: str) -> None:
    """Tell the client that nobody waits for its answer any more, if it can still be told."""
    with anyio.move_on_after(1, shield=True):
        await exchange.tell(notification_message("notifications/cancelled", {"requestId": question_id}))
