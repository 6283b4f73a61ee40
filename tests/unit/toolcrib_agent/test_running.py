"""The loop: asking, calling, answering, telling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.exceptions import (
    ModelContextWindowExceededError,
    ModelHTTPError,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.usage import RequestUsage

from toolcrib import Toolcrib, UsageError
from toolcrib.core.context import Output
from toolcrib.core.elicitation import DISMISSED, Clarification
from toolcrib.core.permission import Answer, Question
from toolcrib.core.session import Limits
from toolcrib.testing import RecordingApprover
from toolcrib.testing.models import Call, Hold, Reply, ScriptedModel, Seen, calls
from toolcrib_agent import Agent, AgentLimits, dump, load
from toolcrib_agent.events import (
    AgentEvent,
    Answered,
    Asked,
    CallBegun,
    CallEnded,
    CallProgress,
    Clarified,
    Clarifying,
    Compacted,
    Finished,
    Requesting,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)
from unit.toolcrib_agent.workroom import World, is_valid, opened


def kinds(events: list[AgentEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_a_run_calls_tools_until_the_model_answers_and_returns_the_conversation() -> None:
    async with opened() as (session, world):
        model = ScriptedModel(calls("write", text="a"), "Written.")
        outcome = await Agent(model, session).run("Write a")

        assert (outcome.text, outcome.stopped, outcome.is_complete) == ("Written.", "answered", True)
        assert world.written == ["a"]
        assert [type(message) for message in outcome.history] == [ModelRequest, ModelResponse] * 2
        assert model.seen[1].results == ["wrote a"]
        assert is_valid(outcome.history)
        assert (outcome.usage.requests, outcome.usage.calls) == (2, 1)


async def test_the_events_of_a_run_come_in_the_order_in_which_things_happen() -> None:
    async with opened() as (session, _):
        model = ScriptedModel(Reply(thinking="Hm.", text="Let me look.") + calls("look", at="it"), "There.")
        events: list[AgentEvent] = []
        async with Agent(model, session).stream("Is it there?") as stream:
            events = [event async for event in stream]

        assert kinds(events) == [
            *("Requesting", "ThinkingDelta", "TextDelta", "UsageReport", "CallBegun", "CallEnded"),
            *("Requesting", "TextDelta", "UsageReport", "Finished"),
        ]
        begun, ended = events[4], events[5]
        assert isinstance(begun, CallBegun) and isinstance(ended, CallEnded)
        assert (begun.id, begun.name, begun.arguments) == (ended.id, "look", {"at": "it"})
        assert (ended.result.text, ended.rule) == ("it is there", "mode autonomous: a read tool is allowed")
        assert events[-1] == Finished(outcome=stream.outcome)
        assert ThinkingDelta(text="Hm.") in events and TextDelta(text="There.") in events


async def test_what_an_earlier_run_has_answered_is_not_told_as_the_answer_of_one_that_failed() -> None:
    async with opened() as (session, _):
        first = await Agent(ScriptedModel("The old answer."), session).run("One")
        second = await Agent(ScriptedModel(ModelHTTPError(400, "m", "no")), session).run("Two", history=first.history)

        assert (second.stopped, "The old answer." in second.text) == ("failed", False)


async def test_a_text_streams_in_pieces_that_together_are_the_answer() -> None:
    async with opened() as (session, _):
        said = "One two three four five six seven."
        async with Agent(ScriptedModel(said), session).stream("Count") as stream:
            pieces = [event.text async for event in stream if isinstance(event, TextDelta)]

        assert len(pieces) > 1
        assert "".join(pieces) == stream.outcome.text == said


async def test_calls_of_one_response_run_side_by_side_and_their_results_keep_the_order_of_the_calls() -> None:
    async with opened() as (session, _):
        model = ScriptedModel(calls("meet", name="a") + calls("look", at="x") + calls("meet", name="b"), "Met.")
        outcome = await Agent(model, session).run("Meet")

        assert model.seen[1].results == ["a met", "x is there", "b met"]
        assert outcome.usage.calls == 3


async def test_what_a_call_says_while_it_runs_is_told_with_its_id() -> None:
    async with opened() as (session, _):
        model = ScriptedModel(calls("look", at="x") + Reply(calls=(Call(name="talk", id="t1"),)), "Done.")
        events: list[AgentEvent] = []
        await Agent(model, session).run("Talk", on_event=events.append)

        (heard,) = [event for event in events if isinstance(event, CallProgress)]
        assert (heard.id, heard.name) == ("t1", "talk")
        assert isinstance(heard.update, Output) and heard.update.chunk == "half way"


async def test_a_conversation_goes_on_with_the_history_of_the_last_run_also_after_it_was_written_down() -> None:
    async with opened() as (session, _):
        model = ScriptedModel(calls("look", at="x"), "There.", "As I said.")
        agent = Agent(model, session)
        first = await agent.run("Look")
        second = await agent.run("Sure?", history=load(dump(first.history)))

        assert model.seen[2].prompts == ["Look", "Sure?"]
        assert (second.text, len(second.history)) == ("As I said.", 6)
        assert list(second.history[: len(first.history)]) == list(first.history)


async def test_arguments_that_are_no_json_are_told_to_the_model_and_nothing_runs() -> None:
    async with opened() as (session, world):
        broken = Reply(calls=(Call(name="write", arguments='{"text": "a'),))
        model = ScriptedModel(broken, calls("write", text="a"), "Done.")
        events: list[AgentEvent] = []
        outcome = await Agent(model, session).run("Write", on_event=events.append)

        (told, _) = [event for event in events if isinstance(event, CallBegun)]
        assert told.arguments == '{"text": "a'
        assert model.seen[1].results[0].startswith("invalid_arguments") and '{"text": "a' in model.seen[1].results[0]
        assert (outcome.text, world.written) == ("Done.", ["a"])
        assert is_valid(outcome.history)


async def test_ids_that_a_server_gives_twice_are_made_different() -> None:
    async with opened() as (session, _):
        again = Reply(calls=(Call(name="look", arguments={"at": "x"}, id="0"),) * 2)
        model = ScriptedModel(again, again, "Done.")
        outcome = await Agent(model, session).run("Look")

        parts = [part for message in outcome.history for part in message.parts]
        made = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
        assert len(set(made)) == 4
        assert [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)] == made


async def test_a_question_is_told_with_its_rule_and_its_answer() -> None:
    approver = RecordingApprover("yes")
    async with opened(mode="cautious", approver=approver) as (session, world):
        model = ScriptedModel(calls("write", text="a"), "Done.")
        events: list[AgentEvent] = []
        await Agent(model, session).run("Write", on_event=events.append)

        (asked,) = [event for event in events if isinstance(event, Asked)]
        (answered,) = [event for event in events if isinstance(event, Answered)]
        assert (asked.question.tool.name, asked.question.decision.effect) == ("write", "ask")
        assert answered.answer is not None and answered.answer.verdict == "yes"
        assert (len(approver.questions), world.written, session.state.approvals.approver) == (1, ["a"], approver)


async def test_a_refusal_reaches_the_model_and_is_no_failure_of_the_tool() -> None:
    async with opened(mode="cautious", approver=RecordingApprover("no")) as (session, world):
        model = ScriptedModel(calls("write", text="a"), "You said no.")
        outcome = await Agent(model, session).run("Write")

        parts: list[Any] = [part for part in outcome.history[2].parts if isinstance(part, ToolReturnPart)]
        assert ([part.outcome for part in parts], world.written) == (["denied"], [])
        assert model.seen[1].results[0].startswith("denied")


async def test_an_agent_asks_the_user_where_there_is_somebody_to_ask() -> None:
    asked: list[Clarification] = []

    async def answers(question: Clarification) -> str | None:
        asked.append(question)
        return "Postgres" if question.options else None

    async with opened(elicitor=answers) as (session, _):
        both = calls("ask_user", question="Which?", options=list("abcdefg")) + calls("ask_user", question="Why?")
        model = ScriptedModel(both, "Fine.")
        events: list[AgentEvent] = []
        await Agent(model, session).run("Choose", on_event=events.append)

        assert model.seen[1].results == ["Postgres", DISMISSED]
        assert [question.options for question in asked] == [tuple("abcde"), ()]
        assert [event.answer for event in events if isinstance(event, Clarified)] == ["Postgres", None]
        assert len([event for event in events if isinstance(event, Clarifying)]) == 2

    async with opened() as (session, _):
        model = ScriptedModel("Hello.")
        await Agent(model, session).run("Hello")
        assert "ask_user" not in model.seen[0].tools


async def test_those_who_are_asked_may_be_plain_functions() -> None:
    def approve(question: Question) -> Answer:
        return Answer(verdict="yes")

    def answer(question: Clarification) -> str | None:
        return "Postgres"

    async with opened(mode="cautious", approver=approve, elicitor=answer) as (session, world):
        model = ScriptedModel(calls("write", text="a") + calls("ask_user", question="Which?"), "Fine.")
        await Agent(model, session).run("Choose")

        assert (model.seen[1].results, world.written) == (["wrote a", "Postgres"], ["a"])


async def test_a_run_begins_an_interaction_and_may_be_cut_down_to_some_tools() -> None:
    async with opened() as (session, _):
        model = ScriptedModel("Only one.", "All again.")
        agent = Agent(model, session)
        await agent.run("Hello", tools=["look"])
        await agent.run("Hello")

        assert model.seen[0].tools == ("look",)
        assert {"look", "write", "meet"} <= set(model.seen[1].tools)


async def test_one_agent_does_one_run_at_a_time() -> None:
    async with opened() as (session, _):
        hold = Hold()
        agent = Agent(ScriptedModel(Reply(text="Slow.", hold=hold)), session)
        async with agent.stream("Be slow") as stream:
            await hold.reached.wait()
            with pytest.raises(UsageError, match="works already"):
                await agent.run("Be quick")
            hold.go_on.set()
            assert [event async for event in stream][-1] == Finished(outcome=stream.outcome)


async def test_a_run_that_cannot_begin_says_so_to_its_caller() -> None:
    async with opened() as (session, _):
        agent = Agent(ScriptedModel("Hello."), session)
        with pytest.raises(UsageError, match="there is no tool 'loook'"):
            await agent.run("Hello", tools=["loook"])
        with pytest.raises(UsageError, match="there is no tool 'loook'"):
            async with agent.stream("Hello", tools=["loook"]) as stream:
                assert [event async for event in stream] == []
        assert (await agent.run("Hello")).text == "Hello."


async def test_the_budget_of_a_session_holds_for_its_agent() -> None:
    async with Toolcrib() as crib:
        world = World()
        crib.add(world)
        session = crib.session(mode="autonomous")
        session.state.limits = Limits(calls=1)
        model = ScriptedModel(calls("write", text="a"), calls("write", text="b"), "One.")
        await Agent(model, session).run("Write")

        assert world.written == ["a"]
        assert model.seen[2].results[1].startswith("budget_exceeded")


async def test_a_full_context_is_compacted_before_the_next_request() -> None:
    async with opened() as (session, _):
        used = RequestUsage(input_tokens=800, output_tokens=10)
        full = Reply(calls=calls("look", at="y").calls, usage=used)
        model = ScriptedModel(
            calls("look", at="x" * 400), full, "They looked at x and y.", "Both are there.", context_window=1000
        )
        events: list[AgentEvent] = []
        outcome = await Agent(model, session, limits=AgentLimits(keep=0.1)).run(
            "Look at x and y", on_event=events.append
        )

        (made,) = [event for event in events if isinstance(event, Compacted)]
        assert made.by == "model" and made.after < made.before
        assert "They looked at x and y." in model.seen[3].prompts[0] and "Look at x and y" in model.seen[3].prompts[0]
        assert model.seen[3].results == ["y is there"]
        assert (outcome.text, is_valid(outcome.history)) == ("Both are there.", True)


async def test_a_context_that_the_api_calls_too_long_is_compacted_and_asked_again() -> None:
    async with opened() as (session, _):
        too_long = ModelHTTPError.for_category(ModelContextWindowExceededError, status_code=400, model_name="scripted")
        model = ScriptedModel(
            calls("look", at="x" * 2000), calls("look", at="y"), too_long, ModelHTTPError(500, "scripted"), "Done."
        )
        events: list[AgentEvent] = []
        outcome = await Agent(model, session, limits=AgentLimits(retries=0)).run("Look around", on_event=events.append)

        (made,) = [event for event in events if isinstance(event, Compacted)]
        assert (made.by, outcome.text) == ("outline", "Done.")
        assert model.seen[4].results == ["y is there"] and "Look around" in model.seen[4].prompts[0]
        assert is_valid(outcome.history)


async def test_a_history_is_compacted_on_demand() -> None:
    async with opened() as (session, _):
        model = ScriptedModel(*["A long answer. " * 50] * 3, "In short: three answers.")
        agent = Agent(model, session, limits=AgentLimits(context=1200, keep=0.2, compact_at=1.0))
        history: tuple[ModelMessage, ...] = ()
        for number in range(3):
            history = (await agent.run(f"Question {number}", history=history)).history
        events: list[AgentEvent] = []
        shorter = await agent.compact(history, on_event=events.append)

        assert len(shorter) < len(history) and is_valid(shorter)
        assert "In short: three answers." in str(shorter[0])
        assert [type(event) for event in events] == [UsageReport, Compacted]


async def test_requests_tell_what_the_model_has_and_how_full_its_context_is() -> None:
    async with opened() as (session, _):
        events: list[AgentEvent] = []
        await Agent(ScriptedModel("Hi.", context_window=5000), session).run("Hello", on_event=events.append)

        (asked,) = [event for event in events if isinstance(event, Requesting)]
        assert (asked.number, asked.window, "look" in asked.tools) == (1, 5000, True)
        assert 100 < asked.context < 1500


async def test_instructions_are_the_prompt_of_the_agent_and_what_changes_is_told_in_the_conversation() -> None:
    async with opened(mode="cautious") as (session, _):

        def change(seen: Seen) -> str | Reply:
            session.mode = "autonomous"
            return calls("look", at="x")

        model = ScriptedModel(change, "Done.")
        await Agent(model, session, instructions="You are a plumber.").run("Look")

        assert model.seen[0].instructions.startswith("You are a plumber.")
        assert "Mode cautious" in model.seen[0].instructions
        assert model.seen[1].instructions == model.seen[0].instructions
        assert "Mode autonomous" in model.seen[1].prompts[-1]


async def test_what_a_model_would_see_can_be_had_without_one() -> None:
    async with opened() as (session, _):
        model = ScriptedModel("Hi.")
        agent = Agent(model, session, instructions="Be brief.")
        prompt, tools = await agent.preview()
        await agent.run("Hello")

        assert prompt == model.seen[0].instructions
        assert tuple(shown.name for shown in tools) == model.seen[0].tools


async def test_a_listener_that_breaks_does_not_end_the_run() -> None:
    def breaks(event: AgentEvent) -> None:
        raise RuntimeError("a broken screen")

    async with opened() as (session, _):
        outcome = await Agent(ScriptedModel("Hello."), session).run("Hello", on_event=breaks)

        assert outcome.text == "Hello."


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: AgentLimits(requests=0), "limits.requests"),
        (lambda: AgentLimits(calls=-1), "limits.calls"),
        (lambda: AgentLimits(keep=0.9), "keep < compact_at"),
    ],
    ids=["no request", "fewer than no calls", "more kept than there may be"],
)
def test_limits_that_cannot_be_are_refused(make: Callable[[], AgentLimits], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


async def test_a_plan_that_is_written_as_an_answer_is_offered_for_approval() -> None:
    approver = RecordingApprover("yes")
    async with opened(mode="plan", approver=approver) as (session, world):
        model = ScriptedModel("1. Look.\n2. Write a.", calls("write", text="a"), "Done.")
        outcome = await Agent(model, session).run("Write a")

        assert [question.tool.name for question in approver.questions] == ["submit_plan"]
        assert (outcome.text, outcome.stopped, world.written) == ("Done.", "answered", ["a"])
        assert is_valid(outcome.history)


async def test_a_refused_plan_goes_back_with_its_comment_and_ends_the_run_without_one() -> None:
    no = Answer(verdict="no", by="Ada")
    approver = RecordingApprover(replace(no, comment="Nothing in upper case."), no)
    async with opened(mode="plan", approver=approver) as (session, world):
        model = ScriptedModel("1. Look.\n2. Write A.", "1. Look.\n2. Write a.")
        outcome = await Agent(model, session).run("Write a")

        assert "Nothing in upper case." in model.seen[1].prompts[-1]
        assert (outcome.text, outcome.stopped, world.written) == ("1. Look.\n2. Write a.", "answered", [])


async def test_a_question_of_the_model_is_not_taken_for_a_plan() -> None:
    approver = RecordingApprover("yes")
    async with opened(mode="plan", approver=approver) as (session, _):
        outcome = await Agent(ScriptedModel("Which file is it?"), session).run("Write")

        assert (outcome.text, approver.questions) == ("Which file is it?", [])


def test_an_agent_is_made_where_no_event_loop_runs() -> None:
    agent = Agent(ScriptedModel("hello"), Toolcrib().session())
    agent.cancel()

    assert agent.last_outcome is None
