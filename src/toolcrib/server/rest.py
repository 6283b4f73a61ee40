"""REST beside MCP: problem details (RFC 9457), JSON bodies, and the resources of guests.

A resource is a table of routes, each a call of a tool through the one door: rules, roles and the record of calls hold
as for a model. `/v1/NAME/…` is the resource that an installed package names NAME under `toolcrib.resources`, and
`/v1/NAME/openapi.json` describes it.

    request ─┬─ a signed route: the body is read, its signature tells the principal
             └─ any other: token, origin and rate (`RequestLimits.admit`)
                 ─> path and query as arguments, by the types of the tool's schema ─> body ─> call of the tool
                 ─> its result, or problem details with the status of the error's code

Arguments of path, query and body never override one another: one that is given twice is refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import parse_qsl

import anyio
from msgspec import Struct

from ..core.entry_points import RESOURCES
from ..core.events import Problem as GuestProblem
from ..core.json import dumps, read_json
from ..core.patterns import regex
from ..core.schema.nodes import properties_of, types_of, value_of
from ..core.services.contributions import RestResource, RestRoute, SignatureCheck, SignedRequest
from ..crib import Toolcrib
from ..crib.services.contributions import SessionCaller, unattended_session
from ..errors import CODES, ToolFailure, UsageError
from ..mcp.server.http_messages import (
    Headers,
    Pair,
    Receive,
    Refusal,
    Send,
    is_json,
    linger,
    send_body,
    send_json,
    send_status,
)
from ..plugin import Guest, load_entry_points
from .openapi import PLACE, WITH_BODY, describe
from .request_checks import Caller, RequestLimits, instance_of

_logger = logging.getLogger(__name__)

_CLOSE: Final = (b"connection", b"close")
_PROBLEM: Final = b"application/problem+json"
_BODY_BYTES: Final = 4 << 20
"""Maximum bytes of the body of a guest's resource."""
_RESERVED: Final = frozenset({"instances", "tools"})
"""Names below `/v1/` that are ours."""
_NAME: Final = regex(r"[a-z][a-z0-9_-]{0,40}")
_DESCRIPTION: Final = "openapi.json"
"""Path below a resource with its description."""


