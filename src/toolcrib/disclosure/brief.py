"""Short declarations of tools, for lists that a model reads in every turn: what a call needs, in fewest words.

A declaration keeps names, types, choices and defaults that say something. It loses bounds, which are still checked, and
all but the beginning of each description. The whole is in the catalog, and in the answers of meta-tools that describe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from ..core.json import dumps, loads
from ..core.tool import Tool

__all__ = ["in_brief"]

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
