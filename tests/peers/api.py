"""A real HTTP API on loopback, its description made by the test, and an open source in front of it."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from peers.serving import serving
from rig import PATIENCE, eventually
from toolcrib.core.context import Context
from toolcrib.core.events import Problem
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolFailure
from toolcrib.sources.openapi.source import OpenApiSource
from toolcrib.sources.openapi.spec import ApiSettings
from toolcrib.sources.source import Listing

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(kw_only=True)
class Api:
    """A running API. What nothing else is for is answered with what arrived, as JSON."""

    origin: str = ""
    handlers: dict[str, Handler] = field(default_factory=dict[str, Handler])
    """By `METHOD /path`, the path as it is decoded."""
    otherwise: Handler | None = None
    """Answers what no handler is for."""
    received: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def answer(self, request: Request) -> Response:
        """Answer one request, and remember it."""
        body = await request.body()
        seen = {
            "method": request.method,
            "path": request.scope["raw_path"].decode(),
            "query": request.scope["query_string"].decode(),
            "headers": dict(request.headers),
            "body": body.decode("latin-1"),
        }
        self.received.append(seen)
        handler = self.handlers.get(f"{request.method} {request.url.path}") or self.otherwise
        return JSONResponse(seen) if handler is None else await handler(request)


@asynccontextmanager
async def api(handlers: Mapping[str, Handler] | None = None) -> AsyncGenerator[Api]:
    """Run an API until the block ends."""
    running = Api(handlers=dict(handlers or {}))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        response = await running.answer(Request(scope, receive))
        await response(scope, receive, send)

    async with serving(app, lifespan=False, grace=0) as running.origin:
        yield running


def described(paths: Mapping[str, Any], *, version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    """Return a description of `paths`; an operation is named by its path when it has no id."""
    return {"openapi": version, "info": {"title": "Workshop", "version": "1"}, "paths": dict(paths), **more}


class OpenedApi:
    """A source, what it published, and the shortest way to call it."""

    def __init__(self, source: OpenApiSource) -> None:
        self.source = source
        self.listings: list[Listing] = []

    async def until(self, condition: Callable[[Listing], bool]) -> Listing:
        """Wait for a listing that fulfils `condition`."""
        await eventually(lambda: self.listings and condition(self.listings[-1]))
        return self.listings[-1]

    @property
    def tools(self) -> Mapping[str, Tool]:
        """What it offers now."""
        return {tool.name: tool for tool in self.listings[-1].tools}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What it could not take."""
        return self.listings[-1].problems

    async def call(self, tool: str, /, *, within: float = PATIENCE, **arguments: Any) -> ToolResult:
        """Call a tool as somebody who waits `within` seconds."""
        context = Context(call_id="c", session_key="s", principal="local", deadline=time.monotonic() + within)
        return await self.source.call(self.tools[tool], arguments, context)

    async def sent(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return the request that arrived."""
        seen: Any = (await self.call(tool, **arguments)).structured_content
        assert isinstance(seen, dict)
        return cast("dict[str, Any]", seen)

    async def failing(self, tool: str, /, **arguments: Any) -> ToolFailure:
        """Call a tool that must fail, and return how."""
        with pytest.raises(ToolFailure) as caught:
            await self.call(tool, **arguments)
        return caught.value


@asynccontextmanager
async def open_api(
    description: str | Path | Mapping[str, Any], *, cache_dir: Path | None = None, **settings: Any
) -> AsyncGenerator[OpenedApi]:
    """Open a source and wait until it is ready or has failed; private addresses are allowed unless said otherwise."""
    given: dict[str, Any] = {"allow_private": True, **settings}
    made = ApiSettings(**given)
    opened = OpenedApi(OpenApiSource("api", description, settings=made, cache_dir=cache_dir, every=0.02))
    await opened.source.open(opened.listings.append)
    try:
        with anyio.fail_after(PATIENCE):
            await opened.source.ready()
        yield opened
    finally:
        await opened.source.close()


@asynccontextmanager
async def kind_handlers() -> AsyncGenerator[Api]:
    """Run an API of the three operations that every kind of source is tested with."""

    async def echo(request: Request) -> Response:
        return PlainTextResponse((await request.json())["text"])

    async def fail(request: Request) -> Response:
        return JSONResponse({"message": "no way"}, 422)

    async def hang(request: Request) -> Response:
        while not await request.is_disconnected():
            await anyio.sleep(0.02)
        return Response()

    async with api({"POST /echo": echo, "POST /fail": fail, "GET /hang": hang}) as running:
        yield running
