"""REST of tools: the tools of a caller, and their calls, for programs without MCP.

    GET  /v1/tools[?limit=100&after=NAME]   definitions in the order of their names
    GET  /v1/tools/openapi.json             each tool as an operation, for programs that take OpenAPI
    GET  /v1/tools/{name}                   one definition
    POST /v1/tools/{name}                   call it; the body is the arguments, a JSON object

A call is that of an MCP client, by catalog names: the same identity, turn, rules and record. A caller cannot be
asked, so that a call which needs an answer waits for a person elsewhere (`approval_pending`) and is sent again. The
answer is the result as JSON, with the HTTP status of its error code; only a request that is not a call is answered with
problem details (RFC 9457).
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

import anyio

from ..core.json import MESSAGE_BYTES
from ..core.patterns import regex
from ..core.result import ToolResult
from ..core.tool import Tool
from ..disclosure.settings import BY_CATALOG
from ..errors import CODES, ToolFailure
from ..mcp.server.admission import Overloaded
from ..mcp.server.backend import BackendSession
from ..mcp.server.calls import ToolCall
from ..mcp.server.http_endpoint import CLOSE, RETRY
from ..mcp.server.http_messages import Headers, Receive, Send, trace_of
from ..mcp.server.service import Service, overloaded
from .openapi import describe_tools
from .request_checks import Caller, RequestLimits, instance_of
from .rest import Answer, Problem, not_allowed, read_object, respond

_PLACE: Final = "/v1/tools"
_DESCRIPTION: Final = "openapi.json"
_PAGE: Final = (100, 1000)
"""Definitions of one list: by default, and at most; also of a description at most."""
_LENGTH: Final = 255
"""Maximum characters of a key, a version and the name of a conversation; of a client's name too."""
_NUMBER: Final = regex(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_KEY: Final = regex(rf'("?)([!#-~]{{1,{_LENGTH}}})\1')


class ToolsApi:
    """Serves the routes above. Lives as long as the HTTP server."""

    def __init__(self, service: Service, edge: RequestLimits, identities: Mapping[str, tuple[str, str]]) -> None:
        """`identities`: profile and mode by principal, as in `HttpOptions`; the mode counts."""
        self._service = service
        self._edge = edge
        self._identities = identities

    def serves(self, path: str) -> bool:
        """Whether a path belongs to this API."""
        return path == _PLACE or path.startswith(f"{_PLACE}/")

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer any request."""
        await respond(scope, receive, send, self._answer)

    async def _answer(self, scope: Mapping[str, Any], receive: Receive) -> Answer:
        caller, headers = self._edge.admit(scope)
        name, method = scope["path"].removeprefix(_PLACE).removeprefix("/"), scope["method"]
        query = _query(scope["query_string"].decode("latin-1"))
        if method == "POST" and name not in ("", _DESCRIPTION):
            return await self._call(name, caller, headers, query, receive)
        if method != "GET":
            raise not_allowed(["GET"] if name in ("", _DESCRIPTION) else ["GET", "POST"])
        await self._service.warm()
        tools = self._session(caller, headers).tools
        if not name:
            return Answer(status=200, body=_page(tools, query))
        _take_nothing(query)
        if name == _DESCRIPTION:
            return Answer(status=200, body=_description(tools))
        called = self._service.backend.find_tool(name)  # by the name that the catalog has for it
        for tool in tools:
            if tool.name == name or (called and (tool.source, tool.local_name) == (called.source, called.local_name)):
                return Answer(status=200, body=tool.listed)
        raise Problem(404, "not_found", f"There is no tool {name[:100]!r}; GET {_PLACE} lists them")

    def _session(self, caller: Caller, headers: Headers, conversation: str = "") -> BackendSession:
        _, mode = self._identities.get(caller.principal, ("", ""))
        mode = mode or self._service.mode
        instance = instance_of(caller, headers)
        return self._service.sessions.get(caller.principal, BY_CATALOG, mode, instance, conversation)

    async def _call(
        self, name: str, caller: Caller, headers: Headers, query: dict[str, str], receive: Receive
    ) -> Answer:
        conversation = query.pop("session", "")
        options = _options(query, headers)
        session = self._session(caller, headers, conversation)
        arguments = await read_object(headers, receive, self._service.limits.patience, limit=MESSAGE_BYTES)
        asked: dict[str, Any] = {"input_responses": {}, "request_state": None, "origin": "rest", **options}
        call = ToolCall(name=name, arguments=arguments, **asked)
        turn = f"{caller.principal}\0{instance_of(caller, headers)}\0{conversation}"
        return _answer_of(await self._outcome(session, turn, call, receive))

    async def _outcome(self, session: BackendSession, turn: str, call: ToolCall, receive: Receive) -> ToolResult:
        """Return the outcome of the call, `cancelled` when its caller went away. Raises `Problem` at the stop."""
        if self._service.stopping.is_set():
            raise _stopping()
        result = ToolResult.failed("cancelled", "the caller went away")

        async def cancel_when_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                if not call.idempotency_key:  # with a key it runs on, and the repeat has its outcome
                    tasks.start_soon(cancel_when_gone)
                try:
                    result = await self._service.run(session, turn, call, _Unreachable(), None)
                except Overloaded:
                    result = overloaded()
                tasks.cancel_scope.cancel()
        except asyncio.CancelledError:
            if not self._service.stopping.is_set():
                raise
            raise _stopping() from None  # the end of the drain, in place of the web server's 500
        return result


class _Unreachable:
    """Implements `core.context.Peer` for a caller that nothing can be asked of."""

    capabilities: Mapping[str, Any] = {}
    takes_requests = False

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Drop the notification."""

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse the request."""
        raise ToolFailure("unavailable", f"{method}: a caller over REST cannot be asked", hint="Use an MCP client.")


def _answer_of(result: ToolResult) -> Answer:
    if result.input_required is not None:
        result = ToolResult.failed(
            "unavailable", "the tool asks for input, which REST cannot give", hint="Call it through an MCP client."
        )
    error = result.error
    headers = (RETRY,) if error and error.code == "overloaded" else ()
    if headers and error and isinstance(seconds := error.details.get("retry_after"), int | float):
        headers = ((b"retry-after", str(math.ceil(seconds)).encode()),)
    return Answer(status=CODES[error.code].http if error else 200, body=result.to_json(), headers=headers)


def _description(tools: tuple[Tool, ...]) -> dict[str, Any]:
    _, most = _PAGE
    if len(tools) > most:
        detail = f"There are {len(tools)} tools, and a description takes {most}; GET {_PLACE} lists them in pages"
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", detail)
    return describe_tools(_PLACE.rpartition("/")[2], tools)


def _page(tools: tuple[Tool, ...], query: dict[str, str]) -> dict[str, Any]:
    """Return one page of definitions, and the name after which the next one begins."""
    usual, most = _PAGE
    after, limit = query.pop("after", ""), query.pop("limit", str(usual))
    if not (limit.isascii() and limit.isdigit() and len(limit) <= len(str(most)) and 0 < int(limit) <= most):
        _refuse("limit", f"a whole number from 1 to {most} was expected")
    _take_nothing(query)
    size = int(limit)
    left = heapq.nsmallest(size + 1, (tool for tool in tools if tool.name > after), key=lambda tool: tool.name)
    shown = left[:size]
    page: dict[str, Any] = {"tools": [tool.listed for tool in shown], "total": len(tools)}
    return {**page, "after": shown[-1].name} if len(left) > size else page


def _options(query: dict[str, str], headers: Headers) -> dict[str, Any]:
    """Return the fields of a `ToolCall` that query and headers set. Raises `Problem`."""
    timeout, dry_run = query.pop("timeout", ""), query.pop("dry_run", "false")
    version = query.pop("version", "")
    _take_nothing(query)
    if dry_run not in ("true", "false"):
        _refuse("dry_run", "true or false was expected")
    return {
        "timeout": _seconds(timeout) if timeout else None,
        "dry_run": dry_run == "true",
        "version": version,
        "idempotency_key": _key(headers),
        "meta": trace_of(headers),
        "client": headers.get(b"user-agent", b"").decode("latin-1")[:_LENGTH],
    }


def _key(headers: Headers) -> str:
    """Return the idempotency key, quoted or not; empty without the header. Raises `Problem`."""
    given = headers.get(b"idempotency-key")
    if given is None:
        return ""
    match = _KEY.fullmatch(given.decode("latin-1"))
    if match is None:
        message = f"1 to {_LENGTH} visible ASCII characters were expected, in double quotes or without any"
        errors = [{"path": "Idempotency-Key", "message": message}]
        raise Problem(422, "invalid_arguments", "The header cannot be understood", errors=errors)
    return match[2]


def _seconds(text: str) -> float:
    seconds = float(text) if _NUMBER.fullmatch(text) else 0.0
    if seconds <= 0:
        _refuse("timeout", "a number of seconds above 0 was expected")
    return seconds


def _query(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for key, value in parse_qsl(text, keep_blank_values=True):
        if key in given:
            _refuse(key, "it is given twice")
        if len(value) > _LENGTH:
            _refuse(key, f"at most {_LENGTH} characters were expected")
        given[key] = value
    return given


def _take_nothing(query: Mapping[str, str]) -> None:
    """Refuse what is left of a query."""
    for key in query:
        _refuse(key, "there is no such parameter here")


def _refuse(key: str, message: str) -> NoReturn:
    errors = [{"path": f"?{key[:100]}", "message": message}]
    raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_arguments", "The query cannot be understood", errors=errors)


def _stopping() -> Problem:
    detail = "Shutting down: send the request again in a second"
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail, headers=[RETRY, CLOSE])
