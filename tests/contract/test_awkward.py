"""Awkward texts as arguments, as files, and as what sources say of their tools: nothing breaks, is lost, or is run.

What a stranger returns comes without its invisible characters, so what arrived at the other end is compared there.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
import yaml
from starlette.requests import Request as ApiRequest
from starlette.responses import PlainTextResponse, Response

from peers.api import Api, api, described
from peers.web import Request, WebPeer, web_peer
from rig import PATIENCE
from rig.awkward import AWKWARD, CANARY
from toolcrib import Toolcrib, tool
from toolcrib.config import load
from toolcrib.core.sanitize import is_hidden

FORMATS = ("anthropic", "openai", "openai-responses", "gemini", "mcp")
PROFILES = ("adaptive", "flat", "gateway", "introspection", "selection", "tiered")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ALL = "\x1f".join(AWKWARD)
PRINTABLE = "\x1f".join(text for text in AWKWARD if "\0" not in text)
"""What a program's argument can hold."""


@tool(kind="read")
def say(text: str) -> str:
    """Say it again.

    Args:
        text: What.
    """
    return text


async def answered(request: Request) -> None:
    await request.text("heard")


async def ran(request: ApiRequest) -> Response:
    return PlainTextResponse("heard")


def catalog(*entries: Mapping[str, Any]) -> str:
    apart = json.loads(json.dumps(entries))  # what is one object in Python would become an alias in YAML
    return yaml.safe_dump({"capabilities": apart}, allow_unicode=True)


@asynccontextmanager
async def opened(folder: Path, web: WebPeer, shop: Api, **more: Any) -> AsyncGenerator[Toolcrib]:
    """Open a crib with what lies in `folder`, a server and an API; it works in `folder`."""
    told = {
        "accept": True,
        "builtins": False,
        "catalogs": ["catalog.yaml"],
        "servers": {"web": {"url": web.url}},
        "sources": {"openapi": {"shop": {"spec": "shop.json", "base_url": shop.origin, "allow_private": True}}},
        "untrusted": {"ask": False},
        **more,
    }
    (folder / "toolcrib.yaml").write_text(json.dumps(told))
    settings = load([folder / "toolcrib.yaml"], environ={"HOME": str(folder)}, cwd=folder)
    async with Toolcrib(settings, memory=True) as crib:
        crib.add(say)
        with anyio.fail_after(PATIENCE):
            await crib.tools.wait_ready(PATIENCE)
        yield crib


@pytest.mark.process
async def test_every_text_arrives_as_it_was_sent_or_is_refused_and_none_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"in": "path", "required": True, "schema": {"type": "string"}}
    item = {"operationId": "item", "summary": "An item", "parameters": [{"name": "id", **given}]}
    (tmp_path / "shop.json").write_text(json.dumps(described({"/item/{id}": {"get": item}})))
    how = {"description": "Print it.", "kind": "read", "input_schema": TEXT}
    programs = (
        {"name": "as_argument", **how, "implementation": {"command": ["printf", "%s", "{text}"]}},
        {"name": "as_input", **how, "implementation": {"command": ["cat"], "stdin": "json"}},
    )
    (tmp_path / "catalog.yaml").write_text(catalog(*programs))
    async with api() as shop, web_peer(tools={"hear": answered}, schemas={"hear": TEXT}) as web:
        shop.otherwise = ran
        async with opened(tmp_path, web, shop) as crib:
            session = crib.session(profile="flat", mode="autonomous")
            said = [(await session.call("say", {"text": text})).text for text in AWKWARD]
            items = [await session.call("shop__item", {"id": text}) for text in AWKWARD]
            heard = await session.call("web__hear", {"text": ALL})
            printed = await session.call("as_argument", {"text": PRINTABLE})
            piped = await session.call("as_input", {"text": ALL})

    assert said == list(AWKWARD)
    refused = [text for text, result in zip(AWKWARD, items, strict=True) if result.is_error]
    assert refused == ["", "..", "."], "what would make the path another one"
    arrived = [request["path"] for request in shop.received if request["path"].startswith("/item/")]
    assert [_unquoted(path) for path in arrived] == [text for text in AWKWARD if text not in refused]
    assert heard.text == "heard"
    assert [call.message["params"]["arguments"] for call in web.of("tools/call")] == [{"text": ALL}]
    assert (printed.text, json.loads(piped.text)) == (PRINTABLE, {"text": ALL})
    assert not (tmp_path / CANARY).exists()


