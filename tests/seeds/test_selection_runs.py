"""Seed 004, walked along its checklist: execution, invocation, errors, compression, and what lifts its limits."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from seeds.rigging import seeded
from seeds.selection_skills import GROUPS, names, skills_of
from toolcrib.config import bare
from toolcrib.core.context import Context, Output
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Capability, Execution, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.profiles import BUILT_IN
from toolcrib.disclosure.selection.selector import FAILING
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.plugin import tool
from toolcrib.testing import ScriptedSource

READ = Annotations(read_only=True)


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Toolcrib]:
    async with seeded("selection") as opened:
        source = skills_of(tmp_path, ["summarize", "weather", "ppt-generator"], GROUPS)
        await opened.tools.mount_source(source, prefix=False, trusted=True)
        await source.ready()
        yield opened


def of(crib: Toolcrib, **wanted: Any) -> Session:
    return crib.session(profile="selection", **wanted)


def told(result: ToolResult) -> dict[str, Any]:
    """What the model reads."""
    return json.loads(result.text)


async def add(crib: Toolcrib, **bodies: Any) -> ScriptedSource:
    """Add read-only core tools that do what a test writes down."""
    listed = [Tool(name=n, local_name=n, source="more", core=True, annotations=READ, tags=(n,)) for n in bodies]
    source = ScriptedSource("more", bodies, listed=listed)
    await crib.tools.mount_source(source, prefix=False, trusted=True)
    return source


class TestOnePath:
    async def test_a_skill_is_called_like_a_tool_and_returns_its_text_and_references(self, crib: Toolcrib) -> None:
        session = of(crib, intent={"skill_groups": ["research"]})
        body = await session.call("summarize")
        page = await session.call("summarize", {"reference": "reference.md"})
        assert ("How to do summarize." in body.text, "reference.md" in body.text) == (True, True)
        assert page.text == "More about summarize.\n"

    async def test_what_was_not_selected_gets_guidance_and_does_not_run(self, crib: Toolcrib) -> None:
        answer = told(await of(crib).call("browser", {"action": "text"}))
        assert (answer["success"], answer["error_type"]) == (False, "NOT_FOUND")
        assert 'load it with select_tools first: {"names": ["browser"]}' in answer["recovery_hint"]

    async def test_guidance_for_a_skill_without_capabilities_names_the_way_to_it(self, crib: Toolcrib) -> None:
        answer = told(await of(crib).call("ppt-generator"))
        assert 'load it with select_tools first: {"names": ["ppt-generator"]}' in answer["recovery_hint"]

    @pytest.mark.parametrize("profile", [name for name in BUILT_IN if name != "selection"])
    async def test_in_other_profiles_a_skill_that_is_called_gets_guidance(self, crib: Toolcrib, profile: str) -> None:
        session = crib.session(profile=profile)
        name = "tool_exec" if profile == "gateway" else "summarize"
        given = {"op": session.op_of(crib.catalog.tools["summarize"])} if profile == "gateway" else {}
        result = await session.call(name, given)
        assert result.error is not None
        assert (result.error.code, "is a skill, not a tool" in result.error.message) == ("not_loaded", True)
        assert ("summarize/SKILL.md" in result.error.hint, "browser" in result.error.hint) == (True, True)

    @pytest.mark.parametrize("profile", [name for name in BUILT_IN if name != "selection"])
    async def test_and_is_shown_as_no_tool_there(self, crib: Toolcrib, profile: str) -> None:
        session = crib.session(profile=profile)
        assert "summarize" not in names(session)
        assert "summarize" not in session.listing.decode()

    async def test_nor_does_a_search_find_it(self, crib: Toolcrib) -> None:
        found = await crib.session(profile="adaptive").call("search_tools", {"query": "summarize"})
        assert "summarize(" not in found.text

    async def test_unless_the_profile_lets_skills_be_called(self, crib: Toolcrib) -> None:
        crib.profiles.add({"name": "mine", "extends": "flat", "skills": "call"})
        session = crib.session(profile="mine")
        assert ("summarize" in names(session), "How to do" in (await session.call("summarize")).text) == (True, True)


class TestInvocation:
    async def test_every_call_of_a_batch_is_called_by_program(self, crib: Toolcrib) -> None:
        results = await of(crib).call_many([("memory_recall", {"query": "tea"})] * 2)
        assert [result.meta["invocation"] for result in results] == ["PROGRAMMATIC", "PROGRAMMATIC"]

    @pytest.mark.parametrize("task", ["multi_tool", "batch", "orchestration"])
    @pytest.mark.parametrize(("tools", "how"), [(2, "DIRECT"), (3, "PROGRAMMATIC")])
    async def test_so_is_one_of_a_task_of_more_than_two_tools(
        self, crib: Toolcrib, task: str, tools: int, how: str
    ) -> None:
        wanted = ["memory_recall", "hitl", "plan"][:tools]
        session = of(crib, intent={"task_type": task, "required_tools": wanted})
        assert (await session.call("memory_recall", {"query": "tea"})).meta["invocation"] == how

    async def test_a_tool_that_yields_is_heard_piece_by_piece_while_it_runs(self, crib: Toolcrib) -> None:
        heard: list[Any] = []
        before_the_end: list[int] = []

        @tool(kind="read", core=True)
        async def long_story() -> AsyncIterator[str]:
            """Tell a long story."""
            yield "once "
            before_the_end.append(len(heard))
            yield "upon a time"

        crib.add(long_story)
        result = await of(crib).call("long_story", listener=heard.append)
        assert (result.meta["invocation"], result.text) == ("STREAMING", "once upon a time")
        assert ([piece.chunk for piece in heard], before_the_end) == (["once ", "upon a time"], [1])

    async def test_more_than_ten_kilobytes_of_input_are_answered_in_pieces(self, crib: Toolcrib) -> None:
        heard: list[Any] = []
        text = "y" * 9000

        async def echo(arguments: Any, _: Context) -> ToolResult:
            return ToolResult.of_text(text)

        await add(crib, echo=echo)
        small = await of(crib).call("echo", {"x": "z" * 100}, listener=heard.append)
        large = await of(crib).call("echo", {"x": "z" * 10_240}, listener=heard.append, result_hint="skip")
        pieces = [piece.chunk for piece in heard if isinstance(piece, Output)]
        assert (small.meta["invocation"], large.meta["invocation"]) == ("DIRECT", "STREAMING")
        assert ([len(piece) for piece in pieces], "".join(pieces)) == ([4096, 4096, 808], text)

    async def test_where_the_plan_recommends_a_skill_no_strategy_is_named(self, crib: Toolcrib) -> None:
        session = of(crib, plan={"recommended_skill": "summarize"})
        assert (await session.call("memory_recall", {"query": "tea"})).meta["invocation"] is None

    async def test_a_capability_may_say_it_itself(self, crib: Toolcrib) -> None:
        async def slow(*_: Any) -> ToolResult:
            return ToolResult.of_text("done")

        record = Capability(metadata={"invocation_hint": "streaming"})
        listed = Tool(name="slow", local_name="slow", source="more", core=True, annotations=READ, capability=record)
        await crib.tools.mount_source(
            ScriptedSource("more", {"slow": slow}, listed=[listed]), prefix=False, trusted=True
        )
        assert (await of(crib).call("slow")).meta["invocation"] == "STREAMING"


class TestErrors:
    async def test_a_rate_limit_says_how_long_to_wait(self, crib: Toolcrib) -> None:
        async def limited(*_: Any) -> ToolResult:
            raise ToolFailure("tool_error", "slow down", details={"status": 429})

        await add(crib, limited=limited)
        assert told(await of(crib).call("limited"))["retry_after_seconds"] == 30

    async def test_the_third_error_of_a_type_in_a_row_escalates(self, crib: Toolcrib) -> None:
        session = of(crib)
        wrong: list[tuple[str, Any]] = [("memory_recall", {}), ("plan", {"action": "dance"}), ("knowledge_search", {})]
        seen = [(await session.call(name, arguments)) for name, arguments in wrong]
        assert [result.meta["recovery"] for result in seen] == ["CONTINUE", "CONTINUE", "ESCALATE"]
        assert "ask the user" in told(seen[-1])["recovery_hint"]

    async def test_a_success_or_an_error_of_another_type_begins_anew(self, crib: Toolcrib) -> None:
        session = of(crib)
        wrong: list[tuple[str, Any]] = [("plan", {}), ("knowledge_search", {})]
        right = [("memory_recall", {"query": "tea"})]
        calls: list[tuple[str, Any]] = [*wrong, *right, *wrong, ("teleport", {})]
        seen = [(await session.call(*call)).meta.get("recovery") for call in calls]
        assert seen == ["CONTINUE", "CONTINUE", None, "CONTINUE", "CONTINUE", "BACKTRACK"]

    async def test_a_tool_that_fails_three_times_leaves_the_list_until_it_works(self, crib: Toolcrib) -> None:
        session = of(crib)
        bad, good = {"action": "run", "command": ["fly"]}, {"action": "status"}
        seen: list[bool] = []
        for arguments in (bad, bad, bad, good):
            result = await session.call("nodes", arguments)
            seen.append("nodes" in names(session))
        assert (seen, result.is_error) == ([True, True, False, True], False)

    async def test_why_it_left_is_told(self, crib: Toolcrib) -> None:
        session = of(crib)
        for _ in range(3):
            await session.call("nodes", {"action": "run", "command": ["fly"]})
        assert session.selection.left_out == {"nodes": FAILING}

    async def test_a_refusal_is_no_failure_of_the_tool(self, crib: Toolcrib) -> None:
        session = of(crib, mode="cautious")
        seen = [(await session.call("nodes", {"action": "status"})).meta["recovery"] for _ in range(4)]
        assert (seen, "nodes" in names(session)) == (["FAIL_GRACEFULLY"] * 2 + ["ESCALATE"] * 2, True)

    async def test_the_last_tool_never_leaves(self, crib: Toolcrib) -> None:
        session = of(crib, allowed_tools=["nodes"])
        for _ in range(4):
            await session.call("nodes", {"action": "run", "command": ["fly"]})
        assert names(session) == ["nodes"]

    async def test_where_the_list_stands_still_nothing_leaves(self, crib: Toolcrib) -> None:
        session = of(crib, grows=False)
        before = names(session)
        for _ in range(4):
            await session.call("nodes", {"action": "run", "command": ["fly"]})
        assert names(session) == before


class TestCompression:
    async def test_the_model_reads_the_rest_in_pages_that_are_not_cut_again(self, crib: Toolcrib) -> None:
        session = of(crib)
        before = names(session)
        result = await session.call("nodes", {"action": "run", "command": ["seq", "1000"]})
        page = await session.call("read_artifact", {"id": result.meta["artifact"], "limit": 5000})
        assert (names(session), "artifact" in page.meta) == ([*before, "read_artifact"], False)
        assert len(page.text) > 5000

    async def test_a_stranger_recovers_nothing(self, crib: Toolcrib) -> None:
        result = await of(crib).call("nodes", {"action": "run", "command": ["seq", "1000"]})
        with pytest.raises(ToolFailure, match="no such artifact"):
            await of(crib, principal="eve").recover(result.meta["artifact"])

    async def test_the_tool_says_that_a_search_is_one(self, crib: Toolcrib) -> None:
        result = await of(crib).call("knowledge_search", {"query": "herons", "limit": 20})
        shown = json.loads(result.text.split("\n[COMPRESSED")[0])
        assert (len(shown["results"]), len(shown["results"][0]["text"])) == (5, 200)
        assert (result.meta["compression"]["hint"], "_compression_hint" in result.text) == ("search", False)

    async def test_output_that_the_model_asked_for_in_full_is_not_cut(self, crib: Toolcrib) -> None:
        given = {"action": "run", "command": ["seq", "1000"], "output_handling": "full"}
        result = await of(crib).call("nodes", given)
        assert ("compression" in result.meta, told(result)["output"].endswith("line 999")) == (False, True)

    async def test_the_caller_has_the_last_word(self, crib: Toolcrib) -> None:
        given = {"action": "run", "command": ["seq", "1000"], "output_handling": "full"}
        result = await of(crib).call("nodes", given, result_hint="force")
        assert (len(result.text) <= 500, result.meta["compression"]["hint"]) == (True, "force")

    async def test_a_hint_that_does_not_exist_is_refused(self, crib: Toolcrib) -> None:
        wrong: Any = "shorter"
        with pytest.raises(UsageError, match="skip, normal, force, search"):
            await of(crib).call("plan", {"action": "create"}, result_hint=wrong)


class TestLiftedLimits:
    async def test_a_serial_tool_runs_alone_in_its_turn(self, crib: Toolcrib) -> None:
        log: list[str] = []

        async def note(arguments: Any, _: Context) -> ToolResult:
            log.append(f"+{arguments['n']}")
            for _turn in range(20):
                await anyio.lowlevel.checkpoint()
            log.append(f"-{arguments['n']}")
            return ToolResult.of_text("done")

        listed = [
            Tool(
                name=n,
                local_name=n,
                source="more",
                core=True,
                annotations=READ,
                execution=Execution(serial=n == "alone"),
            )
            for n in ("note", "alone")
        ]
        await crib.tools.mount_source(
            ScriptedSource("more", {"note": note, "alone": note}, listed=listed), prefix=False, trusted=True
        )
        calls = [("note", {"n": 1}), ("note", {"n": 2}), ("alone", {"n": 3}), ("note", {"n": 4}), ("note", {"n": 5})]
        await of(crib).call_many(calls)
        place = log.index("+3")
        assert log[place : place + 2] == ["+3", "-3"]
        assert (set(log[:place]), set(log[place + 2 :])) == ({"+1", "+2", "-1", "-2"}, {"+4", "+5", "-4", "-5"})
        assert log[1] == "+2", "reads beside it run at the same time"

    async def test_one_that_fails_leaves_the_others_of_a_batch_alone(self, crib: Toolcrib) -> None:
        right = [("memory_recall", {"query": "tea"}), ("nodes", {"action": "status"})]
        calls: list[tuple[str, Any]] = [right[0], ("teleport", {}), ("plan", {}), right[1]]
        assert [result.is_error for result in await of(crib).call_many(calls)] == [False, True, True, False]


class TestLearning:
    async def test_what_works_comes_before_what_fails_in_the_next_interaction(self, crib: Toolcrib) -> None:
        await self.teach(crib)
        session = of(crib, required_capabilities=["drawing"])
        assert names(session)[9:] == ["steady", "shaky"]

    async def test_within_an_interaction_the_order_stands_still(self, crib: Toolcrib) -> None:
        session = await self.teach(crib)
        before = names(session)
        session.begin(required_capabilities=["drawing"])
        assert (before[9:], names(session)[9:]) == (["shaky", "steady"], ["steady", "shaky"])

    async def test_everybody_learns_for_himself(self, crib: Toolcrib) -> None:
        await self.teach(crib)
        assert names(of(crib, principal="bob", required_capabilities=["drawing"]))[9:] == ["shaky", "steady"]

    @pytest.mark.parametrize(
        ("scope", "order"), [("global", ["steady", "shaky"]), ("off", ["shaky", "steady"])], ids=str
    )
    async def test_unless_the_profile_says_otherwise(self, crib: Toolcrib, scope: str, order: list[str]) -> None:
        crib.profiles.add({"name": "mine", "extends": "selection", "learning": scope})
        await self.teach(crib)
        session = crib.session(profile="mine", principal="bob", required_capabilities=["drawing"])
        assert names(session)[9:] == order

    async def test_what_did_not_run_teaches_nothing(self, crib: Toolcrib) -> None:
        await self.tools(crib)
        session = of(crib, required_capabilities=["drawing"])
        for _ in range(10):
            await session.call("steady", dry_run=True)
        session.begin(required_capabilities=["drawing"])
        assert session.state.history.learned == {}

    async def test_what_was_learned_survives_a_restart(self, tmp_path: Path) -> None:
        settings = bare().with_values(mode="autonomous")
        places = {part: tmp_path / part for part in ("config", "data", "cache", "state")}
        settings = settings.with_values(directories=settings.directories._replace(**places))
        async with Toolcrib(settings) as first:
            await self.teach(first)
        async with Toolcrib(settings) as second:
            await self.tools(second)
            assert names(of(second, required_capabilities=["drawing"])) == ["steady", "shaky"]

    async def test_a_search_prefers_what_works_too(self, crib: Toolcrib) -> None:
        await self.teach(crib)
        crib.profiles.add({"name": "mine", "extends": "adaptive", "learning": "off"})
        seen: list[list[str]] = []
        for profile in ("mine", "adaptive"):
            found = await crib.session(profile=profile).call("search_tools", {"query": "draw a picture"})
            seen.append([line.partition("(")[0] for line in found.text.splitlines()][:2])
        assert seen == [["shaky", "steady"], ["steady", "shaky"]]

    async def tools(self, crib: Toolcrib) -> None:
        async def shaky(*_: Any) -> ToolResult:
            raise ToolFailure("tool_error", "it fell over")

        async def steady(*_: Any) -> ToolResult:
            return ToolResult.of_text("drawn")

        listed = [
            Tool(name=n, local_name=n, source="more", description="Draw.", tags=("drawing",), annotations=READ)
            for n in ("shaky", "steady")
        ]
        source = ScriptedSource("more", {"shaky": shaky, "steady": steady}, listed=listed)
        await crib.tools.mount_source(source, prefix=False, trusted=True)

    async def teach(self, crib: Toolcrib) -> Session:
        """Let one tool fail twice and the other work; return the session."""
        await self.tools(crib)
        session = of(crib, required_capabilities=["drawing"])
        for name in ("shaky", "shaky", "steady", "steady"):
            await session.call(name)
        return session
