"""What is beside tools, on the wire of both eras: changes of watched resources told to clients, and skills."""

import hashlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from conformance.test_resources import mounted
from peers import plain_server
from rig import PATIENCE
from toolcrib import Toolcrib
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from unit.toolcrib.server.wire_client import META, Site, events, modern, serving

WATCHED = "test://watched-resource"
UPDATED = "notifications/resources/updated"
PROMPTS = "notifications/prompts/list_changed"
SKILL = "---\nname: fold\ndescription: How to fold a letter.\nlicense: MIT\n---\nFold it twice.\n"
FILES = {"SKILL.md": SKILL, "references/a b.md": "Mind the edge.\n", "references/deep/c.md": "Deep.\n"}

Told = AsyncIterator[Mapping[str, Any]]
Ask = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def legacy(site: Site) -> AsyncGenerator[Told]:
    """Watch as a client of 2025-11-25 does: subscribe, and read the stream that belongs to no request."""
    session = await site.open()
    async with site.stream("GET", None, **session) as response:
        ask = {"jsonrpc": "2.0", "id": 9, "method": "resources/subscribe", "params": {"uri": WATCHED}}
        assert (await site.post(ask, **session)).json()["result"] == {}
        yield events(response)


@asynccontextmanager
async def stateless(site: Site) -> AsyncGenerator[Told]:
    """Watch as a client of 2026-07-28 does: one request that names what it wants to be told of."""
    wanted = {"promptsListChanged": True, "resourceSubscriptions": [WATCHED, "toolcrib://nobody/x"]}
    params = {"_meta": META, "notifications": wanted}
    ask = {"jsonrpc": "2.0", "id": "w", "method": "subscriptions/listen", "params": params}
    async with site.stream("POST", ask, **modern(ask)) as response:
        told = events(response)
        acknowledged = (await anext(told))["params"]["notifications"]
        assert acknowledged == {"promptsListChanged": True, "resourceSubscriptions": [WATCHED]}
        yield told


@pytest.mark.process
async def test_a_prompt_reaches_a_client_as_its_server_wrote_it() -> None:
    async with (
        mounted("one", trusted=True) as crib,
        serving(CribBackend(crib), HttpOptions(profile="flat", mode="autonomous")) as site,
    ):
        session = await site.open()
        ask = {"jsonrpc": "2.0", "id": 5, "method": "prompts/get", "params": {"name": "one__test_simple_prompt"}}
        answer = (await site.post(ask, **session)).json()["result"]

    content = {"type": "text", "text": "This is a simple prompt for testing."}
    assert (answer["description"], answer["messages"]) == ("A prompt of a test", [{"role": "user", "content": content}])


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("watching", [legacy, stateless])
async def test_a_client_is_told_of_a_resource_that_it_watches_and_of_no_other(
    watching: Callable[[Site], AbstractAsyncContextManager[Told]],
) -> None:
    async with (
        mounted("one", trusted=True) as crib,
        serving(CribBackend(crib), HttpOptions(profile="flat", mode="autonomous")) as site,
        watching(site) as told,
        anyio.create_task_group() as tasks,
    ):
        session = crib.session(profile="flat", mode="autonomous")

        async def trigger() -> None:
            """Again and again: the server hears only after a while that somebody watches."""
            while True:
                for uri in ("test://static-text", WATCHED):
                    await session.call("one__test_trigger_resource_update", {"uri": uri})

        tasks.start_soon(trigger)
        with anyio.fail_after(PATIENCE):
            seen = [message async for message in first(told, 3)]
        tasks.cancel_scope.cancel()

        assert [message["method"] for message in seen] == [UPDATED] * 3
        assert {message["params"]["uri"] for message in seen} == {WATCHED}


@pytest.mark.long
@pytest.mark.process
async def test_a_client_that_watches_no_longer_is_told_no_more() -> None:
    async with (
        mounted("one", trusted=True) as crib,
        serving(CribBackend(crib), HttpOptions(profile="flat", mode="autonomous")) as site,
    ):
        headers = await site.open()
        async with site.stream("GET", None, **headers) as response:
            for method in ("resources/subscribe", "resources/unsubscribe"):
                ask = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"uri": WATCHED}}
                assert (await site.post(ask, **headers)).json()["result"] == {}
            session = crib.session(profile="flat", mode="autonomous")
            await session.call("one__test_trigger_resource_update", {"uri": WATCHED})
            await session.call("one__test_trigger_prompt_change", {})

            with anyio.fail_after(PATIENCE):
                seen = [message["method"] async for message in first(events(response), 1)]
            assert seen == [PROMPTS]


