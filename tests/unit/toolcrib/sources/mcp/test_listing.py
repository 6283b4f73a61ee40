"""What a server lists and what is offered of it."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from peers import scripted
from peers.journal import Journal
from peers.opened import open_source
from toolcrib.catalog.pins import pin_of
from toolcrib.core.events import Problem
from toolcrib.core.json import dumps
from toolcrib.core.tool import Annotations, Tool
from toolcrib.disclosure.base import estimate_tokens
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.handshake import Era
from toolcrib.mcp.client.session import RawListing
from toolcrib.mcp.client.spec import McpLimits, ServerSpec
from toolcrib.sources.mcp.tool_list import Cached, ListingCache, build_listing
from toolcrib.sources.source import Listing

SPEC = ServerSpec(name="s", transport="stdio", command="x")
LEGACY = Era(version="2025-11-25")


def problems(found: tuple[Problem, ...]) -> list[tuple[str, str]]:
    return [(problem.code, problem.tool) for problem in found]


def test_a_definition_is_taken_whole() -> None:
    entry: dict[str, Any] = {
        "name": "a.b/c-d",
        "title": "Title",
        "description": "Words.",
        "inputSchema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "null"}}},
        "outputSchema": {"type": "array"},
        "annotations": {"readOnlyHint": True, "unknown": 1},
        "_meta": {"k": 1},
    }

    listing = build_listing(RawListing(tools=[entry]), SPEC, McpLimits(), LEGACY)

    assert listing.problems == ()
    assert listing.tools == (
        Tool(
            name="a.b/c-d",
            source="s",
            local_name="a.b/c-d",
            description="Words.",
            title="Title",
            input_schema=entry["inputSchema"],
            output_schema={"type": "array"},
            annotations=Annotations(read_only=True),
            origin="mcp",
            meta={"k": 1},
        ),
    )


def test_tools_that_refer_to_schemas_of_the_operator_are_taken_with_a_copy_and_others_are_left_out() -> None:
    def entry(name: str, uri: str) -> dict[str, Any]:
        return {"name": name, "inputSchema": {"type": "object", "properties": {"x": {"$ref": uri}}}}

    known, unknown = "https://schemas.example/x.json", "https://schemas.example/y.json"
    spec = replace(SPEC, schemas={known: {"type": "integer"}})
    listing = build_listing(RawListing(tools=[entry("a", known), entry("b", unknown)]), spec, McpLimits(), LEGACY)

    copy = {known: {"$id": known, "type": "integer"}}
    assert [tool.input_schema for tool in listing.tools] == [{**entry("a", known)["inputSchema"], "$defs": copy}]
    assert (problems(listing.problems), spec.key() != SPEC.key()) == ([("bad_schema", "b")], True)


@pytest.mark.process
async def test_bad_entries_are_reported_and_hide_no_good_one(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path, "ugly"), tmp_path) as peer:
        listing = peer.listings[-1]

    assert {"echo", "hidden"} <= peer.tools.keys()
    assert peer.tools["hidden"].description == "Read it"
    assert problems(listing.problems) == [
        ("bad_tool", ""),
        ("bad_tool", "ev\\u0456l\\nname"),
        ("bad_schema", "schemaless"),
        ("bad_schema", "broken"),
        ("too_large", "huge"),
        ("hidden_text", "hidden"),
    ]
    assert (listing.title, listing.instructions) == ("Scripted", "Use echo.")


@pytest.mark.process
async def test_of_different_tools_with_one_name_none_is_offered(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path, "twins"), tmp_path) as peer:
        assert "echo" not in peer.tools
        assert "effect" in peer.tools
        assert problems(peer.listings[-1].problems) == [("duplicate", "echo")]


def test_a_tool_that_is_listed_twice_alike_is_offered_once() -> None:
    listing = build_listing(RawListing(tools=[{"name": "a"}, {"name": "a"}]), SPEC, McpLimits(), LEGACY)

    assert [tool.name for tool in listing.tools] == ["a"]
    assert problems(listing.problems) == [("duplicate", "a")]


@pytest.mark.process
@pytest.mark.parametrize(("mode", "tools"), [("many", 2000), ("pages", 100)])
async def test_a_list_has_an_end(tmp_path: Path, journal: Journal, mode: str, tools: int) -> None:
    async with open_source(scripted(journal.path, mode), tmp_path) as peer:
        assert len(peer.listings[-1].tools) == tools
        assert [problem.code for problem in peer.listings[-1].problems] == ["too_many"]


def test_a_long_description_is_cut_and_said_to_be() -> None:
    entry = {"name": "a", "description": "d" * 5000}

    listing = build_listing(RawListing(tools=[entry]), SPEC, McpLimits(), LEGACY)

    assert len(listing.tools[0].description.encode()) == 4096
    assert problems(listing.problems) == [("too_large", "a")]


def test_the_configuration_says_which_tools_are_taken_and_what_they_do() -> None:
    spec = replace(SPEC, tools_allow=("a", "b"), tools_deny=("b",), annotations={"a": {"readOnlyHint": True}})
    raw = RawListing(tools=[{"name": name, "annotations": {"destructiveHint": False}} for name in "abc"])

    (tool,) = build_listing(raw, spec, McpLimits(), LEGACY).tools

    assert (tool.name, tool.annotations) == ("a", Annotations(read_only=True, destructive=False))


def test_wrong_header_annotations_count_where_they_are_used() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    raw = RawListing(tools=[{"name": "a", "inputSchema": schema}])
    web = replace(SPEC, transport="http", url="http://127.0.0.1")

    assert build_listing(raw, web, McpLimits(), Era(version="2026-07-28")).tools == ()
    assert len(build_listing(raw, web, McpLimits(), LEGACY).tools) == 1
    assert len(build_listing(raw, SPEC, McpLimits(), Era(version="2026-07-28")).tools) == 1


@pytest.mark.parametrize("value", [None, 5, "text", [], {"type": "object"}])
def test_no_entry_however_odd_raises(value: object) -> None:
    keys = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta")
    raw = RawListing(tools=[value, *({"name": "a", key: value} for key in keys)])

    build_listing(raw, SPEC, McpLimits(), LEGACY)


@pytest.mark.process
async def test_a_change_that_nobody_announces_is_found_in_time(tmp_path: Path, journal: Journal) -> None:
    limits = McpLimits(refresh=0.05)
    async with open_source(scripted(journal.path), tmp_path, limits=limits) as peer:
        await peer.call("grow", tell=False)
        await peer.until(lambda one: any(tool.name == "late" for tool in one.tools))

        assert len(peer.listings) == 2


@pytest.mark.process
@pytest.mark.parametrize("mode", ["changed", "gone"])
async def test_a_definition_that_changed_in_silence_is_noticed_before_a_side_effect(
    tmp_path: Path, journal: Journal, mode: str
) -> None:
    async with open_source(replace(scripted(journal.path), relist_after=1e-6), tmp_path) as peer:
        seen = peer.tools["effect"]
        await peer.call("effect", id=1)
        await peer.call("become", mode=mode)
        with pytest.raises(ToolFailure) as caught:
            await peer.call_as(seen, id=1)

    assert caught.value.code == "definition_changed"
    assert [entry["name"] for entry in journal.of("call")] == ["effect", "become"]


@pytest.mark.process
async def test_reads_and_calls_of_a_recent_list_cost_no_other_list(tmp_path: Path, journal: Journal) -> None:
    for seconds, tools in ((30.0, ("effect", "echo")), (0.0, ("effect", "echo")), (1e-6, ("echo", "echo"))):
        async with open_source(replace(scripted(journal.path), relist_after=seconds), tmp_path) as peer:
            await peer.call("become", mode="hang-list") if seconds != 1e-6 else None
            for name in tools:
                assert not (await peer.call(name, text="x", id=1)).is_error


@pytest.mark.process
@pytest.mark.parametrize("mode", ["gone", "gone-text"])
async def test_a_tool_that_the_server_does_not_know_any_more_has_changed(
    tmp_path: Path, journal: Journal, mode: str
) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        seen = peer.tools["effect"]
        await peer.call("become", mode=mode)
        with pytest.raises(ToolFailure) as caught:
            await peer.call_as(seen, id=1)

    assert (caught.value.code, "effect" in peer.tools) == ("definition_changed", False)


@pytest.mark.process
async def test_a_server_that_does_not_list_its_tools_runs_no_side_effect(tmp_path: Path, journal: Journal) -> None:
    limits = McpLimits(start_timeout=0.5)
    async with open_source(replace(scripted(journal.path), relist_after=1e-6), tmp_path, limits=limits) as peer:
        await peer.call("become", mode="hang-list")
        assert (await peer.failing("effect", id=1)).code == "unavailable"
        assert not (await peer.call("echo", text="x")).is_error

    assert [entry["name"] for entry in journal.of("call")] == ["become", "echo"]


@pytest.mark.process
async def test_a_server_that_ends_while_it_lists_before_a_side_effect_gets_the_call_once_it_is_back(
    tmp_path: Path, journal: Journal
) -> None:
    async with open_source(replace(scripted(journal.path), relist_after=1e-6), tmp_path) as peer:
        await peer.call("become", mode="exit-list")
        assert not (await peer.call("effect", id=1)).is_error

    assert [entry["name"] for entry in journal.of("call")] == ["become", "effect"]


@pytest.mark.process
async def test_the_list_of_before_is_published_before_the_server_answers(tmp_path: Path, journal: Journal) -> None:
    spec = scripted(journal.path)
    async with open_source(spec, tmp_path, cache=True) as peer:
        fresh = peer.listings[-1]
    (kept,) = (tmp_path / "cache").iterdir()
    async with open_source(spec, tmp_path, cache=True) as peer:
        assert peer.listings[0] == replace(fresh, is_cached=True)
        assert len(peer.listings) == 2

    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.process
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format":1}', b'{"format":99}', b'{"format":1,"tools":5}'])
async def test_a_broken_cache_counts_as_none(tmp_path: Path, journal: Journal, content: bytes) -> None:
    spec = scripted(journal.path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f"{spec.key()}.json").write_bytes(content)
    async with open_source(spec, tmp_path, cache=True) as peer:
        assert len(peer.listings) == 1


def test_a_cache_is_named_without_showing_secrets_and_changes_with_them() -> None:
    one, other = (replace(SPEC, env={"TOKEN": value}).key() for value in ("hunter2", "hunter3"))

    assert one != other
    assert "hunter2" not in one
    assert "hunter2" not in replace(SPEC, env={"TOKEN": "hunter2"}).where


def test_a_list_of_a_server_that_is_not_used_any_more_goes_with_the_next_one_that_is_kept(tmp_path: Path) -> None:
    old, recent, begun = f"{'a' * 64}.json", f"{'b' * 64}.json", f"{'c' * 64}.0123.new"
    others = {"last-seen.json", f"{'z' * 64}.json"}
    for name in (old, recent, begun, *others):
        (tmp_path / name).write_text("{}")
    for name in (old, begun, *others):
        os.utime(tmp_path / name, (0, 0))
    spec = replace(SPEC, name="one")
    ListingCache(tmp_path, spec).write(Cached(listing=Listing(tools=()), era="modern"))
    assert {path.name for path in tmp_path.iterdir()} == {f"{spec.key()}.json", recent, *others}


def test_icons_are_passed_on_beside_the_definition_and_bounded() -> None:
    good = {"src": "https://icons.example/a.png", "sizes": ["48x48"], "theme": "dark"}
    small, large = ({"src": "data:image/png;base64," + "A" * size} for size in (1000, 1_000_000))
    wrong = [{"src": "javascript:alert(1)"}, {"src": "file:///etc/passwd"}, {"sizes": ["any"]}, "text", large]
    annotations = {"title": "Annotated", "readOnlyHint": True, "wild": 1}
    entries = [
        {"name": "a", "icons": [good, *wrong, small], "annotations": annotations},
        {"name": "b", "icons": "none"},
        {"name": "c", "icons": [small] * 2000},
    ]
    era = Era(version="2025-11-25", info={"name": "s", "version": "1", "icons": [large, good], "wild": "x"})

    listing = build_listing(RawListing(tools=entries), SPEC, McpLimits(), era)
    a, b, c = listing.tools

    assert a.listed == {
        "name": "a",
        "title": "Annotated",
        "inputSchema": {"type": "object"},
        "annotations": {"title": "Annotated", "readOnlyHint": True},
        "icons": (good, small),
    }
    assert b.listed == {"name": "b", "inputSchema": {"type": "object"}}
    assert 900_000 < len(dumps(c.listed)) <= 1024 * 1024
    assert [problem.code for problem in listing.problems] == ["too_large"]
    assert listing.server == {"name": "s", "version": "1", "icons": (good,)}
    assert estimate_tokens(a) == estimate_tokens(replace(a, annotations=Annotations(read_only=True)))
    assert pin_of(a) == pin_of(replace(a, annotations=Annotations(read_only=True)))
    assert a.digest != replace(a, annotations=dataclasses.replace(a.annotations, icons=())).digest


def test_the_icons_of_a_list_outlive_a_restart(tmp_path: Path) -> None:
    entry = {"name": "a", "icons": [{"src": "https://icons.example/a.png"}], "annotations": {"title": "A"}}
    era = Era(version="2025-11-25", info={"name": "s", "version": "1"})
    listing = build_listing(RawListing(tools=[entry]), SPEC, McpLimits(), era)
    ListingCache(tmp_path, SPEC).write(Cached(listing=listing, era="legacy"))

    kept = ListingCache(tmp_path, SPEC).read()

    assert kept is not None
    assert (kept.listing.tools[0].listed, kept.listing.server) == (listing.tools[0].listed, listing.server)


def test_a_list_that_was_kept_goes_on_in_the_background_as_the_configuration_says(tmp_path: Path) -> None:
    spec = ServerSpec(name="s", transport="stdio", command="x", background_after={"a": 0.5})
    listing = build_listing(RawListing(tools=[{"name": "a"}]), spec, McpLimits(), Era(version="2025-11-25"))
    ListingCache(tmp_path, spec).write(Cached(listing=listing, era="legacy"))

    kept = ListingCache(tmp_path, spec).read()

    assert kept is not None
    assert [tool.execution.background_after for tool in kept.listing.tools] == [0.5]
