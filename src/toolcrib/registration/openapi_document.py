"""OpenAPI description of the REST routes: bodies, parameters, and every answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from ..server.request_limits import INSTANCE

__all__ = ["BODY_BYTES", "NAME", "document"]

BODY_BYTES: Final = 64 << 10
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
    503: "It could not be written down now.",
}
_ALWAYS: Final = (400, 401, 403, 404, 405, 421)
_WITH_BODY: Final = (*_ALWAYS, 408, 409, 413, 415, 422, 503)
_TEXT: Final = {"type": "string"}


@cache
def document() -> Mapping[str, Any]:
    """Return the description, OpenAPI 3.1."""
    place = "/v1/instances/{instance}/tools"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolcrib",
            "version": version("toolcrib"),
            "description": "Tools that instances have registered. Every route needs a token of admin scope.",
        },
        "security": [{"token": []}],
        "paths": {
            "/openapi.json": {"get": _operation("describe", "This description.", 200, {"type": "object"})},
            place: {
                "parameters": [_parameter("instance", INSTANCE)],
                "get": _operation("list_tools", "The tools of an instance, oldest first.", 200, _ref("Tools")),
                "post": {
                    **_operation("register_tool", "Register a tool for an instance.", 201, _ref("Tool"), body=True),
                    "parameters": [_persist()],
                    "requestBody": _content(_ref("Definition"), required=True),
                },
            },
            f"{place}/{{name}}": {
                "parameters": [_parameter("instance", INSTANCE), _parameter("name", NAME)],
                "get": _operation("show_tool", "One tool, with its whole definition.", 200, _ref("Tool")),
                "delete": _operation("unregister_tool", "Take a tool away.", 204, None, more=(503,)),
            },
            f"{place}/{{name}}/accept": {
                "parameters": [_parameter("instance", INSTANCE), _parameter("name", NAME)],
                "post": {
                    **_operation("accept_tool", "Let a tool be called that waits.", 200, _ref("Tool"), body=True),
                    "requestBody": _content(_ref("Acceptance"), required=True),
                },
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Acceptance": _object({"hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}, ["hash"], closed=True),
                "Definition": _definition(),
                "Problem": _problem(),
                "Tool": _tool(),
                "Tools": _object({"tools": {"type": "array", "items": _ref("Tool")}}, ["tools"]),
            },
        },
    }


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
        str(code): {"description": _PROBLEMS[code], **_content(_ref("Problem"), kind="application/problem+json")}
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


def _problem() -> dict[str, Any]:
    error = _object({"path": _TEXT, "message": _TEXT}, ["path", "message"])
    known: dict[str, Any] = dict.fromkeys(("type", "title", "detail", "code"), _TEXT)
    known |= {"status": {"type": "integer"}}
    return _object({**known, "errors": {"type": "array", "items": error}}, list(known))


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


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
