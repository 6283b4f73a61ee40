"""Sub-agents that work in the background: messages, events, ends, profiles, and never more than their parent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import eventually
from toolcrib import Answer, Question, Session, Toolcrib, tool
from toolcrib.core.session import Limits
from toolcrib.testing import RecordingApprover
from toolcrib.testing.models import Hold, Reply, ScriptedModel, Seen, Step, calls
from toolcrib_agent import Agent, AgentLimits
from toolcrib_agent.sub_agents.registry import SubAgents, registry_of
from unit.toolcrib_agent.workroom import opened_crib


class Cast:
    """One model for parent and children, who are told apart by the task that they begin with."""

    def __init__(self, **parts: list[Step]) -> None:
        """Each part answers the agent whose first prompt begins with its name."""
        self.parts = parts
        self.seen: dict[str, list[Seen]] = {name: [] for name in parts}
        self.model = ScriptedModel(*[self.answer] * 60)

    def answer(self, seen: Seen) -> str | Reply | Exception:
        (name,) = [name for name in self.parts if seen.prompts[0].startswith(name)]
        self.seen[name].append(seen)
        step = self.parts[name].pop(0)
        return step(seen) if callable(step) else step


def agent(cast: Cast, session: Session, **options: Any) -> Agent:
    return Agent(cast.model, session, sub_agents=True, **options)


def spawned(seen: Seen) -> list[str]:
    """The ids of the sub-agents that the parent has spawned so far."""
    values = [json.loads(text) for text in seen.results if text.startswith('{"success"')]
    return [value["subagent_id"] for value in values if value.get("status") == "spawned"]


def to(number: int, name: str, **arguments: Any) -> Callable[[Seen], Reply]:
    """Call a tool for the sub-agent that was spawned as that number."""
    return lambda seen: calls(name, subagent_id=spawned(seen)[number], **arguments)


async def idle(session: Session) -> SubAgents:
    """Return the registry once no sub-agent works."""
    registry = registry_of(session)
    await registry.wait_idle()
    return registry


def events(seen: Seen) -> list[str]:
    return [text for prompt in seen.prompts for text in [prompt] if text.startswith("[Sub-agent")]


async def test_a_parent_manages_two_children_for_a_day() -> None:
    """It spawns two, sends one a message, cancels the other, sees both events in its next turn, lists, closes."""
    first, second = Hold(), Hold()

    async def waits() -> None:
        await first.reached.wait()
        await second.reached.wait()

    def moves(seen: Seen) -> Reply:
        return to(0, "send_to_subagent", message="Look at b too")(seen) + to(1, "cancel_subagent")(seen)

    async with opened_crib() as (session, _, crib):

        @tool(kind="read")
        async def wait_for_both() -> str:
            """Return once both children are at work."""
            await waits()
            return "both work"

        @tool(kind="read")
        async def wait_for_end() -> str:
            """Let the first go on, and return once no child works."""
            first.go_on.set()
            await idle(session)
            return "nobody works"

        crib.add(wait_for_both, wait_for_end)
        cast = Cast(
            Manage=[
                calls("spawn_subagent", task="First: look at a", name="looker")
                + calls("spawn_subagent", task="Second: look at c", name="slow"),
                calls("wait_for_both"),
                moves,
                calls("wait_for_end"),
                calls("list_active_subagents"),
                lambda seen: to(0, "close_subagent")(seen) + to(1, "close_subagent")(seen),
                calls("list_active_subagents"),
                "Done.",
            ],
            First=[Reply(hold=first, calls=calls("look", at="a").calls), "a and b are there."],
            Second=[Reply(hold=second, calls=calls("look", at="c").calls)],
        )
        outcome = await agent(cast, session).run("Manage")

        looker, slow = spawned(cast.seen["Manage"][-1])
        results = cast.seen["Manage"][-1].results
        sent, cancelled = json.loads(results[3]), json.loads(results[4])
        assert (sent["status"], cancelled["cancelled"]) == ("queued", True)
        assert "Look at b too" in cast.seen["First"][1].prompts[-1]
        told = events(cast.seen["Manage"][4])
        assert sorted(text.split(":]")[0] for text in told) == [
            f"[Sub-agent {looker} answers",
            f"[Sub-agent {slow} was cancelled",
        ]
        assert any("a and b are there." in text for text in told)
        listed = json.loads(results[6])
        assert [(one["subagent_id"], one["status"], one["turn_count"]) for one in listed["active_sessions"]] == [
            (looker, "idle", 1),
            (slow, "idle", 1),
        ]
        assert (json.loads(results[-1]), outcome.text) == ({"active_sessions": [], "count": 0}, "Done.")


async def test_a_child_that_works_on_ends_between_the_runs_of_its_parent_and_is_told_in_the_next() -> None:
    async with opened_crib() as (session, _, _crib):
        hold = Hold()
        cast = Cast(
            Start=[calls("spawn_subagent", task="Work"), "Started.", "Read."],
            Work=[Reply(hold=hold, text="It is done.")],
        )
        parent = agent(cast, session)
        outcome = await parent.run("Start")
        assert registry_of(session).describe()["active_sessions"][0]["status"] == "running"
        hold.go_on.set()
        await idle(session)
        await parent.run("Go on", history=outcome.history)

        (told,) = events(cast.seen["Start"][2])
        assert "It is done." in told and told.startswith(f"[Sub-agent {spawned(cast.seen['Start'][2])[0]} answers")


async def test_a_message_to_an_idle_child_begins_a_turn_of_the_same_conversation() -> None:
    async with opened_crib() as (session, _, _crib):
        cast = Cast(
            Start=[
                calls("spawn_subagent", task="Work"),
                "Started.",
                to(0, "send_to_subagent", message="And b?"),
                "Ok.",
            ],
            Work=["a is done.", "b is done."],
        )
        parent = agent(cast, session)
        outcome = await parent.run("Start")
        await idle(session)
        await parent.run("Ask", history=outcome.history)
        registry = await idle(session)

        assert json.loads(cast.seen["Start"][3].results[1])["status"] == "dispatched"
        assert cast.seen["Work"][1].prompts == ["Work", "And b?"]
        assert [one["turn_count"] for one in registry.describe()["active_sessions"]] == [2]


async def test_a_child_has_its_turns_and_a_session_its_children() -> None:
    def more(seen: Seen) -> Reply:
        return to(0, "send_to_subagent", message="More")(seen) + calls("spawn_subagent", task="Work")

    async with opened_crib() as (session, _, _crib):
        cast = Cast(
            Start=[calls("spawn_subagent", task="Work", inline_config={"max_turns": 1}), "Started.", more, "Ok."],
            Work=["Done."],
        )
        parent = agent(cast, session, limits=AgentLimits(sub_agents=1))
        outcome = await parent.run("Start")
        await idle(session)
        await parent.run("More", history=outcome.history)

        assert [text.split(":")[0] for text in cast.seen["Start"][3].results[1:]] == ["budget_exceeded"] * 2


async def test_several_spawned_at_once_are_not_more_than_the_session_may_have() -> None:
    async with opened_crib() as (session, _, _crib):
        four = calls("spawn_subagent", task="Work")
        cast = Cast(Start=[four + four + four + four, "Ok."], Work=["Done."] * 2)
        await agent(cast, session, limits=AgentLimits(sub_agents=2)).run("Start")
        registry = await idle(session)

        results = cast.seen["Start"][1].results
        assert len(registry.describe()["active_sessions"]) == 2
        assert sorted(text.split(":")[0] == "budget_exceeded" for text in results) == [False, False, True, True]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "a", "profile": "b"}, "invalid_arguments"),
        ({"profile": "missing"}, "not_found"),
        ({"inline_config": {"plugins": ["nowhere"]}}, "invalid_arguments"),
        ({"inline_config": {"max_turns": 0}}, "invalid_arguments"),
        ({"task": " "}, "invalid_arguments"),
    ],
)
async def test_a_child_that_cannot_be_as_it_is_described_is_not_started(arguments: dict[str, Any], code: str) -> None:
    async with opened_crib() as (session, _, _crib):
        cast = Cast(Start=[calls("spawn_subagent", **{"task": "Work", **arguments}), "No."])
        await agent(cast, session).run("Start")

        assert cast.seen["Start"][1].results[0].startswith(code)
        assert registry_of(session).describe()["count"] == 0


async def test_an_id_that_is_not_there_is_an_error_that_says_where_the_ids_are() -> None:
    async with opened_crib() as (session, _, _crib):
        tried = calls("send_to_subagent", subagent_id="x", message="?") + calls("cancel_subagent", subagent_id="x")
        cast = Cast(Start=[tried + calls("close_subagent", subagent_id="x"), "No."])
        await agent(cast, session).run("Start")

        assert [text.split(":")[0] for text in cast.seen["Start"][1].results] == ["not_found"] * 3
        assert "list_active_subagents" in cast.seen["Start"][1].results[0]


async def test_a_child_shares_what_it_found_before_it_answers() -> None:
    async with opened_crib() as (session, _, _crib):
        hold = Hold()
        shared = calls("share_context", findings=["a has 4 callers"], files={"a.py": "x = 1"}, notes="more to come")
        cast = Cast(
            Start=[calls("spawn_subagent", task="Work", context={"notes": "begin at a"}), "Started.", "Read."],
            Work=[shared, Reply(hold=hold, text="Done.")],
        )
        parent = agent(cast, session)
        outcome = await parent.run("Start")
        await hold.reached.wait()
        await parent.run("Go on", history=outcome.history)

        (told,) = events(cast.seen["Start"][2])
        assert all(text in told for text in (" shares:]", "- a has 4 callers", "File a.py:\nx = 1", "more to come"))
        assert cast.seen["Work"][0].prompts == ["Work\n\nWhat is known:\nNotes: begin at a"]
        assert "share_context" not in cast.seen["Start"][0].tools


async def test_a_child_has_no_more_tools_than_it_was_given_and_never_more_than_its_parent() -> None:
    async with opened_crib(allowed_tools=["look", "spawn_subagent", "share_context"]) as (session, world, _):
        tried = calls("write", text="a") + calls("look", at="x") + calls("spawn_subagent", task="Work again")
        cast = Cast(
            Start=[
                calls("spawn_subagent", task="Narrow", inline_config={"plugins": ["eyes"]})
                + calls("spawn_subagent", task="Wide", inline_config={"plugins": ["eyes", "hands"]}),
                "Started.",
            ],
            Narrow=[tried, "Done."],
        )
        await agent(cast, session).run("Start")
        await idle(session)

        assert set(cast.seen["Narrow"][0].tools) - {"read_artifact"} == {"look", "share_context"}
        assert [text.split(":")[0] for text in cast.seen["Narrow"][1].results] == [
            "not_in_scope",
            "x is there",
            "not_in_scope",
        ]
        assert cast.seen["Start"][1].results[1].startswith("invalid_arguments")
        assert world.written == []


async def test_what_a_parent_loses_its_child_loses_at_once() -> None:
    """Its mode, a tool, and the tools of a narrower interaction."""
    first, second, third = Hold(), Hold(), Hold()
    write = calls("write", text="x").calls
    async with opened_crib() as (session, world, _):
        cast = Cast(
            Start=[calls("spawn_subagent", task="Work"), "Started.", "Narrow."],
            Work=[
                Reply(hold=first, calls=write),
                Reply(hold=second, calls=write),
                Reply(hold=third, calls=write + calls("look", at="x").calls),
                "Done.",
            ],
        )
        parent = agent(cast, session)
        outcome = await parent.run("Start")
        await first.reached.wait()
        session.disable("write")
        first.go_on.set()
        await second.reached.wait()
        session.enable("write")
        session.mode = "cautious"  # there is no one to ask
        second.go_on.set()
        await third.reached.wait()
        session.mode = "autonomous"
        await parent.run("Narrow", history=outcome.history, tools=["look"])
        third.go_on.set()
        await idle(session)

        codes = [text.split(":")[0] for text in cast.seen["Work"][3].results]
        assert (codes, world.written) == (["disabled", "denied", "not_in_scope", "x is there"], [])


async def test_the_turns_of_a_child_are_paid_by_the_run_that_began_them_and_end_when_its_limits_do() -> None:
    async with opened_crib() as (session, world, _):
        hold = Hold()
        cast = Cast(
            Start=[calls("spawn_subagent", task="Work"), "Started."],
            Work=[Reply(hold=hold, calls=calls("write", text="a").calls), "Cut off."],
        )
        await agent(cast, session, limits=AgentLimits(requests=3)).run("Start")
        hold.go_on.set()
        registry = await idle(session)

        assert (world.written, cast.seen["Work"][1].settings["tool_choice"]) == (["a"], "none")
        assert "did not come to an end by itself" in registry.take_events()[0]


async def test_calls_of_a_child_count_in_the_budget_of_its_parents_session() -> None:
    async with opened_crib() as (session, world, _):
        session.state.limits = Limits(calls_per_tool={"write": 1})
        write = calls("write", text="a")
        cast = Cast(Start=[write + calls("spawn_subagent", task="Work"), "Started."], Work=[write, "No."])
        await agent(cast, session).run("Start")
        await idle(session)

        assert (world.written, cast.seen["Work"][1].results[0].split(":")[0]) == (["a"], "budget_exceeded")


async def test_agents_in_the_background_nest_three_deep() -> None:
    async with opened_crib() as (session, _, _crib):
        cast = Cast(
            Start=[calls("spawn_subagent", task="A"), "Ok."],
            A=[calls("spawn_subagent", task="B"), "Ok."],
            B=[calls("spawn_subagent", task="C"), "Ok."],
            C=[calls("spawn_subagent", task="D"), "Ok."],
        )
        await agent(cast, session).run("Start")
        await eventually(lambda: len(cast.seen["C"]) == 2)

        assert [name for name in "ABC" if "spawn_subagent" in cast.seen[name][0].tools] == ["A", "B"]
        assert cast.seen["C"][1].results[0].startswith("not_")


async def test_what_a_child_has_read_taints_its_parent_and_the_next_child_that_it_tells() -> None:
    async with opened_crib(approver=RecordingApprover("no", "no")) as (session, world, crib):

        @tool(kind="read")
        async def wait_for_children() -> str:
            """Return once no child works."""
            await idle(session)
            return "nobody works"

        crib.add(wait_for_children)
        cast = Cast(
            Start=[
                calls("spawn_subagent", task="Idle") + calls("spawn_subagent", task="Read"),
                calls("wait_for_children"),
                lambda seen: to(0, "send_to_subagent", message="Write")(seen) + calls("write", text="a"),
                calls("wait_for_children"),
                "Refused.",
            ],
            Idle=["Nothing.", calls("write", text="b"), "Refused."],
            Read=[calls("page"), "It says hello."],
        )
        await agent(cast, session).run("Start")

        assert (session.state.taint.source, world.written) == ("page", [])
        assert cast.seen["Idle"][2].results[0].startswith("denied")


async def test_a_child_asks_its_parents_people_while_a_run_of_the_parent_goes_on_and_waits_between_runs() -> None:
    asked: list[str] = []

    async def approver(question: Question) -> Answer:
        asked.append(question.arguments["text"])
        return Answer(verdict="yes", by="Ada")

    async with opened_crib(mode="cautious", approver=approver) as (session, world, crib):

        @tool(kind="read")
        async def wait_for_children() -> str:
            """Return once no child works."""
            await idle(session)
            return "nobody works"

        crib.add(wait_for_children)
        hold = Hold()
        cast = Cast(
            Start=[calls("spawn_subagent", task="Work"), "Started.", calls("wait_for_children"), "Done."],
            Work=[Reply(hold=hold, calls=calls("write", text="a").calls), "Written."],
        )
        parent = agent(cast, session)
        outcome = await parent.run("Start")
        hold.go_on.set()
        await anyio.wait_all_tasks_blocked()
        before = list(asked)
        await parent.run("Go on", history=outcome.history)

        assert (before, asked, world.written) == ([], ["a"], ["a"])


async def test_cancelling_a_run_stops_its_children_too_and_leaves_them_there() -> None:
    async with opened_crib() as (session, _, _crib):
        child, own = Hold(), Hold()
        cast = Cast(
            Start=[calls("spawn_subagent", task="Work"), Reply(hold=own, text="x")], Work=[Reply(hold=child, text="y")]
        )
        async with agent(cast, session).stream("Start") as stream:
            await child.reached.wait()
            await own.reached.wait()
            stream.cancel()
            async for _event in stream:
                pass
        registry = await idle(session)

        assert stream.outcome.stopped == "cancelled"
        assert [one["status"] for one in registry.describe()["active_sessions"]] == ["idle"]


async def test_closing_the_session_ends_its_children_and_theirs() -> None:
    async with opened_crib() as (session, _, _crib):
        hold = Hold()
        cast = Cast(
            Start=[calls("spawn_subagent", task="A"), "Started."],
            A=[calls("spawn_subagent", task="B"), Reply(hold=Hold(), text="x")],
            B=[Reply(hold=hold, text="y")],
        )
        await agent(cast, session).run("Start")
        await hold.reached.wait()
        registry = registry_of(session)
        await session.state.runtime.aclose()

        assert (registry.describe(), registry.take_events()) == ({"active_sessions": [], "count": 0}, [])


async def test_a_restart_names_the_children_that_were_lost(tmp_path: Path) -> None:
    cast = Cast(
        Start=[calls("spawn_subagent", task="Work", name="worker"), "Started."],
        Again=[to_lost, "Read."],
        Work=[Reply(hold=Hold(), text="x")],
    )
    for prompt in ("Start", "Again"):
        async with Toolcrib(store=str(tmp_path / "store.db")) as crib:
            await agent(cast, crib.session(key="mine", mode="autonomous")).run(prompt)
    (told,) = [text for text in cast.seen["Again"][0].prompts if "lost" in text]
    assert "worker-" in told and "Work" in told
    listed, sent = cast.seen["Again"][1].results
    assert [one["task"] for one in json.loads(listed)["lost"]] == ["Work"]
    assert sent.startswith("not_found") and "lost" in sent


def to_lost(seen: Seen) -> Reply:
    (line,) = [line for text in seen.prompts for line in text.splitlines() if line.startswith("- worker-")]
    id = line.removeprefix("- ").partition(":")[0]
    return calls("list_active_subagents") + calls("send_to_subagent", subagent_id=id, message="Go on")


async def test_what_a_person_refuses_a_child_for_ever_is_refused_to_its_parent_at_once() -> None:
    async with opened_crib(mode="cautious", approver=RecordingApprover("never", "yes")) as (session, world, crib):
        asked = Hold()

        @tool(kind="read")
        async def wait_for_child() -> str:
            """Return once the child has its answer."""
            await asked.reached.wait()
            return "refused"

        crib.add(wait_for_child)
        cast = Cast(
            Start=[
                calls("spawn_subagent", task="Work"),
                calls("wait_for_child"),
                calls("write", text="a"),
                "Refused.",
            ],
            Work=[calls("write", text="b"), Reply(hold=asked, text="x")],
        )
        await agent(cast, session).run("Start")

        assert (world.written, cast.seen["Start"][3].results[-1].split(":")[0]) == ([], "denied")
