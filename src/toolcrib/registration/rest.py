"""REST API of registrations, for tokens of admin scope.

    POST   /v1/instances/{instance}/tools[?persist=true]     register a definition
    GET    /v1/instances/{instance}/tools[/{name}]           look at them
    DELETE /v1/instances/{instance}/tools/{name}             take one away
    POST   /v1/instances/{instance}/tools/{name}/accept      let one be called that waits, by its hash

`/openapi.json` describes exactly these routes: bodies, parameters, and every answer. Refusals are problem details
(RFC 9457). The edge is that of MCP: `Host`, `Origin` and the token are checked before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec import Struct

from ..core.patterns import regex
from ..errors import ToolFailure, UsageError
from ..mcp.server.http_messages import Headers, Receive, Send
from ..server.openapi import PROBLEM, reference
from ..server.openapi import document as openapi_document
from ..server.request_checks import INSTANCE, Caller, RequestLimits
from ..server.rest import Answer, Problem, not_allowed, read_object, respond
from .definitions import BadDefinition
from .registrations import Full, Registration, Registrations, Taken

_BODY_BYTES: Final = 64 << 10
"""Maximum bytes of a request body."""
NAME: Final = r"[A-Za-z0-9_-]{1,64}"
"""Pattern of names of registered tools."""

_PROBLEMS: Final = {
    400: "The body is not a JSON object, or the request is malformed.",
    401: "The token is unknown.",
    403: "The token is not of admin scope, or the Origin is not accepted.",
    404: "Unknown resource.",
    405: "The resource does not have this method.",
    408: "The body did not arrive in time.",
    409: "The name means something else already, there are too many, or the hash is of another definition.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The server does not answer to this Host.",
    422: "Invalid request; `errors` has paths and reasons.",
    429: "Too many wrong tokens came from this address; `Retry-After` has the seconds to wait.",
    503: "It could not be written down now.",
}
_ALWAYS: Final = (400, 401, 403, 404, 405, 421, 429)
_WITH_BODY: Final = (*_ALWAYS, 408, 409, 413, 415, 422, 503)
_TEXT: Final = {"type": "string"}

_PREFIX: Final = "/v1/"
_DOCUMENT: Final = "/openapi.json"
_HASH: Final = regex(r"[0-9a-f]{64}")


@cache
def document() -> Mapping[str, Any]:
    """Return the description, OpenAPI 3.1."""
    place = "/v1/instances/{instance}/tools"
    paths = {
        "/openapi.json": {"get": _operation("describe", "This description.", 200, {"type": "object"})},
        place: {
            "parameters": [_parameter("instance", INSTANCE)],
            "get": _operation("list_tools", "The tools of an instance, oldest first.", 200, reference("Tools")),
            "post": {
                **_operation("register_tool", "Register a tool for an instance.", 201, reference("Tool"), body=True),
                "parameters": [_persist()],
                "requestBody": _content(reference("Definition"), required=True),
            },
        },
        f"{place}/{{name}}": {
            "parameters": [_parameter("instance", INSTANCE), _parameter("name", NAME)],
            "get": _operation("show_tool", "One tool, with its whole definition.", 200, reference("Tool")),
            "delete": _operation("unregister_tool", "Take a tool away.", 204, None, more=(503,)),
        },
        f"{place}/{{name}}/accept": {
            "parameters": [_parameter("instance", INSTANCE), _parameter("name", NAME)],
            "post": {
                **_operation("accept_tool", "Let a tool be called that waits.", 200, reference("Tool"), body=True),
                "requestBody": _content(reference("Acceptance"), required=True),
            },
        },
    }
    schemas = {
        "Acceptance": _object({"hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}, ["hash"], closed=True),
        "Definition": _definition(),
        "Problem": PROBLEM,
        "Tool": _tool(),
        "Tools": _object({"tools": {"type": "array", "items": reference("Tool")}}, ["tools"]),
    }
    about = "Tools that instances have registered. Every route needs a token of admin scope."
    return openapi_document("Toolcrib", ".", paths, schemas, about=about)


def _operation(
    id: str,
    summary: str,
    status: int,
    schema: Mapping[str, Any] | None,
    *,
    body: bool = False,
    more: tuple[int, ...] = (),
) -> dict[str, Any]:
    done: dict[str, Any] = {"description": summary}
    if schema is not None:
        done |= _content(schema)
    refused = {
        str(code): {"description": _PROBLEMS[code], **_content(reference("Problem"), kind="application/problem+json")}
        for code in (*(_WITH_BODY if body else _ALWAYS), *more)
    }
    return {"operationId": id, "summary": summary, "responses": {str(status): done, **refused}}


def _definition() -> dict[str, Any]:
    """Return the schema of a definition for clients; errors name the allowed values."""
    texts = {"type": "array", "items": _TEXT}
    mapping = {"type": "object"}
    templates = {"type": "object", "additionalProperties": _TEXT}
    url = {"type": "string", "description": "http or https; `{argument}` behind the host."}
    method = {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]}
    endpoint = _object(
        {
            "method": method,
            "url": url,
            "query": templates,
            "headers": templates,
            "body": {"type": "string", "description": "`json`, `none` or a template."},
            "output": {"enum": ["text", "json"]},
        },
        ["url"],
    )
    api = _object(
        {"url": url, "headers": templates, "methods": {"type": "array", "items": method}}, ["url"], closed=True
    )
    known = {
        "name": {"type": "string", "pattern": f"^{NAME}$"},
        **dict.fromkeys(("title", "description", "category", "version"), _TEXT),
        **dict.fromkeys(("capabilities", "aliases"), texts),
        **dict.fromkeys(("input_schema", "output_schema", "annotations", "policy"), mapping),
        "examples": {"type": "array", "items": mapping},
        "kind": {"enum": ["read", "write", "destructive"]},
        "timeout": {"type": "number", "exclusiveMinimum": 0},
        "implementation": {**mapping, "properties": {"endpoint": endpoint}},
        "api": {**api, "description": "Instead of an implementation: any request below a URL, as the tool api_NAME."},
    }
    return _object(known, ["name"], closed=True)


def _tool() -> dict[str, Any]:
    shown: dict[str, Any] = dict.fromkeys(("instance", "name", "description", "target", "reason", "by", "hash"), _TEXT)
    shown |= {"kind": {"enum": ["read", "write", "destructive"]}, "state": {"enum": ["ready", "quarantined"]}}
    shown |= {"persist": {"type": "boolean"}, "registered": {"type": "number"}}
    return _object({**shown, "definition": {"type": "object"}}, list(shown))


def _parameter(name: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{pattern}$"}}


def _persist() -> dict[str, Any]:
    about = "Whether it is there after a restart."
    return {"name": "persist", "in": "query", "description": about, "schema": {"type": "boolean", "default": False}}


def _content(schema: Mapping[str, Any], *, kind: str = "application/json", required: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"content": {kind: {"schema": schema}}}
    return {**content, "required": True} if required else content


def _object(properties: Mapping[str, Any], required: list[str], *, closed: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    return {**schema, "additionalProperties": False} if closed else schema


class _Asked(Struct, frozen=True, kw_only=True):
    """One request that passed the edge and found its route."""

    caller: Caller
    instance: str
    name: str
    headers: Headers
    query: str
    receive: Receive


_Handler = Callable[[_Asked], Awaitable[Answer]]


class RestApi:
    """Serves the routes above. Lives as long as the HTTP server."""

    def __init__(self, registrations: Registrations, edge: RequestLimits, patience: float) -> None:
        """`patience` is how many seconds a body may take to arrive."""
        self._registrations = registrations
        self._edge = edge
        self._patience = patience
        place = rf"/v1/instances/(?P<instance>{INSTANCE})/tools"
        self._routes: tuple[tuple[re.Pattern[str], Mapping[str, _Handler]], ...] = (
            (re.compile(place), {"GET": self._list, "POST": self._register}),
            (re.compile(rf"{place}/(?P<name>{NAME})"), {"GET": self._show, "DELETE": self._unregister}),
            (re.compile(rf"{place}/(?P<name>{NAME})/accept"), {"POST": self._accept}),
        )

    def serves(self, path: str) -> bool:
        """Whether a path belongs to this API, including unknown resources."""
        return path in (_DOCUMENT, _PREFIX[:-1]) or path.startswith(_PREFIX)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer any request."""
        await respond(scope, receive, send, self._answer)

    async def _answer(self, scope: Mapping[str, Any], receive: Receive) -> Answer:
        caller, headers = self._edge.admit(scope)
        path, method = scope["path"], scope["method"]
        if path == _DOCUMENT:
            if method != "GET":
                raise not_allowed(["GET"])
            return Answer(status=200, body=document())
        for pattern, handlers in self._routes:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            found = match.groupdict()
            self._check_scope(caller, method, found)
            if method not in handlers:
                raise not_allowed(handlers)
            asked = _Asked(
                caller=caller,
                instance=found["instance"],
                name=found.get("name", ""),
                headers=headers,
                query=scope["query_string"].decode("latin-1"),
                receive=receive,
            )
            return await self._handled(handlers[method], asked)
        raise Problem(404, "not_found", "Unknown resource; /openapi.json lists the known ones")

    def _check_scope(self, caller: Caller, method: str, found: Mapping[str, str]) -> None:
        """Raise for a caller who may only call tools, even for unknown paths; the attempt is recorded."""
        if caller.scope == "admin":
            return
        refused = ToolFailure("denied", "a token of admin scope is needed")
        details = {"instance": found["instance"], "name": found.get("name", ""), "method": method}
        self._registrations.journal("administer", details, by=caller.principal, way="rest", failed=refused)
        raise Problem(
            403, "denied", "This needs a token of admin scope: `admin_token` or `tokens` in the configuration"
        )

    async def _handled(self, handler: _Handler, asked: _Asked) -> Answer:
        try:
            return await handler(asked)
        except BadDefinition as bad:
            errors = [{"path": wrong.path, "message": wrong.message} for wrong in bad.errors]
            raise Problem(422, "invalid_arguments", "The definition cannot be registered", errors=errors) from None
        except (Taken, Full) as conflict:
            raise Problem(409, "conflict", str(conflict)) from None
        except UsageError as error:
            raise Problem(422, "invalid_arguments", str(error)) from None
        except ToolFailure as failure:
            status = 404 if failure.code == "not_found" else 503
            raise Problem(status, failure.code, failure.message) from None

    async def _register(self, asked: _Asked) -> Answer:
        persist = _flag(asked.query, "persist")
        definition = await read_object(asked.headers, asked.receive, self._patience, limit=_BODY_BYTES)
        made = await self._registrations.register(
            asked.instance, definition, persist=persist, way="rest", by=asked.caller.principal
        )
        place = f"tools/{made.name}"  # seen from the collection: a proxy may serve it all below a prefix
        return Answer(status=201, body=_whole(made), headers=((b"location", place.encode()),))

    async def _list(self, asked: _Asked) -> Answer:
        return Answer(status=200, body={"tools": [_shown(one) for one in self._registrations.of(asked.instance)]})

    async def _show(self, asked: _Asked) -> Answer:
        return Answer(status=200, body=_whole(self._registrations.get(asked.instance, asked.name)))

    async def _unregister(self, asked: _Asked) -> Answer:
        await self._registrations.unregister(asked.instance, asked.name, way="rest", by=asked.caller.principal)
        return Answer(status=204)

    async def _accept(self, asked: _Asked) -> Answer:
        given = await read_object(asked.headers, asked.receive, self._patience, limit=_BODY_BYTES)
        hash = given.get("hash")
        if list(given) != ["hash"] or not isinstance(hash, str) or not _HASH.fullmatch(hash):
            message = "64 hexadecimal digits were expected, those that GET shows, and nothing beside it"
            errors = [{"path": "hash", "message": message}]
            raise Problem(422, "invalid_arguments", "An acceptance names the hash of the definition", errors=errors)
        by = asked.caller.principal
        accepted = await self._registrations.accept(asked.instance, asked.name, hash=hash, way="rest", by=by)
        return Answer(status=200, body=_whole(accepted))


def _flag(query: str, name: str) -> bool:
    """Return the one parameter that there is. Raises `Problem` for anything else in the query."""
    given = parse_qsl(query, keep_blank_values=True)
    wrong = [key for key, value in given if key != name or value not in ("true", "false")]
    if wrong or len(given) > 1:
        errors = [
            {"path": f"?{(wrong or [name])[0][:100]}", "message": f"only `{name}`, `true` or `false`, is taken once"}
        ]
        raise Problem(422, "invalid_arguments", "The query cannot be understood", errors=errors)
    return given == [(name, "true")]


def _shown(one: Registration) -> dict[str, Any]:
    """Return a registration without anything that may be a credential."""
    return {
        "instance": one.instance,
        "name": one.name,
        "description": one.tool.description,
        "kind": one.tool.kind,
        "target": one.definition.target,
        "state": one.state,
        "reason": one.reason,
        "hash": one.definition.hash,
        "persist": one.persist,
        "registered": one.registered,
        "by": one.by,
    }


def _whole(one: Registration) -> dict[str, Any]:
    return {**_shown(one), "definition": one.tool.definition}
