"""A crib with the tools that come with us, and the peers that a walk through a seed's inventory needs."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from peers.api import Api, Handler, api
from seeds.inventory import Case, Conversation, play, prepare
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.elicitation import Clarification
from toolcrib.core.session import LOCAL
from toolcrib.crib import Session
from toolcrib.policy.taint import Taint
from toolcrib.testing import RecordingApprover

_PEERS = Path(__file__).parents[1] / "peers"
_SERVER = [sys.executable, "-IS", str(_PEERS / "language_server.py"), ".script.json"]


_SHOP = """<html><head><title>The shop</title></head><body><nav>Menu</nav><main><h1>Hats</h1>
<p>We order hats on Mondays, and have done so for as long as anybody can think back. See
<a href="/orders">all orders</a>.</p>
<p id="hours">The doors are open from nine to five.</p></main></body></html>"""
_LONG = f"<html><body><main><p>{'word ' * 400}</p><p>This is the very end.</p></main></body></html>"
_FOUND = {
    "answers": ["Forty-two"],
    "results": [
        {"url": "https://first.example/a", "title": "First", "content": f"{'word ' * 100} the very end"},
        {"url": "https://second.example/b", "title": "Second", "content": "words"},
    ],
}


async def _job(request: Request) -> Response:
    """A job that is done when it is asked about for the second time."""
    return JSONResponse({"id": 7, "status": "done" if request.url.path == "/job/7" else "running"})


def _said(answer: Response) -> Handler:
    async def say(request: Request) -> Response:
        return answer

    return say


_PAGES: dict[str, Handler] = {
    "GET /find/search": _said(JSONResponse(_FOUND)),
    "GET /shop.html": _said(HTMLResponse(_SHOP)),
    "GET /long.html": _said(HTMLResponse(_LONG)),
    "GET /moved": _said(RedirectResponse("/shop.html")),
    "GET /job": _job,
    "GET /job/7": _job,
    "GET /missing": _said(Response(status_code=404)),
}


@dataclass(frozen=True, kw_only=True)
class World:
    """A crib with the tools that come with us, and a server that they may reach though it is on loopback."""

    crib: Toolcrib
    server: Api

    def session(self, seed: str, folder: Path, **options: Any) -> Session:
        """Open a conversation of nobody else's in a folder."""
        own = f"{seed} {folder}"
        known: dict[str, Any] = {"profile": seed, "mode": "autonomous", "key": own, "principal": own}
        known |= {"workspace": folder, "elicitor": self._answer, "approver": RecordingApprover("yes"), **options}
        return self.crib.session(**known)

    def begin(self, seed: str, case: Case, folder: Path) -> Session:
        """Put what a case needs on the disk, and open its conversation there."""
        roots = prepare(case, folder, self.server.origin)
        whose = {"principal": LOCAL} if case.local else {}
        return self.session(seed, folder, workspace=roots, required_capabilities=case.needs, **whose)

    async def play(self, seed: str, case: Case, folder: Path) -> None:
        """Bring the tool in the way of the seed, make the calls of a case, and look at what came of it."""
        session = self.begin(seed, case, folder)
        if case.name not in {tool.name for tool in session.tools}:
            await show(session, seed, case.name)
        await play(case, session, folder, self.server.received, self.server.origin)

    async def _answer(self, asked: Clarification) -> str | None:
        self.server.received.append({"question": asked.question})
        return "yes"


def tools_of(server: Api) -> dict[str, Any]:
    """Return what the configuration says under `tools`, so that each of them has what it needs on this machine."""
    host = server.origin.removeprefix("http://")
    return {
        "web": {"private_hosts": [host], "robots": "ignore", "search": {"searxng_url": f"{server.origin}/find"}},
        "api": {"shop": {"url": server.origin}},
        "lsp": {"servers": {"peer": {"command": _SERVER, "files": ["*.py"], "readable": [str(_PEERS)]}}},
        "references": {"sources": [{"id": "style", "name": "Style", "content": "Two blanks.", "tags": ["code"]}]},
        "services": {"credentials": {"shop": {"secret": "sesame-open-1", "url": server.origin}}},
        "git": {"tokens": {"git.example": "unused"}},
        "messaging": {"channels": {"team": f"json://{host}/hook"}},
    }


def server_of() -> AbstractAsyncContextManager[Api]:
    """Run the server: pages, a search, a job; what nothing else is for is answered with what arrived."""
    return api(_PAGES)


@asynccontextmanager
async def world_of() -> AsyncGenerator[World]:
    """Run the server, and open the crib over it; outputs of earlier calls make nobody ask."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(server_of())
        settings = bare().with_values(builtins=True, tools=tools_of(server), untrusted=Taint(ask=False))
        crib = await stack.enter_async_context(Toolcrib(settings, memory=True))
        yield World(crib=crib, server=server)


async def show(session: Conversation, seed: str, name: str) -> None:
    """Bring a tool into view in the way of the seed: by its category, or by its name out of the lists."""
    if seed == "tiered":
        for category in (await session.call("browse_tools", {})).structured_content["categories"]:
            loaded = await session.call("load_tools", {"category": category["name"]})
            if name in loaded.structured_content["tools_added"]:
                return
    elif seed == "introspection":
        assert name in [entry["name"] for entry in await _everything(session)]
        await session.call("get_tool_schemas", {"names": [name]})


async def _everything(session: Conversation) -> list[dict[str, Any]]:
    """Return what `list_tools` tells of every category."""
    overview = (await session.call("list_tools", {})).structured_content
    found: list[dict[str, Any]] = []
    for category in overview["categories"]:
        found += (await session.call("list_tools", {"category": category["name"]})).structured_content["tools"]
    return found
