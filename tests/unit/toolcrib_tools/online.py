"""A crib with tools that talk to servers of the test, on loopback, and the shortest way to call them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from peers.api import Api, api
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.result import ToolError
from toolcrib.crib.session import Session
from toolcrib.policy.taint import Taint
from unit.toolcrib_tools.telling import failure_of, text_of

_UNASKED = Taint(ask=False)


@dataclass(frozen=True, kw_only=True)
class Online:
    """A session, and the server that its tools may reach though it is on loopback."""

    crib: Toolcrib
    session: Session
    server: Api

    async def said(self, name: str, /, **arguments: Any) -> str:
        """Call a tool that is to succeed; return its text."""
        return await text_of(self.session, name, **arguments)

    async def refused(self, name: str, /, **arguments: Any) -> ToolError:
        """Call a tool that is to fail; return why it did."""
        return await failure_of(self.session, name, **arguments)


@asynccontextmanager
async def online(
    *things: object, tools: Mapping[str, Any] | None = None, untrusted: Taint = _UNASKED, **options: Any
) -> AsyncGenerator[Online]:
    """Open a crib with `things`, a session of it, and a server; `{origin}` and `{host}` in the settings are its.

    What was read asks for nothing unless `untrusted` says so.
    """
    async with api() as server:
        host = server.origin.removeprefix("http://")
        said = _placed({"web": {}, **(tools or {})}, server.origin)
        said["web"] = {"private_hosts": [host], "robots": "ignore", **said["web"]}
        async with Toolcrib(bare().with_values(tools=said, untrusted=untrusted), memory=True) as crib:
            crib.add(*things)
            options = {"profile": "flat", "mode": "autonomous"} | options
            yield Online(crib=crib, session=crib.session(**options), server=server)


def gives(body: str | bytes, kind: str = "text/html; charset=utf-8", status: int = 200, **headers: str) -> Any:
    """Return what a server answers with, whatever it is asked."""

    async def handler(request: Request) -> Response:
        return Response(body, status, {name.replace("_", "-"): value for name, value in headers.items()}, kind)

    return handler


def _placed(value: Any, origin: str) -> Any:
    if isinstance(value, dict):
        return {name: _placed(inner, origin) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_placed(inner, origin) for inner in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    return value.replace("{origin}", origin).replace("{host}", origin.removeprefix("http://"))
