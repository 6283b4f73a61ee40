"""HTTP headers that repeat what the body says (MCP 2026-07-28), so that proxies can route without reading bodies.

A header that contradicts the body is refused: otherwise a proxy in front would decide on another call than the one
that runs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ...core.tool import Tool
from ..jsonrpc import HEADER_MISMATCH, RpcError

__all__ = ["NAMED", "ParameterHeaders", "decode_header", "mismatch"]

NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/cancel": "taskId",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
}
"""Method → the parameter that the `Mcp-Name` header repeats."""

_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_DECIMAL: Final = re.compile(r"(-?[0-9]+)(?:\.0+)?")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def mismatch(message: str) -> RpcError:
    """Return the error for a header that does not say what the body says."""
    return RpcError(HEADER_MISMATCH, f"Header mismatch: {message}")


def decode_header(value: bytes | None) -> str | None:
    """Return a header's text, unwrapped when it is `=?base64?…?=`; None when it is missing or broken."""
    if value is None:
        return None
    text = value.strip().decode("latin-1")
    wrapped = _ENCODED.fullmatch(text)
    if wrapped is None:
        return text
    try:
        raw = base64.b64decode(wrapped[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == wrapped[1] else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """One property that a tool wants repeated as a header."""

    path: tuple[str, ...]
    header: bytes
    is_integer: bool


class ParameterHeaders:
    """Checks `Mcp-Param-*` headers against the arguments of a call, for tools that declare `x-mcp-header`.

    Remembers what each tool declares for as long as the catalog holds that very tool.
    """

    def __init__(self, find_tool: Callable[[str], Tool | None]) -> None:
        self._find_tool = find_tool
        self._known: dict[str, tuple[Tool, tuple[_Parameter, ...]]] = {}

    def check(self, name: str, arguments: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Raise `RpcError` with HEADER_MISMATCH when a declared header and its argument do not agree."""
        tool = self._find_tool(name)
        if tool is None:
            return
        known = self._known.get(name)
        if known is None or known[0] is not tool:
            known = self._known[name] = (tool, tuple(_declared(tool.input_schema)))
        for parameter in known[1]:
            _agree(parameter, _at(arguments, parameter.path), headers.get(parameter.header))


def _declared(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[_Parameter]:
    """Yield the declarations reachable through `properties` alone; the specification knows no others."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or len(path) > 16:
        return
    for name, child in cast("Mapping[str, Any]", properties).items():
        if not isinstance(child, Mapping):
            continue
        child = cast("Mapping[str, Any]", child)
        header, kind = child.get("x-mcp-header"), child.get("type")
        if isinstance(header, str) and kind in ("string", "integer", "boolean") and _TOKEN.fullmatch(header):
            encoded = f"mcp-param-{header.lower()}".encode("ascii")
            yield _Parameter(path=(*path, name), header=encoded, is_integer=kind == "integer")
        yield from _declared(child, (*path, name))


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = cast("Mapping[str, Any]", arguments).get(name)
    return arguments


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
