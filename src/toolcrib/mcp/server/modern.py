"""The stateless era (revision 2026-07-28): every request carries its own declarations.

Two things outlive a request, both bounded: a session in the `SessionCache` (by principal and the key that the client
names), and a `SuspendableCall` that waits for an answer of the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from ...core.json import dumps
from ...core.result import ToolResult
from ..jsonrpc import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    INVALID_PARAMS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
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
from .admission import Overloaded
from .backend import BackendSession, Tasks
from .calls import DECLARED, ToolCall, client_name, read_call, result_body, takes_tasks
from .dispatch import SHARED, Client, Handler, dispatch, serve_subscription
from .exchange import Exchange, missing_capability, missing_downstream, needed, supports
from .resources import SKILL_SETTINGS, SKILLS, read_resource_call, resource_body
from .service import Service, capabilities, overloaded
from .suspended_calls import Binding, InvalidState, SuspendableCall, binding, input_required

_logger = logging.getLogger(__name__)

_DISCOVERY_MS: Final = 3_600_000
_STATE: Final = "state"
_CALL: Final = "call"


class Envelope(Struct, frozen=True, kw_only=True):
    """Metadata of a request (`_meta`)."""

    version: str
    capabilities: Mapping[str, Any]
    log_level: str | None
    """None: the client wants no log messages for this request."""
    client: str = ""
    """See `calls.client_name`."""


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
    name = client_name(meta.get(CLIENT_INFO_KEY))
    return Envelope(version=version, capabilities=cast("Mapping[str, Any]", declared), log_level=level, client=name)


class ModernServer:
    """Requests of one principal at one profile. Holds no state of a client but the key of its conversation."""

    def __init__(
        self, service: Service, *, principal: str, profile: str, mode: str, instance: str = "", conversation: str = ""
    ) -> None:
        """`conversation` is the conversation of requests that name none: that of their connection, if it has one."""
        self.service = service
        self.principal = principal
        self.instance = instance
        self.conversation = conversation
        self.stamp = {SERVER_INFO_KEY: service.info}
        self._place = (principal, profile, mode, instance)

    def session(self, conversation: str = "") -> BackendSession:
        """Return a conversation, the connection's by default. Raises `UsageError` for an unknown profile or mode."""
        return self.service.sessions.get(*self._place, conversation or self.conversation)

    async def request(self, request: Request, envelope: Envelope, exchange: Exchange) -> bytes | None:
        """Do what is asked and return the result's body; None when the exchange was answered already.

        Raises `RpcError`, and `UsageError` for a profile or mode that does not exist.
        """
        if envelope.version not in MODERN_VERSIONS:
            raise unsupported_version(envelope.version)
        self.service.note_client(envelope.client, self.principal)
        return await dispatch(_METHODS, request, ModernClient(self, envelope, exchange))


