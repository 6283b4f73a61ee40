"""Arguments that a tool wants to see as HTTP headers too (`x-mcp-header`, revision 2026-07-28)."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from ..jsonrpc import mapping

__all__ = ["header_paths", "header_value", "parameter_headers"]

_KEY: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}")
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_WRAPPED: Final = re.compile(r"=\?base64\?.*\?=")
_TYPES: Final = ("string", "integer", "boolean")
_DATA: Final = ("const", "default", "enum", "examples")


def header_paths(schema: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """Return where in the arguments the values of which headers are.

    Raises `ValueError` when an annotation is not as the specification wants it: such a tool must not be used.
    """
    found: dict[tuple[str, ...], str] = {}
    for path, node in _positions(schema):
        if _KEY not in node:
            continue
        token = node[_KEY]
        where = ".".join(path or ())
        if not path:
            raise ValueError(f"{_KEY} stands where no single argument is")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError(f"{_KEY} of {where} is not a header name")
        if node.get("type") not in _TYPES:
            raise ValueError(f"{_KEY} of {where} needs a string, an integer or a boolean")
        if token.lower() in (other.lower() for other in found.values()):
            raise ValueError(f"{_KEY} {token!r} is used twice")
        found[path] = token
    return found


def parameter_headers(paths: Mapping[tuple[str, ...], str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the `Mcp-Param-*` headers of one call; an argument that is not given has none."""
    headers: dict[str, str] = {}
    for path, token in paths.items():
        value: Any = arguments
        for key in path:
            value = mapping(value).get(key)
        if isinstance(value, bool):
            headers[f"Mcp-Param-{token}"] = "true" if value else "false"
        elif isinstance(value, str | int):
            headers[f"Mcp-Param-{token}"] = header_value(str(value))
    return headers


def header_value(text: str) -> str:
    """Return `text` as a header value: itself when it survives, else in base64 as the specification says."""
    if _PLAIN.fullmatch(text) and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def _positions(root: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Yield every schema with its path through `properties` alone; None once anything else lies between."""
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, list):
            stack.extend((None, item) for item in cast("list[Any]", node))
        if not isinstance(node, Mapping):
            continue
        schema = cast("Mapping[str, Any]", node)
        yield path, schema
        for key, value in schema.items():
            if key == "properties":
                named = mapping(value).items()
                stack.extend(((*path, name) if path is not None else None, child) for name, child in named)
            elif key not in _DATA:
                stack.extend((None, child) for child in _below(key, value))


def _below(key: str, value: Any) -> Iterator[Any]:
    if key in ("$defs", "definitions", "dependentSchemas", "patternProperties"):
        yield from mapping(value).values()
    elif isinstance(value, Mapping | list):
        yield value
