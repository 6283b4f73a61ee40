"""Seed 002, walked along its checklist: tools of servers, one batch of calls, the context of a call."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from peers import LEDGER
from rig import PATIENCE
from seeds.rigging import built_in
from toolcrib.core.context import Context
from toolcrib.core.elicitation import Clarification
from toolcrib.core.permission import Effect
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Limits
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib
from toolcrib.disclosure.profiles import load
from toolcrib.policy.modes import MODES
from toolcrib.testing import RecordingApprover, RecordingPeer, ScriptedSource, ToolBody

# Registry


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


async def test_malformed_json_is_an_error_with_the_first_500_characters_of_the_raw_text() -> None:
    raw = '{"path": "' + "x" * 600
    async with built_in(builtins=("text",)) as crib:
        result = await crib.session(profile="flat").call("count_text", raw)
    assert f"received: {raw[:500]}…" in result.text and raw[:501] not in result.text


async def test_a_tool_budget_ends_in_an_error_that_suggests_something_else() -> None:
    async with built_in(builtins=("time",), limits=Limits(calls_per_tool={"current_time": 2})) as crib:
        session = crib.session(profile="flat")
        results = [await session.call("current_time") for _ in range(3)]
        assert [result.is_error for result in results] == [False, False, True]
        assert "try another tool or ask the user" in results[2].text


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


async def test_an_approver_that_can_answer_questions_is_asked_where_there_is_no_elicitor() -> None:
    class Person(RecordingApprover):
        async def clarify(self, question: Clarification) -> str:
            return question.options[1]

    async with built_in(builtins=("human",)) as crib:
        session = crib.session(profile="flat", approver=Person())
        result = await session.call("ask_user", {"question": "Which database?", "options": ["SQLite", "Postgres"]})
    assert result.text == "Postgres"