class ModernClient(Client):
    """The client of one request, as the request's envelope declares it."""

    __slots__ = ("_envelope", "_server")

    def __init__(self, server: ModernServer, envelope: Envelope, exchange: Exchange) -> None:
        super().__init__(server.service, exchange)
        self._server = server
        self._envelope = envelope

    @property
    def session(self) -> BackendSession:
        """The conversation of the connection; over HTTP the one of all requests of the principal that name none."""
        return self._server.session()

    @property
    def listing(self) -> bytes:
        """JSON array of the tool definitions."""
        return self.session.listing

    @property
    def tasks(self) -> Tasks:
        """Tasks of the principal. Raises `RpcError` if the request does not declare the extension."""
        if not takes_tasks(self._envelope.capabilities):
            raise missing_capability(DECLARED)
        return self.service.backend.stateless_tasks(self._server.principal, self._server.stamp)

    def head(self, fresh_ms: int | None = None) -> dict[str, Any]:
        """Return `resultType`, `_meta` with the server's info, and how long the client may cache the result."""
        if fresh_ms is None:
            return {"resultType": "complete", "_meta": self._server.stamp}
        return {"resultType": "complete", "ttlMs": fresh_ms, "cacheScope": "private", "_meta": self._server.stamp}

    def mark_listed(self, kind: str) -> None:
        """Do nothing: a subscription of this era starts with its own snapshot."""

    def discover(self) -> bytes:
        """Return the body of `server/discover`."""
        # While sources connect, instructions of servers are still to come.
        shown = self.head(_DISCOVERY_MS if self.service.fresh_ms else 0)
        shown["supportedVersions"] = list(MODERN_VERSIONS)
        session = self.session
        has = capabilities(session.resources)
        shown["capabilities"] = {**has, "extensions": {TASKS_EXTENSION: {}, SKILLS: SKILL_SETTINGS}}
        if session.instructions:
            shown["instructions"] = session.instructions
        if servers := session.servers:
            shown["_meta"] = {**self._server.stamp, SERVERS_KEY: servers}
        return dumps(shown)

    async def listen(self, request: Request) -> bytes:
        """Serve `subscriptions/listen` until the service stops."""
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise RpcError(INVALID_PARAMS, 'Invalid params: "notifications" must be an object')
        meta = {SUBSCRIPTION_KEY: request.id}
        with self.service.streaming(self._server.principal):
            filters = cast("dict[str, Any]", wanted)
            await serve_subscription(self.service, self.session, self.exchange, filters, meta)
        return dumps({"resultType": "complete", "_meta": {**self._server.stamp, **meta}})

    async def call(self, request: Request) -> bytes | None:
        """Run or resume a call; None when its outcome went to another request.

        A retry brings the `requestState` of its question back. There are two kinds: `_CALL` is the handle of a call
        that waits in this process, `_STATE` the state of a tool whose own server ended the call with the question, so
        that the call is made again with the answers.
        """
        if request.method == "tools/call":
            call = read_call(request.params, exchange=self.exchange)
            call = replace(call, takes_task=takes_tasks(self._envelope.capabilities))
        else:
            call = read_resource_call(request, exchange=self.exchange)
        resume: dict[str, Any] | None = None
        if call.request_state is not None:
            kind, state = self._open(call)
            if kind == _CALL:
                return await self._resume(state, call)
            resume = {"inputResponses": call.input_responses, "requestState": state}
        elif call.input_responses:
            resume = {"inputResponses": call.input_responses}
        server = self._server
        conversation = call.session_key or server.conversation
        session = server.session(conversation)
        live = SuspendableCall(
            self.service.suspended,
            self.exchange,
            self._envelope,
            self._sealed_handle(call),
            principal=self._server.principal,
        )
        caller = f"{server.principal}\0{server.instance}\0{conversation}"

        async def work() -> bytes:
            try:
                result = await self.service.run(session, caller, call, live, resume)
            except Overloaded:
                self.exchange.is_overloaded = True
                result = overloaded()
            if call.takes_task and (task := self.tasks.task_of(result)):
                return await self.tasks.created(task)
            return self._body(call, result, live)

        return await live.run(work)

    def _open(self, call: ToolCall) -> tuple[str, str]:
        try:
            return self.service.signer.open(call.request_state or "", self._bound(call))
        except InvalidState as reason:
            _logger.warning("requestState refused: %s", reason)
            data = {"reason": "invalid_request_state"}
            raise RpcError(INVALID_PARAMS, "Invalid or expired requestState", data) from None

    def _bound(self, call: ToolCall) -> Binding:
        return binding(self._server.principal, call.name, call.arguments)

    def _sealed_handle(self, call: ToolCall) -> Callable[[str], str]:
        return lambda handle: self.service.signer.seal(_CALL, handle, self._bound(call))

    async def _resume(self, handle: str, call: ToolCall) -> None:
        live = self.service.suspended.take(handle)
        if live is None:
            raise RpcError(INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"})
        await live.resume(self.exchange, self._envelope, call.input_responses)

    def _body(self, call: ToolCall, result: ToolResult, live: SuspendableCall) -> bytes:
        """Return the result's body. Raises `RpcError` if the client lacks a capability that the tool needed."""
        if result.input_required is not None:
            return self._ask(call, result.input_required, live.capabilities)
        missing = live.missing or missing_downstream(result)
        if result.is_error and missing:
            raise missing_capability(missing)
        if call.method == "tools/call":
            return result_body(result, modern=True, stamp=self._server.stamp)
        return resource_body(call, result, modern=True, stamp=self._server.stamp)

    def _ask(self, call: ToolCall, asked: Mapping[str, Any], declared: Mapping[str, Any]) -> bytes:
        """Pass a tool's own questions on; its state is signed, so that it comes back to that tool unchanged."""
        questions = cast("Mapping[str, Mapping[str, Any]]", asked.get("inputRequests") or {})
        for question in questions.values():
            wanted = needed(question["method"], question.get("params") or {})
            if not supports(declared, wanted):
                raise missing_capability(wanted)
        state = asked.get("requestState")
        sealed = None if state is None else self.service.signer.seal(_STATE, state, self._bound(call))
        return input_required(questions, sealed, self._server.stamp)


async def _discover(request: Request, client: ModernClient) -> bytes:
    return client.discover()


async def _listen(request: Request, client: ModernClient) -> bytes:
    return await client.listen(request)


_METHODS: Final[Mapping[str, Handler[ModernClient]]] = {
    **SHARED,
    "server/discover": _discover,
    "subscriptions/listen": _listen,
    "tasks/update": SHARED["tasks/get"],
}
