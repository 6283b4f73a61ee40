"""Opening and mounting wait for sources; a call waits for its own source alone, and a search names the others.

Sources that are down are reported where a search or a call concerns them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from msgspec.structs import replace

from contract.seats import over_mcp
from rig import PATIENCE
from toolcrib.config import Directories, Settings, bare, load, servers_in
from toolcrib.core.call import Call
from toolcrib.core.context import Context
from toolcrib.core.events import CatalogChanged, SourceState
from toolcrib.core.result import ToolResult
from toolcrib.core.saved_call import SavedCall
from toolcrib.core.server_features import ServerFeatures
from toolcrib.core.tool import Tool
from toolcrib.crib import Toolcrib
from toolcrib.errors import ConfigError
from toolcrib.mcp.server.service import ServiceLimits
from toolcrib.server.http import HttpOptions
from toolcrib.sources.source import Publish
from toolcrib.testing import ScriptedSource
from unit.toolcrib.server.fake_backend import FakeBackend, FakeResources
from unit.toolcrib.server.wire_client import serving

AUTONOMOUS = bare().with_values(mode="autonomous", builtins=False)
SOON = 0.05
"""Seconds of the limits that pass in these tests."""


async def ran(_: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("ran", structured_content={"remaining": context.remaining})


class HeldSource(ScriptedSource):
    """A source that lists once the test lets it."""

    def __init__(self, name: str, *tools: str, fails: bool = False, listed: Iterable[Tool] = ()) -> None:
        super().__init__(name, dict.fromkeys(tools, ran), listed=listed)
        self._fails = fails
        self._later: Publish | None = None
        self._done = anyio.Event()
        self.waited_for = anyio.Event()

    @property
    def state(self) -> SourceState:
        if self._later is not None and not self._done.is_set():
            return SourceState(source=self.name, kind="held", state="connecting")
        return SourceState(source=self.name, kind="held", state="failed") if self._fails else super().state

    async def open(self, publish: Publish) -> None:
        self._later = publish

    async def ready(self) -> None:
        self.waited_for.set()
        await self._done.wait()

    async def let_list(self) -> None:
        if self._later is not None and not self._fails:
            await super().open(self._later)
        self._done.set()


@asynccontextmanager
async def with_held(
    *sources: HeldSource, settings: Settings = AUTONOMOUS, quick: bool = True
) -> AsyncGenerator[Toolcrib]:
    """A crib with these sources, and `quick`, which has listed."""
    async with Toolcrib(settings, memory=True) as crib:
        for source in sources:
            await crib.tools.mount_source(source)
        if quick:
            await crib.tools.mount_source(ScriptedSource("quick", {"echo": ran}))
        yield crib


@asynccontextmanager
async def server(backend: FakeBackend, port: int = 0) -> AsyncGenerator[str]:
    """A server over HTTP in this process, which lists its tools once `backend.ready` is set."""
    async with serving(backend, HttpOptions(port=port, limits=ServiceLimits(first_list=PATIENCE, drain=0.1))) as site:
        yield site.url


def held_backend() -> FakeBackend:
    backend = FakeBackend()
    backend.ready = anyio.Event()
    return backend


def servers(**urls: str) -> dict[str, Any]:
    return {"mcpServers": {name: {"url": url} for name, url in urls.items()}}


def error(result: ToolResult) -> tuple[str, str] | None:
    return (result.error.code, result.error.hint) if result.error else None


def code(result: ToolResult) -> str:
    return result.error.code if result.error else "ok"


def states(crib: Toolcrib) -> dict[str, str]:
    return {state.source: state.state for state in crib.tools.sources if state.kind == "mcp"}


def named(crib: Toolcrib, tool: str) -> list[str]:
    return [name for name in crib.catalog.tools if name.endswith(f"__{tool}")]


# Opening and mounting


async def test_mounting_returns_when_each_server_has_listed() -> None:
    backend, seen = held_backend(), list[list[str]]()
    async with server(backend) as slow, server(FakeBackend()) as quick, Toolcrib(AUTONOMOUS, memory=True) as crib:

        def note(_: CatalogChanged) -> None:
            seen.append(named(crib, "echo"))
            backend.ready.set()

        async with anyio.create_task_group() as tasks:
            crib.tools.on_change(note)
            tasks.start_soon(crib.mount, servers(slow=slow, quick=quick))
        assert (seen[0], named(crib, "echo")) == (["quick__echo"], ["slow__echo", "quick__echo"])


@pytest.mark.slow
async def test_mounting_a_server_that_hangs_returns_after_the_ready_timeout_with_the_tools_of_the_others() -> None:
    settings = AUTONOMOUS.with_values(ready_timeout=1.0)
    async with server(held_backend()) as slow, server(FakeBackend()) as quick, Toolcrib(settings, memory=True) as crib:
        await crib.mount(servers(slow=slow, quick=quick))
        assert (states(crib), named(crib, "echo")) == ({"slow": "connecting", "quick": "ready"}, ["quick__echo"])


async def test_mounting_waits_for_no_other_source() -> None:
    async with server(FakeBackend()) as quick, with_held(HeldSource("slow"), quick=False) as crib:
        with anyio.fail_after(AUTONOMOUS.sources.ready_timeout / 2):
            await crib.mount(servers(quick=quick))
        assert named(crib, "echo") == ["quick__echo"]


async def test_opening_waits_for_the_servers_of_the_configuration_unless_it_is_to_return_at_once() -> None:
    backend = held_backend()
    async with server(backend) as url:
        settings = AUTONOMOUS.with_values(servers=servers_in(servers(slow=url))[0], accept=True)
        async with Toolcrib(settings.at_once(), memory=True) as crib:
            assert states(crib) == {"slow": "connecting"}
        backend.ready.set()
        async with Toolcrib(settings, memory=True) as crib:
            assert named(crib, "echo") == ["slow__echo"]


async def test_a_list_from_the_cache_is_enough_and_a_call_waits_for_the_connection(tmp_path: Path) -> None:
    backend = FakeBackend()
    settings = dataclasses.replace(AUTONOMOUS, directories=Directories.of({"HOME": str(tmp_path)}))
    async with server(backend) as url, Toolcrib(settings) as crib:
        await crib.mount(servers(slow=url))
    backend.ready = anyio.Event()
    async with server(backend, urlsplit(url).port or 0), Toolcrib(settings) as crib:
        with anyio.fail_after(settings.sources.ready_timeout / 2):
            await crib.mount(servers(slow=url))
        assert states(crib) == {"slow": "cached"}
        async with crib.session() as session:
            early = await session.call("slow__routed", {}, timeout=SOON)
            [row] = await crib.store.calls.list()
            backend.ready.set()
            late = await session.call("slow__echo", {"text": "hi"})
    assert (error(early), row.outcome, error(late)) == (("unavailable", "starting"), "unavailable", None)
    assert [one.call.name for one in backend.seen] == ["echo"]


@pytest.mark.parametrize("key", ["ready_timeout", "first_list_timeout"])
def test_both_times_are_settings(key: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"{key}: 0\n")
    assert load([file]).value(key) == 0
    file.write_text(f"{key}: 1m\n")
    assert load([file]).value(key) == 60
    for wrong in ("-1", "yes", "soon", ".inf"):
        file.write_text(f"mode: cautious\n{key}: {wrong}\n")
        with pytest.raises(ConfigError) as raised:
            load([file])
        assert (raised.value.file, raised.value.key) == (f"{file}:2", key)


# Calls


@pytest.mark.parametrize(
    ("profile", "name", "arguments"),
    [
        ("flat", "slow__tool", {}),
        ("flat", "Slow.tool", {}),
        ("adaptive", "slow-tool", {}),
        ("adaptive", "call_tool", {"name": "slow__tool"}),
        ("gateway", "tool_exec", {"op": "x.slow.tool"}),
        ("tiered", "slow__tool", {}),
    ],
)
async def test_a_call_waits_for_its_source(profile: str, name: str, arguments: dict[str, Any]) -> None:
    slow = HeldSource("slow", "tool")
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call(name, arguments))

    async with (
        with_held(slow) as crib,
        crib.session(profile=profile) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(call)
        await slow.waited_for.wait()
        assert (results, slow.calls) == ([], [])
        await slow.let_list()
    assert ([error(result) for result in results], slow.calls) == ([None], [("tool", {})])


async def test_a_call_by_the_profiles_own_name_waits_too() -> None:
    profile = {"extends": "flat", "mcp_names": "mcp__{server}__{tool}", "names": {"jot": {"tool": "slow__tool"}}}
    settings = load(overrides={"profiles": {"mine": profile}, "mode": "autonomous", "builtins": False})
    for name in ("jot", "mcp__slow__tool"):
        slow = HeldSource("slow", "tool")
        async with with_held(slow, settings=settings) as crib, crib.session(profile="mine") as session:
            result = await session.call(name, {}, timeout=SOON)
        assert error(result) == ("unavailable", "starting"), name


async def test_the_wait_counts_and_ends_with_the_time_of_the_call() -> None:
    slow = HeldSource("slow", "tool")
    async with with_held(slow) as crib, crib.session() as session:
        began = time.monotonic()
        results = [await session.call("slow__tool", {}, timeout=SOON)]
        waited = time.monotonic() - began
        async with anyio.create_task_group() as tasks:
            slow.waited_for = anyio.Event()

            async def let_list() -> None:
                await slow.waited_for.wait()
                await anyio.wait_all_tasks_blocked()
                await slow.let_list()

            tasks.start_soon(let_list)
            results.append(await session.call("slow__tool", {}, timeout=PATIENCE))
    early, late = results
    assert (error(early), waited >= SOON, error(late)) == (("unavailable", "starting"), True, None)
    assert 0 < late.structured_content["remaining"] < PATIENCE
    assert [call for call, _ in slow.calls] == ["tool"]


async def test_a_call_of_nothing_is_answered_at_once_beside_a_source_that_starts() -> None:
    slow = HeldSource("slow", "tool")
    names = ("quick__ecko", "nothing", "slowly__tool", "calc__slow__tool")
    async with with_held(slow) as crib, crib.session() as session:
        with anyio.fail_after(PATIENCE):
            answers = [await session.call(name, {}) for name in names]
        ok = await session.call("quick__echo", {})
    codes = [(answer.error.code, "still starting: slow." in answer.error.hint) for answer in answers if answer.error]
    assert codes == [("not_found", True)] * len(names)
    assert (error(ok), slow.waited_for.is_set()) == (None, False)


async def test_a_source_out_of_scope_is_neither_waited_for_nor_named() -> None:
    slow = HeldSource("slow", "tool")
    async with with_held(slow) as crib:
        async with crib.session(allowed_tools=["quick__echo"]) as session:
            refused = await session.call("slow__tool", {})
            found = await session.call("search_tools", {"query": "tool"})
        async with crib.session(allowed_tools=["slow__tool"]) as session:
            waited = await session.call("slow__tool", {}, timeout=SOON)
    assert refused.error is not None
    assert (refused.error.code, "slow" in refused.error.hint + found.text) == ("not_found", False)
    assert error(waited) == ("unavailable", "starting")


async def test_a_source_that_fails_to_start_ends_the_wait() -> None:
    slow = HeldSource("slow", "tool", fails=True)
    results: list[ToolResult] = []
    async with with_held(slow) as crib, crib.session() as session, anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await session.call("slow__tool", {}))

        tasks.start_soon(call)
        await slow.waited_for.wait()
        await slow.let_list()
    assert [result.error.code for result in results if result.error] == ["not_found"]


async def test_two_sources_without_prefix_are_waited_for_until_one_has_the_tool() -> None:
    one, other = HeldSource("one", "tool"), HeldSource("other", "tool_b")
    results: list[ToolResult] = []
    async with Toolcrib(AUTONOMOUS, memory=True) as crib, crib.session() as session:
        for source in (one, other):
            await crib.tools.mount_source(source, prefix=False)
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                results.append(await session.call("tool_b", {}))

            tasks.start_soon(call)
            await one.waited_for.wait()
            await other.let_list()
    assert [error(result) for result in results] == [None]


async def test_a_saved_call_waits_for_its_source_and_is_refused_when_the_definition_changed() -> None:
    calls: list[Call] = []

    async def keep(call: Call) -> Call:
        calls.append(call)
        return call

    async with Toolcrib(AUTONOMOUS, memory=True, before=[keep]) as crib, crib.session(key="k") as session:
        await crib.tools.mount_source(ScriptedSource("slow", {"tool": ran}))
        await session.call("slow__tool", {})
    saved = SavedCall.of(calls[0])
    changed = replace(calls[0].target, name="tool", description="Another thing.")
    codes: list[str] = []
    for listed in ((), (changed,)):
        slow = HeldSource("slow", "tool", listed=listed)

        async def make(crib: Toolcrib) -> None:
            codes.append(code(await crib.parts.saved_calls.make(saved)))

        async with with_held(slow) as crib, anyio.create_task_group() as tasks:
            tasks.start_soon(make, crib)
            await slow.waited_for.wait()
            assert slow.calls == []
            await slow.let_list()
    assert codes == ["ok", "definition_changed"]


# Searches


@pytest.mark.parametrize(
    ("profile", "meta_tool", "arguments"),
    [
        ("adaptive", "search_tools", {"query": "echo"}),
        ("adaptive", "search_tools", {"query": "zzz qqq"}),
        ("adaptive", "describe_tools", {"names": ["slow__tool"]}),
        ("tiered", "browse_tools", {}),
        ("introspection", "list_tools", {}),
        ("introspection", "get_tool_schemas", {"names": ["slow__tool"]}),
        ("gateway", "tool_help", {"path": "root"}),
    ],
)
async def test_a_search_says_which_sources_are_starting(
    profile: str, meta_tool: str, arguments: dict[str, Any]
) -> None:
    slow = HeldSource("slow", "tool")
    async with with_held(slow) as crib, crib.session(profile=profile) as session:
        before = await session.call(meta_tool, arguments)
        await slow.let_list()
        after = await session.call(meta_tool, arguments)
    is_named: Callable[[ToolResult], bool] = lambda result: "starting" in result.text.lower()  # noqa: E731
    assert (is_named(before), "slow" in before.text, is_named(after)) == (True, True, False)
    assert (error(before), error(after)) == (None, None)


# Servers that are down


DOCTOR = "`toolcrib doctor` examines it; use another tool meanwhile."


async def down(tmp_path: Path, meta_tool: str, arguments: dict[str, Any], profile: str = "adaptive") -> ToolResult:
    """The answer of a meta-tool, or of a tool, beside two servers that are down."""
    settings = dataclasses.replace(AUTONOMOUS, directories=Directories.of({"HOME": str(tmp_path)}))
    async with server(FakeBackend()) as url, Toolcrib(settings) as crib:
        await crib.mount(servers(old=url))
    async with Toolcrib(settings) as crib:
        await crib.mount(servers(**{"old": url, "new-forge": url}))
        await crib.tools.mount_source(ScriptedSource("quick", {"fetch_weather": ran}))
        await crib.tools.wait_ready(PATIENCE, fresh=True)
        async with crib.session(profile=profile) as session:
            return await session.call(meta_tool, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["old__echo", "old__not_listed", "new-forge__echo", "new_forge.echo"])
async def test_a_call_of_a_tool_of_a_server_that_is_down_says_so(name: str, tmp_path: Path) -> None:
    result = await down(tmp_path, "call_tool", {"name": name, "arguments": {"text": "hi"}})
    source = "old" if name.startswith("old") else "new-forge"
    assert result.error is not None
    assert (result.error.code, result.error.hint) == ("unavailable", DOCTOR)
    assert result.error.message.startswith(f"{source} is down: ")


async def test_a_name_that_no_server_that_is_down_can_have_is_not_found(tmp_path: Path) -> None:
    result = await down(tmp_path, "call_tool", {"name": "quick__echo", "arguments": {}})
    assert code(result) == "not_found"


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("echo", "old is down: ", "Not available, so their tools are not found: new-forge."),
        ("what new forge has", "new-forge is down: ", ""),
        ("zzz qqq", "new-forge is down: ", ""),
        ("fetch weather", "quick__fetch_weather", "Not available, so their tools are not found: new-forge."),
    ],
)
@pytest.mark.slow
async def test_a_search_that_concerns_a_server_that_is_down_reports_it_first(
    query: str, first: str, last: str, tmp_path: Path
) -> None:
    lines = (await down(tmp_path, "search_tools", {"query": query})).text.splitlines()
    assert lines[0].startswith(first)
    assert lines[0].endswith(DOCTOR) == first.endswith(" is down: ")
    assert (lines[-1] == last) if last else not any(line.startswith("Not available") for line in lines)


@pytest.mark.parametrize(
    ("profile", "meta_tool", "arguments"),
    [
        ("tiered", "browse_tools", {}),
        ("introspection", "list_tools", {}),
        ("introspection", "get_tool_schemas", {"names": ["new-forge__echo"]}),
        ("gateway", "tool_help", {"path": "root"}),
    ],
)
async def test_a_list_of_a_seeds_profile_names_the_servers_that_are_down_and_the_remedy(
    profile: str, meta_tool: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    text = (await down(tmp_path, meta_tool, arguments, profile)).text
    assert "new-forge is down: " in text
    assert "toolcrib doctor" in text


async def test_a_description_of_a_tool_of_a_server_that_is_down_says_so(tmp_path: Path) -> None:
    result = await down(tmp_path, "describe_tools", {"names": ["new-forge__echo"]})
    assert result.text.startswith("new-forge__echo: new-forge is down: ")


async def test_a_server_that_is_down_and_out_of_scope_is_not_named(tmp_path: Path) -> None:
    settings = dataclasses.replace(AUTONOMOUS, directories=Directories.of({"HOME": str(tmp_path)}))
    async with server(FakeBackend()) as url:
        pass
    async with Toolcrib(settings) as crib:
        await crib.mount(servers(gone=url))
        await crib.tools.mount_source(ScriptedSource("quick", {"echo": ran}))
        async with crib.session(allowed_tools=["quick__echo"]) as session:
            found = await session.call("search_tools", {"query": "gone"})
            called = await session.call("call_tool", {"name": "gone__echo", "arguments": {}})
    assert ("gone is down" in found.text, code(called)) == (False, "not_found")


async def test_a_server_that_a_configuration_error_keeps_out_is_reported_first_and_by_its_calls() -> None:
    keys = {"servers": {"github": {"command": "gh-mcp", "env": {"TOKEN": "${NO_SUCH_VARIABLE_HERE}"}, "cdw": "/"}}}
    settings = load(None, {"mode": "autonomous", "builtins": False, **keys}, {})
    async with Toolcrib(settings, memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("quick", {"fetch_weather": ran}))
        async with crib.session(profile="adaptive") as session:
            named = await session.call("search_tools", {"query": "create a github issue"})
            other = await session.call("search_tools", {"query": "fetch weather"})
            called = await session.call("call_tool", {"name": "github__create_issue", "arguments": {}})
        async with crib.session(allowed_tools=["quick__fetch_weather"]) as session:
            hidden = await session.call("search_tools", {"query": "create a github issue"})
        await crib.tools.mount_source(ScriptedSource("github", {"create_issue": ran}))
        mounted = await crib.session(profile="adaptive").call("search_tools", {"query": "create a github issue"})

    first, *_ = named.text.splitlines()
    assert first.startswith("github is not available, its configuration has an error: ")
    assert ("NO_SUCH_VARIABLE_HERE" in first, "cdw: unknown" in first, "toolcrib doctor" in first) == (True, True, True)
    assert other.text.splitlines()[-1] == "Not available, so their tools are not found: github."
    assert called.error is not None
    assert (called.error.code, called.error.details) == ("unavailable", {"down": ["github"]})
    assert called.error.message == first.partition(". `toolcrib")[0]
    assert "not available" not in hidden.text
    assert mounted.text.startswith("github__create_issue")


# Over MCP


async def test_over_mcp_the_first_list_waits_its_time_once_and_a_call_waits_for_its_source() -> None:
    slow, limits = HeldSource("slow", "tool"), ServiceLimits(first_list=SOON)
    async with with_held(slow) as crib, over_mcp(crib, "flat", "2026-07-28", "autonomous", limits) as seat:
        first = await seat.listed()
        with anyio.fail_after(PATIENCE):
            again = await seat.listed()
        replies = list[Any]()
        slow.waited_for = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                replies.append(await seat.ask("slow__tool", {}))

            tasks.start_soon(ask)
            await slow.waited_for.wait()
            assert replies == []
            await slow.let_list()
        listed = await seat.listed()
    assert ("slow__tool" in first + again, "quick__echo" in first, "slow__tool" in listed) == (False, True, True)
    assert [reply.code for reply in replies] == ["ok"]


@pytest.mark.slow
async def test_resources_may_exist_until_each_server_has_listed_and_none_has_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeResources, "may_exist", False)
    backend, settings = (
        held_backend(),
        dataclasses.replace(AUTONOMOUS, directories=Directories.of({"HOME": str(tmp_path)})),
    )
    async with server(backend) as url:
        settings = settings.with_values(servers=servers_in(servers(slow=url))[0], accept=True).at_once()
        async with Toolcrib(settings) as crib:
            resources = crib.session(profile="flat").resources
            unseen = resources.may_exist
            backend.ready.set()
            await crib.tools.wait_ready(PATIENCE, fresh=True)
            listed = resources.may_exist
    async with Toolcrib(settings) as crib:
        cached = crib.session(profile="flat").resources.may_exist
    assert (unseen, listed, cached) == (True, False, False)


@pytest.mark.slow
async def test_resources_that_wait_for_a_review_may_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeResources, "features", ServerFeatures(reads=True))
    backend, settings = (
        held_backend(),
        dataclasses.replace(AUTONOMOUS, directories=Directories.of({"HOME": str(tmp_path)})),
    )
    backend.ready.set()
    async with server(backend) as url:
        settings = settings.with_values(servers=servers_in(servers(slow=url))[0], guard=True)
        async with Toolcrib(settings) as crib:
            await crib.tools.wait_ready(PATIENCE, fresh=True)
            resources = crib.session(profile="flat").resources
            assert (resources.features.reads, resources.may_exist) == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["flat", "adaptive"])
async def test_the_tools_for_resources_are_in_the_first_list_of_a_client_and_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """Of a server that was never seen before, and of one that is known and not there yet."""
    offer = ServerFeatures(resources=({"uri": "plain://one", "name": "one"},), reads=True)
    monkeypatch.setattr(FakeResources, "features", offer)
    backend, limits, unseen = held_backend(), ServiceLimits(first_list=PATIENCE), list[str]()
    settings = dataclasses.replace(AUTONOMOUS, directories=Directories.of({"HOME": str(tmp_path)}))
    async with server(backend) as url:
        settings = settings.with_values(servers=servers_in(servers(slow=url))[0], accept=True).at_once()
        async with Toolcrib(settings) as crib, over_mcp(crib, profile, "2026-07-28", "autonomous", limits) as seat:

            async def list_first() -> None:
                unseen.extend(await seat.listed())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(list_first)
                await anyio.wait_all_tasks_blocked()
                assert unseen == []
                backend.ready.set()
    backend.ready = anyio.Event()
    async with (
        server(backend, urlsplit(url).port or 0),
        Toolcrib(settings) as crib,
        over_mcp(crib, profile, "2026-07-28", "autonomous", limits) as seat,
    ):
        known = await seat.listed()
        assert states(crib) == {"slow": "cached"}
        backend.ready.set()
        await crib.tools.wait_ready(PATIENCE, fresh=True)
        later = await seat.listed()

    assert {"list_resources", "read_resource"} <= {*unseen}
    assert (known, later) == (unseen, unseen)
