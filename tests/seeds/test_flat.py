"""Seed 002, walked along its checklist: the registry, one batch of calls, the context, approvals, truncation."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from msgspec.structs import replace

from peers import LEDGER
from rig import PATIENCE
from seeds.flat_world.agents import Brief
from seeds.flat_world.shell import Shell
from seeds.rigging import built_in, names, seeded
from toolcrib.core.context import Context, Output
from toolcrib.core.elicitation import DISMISSED, Clarification
from toolcrib.core.permission import Effect
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Limits
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.profiles import load
from toolcrib.policy.modes import MODES
from toolcrib.testing import RecordingApprover, RecordingPeer, ScriptedSource, ToolBody

BUILT_INS = {
    "read_file": ("path* mode", False),
    "write_file": ("path* content*", True),
    "edit_file": ("path* search* replace*", True),
    "list_directory": ("path", False),
    "search_files": ("pattern*", False),
    "grep": ("pattern* path", False),
    "find_references": ("symbol* file", False),
    "run_command": ("command command_id timeout background", True),
    "run_tests": ("command file", True),
    "get_diagnostics": ("path", False),
    "git_diff": ("ref1 ref2", False),
    "git_status": ("", False),
    "git_stage": ("files", True),
    "git_commit": ("message*", True),
    "git_log": ("count", False),
    "git_push": ("setUpstream", True),
    "git_pull": ("rebase", True),
    "git_branch": ("action name", True),
    "git_stash": ("action message index", True),
    "web_search": ("query*", False),
    "display_diagram": ("path* index", False),
    "project_knowledge_search": ("query* maxHits kindFilter pathPrefix graphWalkDepth maxGraphHits", False),
    "system_monitor": ("include_gpu", False),
    "get_setting": ("key*", False),
    "update_setting": ("key* value*", True),
    "switch_backend": ("profile*", True),
    "ask_user": ("question* options* allow_custom", False),
}
"""Name → its arguments, required ones with a star, and whether cautious mode asks."""
SPECIALS = {"spawn_agent": "task* context", "delegate_task": "task* context"}
ALWAYS = {"update_setting", "switch_backend"}
PAID = ("global", "paid_backend")
READS = "read_artifact"


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with seeded("flat") as opened:
        yield opened


def flat(crib: Toolcrib, folder: Path, **options: Any) -> Session:
    return crib.session(profile="flat", cwd=folder, **options)


def arguments(tool: Tool) -> str:
    required = tool.input_schema.get("required", ())
    return " ".join(name + "*" * (name in required) for name in tool.input_schema["properties"])


# Registry


async def test_the_catalog_is_the_27_built_ins_and_spawn_agent_in_one_fixed_order(crib: Toolcrib) -> None:
    assert names(crib.session(profile="flat")) == [*BUILT_INS, "spawn_agent", READS]


async def test_delegate_task_is_there_for_a_paid_backend_alone(crib: Toolcrib) -> None:
    paid, local = crib.session(profile="flat", contexts=PAID), crib.session(profile="flat")

    assert names(paid) == [*BUILT_INS, *SPECIALS, READS]
    assert (await local.call("delegate_task", {"task": "look"})).text == "Unknown tool: delegate_task"


@pytest.mark.parametrize("name", [*BUILT_INS, *SPECIALS])
async def test_a_tool_has_the_arguments_and_the_approval_of_the_document(name: str, crib: Toolcrib) -> None:
    tool = crib.catalog.tools[name]

    assert arguments(tool) == (BUILT_INS[name][0] if name in BUILT_INS else SPECIALS[name])
    session = crib.session(profile="flat", mode="cautious", contexts=PAID)
    asked = (
        await session.call(name, tool.guidance.examples[0] if tool.guidance.examples else example(tool), dry_run=True)
    ).meta["rule"]
    expected = name in BUILT_INS and BUILT_INS[name][1]
    assert (tool.approval == "always", asked.startswith(("mode cautious: a read", "approval never"))) == (
        name in ALWAYS,
        not expected,
    )


def example(tool: Tool) -> dict[str, Any]:
    samples: dict[Any, Any] = {"array": ["a"], "string": "a"}
    properties = tool.input_schema["properties"]
    return {name: samples.get(str(properties[name]["type"]), "a") for name in tool.input_schema.get("required", ())}


async def test_every_description_has_150_characters_and_an_example(crib: Toolcrib) -> None:
    poor = [
        tool.name
        for tool in crib.catalog.tools.values()
        if len(tool.description) < 150 or f"Example: {tool.name}(" not in tool.description
    ]
    assert (len(crib.catalog.tools), poor) == (29, [])


async def test_everything_is_sent_in_every_turn(crib: Toolcrib, tmp_path: Path) -> None:
    session = flat(crib, tmp_path)
    before = session.listing
    await session.call("list_directory")
    session.begin()
    assert session.listing == before


@pytest.mark.process
async def test_the_mcp_tools_of_a_server_have_its_name_before_theirs_and_in_their_description(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": ["-IS", LEDGER, str(tmp_path / "ledger")]}
    async with Toolcrib(memory=True) as crib:
        await crib.mount({"mcpServers": {"books": server}})
        await crib.tools.wait_ready(PATIENCE)
        session = crib.session(profile="flat")
        shown = {tool.name: tool for tool in session.tools}
        assert "mcp_books_look" in shown and not any(name.startswith("books__") for name in shown)
        assert shown["mcp_books_look"].description.startswith("[MCP: books] ")
        by_seed, by_ours = [await session.call(name, {"query": "a"}) for name in ("mcp_books_look", "books__look")]
        assert (by_seed.is_error, by_seed.text) == (False, by_ours.text)


async def test_where_the_profile_is_wary_of_mcp_even_what_says_it_reads_asks() -> None:
    reads = Annotations(read_only=True, destructive=False)
    listed = [Tool(name="list", local_name="list", source="github", origin="mcp", annotations=reads)]
    source = ScriptedSource("github", {"list": echo}, listed=listed)
    async with Toolcrib(memory=True) as crib:
        await crib.tools.mount_source(source)
        crib.profiles.add(load("flat").with_values({"treat_as_write": ("mcp",)}))
        approver = RecordingApprover("no")
        asked = await crib.session(profile="flat", approver=approver).call("mcp_github_list")
        free = await crib.session(profile="flat", mode="autonomous").call("mcp_github_list")
        assert (asked.text, len(approver.questions), free.text) == ("Tool call denied by user.", 1, "{}")


async def test_messages_call_an_mcp_tool_as_the_profile_does() -> None:
    listed = [Tool(name="list", local_name="list", source="github", origin="mcp")]
    async with Toolcrib(memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("github", {"list": echo}, listed=listed))
        session = crib.session(profile="flat", mode="cautious")
        asks, misspelt = await session.call("mcp_github_list"), await session.call("mcp_github_lisst")
        by_ours = await session.call("github__list")
        assert asks.text.startswith("Tool call denied: mcp_github_list ")
        assert by_ours.text.startswith("Tool call denied: github__list ")
        assert "add the rule allow: github__list" in asks.text  # a rule has the name of the catalog
        assert misspelt.error is not None and misspelt.error.details == {"nearest": ["mcp_github_list"]}


async def test_a_built_in_comes_before_an_mcp_tool_that_would_be_called_the_same() -> None:
    built_in = ScriptedSource("own", {"mcp_a_b": named("built-in")})
    server = ScriptedSource(
        "a", {"b": named("server")}, listed=[Tool(name="b", local_name="b", source="a", origin="mcp")]
    )
    async with Toolcrib(memory=True) as crib:
        await crib.tools.mount_source(built_in, prefix=False, trusted=True)
        await crib.tools.mount_source(server)
        session = crib.session(profile="flat", mode="autonomous")
        assert (await session.call("mcp_a_b")).text == "built-in"
        assert (await session.call("a__b")).text == "server"


# Dispatch of one batch


async def echo(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text(str(dict(arguments)))


def named(text: str) -> ToolBody:
    async def body(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text(text)

    return body


async def test_all_calls_of_a_turn_run_at_the_same_time() -> None:
    together = 12  # as many as the seed allows in one turn
    arrived: list[int] = []
    all_here = anyio.Event()

    async def meets(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        arrived.append(1)
        if len(arrived) == together:
            all_here.set()
        await all_here.wait()
        return ToolResult.of_text("met")

    reads = Annotations(read_only=True, destructive=False)
    listed = [Tool(name="meet", local_name="meet", source="own", annotations=reads)]
    async with Toolcrib(memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("own", {"meet": meets}, listed=listed), prefix=False, trusted=True)
        results = await crib.session(profile="flat").call_many([("meet", None)] * together, timeout=PATIENCE)
        assert {result.text for result in results} == {"met"}


async def test_an_executor_that_breaks_gives_an_error_result_and_leaves_the_others_alone() -> None:
    async def breaks(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        raise RuntimeError("boom")

    async with Toolcrib(memory=True) as crib:
        source = ScriptedSource("own", {"breaks": breaks, "works": named("fine")})
        await crib.tools.mount_source(source, prefix=False, trusted=True)
        session = crib.session(profile="flat", mode="autonomous")
        broken, fine = await session.call_many([("breaks", {}), ("works", {})])
        assert broken.text.startswith("Internal error: ") and broken.is_error
        assert fine.text == "fine"


async def test_malformed_json_is_an_error_with_the_first_500_characters_of_the_raw_text(crib: Toolcrib) -> None:
    raw = '{"path": "' + "x" * 600
    result = await crib.session(profile="flat").call("read_file", raw)
    assert f"received: {raw[:500]}…" in result.text and raw[:501] not in result.text


async def test_a_tool_budget_ends_in_an_error_that_suggests_something_else() -> None:
    async with seeded("flat", limits=Limits(calls_per_tool={"system_monitor": 2})) as crib:
        session = crib.session(profile="flat")
        results = [await session.call("system_monitor") for _ in range(3)]
        assert [result.is_error for result in results] == [False, False, True]
        assert "try another tool or ask the user" in results[2].text


async def test_spawned_agents_nest_three_deep_and_no_deeper(crib: Toolcrib, tmp_path: Path) -> None:
    briefs: list[Brief] = []

    async def run_agent(brief: Brief) -> str:
        briefs.append(brief)
        session = agent_session(brief)
        result = await session.call("spawn_agent", {"task": f"deeper than {brief.depth}", "context": "c"})
        return result.text

    def agent_session(brief: Brief) -> Session:
        session = flat(crib, tmp_path, allowed_tools=brief.tools)
        session.state.runtime.update(run_agent=run_agent, depth=brief.depth)
        return session

    top = flat(crib, tmp_path)
    top.state.runtime["run_agent"] = run_agent
    result = await top.call("spawn_agent", {"task": "dig"})
    assert result.text == "maximum nesting depth (3) reached"
    assert [(brief.depth, brief.rounds) for brief in briefs] == [(1, 15), (2, 15), (3, 15)]


async def test_a_delegated_task_reads_and_changes_nothing(crib: Toolcrib, tmp_path: Path) -> None:
    async def run_agent(brief: Brief) -> str:
        worker = flat(crib, tmp_path, allowed_tools=brief.tools, mode="autonomous")
        results = [await worker.call("list_directory"), await worker.call("write_file", {"path": "x", "content": "x"})]
        return "; ".join(result.text for result in results)

    (tmp_path / "here").touch()
    session = flat(crib, tmp_path, contexts=PAID)
    session.state.runtime["run_agent"] = run_agent
    assert (await session.call("delegate_task", {"task": "look"})).text == "here; Unknown tool: write_file"
    assert not (tmp_path / "x").exists()


async def test_arguments_are_recorded_without_their_secrets_and_the_tool_gets_them_whole(tmp_path: Path) -> None:
    secret = "correct-horse-battery"
    async with seeded("flat", secrets=(secret,)) as crib:
        await flat(crib, tmp_path).call("write_file", {"path": "a.txt", "content": f"password {secret}"})
        (row,) = await crib.store.calls.list()
        assert (secret in row.arguments, (tmp_path / "a.txt").read_text()) == (False, f"password {secret}")


# The context of a call


async def test_the_context_is_made_anew_for_every_call_and_the_runtime_is_the_sessions() -> None:
    contexts: list[Context] = []

    async def looks(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        contexts.append(context)
        context.runtime["count"] = context.runtime.get("count", 0) + 1
        return ToolResult.of_text(str(context.runtime["count"]))

    async with built_in() as crib:
        await crib.tools.mount_source(ScriptedSource("own", {"looks": looks}), prefix=False, trusted=True)
        peer = RecordingPeer()
        one, other = crib.session(user="ada", cwd="/srv"), crib.session()
        counts = [(await session.call("looks", {}, peer=peer)).text for session in (one, one, other)]
    first, second, third = contexts
    assert counts == ["1", "2", "1"]
    assert first.signal is not second.signal and first.runtime is second.runtime is not third.runtime
    assert (first.client, first.user, first.cwd, third.user) == (peer, "ada", Path("/srv"), "")


@pytest.mark.process
async def test_output_reaches_the_callback_while_the_command_runs(crib: Toolcrib, tmp_path: Path) -> None:
    heard: list[str] = []

    def hear(update: Any) -> None:
        assert isinstance(update, Output)
        heard.append(update.chunk)

    async with flat(crib, tmp_path) as session:
        result = await session.call("run_command", {"command": "echo one; echo two"}, listener=hear)
    assert (result.text, [line for line in heard if line.strip()]) == ("one\ntwo", ["one\n", "two\n"])


@pytest.mark.process
async def test_output_reaches_a_client_that_wants_progress(crib: Toolcrib, tmp_path: Path) -> None:
    peer = RecordingPeer()
    async with flat(crib, tmp_path) as session:
        await session.call("run_command", {"command": "echo one"}, peer=peer, progress_token=7)
    assert peer.notifications[0] == (
        "notifications/progress",
        {"progressToken": 7, "progress": 1, "message": "one\n"},
    )


@pytest.mark.process
async def test_a_cancelled_call_ends_its_command(crib: Toolcrib, tmp_path: Path) -> None:
    begun, ended, shells = anyio.Event(), anyio.Event(), list[Shell]()
    command = {"command": "echo begun; sleep 600", "timeout": 600}
    async with flat(crib, tmp_path) as session:

        async def wait(task_status: TaskStatus[anyio.CancelScope]) -> None:
            with anyio.CancelScope() as scope:
                task_status.started(scope)
                await session.call("run_command", command, listener=lambda _: begun.set())
            ended.set()

        async with anyio.create_task_group() as group:
            scope: anyio.CancelScope = await group.start(wait)
            await begun.wait()
            shells.append(session.state.runtime["shell"])
            scope.cancel()
            await ended.wait()
        await shells[0].process.wait()
        assert (await session.call("run_command", {"command": "echo again"})).text == "again"


@pytest.mark.process
async def test_each_session_has_a_shell_of_its_own_that_ends_with_it(crib: Toolcrib, tmp_path: Path) -> None:
    async with flat(crib, tmp_path) as one, flat(crib, tmp_path) as other:
        await one.call("run_command", {"command": "mkdir sub; cd sub; WHO=ada"})
        here = await one.call("run_command", {"command": "echo $WHO; basename $PWD"})
        there = await other.call("run_command", {"command": "echo $WHO; basename $PWD"})
        shells = [session.state.runtime["shell"] for session in (one, other)]
    assert (here.text, there.text) == ("ada\nsub", f"\n{tmp_path.name}")
    assert all(shell.process.returncode is not None for shell in shells)


async def test_every_relative_path_begins_in_the_folder_of_the_session(crib: Toolcrib, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("main", "shadow")]
    for folder in folders:
        folder.mkdir()
        await flat(crib, folder).call("write_file", {"path": "who.txt", "content": folder.name})
    assert [(folder / "who.txt").read_text() for folder in folders] == ["main", "shadow"]


async def test_the_tool_sees_what_the_mode_says_of_single_tools() -> None:
    seen: list[Mapping[str, Effect]] = []

    async def looks(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        seen.append(context.permissions)
        return ToolResult.of_text("")

    mode = replace(MODES["cautious"], name="mine", tools={"run_tests": "allow"})
    async with built_in(modes={**MODES, "mine": mode}, mode="mine") as crib:
        await crib.tools.mount_source(ScriptedSource("own", {"looks": looks}), prefix=False, trusted=True)
        await crib.session(approver=RecordingApprover()).call("looks")
    assert seen == [{"run_tests": "allow"}]


# ask_user

QUESTION = {"question": "Which database?", "options": ["SQLite", "Postgres", "c", "d", "e", "f"]}


async def test_ask_user_asks_the_sessions_elicitor_with_at_most_five_options(crib: Toolcrib) -> None:
    asked: list[Clarification] = []

    async def answers(question: Clarification) -> str:
        asked.append(question)
        return "DuckDB"

    result = await crib.session(profile="flat", elicitor=answers).call("ask_user", QUESTION)
    assert (result.text, asked[0].options, asked[0].allow_custom) == (
        "DuckDB",
        ("SQLite", "Postgres", "c", "d", "e"),
        True,
    )


async def test_an_approver_that_can_answer_questions_is_asked_where_there_is_no_elicitor(crib: Toolcrib) -> None:
    class Person(RecordingApprover):
        async def clarify(self, question: Clarification) -> str:
            return question.options[1]

    result = await crib.session(profile="flat", approver=Person()).call("ask_user", QUESTION)
    assert result.text == "Postgres"


async def test_ask_user_asks_the_clients_user_by_elicitation(crib: Toolcrib) -> None:
    peer = RecordingPeer({"elicitation/create": {"action": "accept", "content": {"answer": "Postgres"}}})
    only = {**QUESTION, "options": ["SQLite", "Postgres"], "allow_custom": False}
    result = await crib.session(profile="flat").call("ask_user", only, peer=peer)
    ((method, form),) = peer.requests
    assert (result.text, method, form["message"]) == ("Postgres", "elicitation/create", "Which database?")
    assert form["requestedSchema"]["properties"]["answer"]["enum"] == ["SQLite", "Postgres"]


async def test_ask_user_without_anybody_to_ask_is_an_error(crib: Toolcrib) -> None:
    result = await crib.session(profile="flat").call("ask_user", QUESTION)
    assert result.error is not None and result.error.code == "unavailable"


@pytest.mark.parametrize("answer", [{"action": "cancel"}, {"action": "decline"}, {"action": "accept", "content": {}}])
async def test_a_dismissed_question_is_answered_neutrally(answer: dict[str, Any], crib: Toolcrib) -> None:
    peer = RecordingPeer({"elicitation/create": answer})
    result = await crib.session(profile="flat").call("ask_user", QUESTION, peer=peer)
    assert (result.text, result.is_error) == (DISMISSED, False)


async def test_an_answer_that_is_none_of_the_options_is_no_answer_where_only_they_count(crib: Toolcrib) -> None:
    async def answers(question: Clarification) -> str:
        return "DuckDB"

    result = await crib.session(profile="flat", elicitor=answers).call("ask_user", {**QUESTION, "allow_custom": False})
    assert result.text == DISMISSED
