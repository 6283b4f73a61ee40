"""OpenAPI 3.1 descriptions of what is served by REST, made of the schemas of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, cast

from ..catalog.catalog import Catalog
from ..core.patterns import regex
from ..core.schema.nodes import Node, as_node, properties_of
from ..core.services.contributions import RestRoute
from ..core.tool import Tool

PLACE: Final = regex(r"\{(\w+)\}")
"""An argument in the path of a route."""
WITH_BODY: Final = ("POST", "PUT", "PATCH")
"""Methods that take the other arguments from a JSON object, and not from the query."""
_TEXT: Final = {"type": "string"}
PROBLEM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("type", "title", "detail", "code"), _TEXT),
        "status": {"type": "integer"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": _TEXT, "message": _TEXT},
                "required": ["path", "message"],
            },
        },
    },
    "required": ["type", "title", "status", "detail", "code"],
}
"""Problem details."""
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


_COMPONENTS: Final = "#/components/schemas/"
_DEFINITION: Final = regex(r"#/\$defs/([A-Za-z0-9._-]+)(?=/|$)")


def document(
    title: str, server: str, paths: Mapping[str, Any], schemas: Mapping[str, Any], *, about: str = ""
) -> dict[str, Any]:
    """Return a description. `server` is relative to its own address: a proxy may serve it all below a prefix."""
    info = {"title": title, "version": version("toolcrib"), **({"description": about} if about else {})}
    return {
        "openapi": "3.1.0",
        "info": info,
        "servers": [{"url": server}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": schemas},
    }


def reference(name: str) -> dict[str, str]:
    """Return the reference to a schema among the components."""
    return {"$ref": f"{_COMPONENTS}{name}"}


def describe(name: str, routes: Sequence[RestRoute], catalog: Catalog) -> dict[str, Any]:
    """Return the description of `/v1/NAME`, without routes that are refused: by GET to a write, or to no tool."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Node] = {"Problem": PROBLEM}
    for route in routes:
        tool = catalog.find(route.tool)
        if tool is not None and (route.method != "GET" or tool.kind == "read"):
            paths.setdefault(f"/v1/{name}{route.path}", {})[route.method.lower()] = _operation(route, tool, schemas)
    return document(f"Toolcrib: {name}", "../..", paths, schemas)


def describe_tools(name: str, tools: Iterable[Tool]) -> dict[str, Any]:
    """Return the description of the calls of tools below the path `name`, where it is served too.

    The paths begin behind `name`: some programs append them to the address that they read the description below.
    """
    schemas: dict[str, Node] = {"Problem": PROBLEM, "Result": _RESULT}
    paths = {f"/{tool.name}": {"post": _call_of(tool, schemas)} for tool in tools}
    return document("Toolcrib: tools", f"../{name}", paths, schemas)


def _call_of(tool: Tool, schemas: dict[str, Node]) -> dict[str, Any]:
    arguments = _part(tool.input_schema, tool.input_schema, f"{tool.name}.arguments", schemas)
    result: dict[str, Any] = {"application/json": {"schema": reference("Result")}}
    typed = result
    if tool.output_schema is not None:
        structured = _part(tool.output_schema, tool.output_schema, f"{tool.name}.result", schemas)
        both = [reference("Result"), {"type": "object", "properties": {"structuredContent": structured}}]
        typed = {"application/json": {"schema": {"allOf": both}}}
    problem = {"application/problem+json": {"schema": reference("Problem")}}
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


def _operation(route: RestRoute, tool: Tool, schemas: dict[str, Node]) -> dict[str, Any]:
    schema, name = tool.input_schema, f"{tool.name}.arguments"
    properties = {key: _part(value, schema, name, schemas) for key, value in properties_of(schema, schema).items()}
    required = set(schema.get("required", ()))
    in_path = PLACE.findall(route.path)
    others = {key: value for key, value in properties.items() if key not in in_path}
    parameters = [_parameter(key, "path", properties.get(key, _TEXT), is_required=True) for key in in_path]
    body: dict[str, Any] = {}
    if route.signed is not None:
        body = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}
        body["security"] = []  # no token: the request is signed
    elif route.method in WITH_BODY:
        rest = {
            **_part(schema, schema, name, schemas),
            "properties": others,
            "required": sorted(required - set(in_path)),
        }
        body = {"requestBody": {"required": True, "content": {"application/json": {"schema": rest}}}}
    else:
        parameters += [_parameter(key, "query", value, is_required=key in required) for key, value in others.items()]
    answer: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if route.status != HTTPStatus.NO_CONTENT:
        output = tool.output_schema
        content = {"type": "object"} if output is None else _part(output, output, f"{tool.name}.result", schemas)
        answer["content"] = {"application/json": {"schema": content}}
    problem = {"application/problem+json": {"schema": reference("Problem")}}
    return {
        "operationId": f"{route.method.lower()}.{tool.op or tool.name}",
        "summary": tool.summary,
        "parameters": parameters,
        **body,
        "responses": {str(route.status): answer, "default": {"description": "Problem details.", "content": problem}},
    }


def _parameter(name: str, place: str, schema: Any, *, is_required: bool) -> dict[str, Any]:
    return {"name": name, "in": place, "required": is_required, "schema": schema}


def _is_of_root(value: object) -> bool:
    """Whether `#` below a value is the root of its schema: it is an object without an `$id` of its own."""
    return isinstance(value, Mapping) and not isinstance(cast("Node", value).get("$id"), str)


def _part(node: Node, root: Node, name: str, schemas: dict[str, Node]) -> Node:
    """Return a part of a schema as part of a description, where `#` is the description and no longer `root`.

    What it refers to is added to `schemas`: each definition as `name.DEFINITION`, anything else of `root` as `name`.
    Programs that read OpenAPI follow references to components only.
    """
    waiting: list[str] = []

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(one) for one in cast("list[Any]", value)]
        if not _is_of_root(value):
            return value
        part = {key: moved(one) for key, one in cast("Node", value).items()}
        if value is root and "$defs" in part:  # those with an `$id` are referred to by that
            kept = {key: one for key, one in part.pop("$defs").items() if not _is_of_root(one)}
            part |= {"$defs": kept} if kept else {}
        target = part.get("$ref")
        if isinstance(target, str) and target.startswith("#"):
            match = _DEFINITION.match(target)
            waiting.append(match[1] if match else "")
            path = f".{match[1]}{target[match.end() :]}" if match else target[1:]
            part["$ref"] = f"{_COMPONENTS}{name}{path}"
        return part

    made = moved(node)
    while waiting:
        definition = waiting.pop()
        component = f"{name}.{definition}" if definition else name
        if component not in schemas:
            schemas[component] = {}  # it may refer to itself
            schemas[component] = moved(as_node(root.get("$defs")).get(definition, {}) if definition else root)
    return made