class Problem(Exception):
    """A request that is answered with problem details."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Iterable[Mapping[str, str]] = (),
        headers: Iterable[Pair] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = tuple(headers)


class Answer(Struct, frozen=True, kw_only=True):
    """Status, JSON body and headers."""

    status: int
    body: Any = None
    headers: tuple[Pair, ...] = ()


async def respond(
    scope: Mapping[str, Any],
    receive: Receive,
    send: Send,
    answer_of: Callable[[Mapping[str, Any], Receive], Awaitable[Answer]],
) -> None:
    """Send the answer to a request; what it raises becomes problem details."""
    try:
        answer = await answer_of(scope, receive)
        body = None if answer.body is None else dumps(answer.body)
    except Problem as problem:
        await _tell(send, problem, receive)
    except Refusal as refusal:
        code = {401: "denied", 403: "denied", 429: "overloaded"}.get(refusal.status, "refused")
        await _tell(send, Problem(refusal.status, code, refusal.message, headers=refusal.headers), receive)
    except Exception:
        _logger.exception("a request to %s failed", scope["path"][:200])
        await _tell(send, Problem(500, "internal", "Internal error; the log has the cause"), receive)
    else:
        if body is None:
            await send_status(send, answer.status, headers=answer.headers)
        else:
            await send_json(send, body, status=answer.status, headers=answer.headers)


async def read_object(headers: Headers, receive: Receive, patience: float, *, limit: int) -> dict[str, Any]:
    """Return the JSON object of a body that arrives within `patience` seconds. Raises `Problem`."""
    body = await _read_body(headers, receive, patience, limit=limit)
    try:
        given: Any = read_json(body, limit=limit, strict=True)
    except ValueError as error:
        raise Problem(400, "invalid_arguments", f"The body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Problem(400, "invalid_arguments", "The body must be a JSON object")
    return cast("dict[str, Any]", given)


async def _read_body(headers: Headers, receive: Receive, patience: float, *, limit: int) -> bytes:
    """Return a body that says that it is JSON, and arrives within `patience` seconds. Raises `Problem`."""
    if not is_json(headers.get(b"content-type", b"")):
        raise Problem(415, "refused", "The body must be application/json, in UTF-8", headers=[_CLOSE])
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 15 or int(length) > limit:
        raise _too_large(limit)
    with anyio.move_on_after(patience) as waiting:
        return await _body(receive, limit)
    assert waiting.cancelled_caught
    raise Problem(408, "timeout", "The body did not arrive in time", headers=[_CLOSE])


async def _body(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(parts)


def not_allowed(methods: Iterable[str]) -> Problem:
    """Return the refusal of a method, with those that the resource has."""
    allow = (b"allow", ", ".join(methods).encode())
    return Problem(405, "refused", "This resource does not have that method", headers=[allow])


def _too_large(limit: int) -> Problem:
    return Problem(413, "too_large", f"The body has more than {limit} bytes", headers=[_CLOSE])


async def _tell(send: Send, problem: Problem, receive: Receive) -> None:
    shown: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
    }
    if problem.errors:
        shown["errors"] = problem.errors
    await send_body(send, dumps(shown), _PROBLEM, status=problem.status, headers=problem.headers, more=True)
    if problem.status == 413:
        await linger(receive)
    await send({"type": "http.response.body", "body": b""})


class GuestResources:
    """Serves the REST resources of installed packages. Lives as long as the HTTP server."""

    def __init__(self, crib: Toolcrib, edge: RequestLimits, patience: float) -> None:
        """`patience` is how many seconds a body may take to arrive."""
        self._crib = crib
        self._edge = edge
        self._patience = patience
        self._routes: dict[str, list[tuple[re.Pattern[str], RestRoute]]] = {}
        guests, problems = load_entry_points(RESOURCES) if crib.settings.sources.builtins else ((), ())
        for problem in problems:
            crib.tools.report(problem)
        for guest in guests:
            try:
                self._add(guest)
            except UsageError as error:
                message = f"{guest.origin}: {error}"
                crib.tools.report(GuestProblem(source="plugins", code="unavailable", message=message))

    def serves(self, path: str) -> bool:
        """Whether a path belongs to a resource, including unknown routes of it."""
        version, _, rest = path.removeprefix("/").partition("/")
        return version == "v1" and rest.partition("/")[0] in self._routes

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer any request."""
        await respond(scope, receive, send, self._answer)

    def _add(self, guest: Guest) -> None:
        name, resource = guest.name, guest.thing
        if not isinstance(resource, RestResource):
            raise UsageError(f"{type(resource).__name__} is not a RestResource of toolcrib.plugin")
        if not _NAME.fullmatch(name) or name in _RESERVED or name in self._routes:
            raise UsageError(f"{name!r} cannot be the name of a REST resource: it is taken, or not lower-case letters")
        self._routes[name] = [(_pattern(name, route.path), route) for route in resource.routes]

    async def _answer(self, scope: Mapping[str, Any], receive: Receive) -> Answer:
        path, method = scope["path"], scope["method"]
        name = path.split("/")[2]
        for pattern, route in self._routes[name]:
            if route.signed is not None and route.method == method and (match := pattern.fullmatch(path)):
                return await self._signed(
                    route, route.signed, match.groupdict(), self._edge.check(scope["headers"]), receive
                )
        caller, headers = self._edge.admit(scope)
        if path == f"/v1/{name}/{_DESCRIPTION}":
            if method != "GET":
                raise not_allowed(["GET"])
            return Answer(status=200, body=describe(name, [one for _, one in self._routes[name]], self._crib.catalog))
        found = [(match, route) for pattern, route in self._routes[name] if (match := pattern.fullmatch(path))]
        if not found:
            known = ", ".join(f"{route.method} /v1/{name}{route.path}" for _, route in self._routes[name])
            raise Problem(404, "not_found", f"Unknown resource; known: {known}")
        for match, route in found:
            if route.method == method:
                query = scope["query_string"].decode("latin-1")
                arguments = self._arguments(route, match.groupdict(), query)
                return await self._call(route, caller, headers, arguments, receive)
        raise not_allowed([route.method for _, route in found])

    def _arguments(self, route: RestRoute, path: Mapping[str, str], query: str) -> dict[str, Any]:
        """Return the arguments of path and query, read by the types that the tool's schema admits."""
        tool = self._crib.catalog.find(route.tool)
        if tool is None:
            raise Problem(404, "not_found", f"The tool {route.tool} is not offered here: `builtins` has its category")
        if route.method == "GET" and tool.kind != "read":
            raise Problem(403, "denied", f"GET does not call {route.tool}, which is not a read")
        schema = tool.input_schema
        properties = properties_of(schema, schema)
        arguments: dict[str, Any] = {}
        for key, text in (*path.items(), *parse_qsl(query, keep_blank_values=True)):
            if key in arguments:
                errors = [{"path": key[:100], "message": "it is given twice"}]
                raise Problem(422, "invalid_arguments", f"{key[:100]} is given twice", errors=errors)
            arguments[key] = value_of(text, types_of(properties[key], schema)) if key in properties else text
        return arguments

    async def _call(
        self, route: RestRoute, caller: Caller, headers: Headers, arguments: dict[str, Any], receive: Receive
    ) -> Answer:
        if route.method in WITH_BODY:
            body = await read_object(headers, receive, self._patience, limit=_BODY_BYTES)
            if both := sorted(body.keys() & arguments.keys()):
                errors = [{"path": name, "message": "it is given by the path or the query"} for name in both]
                raise Problem(422, "invalid_arguments", f"{both[0]} is given twice", errors=errors)
            arguments = {**arguments, **body}
        return await self._made(route, caller.principal, instance_of(caller, headers), arguments)

    async def _signed(
        self, route: RestRoute, check: SignatureCheck, place: Mapping[str, str], headers: Headers, receive: Receive
    ) -> Answer:
        body = await _read_body(headers, receive, self._patience, limit=_BODY_BYTES)
        named = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers.items()}
        try:
            call = check(self._crib.parts.host_services, SignedRequest(place=place, headers=named, body=body))
        except ToolFailure as failure:
            problem = _problem_of(failure)
            raise Problem(401, "denied", problem.detail) if failure.code == "denied" else problem from None
        return await self._made(route, call.principal or self._edge.principal, "", dict(call.arguments))

    async def _made(self, route: RestRoute, principal: str, instance: str, arguments: dict[str, Any]) -> Answer:
        key = f"rest/{principal}/{instance}"
        session = unattended_session(self._crib.parts, key, principal, instance=instance)
        try:
            result = await SessionCaller(session, "resource").call(route.tool, arguments)
        except ToolFailure as failure:
            raise _problem_of(failure) from None
        return Answer(status=route.status, body=result)


def _pattern(name: str, path: str) -> re.Pattern[str]:
    """Return the pattern of a path with places for arguments."""
    if path and not path.startswith("/"):
        raise UsageError(f"the path {path!r} of a route begins with /")
    parts = PLACE.split(path)
    fixed = "".join(f"(?P<{part}>[^/]+)" if number % 2 else re.escape(part) for number, part in enumerate(parts))
    return re.compile(f"/v1/{name}{fixed}")


def _problem_of(failure: ToolFailure) -> Problem:
    status = CODES[failure.code].http
    given = cast("Iterable[Mapping[str, Any]]", failure.details.get("field_errors", ()))
    errors = [{"path": str(one.get("path", "")), "message": str(one.get("message", ""))} for one in given]
    return Problem(status if status >= HTTPStatus.BAD_REQUEST else 422, failure.code, failure.whole, errors=errors)
