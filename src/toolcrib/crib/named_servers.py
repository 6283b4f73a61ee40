"""MCP servers that a program names: a configuration, the URL of one, or the object of one in this process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from ..config import servers_in
from ..core.events import Problem
from ..errors import UsageError
from ..mcp.client.spec import ServerSpec
from ..net.urls import is_url


def servers_of(given: Any, name: str | None) -> tuple[list[ServerSpec], list[Problem]]:
    """Return the servers of `given`, and a problem for each that cannot be taken. Raises `UsageError`."""
    if isinstance(given, Mapping):
        if name is not None:
            raise UsageError("the servers of a configuration have their own names; leave `name` out")
        return servers_in(cast("Mapping[str, Any]", given))
    if isinstance(given, str):
        if not is_url(given):
            raise UsageError(f"{given!r} is not a URL of an MCP server; `await crib.load(path)` takes files")
        return servers_in({"mcpServers": {name or plain_name(_host(given)): {"url": given}}})
    if not _holds_server(given):
        raise UsageError(
            'mount takes `{"mcpServers": {…}}`, the URL of an MCP server, or an object of FastMCP or of the MCP SDK,'
            f" not {type(given).__name__}"
        )
    from ..mcp.client.in_process import passes_on

    own = name or plain_name(str(getattr(given, "name", "")))
    return [ServerSpec(name=own, transport="memory", server=given, trusted=not passes_on(given))], []


def without_objects(servers: Mapping[str, Any]) -> tuple[dict[str, Any], list[ServerSpec]]:
    """Return the entries that a configuration file could have, and the specifications of server objects among them."""
    written, objects = dict(servers), list[ServerSpec]()
    for name, entry in servers.items():
        if not isinstance(entry, Mapping | str | int | None) and _holds_server(entry):
            objects += servers_of(written.pop(name), name)[0]
    return written, objects


def plain_name(text: str, otherwise: str = "server") -> str:
    """Return a name for a source made of `text`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or otherwise


def _holds_server(given: Any) -> bool:
    from ..mcp.client.in_process import server_of  # only for programs with a server object

    return server_of(given) is not None


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: {error}") from None
