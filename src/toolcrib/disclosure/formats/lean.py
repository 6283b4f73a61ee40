"""Schemas of servers without the marks of their generators, which cost tokens and tell a model nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ...catalog.ranking.terms import squash

__all__ = ["lean_schema"]

_DIALECTS: Final = frozenset(
    {
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
_OLD_WORDS: Final = frozenset({"$recursiveRef", "additionalItems", "dependencies"})
"""Keywords that an older dialect reads in another way than the one that MCP assumes."""


def lean_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an input schema without a dialect that changes nothing and without titles that repeat a name."""
    lean = _untitled(schema)
    name = schema.get("title")
    if isinstance(name, str) and squash(name).endswith(("arguments", "args", "input", "params")):
        lean.pop("title", None)
    if schema.get("$schema") in _DIALECTS and not _is_old(schema):
        lean.pop("$schema")
    return lean


def _untitled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's schema with the titles of its properties left out that repeat the property's name."""
    lean = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        inner = cast("Mapping[str, Any]", properties)
        lean["properties"] = {name: _property(name, value) for name, value in inner.items()}
    return lean


def _property(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    schema = _untitled(cast("Mapping[str, Any]", value))
    title = schema.get("title")
    if isinstance(title, str) and squash(title) == squash(name):
        del schema["title"]
    return schema


def _is_old(value: Any) -> bool:
    """Whether a schema uses what two dialects read in different ways: lists of item schemas, older keywords."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        if isinstance(mapping.get("items"), list) or isinstance(mapping.get("id"), str) or _OLD_WORDS & mapping.keys():
            return True
        return any(map(_is_old, mapping.values()))
    return isinstance(value, list | tuple) and any(map(_is_old, cast("list[Any]", value)))
