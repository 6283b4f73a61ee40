"""Agents of agents: what they may, what they cost, what they tell."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from toolcrib import Answer, Context, Question, tool
from toolcrib.agents import AGENT_NEEDS
from toolcrib.core.elicitation import Clarification
from toolcrib.core.permission import Effect
from toolcrib.core.session import Limits
from toolcrib.testing import RecordingApprover
from toolcrib.testing.models import Call, Reply, ScriptedModel, Seen, calls
from toolcrib_agent import Agent, AgentLimits
from toolcrib_agent.events import AgentEvent, Asked, CallEnded, Finished, SubAgentEvent
from toolcrib_agent.messages import make_valid
from toolcrib_agent.tools import REQUIREMENTS
from unit.toolcrib_agent.workroom import opened_crib


def told(events: list[AgentEvent]) -> list[SubAgentEvent]:
    return [event for event in events if isinstance(event, SubAgentEvent)]


async def test_a_spawned_agent_does_its_task_in_a_conversation_of_its_own_and_its_answer_comes_back() -> None:
    async with opened_crib() as (session, world, _):
        model = ScriptedModel(
            calls("spawn_agent", task="Write a", context="a is a letter"),
            calls("write", text="a"),
            "a is written.",
            "It was done for me.",
        )
        events: list[AgentEvent] = []
        outcome = await Agent(model, session, instructions="You are Ada.").run("Have a written", on_event=events.append)

        assert model.seen[1].prompts == ["Write a\n\nWhat is known:\na is a letter"]
        assert "You work for another agent" in model.seen[1].instructions
        assert model.seen[3].results == ["a is written."]
        assert (outcome.text, world.written) == ("It was done for me.", ["a"])
        assert (outcome.usage.requests, outcome.usage.calls) == (4, 2)
        (spawned,) = [event for event in events if isinstance(event, CallEnded)]
        assert {event.id for event in told(events)} == {spawned.result.meta["call_id"]}
        assert {(event.tool, event.depth, event.task) for event in told(events)} == {("spawn_agent", 1, "Write a")}
        assert isinstance(told(events)[-1].event, Finished)


async def test_spawned_agents_run_side_by_side_and_answer_in_the_order_of_the_calls() -> None:
    def child(seen: Seen) -> str | Reply:
        return f"done: {seen.prompts[0]}" if seen.results else calls("meet")

    async with opened_crib() as (session, _, _crib):
        both = calls("spawn_agent", task="first") + calls("spawn_agent", task="second")
        model = ScriptedModel(both, child, child, child, child, "Both.")
        await Agent(model, session).run("Meet")

        assert model.seen[-1].results == ["done: first", "done: second"]


async def test_what_every_call_of_a_spawned_agent_did_is_in_the_record_under_the_call_that_started_it() -> None:
    async with opened_crib() as (session, _, crib):
        model = ScriptedModel(calls("spawn_agent", task="Look"), calls("look", at="x"), "There.", "There.")
        await Agent(model, session).run("Look")

        rows = {row.tool: row for row in await crib.store.calls.list()}
        assert rows["look"].session != rows["spawn_agent"].session
        assert rows["look"].session.startswith(session.state.key)


async def test_agents_nest_three_deep_and_the_deepest_has_no_tool_to_spawn_another() -> None:
    async with opened_crib() as (session, _, _crib):
        spawn = calls("spawn_agent", task="dig")
        model = ScriptedModel(spawn, spawn, spawn, spawn, "Bottom.", "Third.", "Second.", "First.")
        events: list[AgentEvent] = []
        outcome = await Agent(model, session).run("Dig", on_event=events.append)

        assert ["spawn_agent" in seen.tools for seen in model.seen[:4]] == [True, True, True, False]
        assert model.seen[4].results[0].startswith("not_")
        assert outcome.text == "First."


async def test_a_spawned_agent_is_paid_by_its_parent_and_ends_when_the_purse_is_empty() -> None:
    async with opened_crib() as (session, world, _):
        write = calls("write", text="a")
        model = ScriptedModel(calls("spawn_agent", task="Write"), write, write, "As far as I came.", "Not all of it.")
        outcome = await Agent(model, session, limits=AgentLimits(requests=3)).run("Have it written")

        assert model.seen[3].settings["tool_choice"] == "none"
        assert model.seen[4].results[0].splitlines()[0] == "As far as I came."
        assert "the 3 requests to the model are used up" in model.seen[4].results[0]
        assert (outcome.stopped, outcome.text, len(world.written)) == ("limit", "Not all of it.", 2)


async def test_a_spawned_agent_has_a_limit_of_requests_of_its_own() -> None:
    async with opened_crib() as (session, world, _):
        write = calls("write", text="a")
        for limits, number in ((AgentLimits(spawned_requests=2), 2), (AgentLimits(), 15)):
            world.written.clear()
            model = ScriptedModel(calls("spawn_agent", task="Write"), *[write] * number, "All.", "All.")
            outcome = await Agent(model, session, limits=limits).run("Have it written")

            assert (outcome.stopped, len(world.written)) == ("answered", number)
            assert f"The {number} requests" in model.seen[number + 1].prompts[-1]


async def test_calls_of_a_spawned_agent_count_in_the_budget_of_its_parents_session() -> None:
    async with opened_crib() as (session, world, _):
        session.state.limits = Limits(calls_per_tool={"write": 1})
        write = calls("write", text="a")
        model = ScriptedModel(write, calls("spawn_agent", task="Write more"), write, "I may not.", "Once.")
        await Agent(model, session).run("Write")

        assert world.written == ["a"]
        assert model.seen[3].results[0].startswith("budget_exceeded")


async def test_a_spawned_agent_activates_nothing_in_its_parent_and_shares_no_runtime_with_it() -> None:
    async with opened_crib(profile="tiered") as (session, _, _crib):
        model = ScriptedModel(
            calls("load_tools", category="eyes") + calls("count"),
            calls("spawn_agent", task="Write"),
            calls("load_tools", category="hands") + calls("count"),
            "Done.",
            calls("count"),
            "Done.",
        )
        await Agent(model, session).run("Load")

        assert "write" not in model.seen[2].tools and "look" not in model.seen[2].tools
        assert "write" in model.seen[3].tools and "look" not in model.seen[3].tools
        assert "look" in model.seen[4].tools and "write" not in model.seen[4].tools
        assert [model.seen[3].results[1], model.seen[5].results[-1]] == ["1", "2"]


async def test_a_spawned_agent_may_never_do_more_than_its_parent() -> None:
    rules: dict[Effect, list[str]] = {"deny": ["look(at=secret)"]}
    async with opened_crib(allowed_tools=["look", "spawn_agent"], rules=rules) as (session, world, _):
        tried = calls("write", text="a") + calls("look", at="secret") + calls("look", at="x")
        model = ScriptedModel(calls("spawn_agent", task="Write"), tried, "No.", "No.")
        await Agent(model, session).run("Write")
        codes = [result.partition(":")[0] for result in model.seen[2].results]
        assert codes == ["not_in_scope", "denied", "x is there"]
        assert (set(model.seen[1].tools) - {"read_artifact"}, world.written) == ({"look", "spawn_agent"}, [])


async def test_a_spawned_agent_works_in_its_parents_mode_and_asks_the_same_people() -> None:
    approver = RecordingApprover("never", "yes")
    async with opened_crib(mode="cautious", approver=approver) as (session, world, _):
        model = ScriptedModel(
            calls("spawn_agent", task="Write"), calls("write", text="a"), "Refused.", calls("write", text="b"), "No."
        )
        events: list[AgentEvent] = []
        await Agent(model, session).run("Write", on_event=events.append)

        assert ([question.arguments for question in approver.questions], world.written) == ([{"text": "a"}], [])
        assert len([event for event in events if isinstance(event, Asked)]) == 1
        assert "never" in model.seen[4].results[-1]


async def test_a_mode_that_is_changed_while_a_spawned_agent_works_holds_for_it_too() -> None:
    async with opened_crib(approver=RecordingApprover("no")) as (session, world, _):

        def changes(seen: Seen) -> Reply:
            session.mode = "cautious"
            return calls("write", text="b")

        model = ScriptedModel(
            calls("spawn_agent", task="Write"), calls("write", text="a"), changes, "Only a.", "Only a."
        )
        await Agent(model, session).run("Write")

        assert world.written == ["a"]
        assert model.seen[3].results[1].startswith("denied")


async def test_only_one_question_is_asked_at_a_time_whoever_asks() -> None:
    inside: list[int] = []
    most: list[int] = []

    async def approver(question: Question) -> Answer:
        inside.append(1)
        most.append(len(inside))
        await anyio.lowlevel.checkpoint()
        inside.pop()
        return Answer(verdict="yes", by="Ada")

    def child(seen: Seen) -> str | Reply:
        return "Written." if seen.results else calls("write", text=seen.prompts[0])

    async with opened_crib(mode="cautious", approver=approver) as (session, world, _):
        three = Reply(calls=tuple(Call(name="spawn_agent", arguments={"task": task}) for task in "abc"))
        model = ScriptedModel(three, *[child] * 6, "All.")
        await Agent(model, session).run("Write")

        assert (sorted(world.written), most) == (["a", "b", "c"], [1, 1, 1])


async def test_a_plan_that_was_approved_holds_for_the_agents_that_carry_it_out() -> None:
    async with opened_crib(mode="plan", approver=RecordingApprover("yes")) as (session, world, _):
        plan = calls("submit_plan", plan="1. Have it written.")
        spawn, write = calls("spawn_agent", task="Write"), calls("write", text="a")
        model = ScriptedModel(plan, spawn, write, "Written.", "Done.")
        outcome = await Agent(model, session).run("Write")

        assert model.seen[0].tools == ("submit_plan",)
        assert (outcome.text, world.written) == ("Done.", ["a"])


async def test_what_a_spawned_agent_has_read_taints_whoever_reads_its_answer() -> None:
    async with opened_crib(approver=RecordingApprover("no")) as (session, world, _):
        model = ScriptedModel(
            calls("spawn_agent", task="Read"), calls("page"), "It says hello.", calls("write", text="a"), "Refused."
        )
        await Agent(model, session).run("Read")

        assert (session.state.taint.source, world.written) == ("page", [])


async def test_a_spawned_agent_works_on_the_files_of_its_parent(tmp_path: Path) -> None:
    async with opened_crib(workspace=tmp_path, mode="review") as (session, _, crib):

        @tool(kind="write", traits=["file_writer"], needs=["workspace"])
        async def note(text: str, ctx: Context) -> str:
            """Write a note."""
            assert ctx.workspace is not None
            await ctx.workspace.write("note.txt", text.encode())
            return "noted"

        crib.add(note)
        model = ScriptedModel(calls("spawn_agent", task="Note"), calls("note", text="a"), "Noted.", "Noted.")
        await Agent(model, session).run("Note")

        assert session.state.files.workspace is not None
        assert await session.state.files.workspace.read("note.txt") == b"a"
        assert not (tmp_path / "note.txt").exists()


async def test_cancelling_a_run_ends_the_agents_that_it_has_spawned() -> None:
    async with opened_crib() as (session, world, _):
        model = ScriptedModel(calls("spawn_agent", task="Hang"), calls("hang"), "It was stopped.")
        agent = Agent(model, session)
        events: list[AgentEvent] = []
        async with agent.stream("Hang") as stream:
            await world.begun.wait()
            stream.cancel()
            events = [event async for event in stream]

        (ended,) = [event.event for event in told(events) if isinstance(event.event, Finished)]
        assert (ended.outcome.stopped, stream.outcome.stopped) == ("cancelled", "cancelled")
        assert list(stream.outcome.history) == make_valid(stream.outcome.history)
        assert (await agent.run("Go on", history=stream.outcome.history)).text == "It was stopped."


async def test_an_agent_whose_model_fails_is_a_failed_call_of_its_parent() -> None:
    async with opened_crib() as (session, _, _crib):
        model = ScriptedModel(calls("spawn_agent", task="Look"), RuntimeError("a broken model"), "I could not.")
        outcome = await Agent(model, session).run("Look")

        assert outcome.text == "I could not."
        assert model.seen[2].results[0].splitlines() == [
            "unavailable: There is no complete answer: scripted: RuntimeError: a broken model.",
            "do the task yourself",
        ]


async def test_a_delegated_task_is_done_by_the_local_model_which_reads_and_costs_nothing() -> None:
    async with opened_crib() as (session, world, _):
        paid = ScriptedModel(calls("delegate_task", task="Is x there?"), "It is.", system="anthropic")
        local = ScriptedModel(calls("look", at="x") + calls("write", text="a"), "x is there.")
        outcome = await Agent(paid, session, local=local).run("Find x")

        assert set(local.seen[0].tools) & {"look", "write", "spawn_agent", "delegate_task"} == {"look"}
        assert local.seen[1].results[0] == "x is there" and local.seen[1].results[1].startswith("not_")
        assert paid.seen[1].results == ["x is there."]
        assert (outcome.usage.requests, outcome.usage.calls, world.written) == (2, 1, [])


async def test_a_delegated_task_asks_nobody() -> None:
    approver = RecordingApprover("yes")
    async with opened_crib(approver=approver, rules={"ask": ["look"]}) as (session, _, _crib):
        paid = ScriptedModel(calls("delegate_task", task="Look"), "No.", system="anthropic")
        local = ScriptedModel(calls("look", at="x"), "I may not.")
        await Agent(paid, session, local=local).run("Look")

        assert (approver.questions, local.seen[1].results[0].startswith("denied")) == ([], True)


@pytest.mark.parametrize(("system", "offered"), [("anthropic", True), ("test", False)], ids=["paid", "free"])
async def test_tasks_can_be_delegated_by_a_paid_model_alone(system: str, offered: bool) -> None:
    async with opened_crib() as (session, _, _crib):
        model, local = ScriptedModel("Hi.", system=system), ScriptedModel()
        await Agent(model, session, local=local).run("Hello")
        assert ("delegate_task" in model.seen[0].tools) is offered

        without = ScriptedModel("Hi.", system=system)
        await Agent(without, session).run("Hello")
        assert "delegate_task" not in without.seen[0].tools


async def test_sessions_without_an_agent_have_none_of_its_tools() -> None:
    async with opened_crib() as (session, _, crib):
        await Agent(ScriptedModel("Hi."), session).run("Hello")
        other = crib.session(mode="autonomous")

        assert "spawn_agent" in {shown.name for shown in session.tools}
        assert "spawn_agent" not in {shown.name for shown in other.tools}
        assert (await other.call("spawn_agent", {"task": "x"})).is_error


async def test_a_sub_agent_can_only_be_started_while_an_agent_works() -> None:
    async with opened_crib() as (session, _, _crib):
        await Agent(ScriptedModel("Hi."), session).ready()

        assert (await session.call("spawn_agent", {"task": "x"})).text.startswith("unavailable")


async def test_two_agents_of_one_crib_bring_their_tools_once() -> None:
    async with opened_crib() as (session, _, crib):
        other = crib.session(mode="autonomous")
        for used in (session, other):
            await Agent(ScriptedModel("Hi."), used).run("Hello")

        assert crib.problems == ()
        assert [state.source for state in crib.tools.sources].count("agent@toolcrib") == 1


async def test_a_spawned_agent_asks_the_same_user() -> None:
    async def answers(question: Clarification) -> str | None:
        return "blue"

    async with opened_crib(elicitor=answers) as (session, _, _crib):
        model = ScriptedModel(
            calls("spawn_agent", task="Paint"), calls("ask_user", question="Which colour?"), "Blue.", "Blue."
        )
        await Agent(model, session).run("Paint")

        assert model.seen[2].results == ["blue"]


def test_what_an_agents_tools_need_is_never_inherited() -> None:
    assert set(REQUIREMENTS.values()) == AGENT_NEEDS
