"""The stateless era (revision 2026-07-28): every request says what it needs, and nothing outlives it but on purpose.

What may outlive a request: a conversation's state at the desk (by principal and the key that the client names), and a
call that waits in memory because the client has to be asked (`parked`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from ...core.json import dumps
from ...core.result import ToolResult
from ...mcp.jsonrpc import (
    CAPABILITIES_KEY,
    INVALID_PARAMS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    METHOD_NOT_FOUND,
    MODERN_VERSIONS,
    SERVER_INFO_KEY,
    SERVERS_KEY,
    SUBSCRIPTION_KEY,
    TASKS_EXTENSION,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    Request,
    RpcError,
)
from ...mcp.server.admission import Overloaded
from ...mcp.server.client import missing_capability, missing_downstream, needed, supports
from ...mcp.server.exchange import Exchange
from ...mcp.server.signed_state import InvalidState, binding
from ...mcp.server.suspended_calls import SuspendableCall, input_required
from .calls import ToolCall, read_call, result_body
from .news import announce
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
from .tasks import ModernTasks, takes_tasks, task_of

__all__ = ["Envelope", "ModernServer", "read_envelope", "unsupported_version"]

_logger = logging.getLogger(__name__)

_DISCOVERY_MS: Final = 3_600_000
_STATE: Final = "state"
_CALL: Final = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What a request says about itself in `_meta`."""

    version: str
    capabilities: Mapping[str, Any]
    log_level: str | None
    """None: the client wants no log messages for this request."""


def unsupported_version(requested: str) -> RpcError:
    """Return the error that names the revisions we have."""
    data = {"supported": list(MODERN_VERSIONS), "requested": requested[:100]}
    return RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def read_envelope(params: Mapping[str, Any]) -> Envelope:
    """Read the envelope; the version is not judged. Raises `RpcError` with INVALID_PARAMS, naming what is missing."""
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        raise RpcError(INVALID_PARAMS, f'Invalid params: "_meta" must hold {VERSION_KEY} and {CAPABILITIES_KEY}')
    meta = cast("dict[str, Any]", meta)
    version, declared, level = meta.get(VERSION_KEY), meta.get(CAPABILITIES_KEY), meta.get(LOG_LEVEL_KEY)
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f'Invalid params: "_meta" must hold {VERSION_KEY}, a string')
    if not isinstance(declared, dict):
        raise RpcError(INVALID_PARAMS, f'Invalid params: "_meta" must hold {CAPABILITIES_KEY}, an object')
    if level is not None and level not in LOG_LEVELS:
        raise RpcError(INVALID_PARAMS, f"Invalid params: {LOG_LEVEL_KEY} must be one of {', '.join(LOG_LEVELS)}")
    return Envelope(version=version, capabilities=cast("Mapping[str, Any]", declared), log_level=level)


class _Handler(Protocol):
    async def __call__(self, request: Request, envelope: Envelope, exchange: Exchange, /) -> bytes | None: ...


