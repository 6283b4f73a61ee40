"""OpenAPI 3.1 descriptions of the REST of tools and of guests' resources, made of the schemas of their tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

from ..catalog.catalog import Catalog
from ..core.contributions import RestRoute
from ..core.schema.nodes import properties_of
from ..core.tool import Tool

__all__ = ["PLACE", "WITH_BODY", "describe", "describe_tools"]

PLACE: Final = re.compile(r"\{(\w+)\}")
"""An argument in the path of a route."""
WITH_BODY: Final = ("POST", "PUT", "PATCH")
"""Methods that take the other arguments from a JSON object, and not from the query."""
_TEXT: Final = {"type": "string"}
_PROBLEM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("type", "title", "detail", "code"), _TEXT),
        "status": {"type": "integer"},
        "errors": {"type": "array", "items": {"type": "object", "properties": {"path": _TEXT, "message": _TEXT}}},
    },
    "required": ["type", "title", "status", "detail", "code"],
}
_RESULT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "content": {"type": "array", "items": {"type": "object"}},
        "isError": {"type": "boolean"},
        "structuredContent": {},
        "error": {
            "type": "object",
            "properties": {**dict.fromkeys(("code", "message", "hint"), _TEXT), "details": {"type": "object"}},
            "required": ["code", "message"],
        },
        "_meta": {"type": "object"},
    },
    "required": ["content", "isError"],
}
"""`ToolResult.to_json`."""


def describe(name: str, routes: Sequence[RestRoute], catalog: Catalog) -> dict[str, Any]:
    """Return the description of `/v1/NAME`, without routes that are refused: by GET to a write, or to no tool."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        tool = catalog.find(route.tool)
        if tool is not None and (route.method != "GET" or tool.kind == "read"):
            paths.setdefault(f"/v1/{name}{route.path}", {})[route.method.lower()] = _operation(route, tool)
    return _document(f"Toolcrib: {name}", paths, {"Problem": _PROBLEM})


def describe_tools(place: str, tools: Iterable[Tool]) -> dict[str, Any]:
    """Return the description of the calls of tools at `place`, one operation each."""
    paths = {f"{place}/{tool.name}": {"post": _call_of(tool)} for tool in tools}
    return _document("Toolcrib: tools", paths, {"Problem": _PROBLEM, "Result": _RESULT})


def _document(title: str, paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("toolcrib")},
        "servers": [{"url": "../.."}],  # seen from /v1/NAME/openapi.json: a proxy may serve it all below a prefix
        "security": [{"token": []}],
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": schemas},
    }


def _call_of(tool: Tool) -> dict[str, Any]:
    arguments = {**tool.input_schema, "$id": f"urn:toolcrib:{tool.name}"}
    result: dict[str, Any] = {"application/json": {"schema": _ref("Result")}}
    typed = result
    if tool.output_schema is not None:
        structured = {**tool.output_schema, "$id": f"urn:toolcrib:{tool.name}:result"}
        both = [_ref("Result"), {"type": "object", "properties": {"structuredContent": structured}}]
        typed = {"application/json": {"schema": {"allOf": both}}}
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    return {
        "operationId": tool.name,
        "summary": tool.summary,
        "description": tool.description,
        "requestBody": {"required": True, "content": {"application/json": {"schema": arguments}}},
        "responses": {
            "200": {"description": "The result.", "content": typed},
            "default": {"description": "The call failed.", "content": {**result, **problem}},
        },
    }


def _operation(route: RestRoute, tool: Tool) -> dict[str, Any]:
    schema = tool.input_schema
    properties, required = properties_of(schema, schema), set(schema.get("required", ()))
    in_path = PLACE.findall(route.path)
    others = {key: value for key, value in properties.items() if key not in in_path}
    parameters = [_parameter(key, "path", properties.get(key, _TEXT), is_required=True) for key in in_path]
    body: dict[str, Any] = {}
    if route.signed is not None:
        body = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}
        body["security"] = []  # no token: the request is signed
    elif route.method in WITH_BODY:
        rest = {**schema, "properties": others, "required": sorted(required - set(in_path))}
        content = {"application/json": {"schema": {**rest, "$id": f"urn:toolcrib:{tool.name}"}}}
        body = {"requestBody": {"required": True, "content": content}}
    else:
        parameters += [_parameter(key, "query", value, is_required=key in required) for key, value in others.items()]
    answer: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if route.status != HTTPStatus.NO_CONTENT:
        answer["content"] = {"application/json": {"schema": tool.output_schema or {"type": "object"}}}
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    return {
        "operationId": f"{route.method.lower()}.{tool.op or tool.name}",
        "summary": tool.summary,
        "parameters": parameters,
        **body,
        "responses": {str(route.status): answer, "default": {"description": "Problem details.", "content": problem}},
    }


def _parameter(name: str, place: str, schema: Any, *, is_required: bool) -> dict[str, Any]:
    return {"name": name, "in": place, "required": is_required, "schema": schema}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
