"""One endpoint as a reader wants it: parameters, body and answers, each with its JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ...core.json import dumps
from ...core.tool import Tool
from .document import Document, mapping
from .operation import Operation
from .refs import Refs
from .schema import Schemas, prose

__all__ = ["told"]

_MAX_ANSWER: Final = 16 << 10
"""Bytes of the schema of one answer; of a larger one only the first level is told."""


def told(operation: Operation, tool: Tool, document: Document) -> dict[str, Any]:
    """Return everything that the description says of one operation. `tool` is what was made of it."""
    schema = tool.input_schema
    properties, required = mapping(schema.get("properties")), _names(schema.get("required"))
    shown: dict[str, Any] = {"name": tool.local_name, "method": operation.method, "path": operation.path}
    shown |= {"description": tool.description} if tool.description else {}
    shown["parameters"] = [
        {
            "name": one.name,
            "in": one.place,
            "required": one.argument in required,
            "schema": properties.get(one.argument, {}),
            **({"sent": one.sent} if one.sent else {}),
        }
        for one in operation.parameters
    ]
    if operation.body is not None:
        body = operation.body
        whole: Any = properties.get(body.argument, {}) if body.argument else _object(body.properties, schema)
        shown["body"] = {"media_type": body.media_type, "required": body.required, "schema": whole}
    if tool.examples:
        shown["examples"] = [_as_request(operation, example) for example in tool.examples]
    shown["answers"] = _answers(operation, document)
    return shown | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _object(names: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Put the body together again that was taken apart into arguments."""
    properties, required = mapping(schema.get("properties")), _names(schema.get("required"))
    needed = [name for argument, name in names.items() if argument in required]
    made = {"type": "object", "properties": {name: properties.get(argument, {}) for argument, name in names.items()}}
    return made | ({"required": needed} if needed else {})


def _as_request(operation: Operation, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an example as query, headers and body."""
    made: dict[str, dict[str, Any]] = {}
    for one in operation.parameters:
        if one.argument in example:
            where = "query" if one.place in ("path", "query") else "headers"
            made.setdefault(where, {})[one.name] = example[one.argument]
    if operation.body is None:
        return made
    if operation.body.argument in example:
        return {**made, "body": example[operation.body.argument]}
    body = {name: example[argument] for argument, name in operation.body.properties.items() if argument in example}
    return {**made, "body": body} if body else made


def _answers(operation: Operation, document: Document) -> dict[str, Any]:
    refs = Refs(document.root)
    schemas = Schemas(refs, is_old=document.is_old)
    try:
        item = refs.resolve(mapping(document.root.get("paths")).get(operation.path))
    except ValueError:
        return {}
    answers = mapping(mapping(item.get(operation.method.lower())).get("responses"))
    return {str(status): _answer(refs, schemas, node) for status, node in answers.items()}


def _answer(refs: Refs, schemas: Schemas, node: object) -> dict[str, Any]:
    try:
        given = refs.resolve(node)
    except ValueError as error:
        return {"description": f"not readable: {error}"}
    shown: dict[str, Any] = {"description": prose(given.get("description"), 300)}
    for media_type, content in mapping(given.get("content")).items():
        shown["media_type"] = media_type
        schemas.begin()
        try:
            made = schemas.complete(schemas.convert(mapping(content).get("schema") or {}))
        except ValueError as error:
            shown["schema"] = {"description": f"not readable: {error}"}
        else:
            shown["schema"] = made if len(dumps(made)) <= _MAX_ANSWER else _first_level(made)
        break
    return shown


def _first_level(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a large schema without what is inside of them."""
    fields = {
        name: {key: mapping(node)[key] for key in ("type", "format", "description") if key in mapping(node)}
        for name, node in mapping(schema.get("properties")).items()
    }
    kept = {key: schema[key] for key in ("type", "title", "description", "$ref") if key in schema}
    made = {**kept, **({"properties": fields} if fields else {}), "$comment": "too large to be told whole"}
    return made if len(dumps(made)) <= _MAX_ANSWER else {"$comment": "too large to be told"}


def _names(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
