"""Short forms of a tool: a signature for searches, a description with an example, a brief declaration for lists.

A brief declaration stands in a list that a model reads in every turn. It keeps names, types, choices and meaningful
defaults; it loses bounds, which are still checked, and all but the beginning of each description. The whole is in the
catalog, and in the answers of meta-tools that describe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec.structs import replace

from ..core.json import dumps, loads
from ..core.schema import example
from ..core.tool import Tool

__all__ = ["call_example", "describe", "in_brief", "line", "signature"]

_OPTIONAL_SHOWN: Final = 6
"""Optional arguments beyond this many are counted: the description has them all."""
_SUMMARY: Final = 90
_ENUM_SHOWN: Final = 6
"""Options of an enum, and names inside an object, that a signature has room for."""

_MOST: Final = 80
"""Characters of a tool's description."""
_OF_ARGUMENT: Final = 36
_BOUNDS: Final = frozenset(
    {
        "additionalProperties",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "title",
    }
)
_EMPTY: Final = ("", None, False)
"""Defaults that say no more than that the argument may be left out."""
_END: Final = re.compile(r"(?<=[.;])\s")


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


def in_brief(tool: Tool) -> Tool:
    """Return a tool with a short description, and arguments that say what they take and no more."""
    return replace(
        tool,
        description=_beginning(tool.description, _MOST),
        input_schema={"type": "object", **_inlined(_node(tool.input_schema, 0))},
    )


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with each definition that is used once, and names no other, in its place."""
    text = dumps(schema).decode()
    for name, definition in list(schema.get("$defs", {}).items()):
        reference = dumps({"$ref": f"#/$defs/{name}"}).decode()
        if text.count(reference) == 1 and b"$ref" not in dumps(definition):
            text = text.replace(reference, dumps(definition).decode())
            schema = cast("dict[str, Any]", loads(text))
            del schema["$defs"][name]
            text = dumps(schema).decode()
    return {key: value for key, value in schema.items() if key != "$defs" or value}


def _node(node: Mapping[str, Any], depth: int) -> dict[str, Any]:
    short: dict[str, Any] = {}
    for key, value in node.items():
        if key in _BOUNDS or (key == "default" and value in _EMPTY):
            continue
        if key in ("properties", "$defs") and isinstance(value, Mapping):
            inner = cast("Mapping[str, Any]", value)
            below = depth + (1 if key == "properties" else 2)
            short[key] = {
                name: _node(cast("Mapping[str, Any]", one), below) if isinstance(one, Mapping) else one
                for name, one in inner.items()
            }
        elif key == "items" and isinstance(value, Mapping):
            short[key] = _node(cast("Mapping[str, Any]", value), depth + 1)
        elif key == "anyOf" and isinstance(value, list):
            kinds = [_node(one, depth) for one in cast("list[Mapping[str, Any]]", value) if one != {"type": "null"}]
            short |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        elif key == "description":
            if depth == 1 and "enum" not in node and (text := _beginning(str(value), _OF_ARGUMENT)):
                short[key] = text
        elif not (key == "required" and not value):
            short[key] = value
    return short


def _beginning(text: str, most: int) -> str:
    """Return the first sentence of a text; of a long one the part before its last comma that fits, or as many words."""
    first = _END.split(" ".join(text.split()), maxsplit=1)[0].rstrip(" .:;,")
    if len(first) <= most:
        return first
    part = first[:most].rpartition(", ")[0] or first[:most].rpartition(" ")[0]
    return part.rstrip(" .:;,")
