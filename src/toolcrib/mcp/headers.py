"""HTTP headers that repeat the body (MCP 2026-07-28), so that proxies can route a request without reading its body.

The client writes them; the server refuses a header that contradicts the body: otherwise a proxy would decide on
another call than the one that runs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from msgspec import Struct

from ..core.json import as_mapping
from ..core.patterns import regex
from ..core.tool import Tool
from .jsonrpc import HEADER_MISMATCH, RpcError

NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/cancel": "taskId",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
}
"""Method → the parameter that the `Mcp-Name` header repeats."""

_KEY: Final = "x-mcp-header"
_TOKEN: Final = regex(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LONGEST_TOKEN: Final = 64
_PLAIN: Final = regex(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_WRAPPED: Final = regex(r"=\?base64\?(.*)\?=", re.DOTALL)
_DECIMAL: Final = regex(r"(-?[0-9]+)(?:\.0+)?")
_TYPES: Final = ("string", "integer", "boolean")
_DATA: Final = ("const", "default", "enum", "examples")


def header_paths(schema: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """Return the header name of each argument path that declares one.

    Raises `ValueError` when a declaration violates the specification: such a tool must not be used.
    """
    found: dict[tuple[str, ...], str] = {}
    for path, node in _positions(schema):
        if _KEY not in node:
            continue
        token = node[_KEY]
        where = ".".join(path or ())
        if not path:
            raise ValueError(f"{_KEY} must be on a single argument")
        if not isinstance(token, str) or len(token) > _LONGEST_TOKEN or not _TOKEN.fullmatch(token):
            raise ValueError(f"{_KEY} of {where} is not a header name")
        if node.get("type") not in _TYPES:
            raise ValueError(f"{_KEY} of {where} needs a string, an integer or a boolean")
        if token.lower() in (other.lower() for other in found.values()):
            raise ValueError(f"{_KEY} {token!r} is used twice")
        found[path] = token
    return found


def parameter_headers(paths: Mapping[tuple[str, ...], str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the `Mcp-Param-*` headers of one call; an absent argument has none."""
    headers: dict[str, str] = {}
    for path, token in paths.items():
        value = _argument(arguments, path)
        if isinstance(value, bool):
            headers[f"Mcp-Param-{token}"] = "true" if value else "false"
        elif isinstance(value, str | int):
            headers[f"Mcp-Param-{token}"] = header_value(str(value))
    return headers


def _argument(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = arguments
    for key in path:
        value = as_mapping(value).get(key)
    return value


def header_value(text: str) -> str:
    """Return `text` as a header value: unchanged if it is safe in a header, else in base64."""
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
                named = as_mapping(value).items()
                stack.extend(((*path, name) if path is not None else None, child) for name, child in named)
            elif key not in _DATA:
                stack.extend((None, child) for child in _below(key, value))


def _below(key: str, value: Any) -> Iterator[Any]:
    if key in ("$defs", "definitions", "dependentSchemas", "patternProperties"):
        yield from as_mapping(value).values()
    elif isinstance(value, Mapping | list):
        yield value


def mismatch(message: str) -> RpcError:
    """Return the error for a header that contradicts the body."""
    return RpcError(HEADER_MISMATCH, f"Header mismatch: {message}")


def decode_header(value: bytes | None) -> str | None:
    """Return a header's text, decoded from `=?base64?…?=`; None if it is missing or malformed."""
    if value is None:
        return None
    text = value.strip().decode("latin-1")
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None:
        return text
    try:
        raw = base64.b64decode(wrapped[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == wrapped[1] else None
    except ValueError:
        return None


class _Parameter(Struct, frozen=True, kw_only=True):
    """One argument that a tool declares as a header."""

    path: tuple[str, ...]
    header: bytes
    is_integer: bool


class ParameterHeaders:
    """Checks `Mcp-Param-*` headers against the arguments of a call, for tools that declare `x-mcp-header`.

    The declarations of a tool are read once, until the catalog has another definition of it.
    """

    def __init__(self, find_tool: Callable[[str], Tool | None]) -> None:
        self._find_tool = find_tool
        self._known: dict[str, tuple[Tool, tuple[_Parameter, ...]]] = {}

    def check(self, name: str, arguments: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Raise `RpcError` with HEADER_MISMATCH if a declared header and its argument differ."""
        tool = self._find_tool(name)
        if tool is None:
            return
        known = self._known.get(name)
        if known is None or known[0] is not tool:
            known = self._known[name] = (tool, tuple(_declared(tool.input_schema)))
        for parameter in known[1]:
            _agree(parameter, _argument(arguments, parameter.path), headers.get(parameter.header))


def _declared(schema: Mapping[str, Any]) -> Iterator[_Parameter]:
    """Yield the valid declarations; an invalid one has no header that a client could send."""
    for path, node in _positions(schema):
        token = node.get(_KEY)
        if path and node.get("type") in _TYPES and isinstance(token, str) and _TOKEN.fullmatch(token):
            header = f"mcp-param-{token.lower()}".encode("ascii")
            yield _Parameter(path=path, header=header, is_integer=node["type"] == "integer")


def _agree(parameter: _Parameter, value: Any, header: bytes | None) -> None:
    argument, name = ".".join(parameter.path), parameter.header.decode()
    if value is None or not isinstance(value, str | int | float):
        if header is not None:
            raise mismatch(f"{name} is set but the argument {argument!r} has no value to compare")
        return
    if header is None:
        raise mismatch(f"{name} is missing but the argument {argument!r} is given")
    if not _equal(parameter, value, decode_header(header)):
        raise mismatch(f"{name} does not match the argument {argument!r}")


def _equal(parameter: _Parameter, value: str | int | float | bool, text: str | None) -> bool:
    if text is None:
        return False
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    decimal = _DECIMAL.fullmatch(text)
    if parameter.is_integer and not isinstance(value, str) and decimal is not None and len(text) < 400:
        return int(decimal[1]) == value
    return text == str(value)
