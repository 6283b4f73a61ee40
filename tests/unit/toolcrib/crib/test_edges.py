"""What a crib does when somebody misspells, leaves, breaks, or looks where it may not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import full_disk
from toolcrib.config import Directories, Settings, bare
from toolcrib.core.context import Context
from toolcrib.core.events import CatalogChanged
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Limits
from toolcrib.core.tool import Tool
from toolcrib.crib import Toolcrib
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.sources.source import Publish
from toolcrib.testing import ScriptedSource, ToolBody

AUTONOMOUS = bare().with_values(mode="autonomous")
ANY_PATH = {"type": "object", "properties": {"path": {"type": "string"}, "id": {"type": "integer"}}}


async def done(_: Mapping[str, Any], __: Context) -> ToolResult:
    return ToolResult.of_text("done")


def one(name: str, body: ToolBody = done, **fields: Any) -> ScriptedSource:
    """The source `s` with one tool."""
    tool = Tool(name=name, source="s", local_name=name, description=f"{name} a thing", **fields)
    return ScriptedSource("s", {name: body}, listed=[tool])


def code(result: ToolResult) -> str:
    return result.error.code if result.error else "ok"


async def broken_off(_: Mapping[str, Any], __: Context) -> ToolResult:
    """Await what somebody else cancelled."""
    other = asyncio.ensure_future(anyio.sleep_forever())
    other.cancel()
    await other
    return ToolResult()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("s__secret_plam", {}),
        ("secret-plan", {}),
        ("describe_tools", {"names": ["s__secret_plam", "s__secret_plan"]}),
        ("search_tools", {"query": "zzz qqq"}),
        ("call_tool", {"name": "t__withheld"}),
    ],
)
async def test_no_answer_names_what_is_out_of_scope(tool: str, arguments: dict[str, Any]) -> None:
    async with Toolcrib(bare(), memory=True) as crib:
        await crib.tools.mount_source(one("secret_plan"))
        await crib.tools.mount_source(ScriptedSource("t", {"withheld": done}), accept=False)
        await crib.tools.mount_source(ScriptedSource("u", {"read": done}))
        result = await crib.session(allowed_tools=["u__read"]).call(tool, arguments)
    told = result.text.replace("s__secret_plam", "").replace("secret-plan", "").replace("s__secret_plan: not", "")
    assert ("plan" in told, "reviewed" in told, "s (" in told) == (False, False, False)


async def test_a_tool_that_is_withheld_says_so_under_each_of_its_names() -> None:
    async with Toolcrib(bare(), memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("t", {"withheld": done}), accept=False)
        flat, plain = crib.session(profile="flat"), crib.session(profile="flat", allowed_tools=["u__read"])
        calls = [(flat, "t__withheld"), (flat, "mcp_t_withheld"), (plain, "mcp_t_withheld")]
        errors = [(await session.call(name)).error for session, name in calls]

    assert [error and error.code for error in errors] == ["quarantined", "quarantined", "not_in_scope"]


async def test_a_misspelt_option_is_refused_instead_of_meaning_every_tool() -> None:
    async with Toolcrib(bare(), memory=True) as crib:
        wrong: Any = {"allowed_tool": ["s__x"]}
        with pytest.raises(UsageError, match="no option 'allowed_tool'"):
            crib.session(**wrong)
        wrong = {"timeuot": 3}
        with pytest.raises(UsageError, match="no option 'timeuot'"):
            await crib.session().call("s__x", {}, **wrong)


async def test_a_session_whose_options_are_refused_stays_as_it_was(tmp_path: Path) -> None:
    async with Toolcrib(bare(), memory=True) as crib:
        state = crib.session(key="k", workspace=tmp_path).state
        kept = [copy(part) for part in (state.scope, state.audience, state.files, state.approvals)]
        ill = ({"workspace": tmp_path / "missing"}, {"shadow": True, "workspace": None}, {"tools": ["x"]}, {"plan": 3})
        given: Any = {"profile": "gateway", "approver": print, "grows": False, "for_client": True}
        for refused in ill:
            options: Any = {"allowed_tools": ["x"], "mode": "autonomous", "user": "Ada", "cwd": "/", **given, **refused}
            with pytest.raises(UsageError):
                crib.session(key="k", **options)
            assert (state.scope.allowed, state.mode, state.user, state.files.cwd) == (None, "cautious", "", tmp_path)
            assert [state.scope, state.audience, state.files, state.approvals, state.profile] == [*kept, "adaptive"]


async def test_a_session_that_is_continued_stays_as_it_was_set_up() -> None:
    async with Toolcrib(bare(), memory=True) as crib:
        first = crib.session(key="k", mode="manual", profile="flat")
        again = crib.session(key="k")
    assert again.state is first.state
    assert (again.state.mode, again.state.profile) == ("manual", "flat")


async def test_a_tool_that_breaks_off_its_own_work_ends_its_call_and_no_other() -> None:
    async with Toolcrib(AUTONOMOUS, memory=True) as crib:
        await crib.tools.mount_source(one("off", broken_off))
        session = crib.session()
        alone = await session.call("s__off")
        batch = await session.call_many([("s__off", {}), ("nope", {})])
    assert [code(result) for result in (alone, *batch)] == ["cancelled", "cancelled", "not_found"]


async def test_an_enricher_that_breaks_off_its_own_work_withholds_the_result() -> None:
    async def enrich(_: object, __: ToolResult) -> ToolResult:
        return await broken_off({}, Context(call_id="", session_key="", principal=""))

    async with Toolcrib(AUTONOMOUS, memory=True) as crib:
        await crib.tools.mount_source(one("t"))
        crib.calls.enrich(enrich)
        assert code(await crib.session().call("s__t")) == "internal"


async def test_a_key_may_try_again_when_nothing_ran() -> None:
    answers = iter([ToolFailure("unavailable", "it restarts"), ToolResult.of_text("done")])

    async def body(_: Mapping[str, Any], __: Context) -> ToolResult:
        answer = next(answers)
        if isinstance(answer, ToolFailure):
            raise answer
        return answer

    async with Toolcrib(AUTONOMOUS, memory=True) as crib:
        await crib.tools.mount_source(one("t", body))
        session = crib.session()
        assert [code(await session.call("s__t", {}, idempotency_key="k")) for _ in range(2)] == ["unavailable", "ok"]


async def test_a_call_that_asked_for_input_goes_on_under_its_key() -> None:
    async def body(_: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text("done") if context.resume else ToolResult(input_required={"requestState": "x"})

    async with Toolcrib(AUTONOMOUS, memory=True) as crib:
        await crib.tools.mount_source(one("t", body))
        session = crib.session()
        asked = await session.call("s__t", {}, idempotency_key="k")
        ended = await session.call("s__t", {}, idempotency_key="k", resume={"requestState": "x"})
    assert (asked.input_required, ended.text) == ({"requestState": "x"}, "done")


async def test_a_caller_who_leaves_before_the_tool_starts_leaves_the_key_free() -> None:
    fs = one("t")
    async with Toolcrib(AUTONOMOUS, memory=True) as crib:
        await crib.tools.mount_source(fs)
        session = crib.session()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: session.call("s__t", {}, idempotency_key="k"))
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        before = list(fs.calls)
        result = await session.call("s__t", {}, idempotency_key="k")
    assert (before, code(result), "replayed" in result.meta) == ([], "ok", False)


async def test_a_replay_is_not_enriched_again_and_a_dry_run_not_at_all() -> None:
    async def sign(_: object, result: ToolResult) -> ToolResult:
        return ToolResult.of_text(result.text + " (seen)")

    async with Toolcrib(AUTONOMOUS, memory=True) as crib:
        await crib.tools.mount_source(one("t"))
        crib.calls.enrich(sign)
        session = crib.session()
        texts = [(await session.call("s__t", {}, idempotency_key="k")).text for _ in range(2)]
        dry = await session.call("s__t", {}, dry_run=True)
    assert (texts, "(seen)" in dry.text) == (["done (seen)"] * 2, False)


async def test_an_enricher_that_returns_nothing_hides_nothing() -> None:
    async def forgetful(_: object, __: ToolResult) -> Any:
        return None

    async with Toolcrib(AUTONOMOUS, memory=True) as crib:
        await crib.tools.mount_source(one("t"))
        crib.calls.enrich(forgetful)
        assert (await crib.session().call("s__t")).text == "done"


@pytest.mark.slow
async def test_a_call_that_never_gets_its_turn_says_that_it_did_not_run() -> None:
    started, release, late = anyio.Event(), anyio.Event(), list[ToolResult]()

    async def slow(_: Mapping[str, Any], __: Context) -> ToolResult:
        started.set()
        await release.wait()
        return ToolResult.of_text("done")

    fs = one("t", slow, input_schema=ANY_PATH)
    async with Toolcrib(AUTONOMOUS, memory=True) as crib:
        await crib.tools.mount_source(fs)
        session = crib.session()
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "s__t", {"path": "a"})
            await started.wait()
            late.append(await session.call("s__t", {"path": "a"}, timeout=0.5))
            release.set()
    assert [(code(result), "did not run" in result.text) for result in late] == [("overloaded", True)]
    assert len(fs.calls) == 1


async def test_a_page_of_an_artifact_is_never_cut_in_its_turn() -> None:
    async def long(_: Mapping[str, Any], __: Context) -> ToolResult:
        return ToolResult.of_text("".join(f"line {number}\n" for number in range(5000)))

    async with Toolcrib(replace(AUTONOMOUS, limits=Limits(result_tokens=500)), memory=True) as crib:
        await crib.tools.mount_source(one("t", long))
        session = crib.session()
        artifact = (await session.call("s__t")).meta["artifact"]
        page = await session.call("read_artifact", {"id": artifact, "offset": 1000})
    assert ("artifact" in page.meta, "next offset" in page.text) == (False, True)


async def test_a_subscriber_that_breaks_keeps_nothing_from_the_others_and_ending_twice_is_harmless() -> None:
    def broken(_: CatalogChanged) -> None:
        raise RuntimeError("no")

    heard: list[tuple[str, ...]] = []
    async with Toolcrib(bare(), memory=True) as crib:
        end = crib.tools.on_change(broken)
        crib.tools.on_change(lambda event: heard.append(event.added))
        await crib.tools.mount_source(one("t"))
        end()
        end()
    assert heard == [("s__t",)]


async def test_a_source_that_cannot_be_opened_leaves_its_name_free() -> None:
    class Broken(ScriptedSource):
        async def open(self, publish: Publish) -> None:
            raise RuntimeError("no")

    async with Toolcrib(bare(), memory=True) as crib:
        with pytest.raises(RuntimeError, match="no"):
            await crib.tools.mount_source(Broken("s"))
        await crib.tools.mount_source(one("t"))
        assert list(crib.catalog.tools) == ["s__t"]


async def test_a_source_that_cannot_be_closed_keeps_no_other_from_closing() -> None:
    closed: list[str] = []

    class Broken(ScriptedSource):
        async def close(self) -> None:
            raise RuntimeError("no")

    class Slow(ScriptedSource):
        async def close(self) -> None:
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            closed.append(self.name)

    async with Toolcrib(bare(), memory=True) as crib:
        await crib.tools.mount_source(Broken("a"))
        await crib.tools.mount_source(Slow("b"))
    assert closed == ["b"]


async def test_what_a_source_lists_while_it_is_accepted_is_not_lost_and_not_accepted() -> None:
    fs = one("t")
    async with Toolcrib(bare(), memory=True) as crib:
        await crib.tools.mount_source(fs, accept=False)
        async with anyio.create_task_group() as group:
            group.start_soon(crib.tools.accept, "s")
            await anyio.lowlevel.checkpoint()
            fs.set("new", done)
        assert (list(crib.catalog.tools), list(crib.catalog.withheld)) == (["s__t"], ["s__new"])


async def test_the_row_of_a_call_with_a_key_is_written_when_the_disk_has_room_again(tmp_path: Path) -> None:
    directories = Directories.of({"HOME": str(tmp_path)})
    with ExitStack() as disk:

        async def fill(_: Mapping[str, Any], __: Context) -> ToolResult:
            disk.enter_context(full_disk())
            return ToolResult.of_text("done")

        settings = Settings.of(directories, builtins=False, mode="autonomous")
        async with Toolcrib(settings) as crib:
            await crib.tools.mount_source(one("t", fill))
            result = await crib.session().call("s__t", {}, idempotency_key="k")
            disk.close()
            rows = await crib.store.calls.list()
    assert ("unrecorded" in result.meta, [row.outcome for row in rows]) == (True, ["ok"])


async def test_equal_schemas_of_arguments_in_one_listing_are_held_once() -> None:
    def listed(name: str, **properties: Any) -> Tool:
        return Tool(name=name, source="git", local_name=name, input_schema={"type": "object", "properties": properties})

    tools = [
        listed("open", owner={"type": "string"}, count={"type": "integer"}),
        listed("close", holder={"type": "string"}),
        listed("count", owner={"type": "string", "description": "Who"}),
    ]
    source = ScriptedSource("git", dict.fromkeys(("open", "close", "count"), done), listed=tools)
    async with Toolcrib(bare(), memory=True) as crib:
        await crib.tools.mount_source(source)
        held = [crib.tools.catalog[f"git__{name}"] for name in ("open", "close", "count")]
    first, second, third = (tool.input_schema["properties"] for tool in held)
    assert [first, second, third] == [
        {"owner": {"type": "string"}, "count": {"type": "integer"}},
        {"holder": {"type": "string"}},
        {"owner": {"type": "string", "description": "Who"}},
    ]
    assert first["owner"] is second["holder"]


@pytest.mark.parametrize(("guard", "outcome"), [(False, ("ok", "memory")), (True, ("storage", ""))])
async def test_without_a_place_for_the_store_servers_work_behind_a_client_that_guards_its_user(
    guard: bool, outcome: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    directories = Directories.of({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "file")})
    settings = Settings.of(directories, builtins=False, mode="autonomous", guard=guard)
    try:
        async with Toolcrib(settings) as crib, crib.session() as session:
            await crib.tools.mount_source(one("change"))
            found = code(await session.call("s__change", {})), crib.store.place
    except ToolFailure as failure:
        found = failure.code, ""

    assert found == outcome