async def test_what_sources_say_in_awkward_texts_costs_no_good_tool_and_can_always_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths: dict[str, Any] = {
        f"/{place}": {"get": {"operationId": text, "summary": text, "description": text, "tags": [text]}}
        for place, text in enumerate(AWKWARD)
    }
    good = {"description": "A good one.", "kind": "read", "implementation": {"command": ["true"]}}
    bad = [
        {"name": text, "title": text, "description": text, "category": text, "implementation": {"command": ["true"]}}
        for text in AWKWARD
    ]
    schemas = {text: {"type": "object", "title": text, "properties": {text: {"description": text}}} for text in AWKWARD}
    (tmp_path / "shop.json").write_text(json.dumps(described(paths | {"/good": {"get": {"operationId": "good"}}})))
    (tmp_path / "catalog.yaml").write_text(catalog(*bad, {"name": "print_good", **good}))
    (tmp_path / "skills" / "fold").mkdir(parents=True)
    (tmp_path / "skills" / "fold" / "SKILL.md").write_text(f"---\nname: fold\ndescription: Folds.\n---\n{ALL}")
    tools = {**dict.fromkeys(AWKWARD, answered), "good": answered}
    async with api() as shop, web_peer(tools=tools, schemas=schemas) as web:
        shop.otherwise = ran
        async with opened(tmp_path, web, shop, skills=["skills"]) as crib:
            found = crib.catalog.tools
            problems = {(problem.source, problem.tool) for problem in crib.problems}
            for profile in PROFILES:
                session = crib.session(profile=profile, mode="autonomous")
                for format in FORMATS:
                    assert json.dumps(session.definitions(format)).isascii()
                session.instructions.encode()
            for text in AWKWARD:
                crib.catalog.search(text, 5)
            session = crib.session(profile="flat", mode="autonomous")
            called = [await session.call(tool.name, {}) for tool in found.values() if tool.source == "web"]

    assert {"say", "web__good", "shop__good", "print_good", "fold"} <= set(found)
    assert {result.text for result in called} == {"heard"}
    for source in ("web", "shop", "catalog"):
        count = sum(1 for one in found.values() if one.source == source)
        told = sum(1 for where, _ in problems if where == source)
        assert count + told >= len(AWKWARD), f"{source}: what is not offered is told, each by its name"
    shown = [part for one in found.values() for part in (one.name, one.summary, one.description)]
    assert [text for text in shown if any(is_hidden(char) and char not in "\n\t" for char in text)] == []
    assert not (tmp_path / CANARY).exists()


@pytest.mark.parametrize("profile", PROFILES)
async def test_what_is_no_unicode_is_refused_in_words_whatever_it_stands_for(profile: str) -> None:
    broken = "half \ud83d"
    async with Toolcrib(memory=True) as crib:
        crib.add(say)
        session = crib.session(profile=profile, mode="autonomous")
        calls: list[tuple[str, Any]] = [("say", {"text": broken}), ("say", {broken: 1}), ("say", broken), (broken, {})]
        calls += [(verb, {name: broken}) for verb in session.visible.profile.verbs.values() for name in ("op", "name")]
        results = [await session.call(name, arguments) for name, arguments in calls]

    codes = {result.error.code for result in results if result.error is not None}
    assert codes <= {"invalid_arguments", "not_found", "not_in_scope", "not_loaded"}
    assert all(result.text.encode() for result in results)
    assert all(result.is_error for result in results[:4])


def _unquoted(path: str) -> str:
    return unquote(path.removeprefix("/item/"))


async def test_a_name_without_end_is_repeated_and_kept_in_part_only() -> None:
    endless = "x" * 1_000_000
    async with Toolcrib(memory=True) as crib:
        crib.add(say)
        sizes: list[int] = []
        for profile in PROFILES:
            session = crib.session(profile=profile, mode="autonomous")
            for name, arguments in ((endless, {}), ("say", {endless: 1}), ("tool_exec", {"op": endless})):
                result = await session.call(name, arguments)
                sizes += [len(result.text), len(json.dumps(result.error.to_json() if result.error else {}))]
        rows = await crib.store.calls.list(limit=1000)

    assert len(rows) == 3 * len(PROFILES)
    assert max(sizes) < 3000
    assert max(len(row.tool) + len(row.requested) for row in rows) <= 2000