class ModernServer:
    """Serves requests of one principal at one profile. Holds no state of any single client but the name of its talk."""

    def __init__(
        self, service: Service, *, principal: str, profile: str, mode: str, instance: str = "", talk: str = ""
    ) -> None:
        """`talk` is the conversation of a request that names none: that of its connection, where it has one."""
        self.service = service
        self.principal = principal
        self._place = (principal, profile, mode, instance)
        self._talk = talk
        self._stamp = {SERVER_INFO_KEY: service.info}
        self._tasks = ModernTasks(service.desk.jobs, principal, self._stamp)
        self._handlers: Mapping[str, _Handler] = {
            "completion/complete": self._complete,
            **dict.fromkeys(ERRANDS, self._call),
            **dict.fromkeys(LISTS, self._list_offered),
            "server/discover": self._discover,
            **dict.fromkeys(SKILL_METHODS, self._skills),
            "subscriptions/listen": self._listen,
            "tasks/cancel": self._task,
            "tasks/get": self._task,
            "tasks/update": self._task,
            "tools/call": self._call,
            "tools/list": self._list,
        }

    async def request(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes | None:
        """Do what is asked and return the result's body; None when the exchange was answered already.

        Raises `RpcError`, and `UsageError` for a profile or mode that does not exist.
        """
        if envelope.version not in MODERN_VERSIONS:
            raise unsupported_version(envelope.version)
        handler = self._handlers.get(request.method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")
        return await handler(request, envelope, exchange)

    async def _discover(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes:
        shown: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": {**capabilities(), "extensions": {TASKS_EXTENSION: {}, SKILLS: SKILL_SETTINGS}},
            "ttlMs": _DISCOVERY_MS if self.service.fresh_ms else 0,  # instructions of servers are still to come
            "cacheScope": "private",
            "_meta": self._stamp,
        }
        session = self.service.talks.get(*self._place, self._talk)
        if session.instructions:
            shown["instructions"] = session.instructions
        if servers := session.servers:
            shown["_meta"] = {**self._stamp, SERVERS_KEY: servers}
        return dumps(shown)

    async def _list(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes:
        if request.params.get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, 'Invalid params: "cursor" is not ours; the list has one page')
        await self.service.warm()
        head = self._head(self.service.fresh_ms)
        return b'%b,"tools":%b}' % (dumps(head)[:-1], self.service.talks.get(*self._place, self._talk).listing)

    def _head(self, fresh_ms: int) -> dict[str, Any]:
        return {"resultType": "complete", "ttlMs": fresh_ms, "cacheScope": "private", "_meta": self._stamp}

    async def _list_offered(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes:
        await self.service.warm()
        offer = self.service.talks.get(*self._place, self._talk).shelf.offer
        return list_body(request, offer, self._head(self.service.fresh_ms))

    async def _skills(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes:
        await self.service.warm()
        shelf = self.service.talks.get(*self._place, self._talk).shelf
        return skills_body(request, shelf, self._head(self.service.fresh_ms))

    async def _complete(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes:
        head = {"resultType": "complete", "_meta": self._stamp}
        return await complete(request, self.service.talks.get(*self._place, self._talk), head)

    async def _task(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes:
        return await self._tasks.answer(request.method, request.params, envelope.capabilities)

    async def _call(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes | None:
        if request.method in ERRANDS:
            call = read_errand(request)
        else:
            call = replace(read_call(request.params), takes_task=takes_tasks(envelope.capabilities))
        resume: dict[str, Any] | None = None
        if call.request_state is not None:
            kind, state = self._open(call)
            if kind == _CALL:
                return await self._resume(state, call, envelope, exchange)
            resume = {"inputResponses": call.input_responses, "requestState": state}
        elif call.input_responses:
            resume = {"inputResponses": call.input_responses}
        talk = call.session_key or self._talk
        session = self.service.talks.get(*self._place, talk)
        desk = Errand(session) if call.method in ERRANDS else session
        live = SuspendableCall(self.service.lot, exchange, envelope, self._sealed_handle(call))
        caller = f"{self.principal}\0{self._place[3]}\0{talk}"

        async def work() -> bytes:
            try:
                result = await self.service.run(desk, caller, call, live, resume)
            except Overloaded:
                exchange.is_overloaded = True
                result = overloaded()
            if call.takes_task and (task := task_of(result)):
                return await self._tasks.created(task)
            return self._body(call, result, live)

        return await live.run(work)

    def _open(self, call: ToolCall) -> tuple[str, str]:
        try:
            return self.service.sealer.open(call.request_state or "", self._bound(call))
        except InvalidState as reason:
            _logger.warning("requestState refused: %s", reason)
            data = {"reason": "invalid_request_state"}
            raise RpcError(INVALID_PARAMS, "Invalid or expired requestState", data) from None

    def _bound(self, call: ToolCall) -> bytes:
        return binding(self.principal, call.name, call.arguments)

    def _sealed_handle(self, call: ToolCall) -> Callable[[str], str]:
        return lambda handle: self.service.sealer.seal(_CALL, handle, self._bound(call))

    async def _resume(self, handle: str, call: ToolCall, envelope: Envelope, exchange: Exchange) -> None:
        live = self.service.lot.take(handle)
        if live is None:
            raise RpcError(INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"})
        await live.resume(exchange, envelope, call.input_responses)

    def _body(self, call: ToolCall, result: ToolResult, live: SuspendableCall) -> bytes:
        """Return the result's body. Raises `RpcError` when the client lacks what the tool needed."""
        if result.input_required is not None:
            return self._ask(call, result.input_required, live.capabilities)
        missing = live.missing or missing_downstream(result)
        if result.is_error and missing:
            raise missing_capability(missing)
        if call.method in ERRANDS:
            return errand_body(call, result, modern=True, stamp=self._stamp)
        return result_body(result, modern=True, stamp=self._stamp)

    def _ask(self, call: ToolCall, asked: Mapping[str, Any], declared: Mapping[str, Any]) -> bytes:
        """Pass a tool's own questions on; its state is sealed, so that it comes back to that tool unchanged."""
        questions = cast("Mapping[str, Mapping[str, Any]]", asked.get("inputRequests") or {})
        for question in questions.values():
            wanted = needed(question["method"], question.get("params") or {})
            if not supports(declared, wanted):
                raise missing_capability(wanted)
        state = asked.get("requestState")
        sealed = None if state is None else self.service.sealer.seal(_STATE, state, self._bound(call))
        return input_required(questions, sealed, self._stamp)

    async def _listen(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes:
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise RpcError(INVALID_PARAMS, 'Invalid params: "notifications" must be an object')
        meta = {SUBSCRIPTION_KEY: request.id}
        with self.service.streaming():
            talk = self.service.talks.get(*self._place, self._talk)
            await announce(self.service, talk, exchange, cast("dict[str, Any]", wanted), meta)
        return dumps({"resultType": "complete", "_meta": {**self._stamp, **meta}})
