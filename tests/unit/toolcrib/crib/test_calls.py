"""One call through the whole pipeline of a crib, from the library's face."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from toolcrib.config import bare
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Limits
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib, run
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.plugin import tool
from toolcrib.testing import RecordingApprover, ScriptedSource

READ = Annotations(read_only=True, destructive=False)
WRITE = Annotations(destructive=False)
PATH_SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "count": {"type": "integer", "default": 3}},
    "required": ["path"],
}


async def show(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text(",".join(f"{key}={value}" for key, value in sorted(arguments.items())))


def source() -> ScriptedSource:
    def tool(name: str, annotations: Annotations, schema: Mapping[str, Any] = PATH_SCHEMA) -> Tool:
        return Tool(
            name=name,
            source="fs",
            local_name=name,
            description=f"{name} a file",
            annotations=annotations,
            input_schema=schema,
        )

    listed = [
        tool("read", READ),
        tool("write", WRITE),
        tool("remove", Annotations()),
        tool("about", READ, {"type": "object"}),
    ]
    return ScriptedSource("fs", {one.name: show for one in listed}, listed=listed)


@asynccontextmanager
async def crib_of(fs: ScriptedSource, **settings: Any) -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(**settings), memory=True) as crib:
        await crib.tools.mount_source(fs)
        yield crib


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with crib_of(source()) as opened:
        yield opened


def code(result: ToolResult) -> str:
    return result.error.code if result.error else "ok"


async def test_a_read_runs_in_cautious_mode_with_its_defaults_filled(crib: Toolcrib) -> None:
    assert (await crib.session().call("fs__read", {"path": "a"})).text == "count=3,path=a"


async def test_every_result_says_which_call_it_was_and_who_decided(crib: Toolcrib) -> None:
    result = await crib.session().call("fs__read", {"path": "a"})
    assert result.meta["call_id"].startswith("call_")
    assert result.meta["rule"] == "mode cautious: a read tool is allowed"


async def test_wrong_arguments_are_answered_with_every_field_what_it_takes_and_an_example() -> None:
    fs, approver = source(), RecordingApprover("yes")
    async with crib_of(fs) as crib:
        result = await crib.session(approver=approver).call("fs__write", {"count": "many", "colour": "red"})
    assert result.error is not None
    wrong = {error["path"] for error in result.error.details["field_errors"]}
    assert (result.error.code, wrong) == ("invalid_arguments", {"path", "count", "colour"})
    assert "path takes " in result.text
    assert 'example: {"path":' in result.text
    assert (fs.calls, approver.questions) == ([], [])


async def test_session_defaults_fill_what_the_schema_declares_and_nothing_else(crib: Toolcrib) -> None:
    session = crib.session(context={"path": "from-session", "colour": "red"})
    assert (await session.call("fs__read", {})).text == "count=3,path=from-session"
    assert (await session.call("fs__about", {})).text == ""


async def test_a_read_only_call_of_a_write_is_refused_before_anybody_is_asked(crib: Toolcrib) -> None:
    approver = RecordingApprover("yes")
    session = crib.session(approver=approver)
    result = await session.call("call_tool_readonly", {"name": "fs__write", "arguments": {"path": "a"}})
    assert (code(result), "call_tool" in result.text, approver.questions) == ("denied", True, [])


async def test_a_budget_ends_calls_with_what_to_do_instead() -> None:
    async with crib_of(source(), limits=Limits(calls_per_tool={"fs__read": 1})) as crib:
        session = crib.session()
        codes = [code(await session.call("fs__read", {"path": "a"})) for _ in range(2)]
        other = code(await crib.session().call("fs__read", {"path": "a"}))
    assert (codes, other) == (["ok", "budget_exceeded"], "ok")


async def test_a_failure_is_told_to_the_model_with_its_secret_masked(crib: Toolcrib) -> None:
    async def refuse(_: Mapping[str, Any], __: Context) -> ToolResult:
        raise ToolFailure("tool_error", "cannot reach postgres://admin:hunter2@db/prod")

    await crib.tools.mount_source(ScriptedSource("db", {"query": refuse}))
    result = await crib.session(mode="autonomous").call("db__query", {})
    assert (code(result), "hunter2" in result.text, "cannot reach" in result.text) == ("tool_error", False, True)


@pytest.mark.parametrize("wrong", [("fs__read",), {"name": "fs__read", "input": {}}, "fs", (1, {})])
async def test_a_batch_of_what_is_no_pair_is_refused_before_anything_runs(crib: Toolcrib, wrong: Any) -> None:
    finished: list[str] = []
    crib.calls.on_finished(lambda event: finished.append(event.tool))
    with pytest.raises(UsageError, match=r"calls\[1\]: takes a pair \(name, arguments\)"):
        await crib.session().call_many([("fs__read", {"path": "1"}), wrong])
    assert finished == []


async def test_a_call_that_names_no_tool_is_refused(crib: Toolcrib) -> None:
    def read() -> None: ...

    with pytest.raises(UsageError, match="a string was expected, not function"):
        await crib.session().call(cast("str", read), {})


async def test_the_same_key_again_gets_the_first_outcome_and_runs_nothing() -> None:
    fs = source()
    async with crib_of(fs) as crib:
        session = crib.session(mode="autonomous")
        first = await session.call("fs__write", {"path": "a"}, idempotency_key="k")
        again = await session.call("fs__write", {"path": "a"}, idempotency_key="k")
        other = await session.call("fs__write", {"path": "b"}, idempotency_key="k")
    assert (again.text, again.meta["replayed"], code(other), len(fs.calls)) == (first.text, True, "conflict", 1)


@pytest.mark.parametrize(
    ("name", "codes", "runs"), [("fs__read", ["ok", "ok", "ok"], 3), ("fs__write", ["ok", "outcome_unknown", "ok"], 2)]
)
async def test_a_call_that_is_made_again_runs_twice_where_it_only_reads(name: str, codes: list[str], runs: int) -> None:
    fs = source()
    async with crib_of(fs) as crib, crib.session(mode="autonomous") as session:
        first = await session.call(name, {"path": "a"}, id="call_1")
        again = await session.call(name, {"path": "a"}, id="call_1", is_again=True)
        never_begun = await session.call(name, {"path": "a"}, id="call_2", is_again=True)
    assert ([code(one) for one in (first, again, never_begun)], len(fs.calls)) == (codes, runs)


async def test_a_refused_call_gives_its_key_back(crib: Toolcrib) -> None:
    refused = await crib.session().call("fs__write", {"path": "a"}, idempotency_key="k")
    allowed = await crib.session(mode="autonomous").call("fs__write", {"path": "a"}, idempotency_key="k")
    assert (code(refused), code(allowed)) == ("denied", "ok")


async def test_a_dry_run_describes_the_effect_and_neither_runs_nor_asks() -> None:
    fs, approver = source(), RecordingApprover("yes")
    async with crib_of(fs) as crib:
        result = await crib.session(approver=approver).call("fs__remove", {"path": "a"}, dry_run=True)
        rows = await crib.store.calls.list()
    assert result.structured_content == {
        "dry_run": True,
        "tool": "fs__remove",
        "source": "fs",
        "kind": "destructive",
        "arguments": {"path": "a", "count": 3},
        "decision": "ask",
        "rule": "mode cautious: a destructive tool is asked for",
    }
    assert (fs.calls, approver.questions, [row.decision for row in rows]) == ([], [], ["dry_run"])


async def test_every_outcome_is_recorded_under_the_name_of_the_real_tool(crib: Toolcrib) -> None:
    session = crib.session()
    await session.call("call_tool", {"name": "fs__read", "arguments": {"path": "a"}})
    await session.call("fs__write", {"path": "a"})
    await session.call("nope", {})
    rows = await crib.store.calls.list()
    assert [(row.tool, row.requested, row.outcome) for row in reversed(rows)] == [
        ("fs__read", "call_tool", "ok"),
        ("fs__write", "fs__write", "denied"),
        ("nope", "nope", "not_found"),
    ]


async def test_a_long_result_keeps_its_ends_and_the_rest_is_read_in_pages(crib: Toolcrib) -> None:
    whole = "".join(f"line {number}\n" for number in range(20_000))

    async def long(_: Mapping[str, Any], __: Context) -> ToolResult:
        return ToolResult.of_text(whole)

    await crib.tools.mount_source(ScriptedSource("big", {"long": long}))
    session = crib.session(mode="autonomous")
    result = await session.call("big__long", {})
    assert (len(result.text) < 20_000, "line 0\n" in result.text, "line 19999" in result.text) == (True, True, True)
    artifact = result.meta["artifact"]
    page = await session.call("read_artifact", {"id": artifact, "offset": 50_000, "limit": 1000})
    stranger = await crib.session(principal="somebody else").call("read_artifact", {"id": artifact})
    mine = await session.call("read_artifact", {})
    theirs = await crib.session(principal="somebody else").call("read_artifact", {})
    assert (artifact in mine.text, theirs.text) == (True, "No long result is kept.")
    assert (whole[50_000:50_100] in page.text, code(stranger)) == (True, "not_found")


ROWS: list[dict[str, Any]] = [{"number": number, "text": "x" * 20} for number in range(5_000)]


async def rows(_: Mapping[str, Any], __: Context) -> ToolResult:
    return ToolResult.of_text("5,000 rows", structured_content={"rows": ROWS})


async def test_a_structured_result_that_is_too_large_is_shortened_and_read_on_by_its_artifact(crib: Toolcrib) -> None:
    promised = Tool(name="rows", source="db", local_name="rows", output_schema={"type": "object"}, annotations=READ)
    await crib.tools.mount_source(ScriptedSource("db", {"rows": rows}, listed=[promised]))
    session = crib.session(profile="flat")
    direct = await session.call("db__rows")
    whole = await session.recover(direct.meta["artifact"])
    shown = direct.structured_content["rows"]
    assert (code(direct), shown, json.loads(whole)) == ("ok", ROWS[: len(shown)], {"rows": ROWS})
    assert 12_000 < direct.meta["shortened"]["shown"] <= 16_000 < direct.meta["shortened"]["bytes"] == len(whole)
    assert ("5,000 rows" in direct.text, direct.meta["artifact"] in direct.text) == (True, True)
    by_characters = crib.session(profile="selection", for_client=True, tools=["db__rows"])
    compressed = await by_characters.call("db__rows", result_hint="skip")
    shown = compressed.structured_content["rows"]
    assert (code(compressed), shown, compressed.meta["shortened"]["bytes"]) == ("ok", ROWS[: len(shown)], len(whole))


@pytest.mark.slow
async def test_a_structured_result_that_cannot_be_shortened_is_an_error_that_clients_pass_on(crib: Toolcrib) -> None:
    row = {"type": "object", "required": ["number", "text"]}
    rows_of = {"type": "array", "items": row, "minItems": 5_000}
    schema = {"type": "object", "properties": {"rows": rows_of}, "required": ["rows"]}
    promised = Tool(name="rows", source="db", local_name="rows", output_schema=schema, annotations=READ)
    await crib.tools.mount_source(ScriptedSource("db", {"rows": rows}, listed=[promised]))
    session = crib.session(profile="flat")
    direct, verb = await session.call("db__rows"), await crib.session().call("call_tool", {"name": "db__rows"})
    assert (code(direct), "5,000 rows" in direct.text, "read_artifact" in direct.text) == ("too_large", True, True)
    assert (code(verb), "5,000 rows" in verb.text) == ("ok", True)


async def test_an_enricher_adds_to_a_success_and_one_that_breaks_hides_nothing(crib: Toolcrib) -> None:
    async def broken(_: object, __: ToolResult) -> ToolResult:
        raise RuntimeError("no")

    async def sign(_: object, result: ToolResult) -> ToolResult:
        return ToolResult.of_text(result.text + " (seen)")

    crib.calls.enrich(broken, priority=1)
    crib.calls.enrich(sign)
    assert (await crib.session().call("fs__read", {"path": "a"})).text == "count=3,path=a (seen)"


async def test_a_crib_is_opened_once(crib: Toolcrib) -> None:
    with pytest.raises(UsageError, match="is opened once"):
        await crib.__aenter__()
    assert code(await crib.call("fs__read", {"path": "a"})) == "ok"


async def test_run_in_a_running_loop_says_what_to_write() -> None:
    async def main() -> None: ...

    with pytest.raises(UsageError, match=r"write `await main\(\)`"):
        run(main())


def test_the_error_of_a_program_comes_out_of_run_without_an_error_of_ours() -> None:
    async def main() -> None:
        raise ValueError

    with pytest.raises(ValueError) as caught:
        run(main())
    assert caught.value.__context__ is None


async def test_a_crib_that_was_never_opened_says_how_to_open_it() -> None:
    with pytest.raises(UsageError, match="is not open: use it inside `async with"):
        await Toolcrib().session().call("anything", {})
    with pytest.raises(UsageError, match="is not open: use it inside `async with"):
        await Toolcrib().mount({"mcpServers": {}})


async def test_a_crib_of_another_event_loop_refuses_calls_instead_of_waiting_for_ever(crib: Toolcrib) -> None:
    def elsewhere() -> None:
        with pytest.raises(UsageError, match="event loop that opened it"):
            run(crib.call("fs__read", {"path": "a"}))
        with pytest.raises(UsageError, match="event loop that opened it"):
            run(crib.mount({"mcpServers": {}}))

    await anyio.to_thread.run_sync(elsewhere)


async def test_functions_of_one_instance_are_seen_and_run_by_its_sessions_and_by_nobody_else(crib: Toolcrib) -> None:
    async def report(name: str) -> str:
        return f"report {name}"

    async def fs__read(path: str) -> str:
        return "not the real one"

    await crib.tools.add_for("acme", tool(kind="read")(report), tool(kind="read")(fs__read))
    mine, other = crib.session(instance="acme"), crib.session()
    assert (await mine.call("report", {"name": "q3"})).text == "report q3"
    assert code(await other.call("report", {"name": "q3"})) == "not_found"
    assert (await mine.call("fs__read", {"path": "a"})).text == "count=3,path=a"
    assert ("report" in {shown.name for shown in mine.tools}, "report" in {shown.name for shown in other.tools}) == (
        True,
        False,
    )
    assert [(problem.tool, problem.code) for problem in crib.problems] == [("fs__read", "collision")]


async def test_a_call_of_a_tool_has_of_the_metadata_of_its_client_the_trace_context_alone(crib: Toolcrib) -> None:
    seen: list[Mapping[str, Any]] = []

    @tool(kind="read")
    async def inner(ctx: Context) -> None:
        """Look."""
        seen.append(ctx.meta)

    @tool(kind="read")
    async def outer(ctx: Context) -> None:
        """Call."""
        seen.append(ctx.meta)
        await ctx.call("inner", {})

    crib.add(inner, outer)
    meta = {"traceparent": "00-abc-def-01", "com.example/tab": 7}
    await crib.session().call("outer", {}, meta=meta)

    assert seen == [meta, {"traceparent": "00-abc-def-01"}]


async def test_a_dry_run_of_an_edit_shows_what_the_file_would_be_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    @tool(kind="write", open_world=False)
    def put(path: str, content: str) -> str:
        """Put a text into a file."""
        (tmp_path / path).write_text(content)
        return "put"

    async with Toolcrib() as crib:
        crib.add(put)
        arguments = {"path": "a.txt", "content": "one\nthree\n"}
        described = await crib.session(workspace=tmp_path).call("put", arguments, dry_run=True)
        elsewhere = await crib.session().call("put", arguments, dry_run=True)

    assert ("-two\n+three" in described.structured_content["diff"], "diff" in elsewhere.structured_content) == (
        True,
        False,
    )
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"