async def first(told: Told, count: int) -> AsyncGenerator[Mapping[str, Any]]:
    for _ in range(count):
        yield await anext(told)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    """A crib with one skill, served."""
    for name, text in FILES.items():
        file = tmp_path / "skills" / "fold" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    async with Toolcrib() as crib:
        await crib.load(tmp_path / "skills")
        async with serving(CribBackend(crib), HttpOptions(profile="flat")) as site:
            yield site


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
async def ask(request: pytest.FixtureRequest, site: Site) -> Ask:
    """Send a request as a client of one of the eras; returns its result without what its era adds, or its error."""
    headers = await site.open() if request.param == "2025-11-25" else None
    added = ("resultType", "ttlMs", "cacheScope", "_meta")

    async def send(method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        named = str(params["uri"]) if method == "resources/read" else ""
        sent = await (site.post(message, **headers) if headers else site.ask(message, name=named))
        answer = sent.json()
        if "error" in answer:
            return answer["error"]
        assert headers or answer["result"]["cacheScope"] == "private"
        return {key: value for key, value in answer["result"].items() if key not in added}

    return send


def manifest() -> list[dict[str, Any]]:
    uris = {"SKILL.md": "SKILL.md", "references/a b.md": "references/a%20b.md", "references/deep/c.md": ""}
    return [
        {
            "uri": f"skill://fold/{uris[name] or name}",
            "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
            "size": len(text),
        }
        for name, text in FILES.items()
    ]


ENTRY: Mapping[str, Any] = {
    "uri": "skill://fold/SKILL.md",
    "frontmatter": {"name": "fold", "description": "How to fold a letter.", "license": "MIT"},
    "resources": manifest(),
}


async def test_skills_are_listed_and_got_one_by_one_with_what_tells_that_they_are_whole(ask: Ask) -> None:
    listed, got = await ask("skills/list"), await ask("skills/get", uri="skill://fold/SKILL.md")
    assert (listed, got) == ({"skills": [ENTRY]}, {"skill": ENTRY})
    read = await ask("resources/read", uri=ENTRY["resources"][1]["uri"])
    assert [content["text"] for content in read["contents"]] == ["Mind the edge.\n"]


async def test_the_folders_of_a_skill_are_read_level_by_level(ask: Ask) -> None:
    folders = ("skill://fold", "skill://fold/references", "skill://fold/references/deep")
    read = [await ask("resources/directory/read", uri=folder) for folder in folders]

    assert [{entry["uri"]: entry["mimeType"] for entry in one["resources"]} for one in read] == [
        {"skill://fold/SKILL.md": "text/markdown", "skill://fold/references": "inode/directory"},
        {
            "skill://fold/references/a%20b.md": "text/markdown",
            "skill://fold/references/deep": "inode/directory",
        },
        {"skill://fold/references/deep/c.md": "text/markdown"},
    ]


UNKNOWN: list[tuple[str, Mapping[str, Any]]] = [
    ("skills/get", {"uri": "skill://nobody/SKILL.md"}),
    ("skills/get", {"uri": "skill://fold/references/a%20b.md"}),
    ("skills/get", {}),
    ("skills/list", {"cursor": "2"}),
    ("resources/directory/read", {"uri": "skill://fold/SKILL.md"}),
    ("resources/directory/read", {"uri": "skill://fol"}),
    ("resources/directory/read", {"uri": "skill://"}),
    ("resources/directory/read", {"uri": "skill://fold/.."}),
    ("resources/directory/read", {"uri": "file:///etc"}),
]


async def test_what_no_skill_has_is_an_invalid_parameter(ask: Ask) -> None:
    answers = [(method, params, (await ask(method, **params))["code"]) for method, params in UNKNOWN]
    assert answers == [(method, params, -32602) for method, params in UNKNOWN]


@pytest.mark.process
async def test_views_of_two_servers_under_one_uri_keep_their_scheme_and_are_read_by_the_links_of_their_tools() -> None:
    async with Toolcrib() as crib, serving(CribBackend(crib), HttpOptions(profile="flat", mode="autonomous")) as site:

        async def ask(method: str, **params: Any) -> Any:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
            headers = modern(request) | ({"Mcp-Name": params["uri"]} if "uri" in params else {})
            return (await site.post(request, **headers)).json()

        async def links() -> dict[str, str]:
            tools = (await ask("tools/list"))["result"]["tools"]
            linked = {tool["name"]: tool["_meta"] for tool in tools if "ui" in tool.get("_meta", {})}
            for meta in linked.values():
                assert meta["ui"] == {"resourceUri": meta["ui/resourceUri"], "visibility": ["model"]}
            return {name: meta["ui/resourceUri"] for name, meta in linked.items()}

        async def mount(name: str) -> None:
            server = {"command": sys.executable, "args": [plain_server.__file__, f"view-{name}"]}
            await crib.mount({"mcpServers": {name: server}}, accept=True)
            await crib.tools.wait_ready(PATIENCE)

        await mount("one")
        alone = await links()
        await mount("two")
        both = await links()
        listed = {entry["uri"] for entry in (await ask("resources/list"))["result"]["resources"]}
        read = {name: (await ask("resources/read", uri=uri))["result"]["contents"] for name, uri in both.items()}
        bare = await ask("resources/read", uri=plain_server.VIEW)

    assert alone == {"mcp_one_count": plain_server.VIEW}
    assert both == {f"mcp_{name}_count": f"ui://toolcrib/{name}/count/view.html" for name in ("one", "two")}
    assert listed == set(both.values())
    assert {uri: [dict(content) for content in read[name]] for name, uri in both.items()} == {
        f"ui://toolcrib/{name}/count/view.html": [
            {"uri": both[f"mcp_{name}_count"], "mimeType": plain_server.HTML, "text": f"<p>{name}</p>"}
        ]
        for name in ("one", "two")
    }
    assert "error" in bare
