"""Tools as short text: a typed signature for a search, the whole schema for a description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ..core.json import dumps
from ..core.schema import example
from ..core.tool import Tool

__all__ = ["call_example", "describe", "line", "signature"]

_OPTIONAL_SHOWN: Final = 6
"""Optional arguments beyond this many are counted: the description has them all."""
_SUMMARY: Final = 90
_ENUM_SHOWN: Final = 6
"""Options of an enum, and names inside an object, that a signature has room for."""


def signature(tool: Tool) -> str:
    """Return `name(required: type, optional?: type)`; optional arguments are cut to the first few."""
    properties = _mapping(tool.input_schema.get("properties"))
    required = [name for name in tool.input_schema.get("required", ()) if name in properties]
    optional = [name for name in properties if name not in required]
    shown = [f"{name}: {_type(properties[name])}" for name in required]
    shown += [f"{name}?: {_type(properties[name])}" for name in optional[:_OPTIONAL_SHOWN]]
    if len(optional) > _OPTIONAL_SHOWN:
        shown.append(f"+{len(optional) - _OPTIONAL_SHOWN} optional")
    return f"{tool.name}({', '.join(shown)})"


def line(tool: Tool) -> str:
    """Return one line of a search: signature, effects, summary."""
    mark = "" if tool.kind == "read" else f" [{tool.kind}]"
    summary = tool.summary if len(tool.summary) <= _SUMMARY else tool.summary[: _SUMMARY - 1].rstrip() + "…"
    return f"{signature(tool)}{mark} {summary}".rstrip()


def describe(tool: Tool) -> str:
    """Return everything a model needs to call `tool` right: description, schema, one valid example, advice."""
    shown: dict[str, Any] = {"name": tool.name, "kind": tool.kind, "description": tool.description}
    shown["input_schema"] = tool.input_schema
    for key, texts in tool.guidance.policy.items():
        shown[key] = list(texts)
    return f"{dumps(shown).decode()}\nexample: {dumps(call_example(tool)).decode()}"


def call_example(tool: Tool) -> Mapping[str, Any]:
    """Return valid arguments: the tool's first example, else the smallest that the schema accepts."""
    return tool.guidance.examples[0] if tool.guidance.examples else example(tool.input_schema)


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    given = cast("Mapping[str, Any]", schema)
    if "enum" in given and len(given["enum"]) <= _ENUM_SHOWN:
        return "|".join(dumps(value).decode() for value in given["enum"])
    if "const" in given:
        return dumps(given["const"]).decode()
    kind = given.get("type")
    if kind == "array":
        return f"{_type(given.get('items', {}))}[]"
    if kind == "object":
        return _shape(_mapping(given.get("properties")))
    if isinstance(kind, list):
        return "|".join(str(one) for one in cast("list[Any]", kind))
    if isinstance(kind, str):
        return kind
    branches = given.get("anyOf") or given.get("oneOf")
    if branches:
        return "|".join(dict.fromkeys(_type(branch) for branch in branches))
    return "any"


def _shape(properties: Mapping[str, Any]) -> str:
    """Return the names inside an object while they are few: a model that only sees `object` has to ask again."""
    return f"{{{', '.join(properties)}}}" if 0 < len(properties) <= _ENUM_SHOWN else "object"


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
