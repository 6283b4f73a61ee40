"""Every way in which a run can end: always with an answer, and a history that is valid."""

from __future__ import annotations

import anyio
import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAuthenticationError,
    ModelHTTPError,
    ModelRateLimitError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from toolcrib.errors import UsageError
from toolcrib.testing.models import Hold, Reply, ScriptedModel, Seen, calls
from toolcrib_agent import Agent, AgentLimits
from toolcrib_agent.events import AgentEvent, CallBegun, CallEnded, Concluding, Finished, Retrying
from toolcrib_agent.messages import INTERRUPTED
from unit.toolcrib_agent.workroom import is_valid, opened

QUICK = AgentLimits(backoff=0)


async def test_a_model_that_says_nothing_is_told_so_and_then_asked_for_a_last_answer() -> None:
    async with opened() as (session, _):
        model = ScriptedModel(Reply(), Reply(thinking="…"), "Sorry: hello.")
        outcome = await Agent(model, session).run("Hello")
        assert (outcome.text, outcome.stopped) == ("Sorry: hello.", "answered")
        assert "Your answer was empty" in model.seen[2].prompts[-1]

        silent = ScriptedModel(Reply(), Reply(), Reply(), "At last.")
        outcome = await Agent(silent, session).run("Hello")
        assert (outcome.text, outcome.stopped) == ("At last.", "blank")
        assert silent.seen[3].settings["tool_choice"] == "none"
        assert is_valid(outcome.history)


async def test_rounds_in_which_nothing_could_run_end_in_a_last_answer() -> None:
    async with opened() as (session, _):
        model = ScriptedModel(*[calls("look_up", at="x")] * 3, "I have no such tool.")
        outcome = await Agent(model, session, limits=AgentLimits(fruitless_rounds=3)).run("Look")

        assert (outcome.text, outcome.stopped) == ("I have no such tool.", "fruitless")
        assert outcome.reason == "no tool call could run for 3 rounds"


async def test_a_limit_of_requests_ends_in_one_more_without_tools() -> None:
    async with opened() as (session, world):
        model = ScriptedModel(calls("write", text="a"), calls("write", text="b"), "Two of three are written.")
        events: list[AgentEvent] = []
        outcome = await Agent(model, session, limits=AgentLimits(requests=2)).run("Write", on_event=events.append)

        assert (outcome.text, outcome.stopped) == ("Two of three are written.", "limit")
        assert outcome.reason == "the 2 requests to the model are used up"
        assert Concluding(reason=outcome.reason) in events
        assert (model.seen[2].tools, model.seen[2].settings["tool_choice"]) == (model.seen[1].tools, "none")
        assert "Tools can no longer be called" in model.seen[2].prompts[-1]
        assert world.written == ["a", "b"]
        assert is_valid(outcome.history)


async def test_a_model_that_calls_tools_in_its_last_answer_is_asked_without_any() -> None:
    async with opened() as (session, world):
        one = calls("write", text="a")
        model = ScriptedModel(one, one, "That is all.")
        outcome = await Agent(model, session, limits=AgentLimits(requests=1)).run("Write")
        assert (outcome.text, model.seen[2].tools, world.written) == ("That is all.", (), ["a"])

        talking = ScriptedModel(one, Reply(text="I would write more.") + one)
        outcome = await Agent(talking, session, limits=AgentLimits(requests=1)).run("Write")
        assert (outcome.text, world.written) == ("I would write more.", ["a", "a"])
        assert is_valid(outcome.history)


async def test_an_answer_is_delivered_even_where_no_model_can_give_one() -> None:
    async with opened() as (session, _):
        failing = ModelHTTPError(500, "scripted")
        model = ScriptedModel(calls("look", at="x"), failing, failing)
        limits = AgentLimits(requests=1, retries=1, backoff=0)
        outcome = await Agent(model, session, limits=limits).run("Look")

        assert outcome.stopped == "limit"
        assert outcome.text.splitlines()[1:] == ["What the tools brought last:", "- look: x is there"]
        assert "the 1 requests to the model are used up; then HTTP 500" in outcome.text
        assert isinstance(outcome.history[-1], ModelResponse) and is_valid(outcome.history)


async def test_calls_beyond_their_limit_do_not_run_and_say_so() -> None:
    async with opened() as (session, world):
        three = calls("write", text="a") + calls("write", text="b") + calls("write", text="c")
        model = ScriptedModel(three, "Two of three.")
        outcome = await Agent(model, session, limits=AgentLimits(calls=2)).run("Write")

        assert (sorted(world.written), outcome.text, outcome.stopped) == (["a", "b"], "Two of three.", "limit")
        assert model.seen[1].results[2].startswith("budget_exceeded: write did not run")
        assert outcome.usage.calls == 2


async def test_a_run_that_uses_all_of_its_calls_and_no_more_is_not_cut_short() -> None:
    async with opened() as (session, world):
        model = ScriptedModel(calls("write", text="a") + calls("write", text="b"), "Both.")
        outcome = await Agent(model, session, limits=AgentLimits(calls=2)).run("Write")

        assert (outcome.text, outcome.stopped, sorted(world.written)) == ("Both.", "answered", ["a", "b"])


async def test_a_run_that_is_cancelled_at_its_last_answer_is_cancelled() -> None:
    async with opened() as (session, _):
        hold = Hold()
        model = ScriptedModel(calls("look", at="x"), Reply(text="As far", hold=hold))
        async with Agent(model, session, limits=AgentLimits(requests=1)).stream("Look") as stream:
            await hold.reached.wait()
            stream.cancel()

        assert stream.outcome.stopped == "cancelled" and "As far" in stream.outcome.text
        assert is_valid(stream.outcome.history)


async def test_a_limit_of_tokens_counts_what_the_api_counts() -> None:
    async with opened() as (session, _):
        used = RequestUsage(input_tokens=900, output_tokens=200, cache_read_tokens=500)
        model = ScriptedModel(Reply(calls=calls("look", at="x").calls, usage=used), "Enough.")
        outcome = await Agent(model, session, limits=AgentLimits(tokens=1000)).run("Look")

        assert (outcome.stopped, outcome.reason) == ("limit", "1,100 tokens were used, 1,000 may be")
        assert (outcome.usage.cache_read_tokens, outcome.usage.is_estimated) == (500, True)


@pytest.mark.slow
async def test_a_limit_of_time_cancels_what_runs_and_asks_for_an_answer() -> None:
    def answers(seen: Seen) -> str | Reply:
        is_last = "Tools can no longer be called" in seen.prompts[-1]
        return "It took too long." if is_last else calls("hang")

    async with opened() as (session, _):
        model = ScriptedModel(answers, answers)
        outcome = await Agent(model, session, limits=AgentLimits(seconds=0.5)).run("Hang")

        assert (outcome.text, outcome.stopped) == ("It took too long.", "limit")
        assert outcome.reason == "the 0.5 seconds that it may take are over"
        assert set(model.seen[-1].results) <= {INTERRUPTED}
        assert is_valid(outcome.history)


async def test_a_run_that_is_cancelled_amid_calls_keeps_what_came_back_and_can_go_on() -> None:
    async with opened() as (session, world):
        model = ScriptedModel(calls("write", text="a") + calls("hang"), "It was interrupted.")
        agent = Agent(model, session)
        async with agent.stream("Do both") as stream:
            async for event in stream:
                if isinstance(event, CallEnded):
                    await world.begun.wait()
                    stream.cancel()

        assert (stream.outcome.stopped, world.written) == ("cancelled", ["a"])
        assert is_valid(stream.outcome.history)
        after = await agent.run("Go on", history=stream.outcome.history)
        assert model.seen[1].results == ["wrote a", INTERRUPTED]
        assert (model.seen[1].prompts, after.text) == (["Do both", "Go on"], "It was interrupted.")


async def test_a_run_that_is_cancelled_amid_an_answer_keeps_its_text_and_no_half_call() -> None:
    async with opened() as (session, _):
        hold = Hold()
        model = ScriptedModel(Reply(thinking="Hm.", text="I begin", hold=hold) + calls("look", at="x"), "Go on.")
        agent = Agent(model, session)
        async with agent.stream("Begin") as stream:
            await hold.reached.wait()
            stream.cancel()
            events = [event async for event in stream]

        assert isinstance(events[-1], Finished)
        last = stream.outcome.history[-1]
        assert [part.part_kind for part in last.parts] == ["text"]
        assert (await agent.run("Go on", history=stream.outcome.history)).text == "Go on."


async def test_a_caller_that_is_cancelled_finds_a_valid_history_at_the_agent() -> None:
    async with opened() as (session, world):
        agent = Agent(ScriptedModel(calls("hang")), session)
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, "Hang")
            await world.begun.wait()
            group.cancel_scope.cancel()

        assert agent.last_outcome is not None
        assert (agent.last_outcome.stopped, is_valid(agent.last_outcome.history)) == ("cancelled", True)
        assert [part.part_kind for part in agent.last_outcome.history[-1].parts] == ["tool-return"]


async def test_leaving_the_block_of_a_stream_ends_its_run() -> None:
    async with opened() as (session, _):
        async with Agent(ScriptedModel(calls("hang")), session).stream("Hang") as stream:
            async for event in stream:
                if isinstance(event, CallBegun):
                    break

        assert stream.outcome.stopped == "cancelled"
        async with Agent(ScriptedModel("Never asked."), session).stream("Hello") as unread:
            pass
        assert unread.outcome.stopped == "cancelled"


async def test_a_stream_that_was_not_entered_is_refused_in_place_of_waiting_for_ever() -> None:
    async with opened() as (session, _):
        with pytest.raises(UsageError, match="async with"):
            aiter(Agent(ScriptedModel("Never asked."), session).stream("Hello"))


async def test_a_request_that_fails_for_a_while_is_repeated_and_one_that_is_refused_is_not() -> None:
    async with opened() as (session, _):
        limited = ModelHTTPError.for_category(
            ModelRateLimitError, status_code=429, model_name="scripted", retry_after=0.01
        )
        halfway = Reply(text="I beg", error=ModelHTTPError(503, "scripted"))
        model = ScriptedModel(limited, halfway, UnexpectedModelBehavior("nothing came"), "Done.")
        events: list[AgentEvent] = []
        outcome = await Agent(model, session, limits=QUICK).run("Do", on_event=events.append)

        retries = [event for event in events if isinstance(event, Retrying)]
        assert [(event.attempt, event.wait, event.discards) for event in retries] == [
            *((1, 0.01, False), (2, 0.0, True), (3, 0.0, False))
        ]
        assert (outcome.text, outcome.usage.requests) == ("Done.", 4)

        refused = ScriptedModel(
            ModelHTTPError.for_category(ModelAuthenticationError, status_code=401, model_name="scripted")
        )
        outcome = await Agent(refused, session, limits=QUICK).run("Do")
        assert (outcome.stopped, len(refused.seen)) == ("failed", 1)
        assert outcome.reason.startswith("HTTP 401 from scripted")
        assert outcome.reason in outcome.text


async def test_a_wait_that_is_too_long_is_not_waited_for() -> None:
    async with opened() as (session, _):
        later = ModelHTTPError.for_category(
            ModelRateLimitError, status_code=429, model_name="scripted", retry_after=3600
        )
        model = ScriptedModel(later)
        outcome = await Agent(model, session).run("Do")

        assert (outcome.stopped, len(model.seen)) == ("failed", 1)


async def test_what_an_api_withheld_or_cut_off_is_told_as_such() -> None:
    async with opened() as (session, _):
        cut = await Agent(ScriptedModel(Reply(text="A long", finish_reason="length")), session).run("Tell")
        withheld = await Agent(ScriptedModel(Reply(finish_reason="content_filter")), session).run("Tell")

        refused = await Agent(ScriptedModel(ContentFilterError("no")), session).run("Tell")

        assert (cut.text, cut.stopped) == ("A long", "cut")
        assert (refused.stopped, refused.usage.requests) == ("filtered", 1)
        assert [is_valid(outcome.history) for outcome in (cut, withheld, refused)] == [True] * 3
        assert withheld.stopped == "filtered" and "withheld" in withheld.text


@pytest.mark.parametrize("place", range(14))
async def test_wherever_a_run_is_cancelled_its_history_is_valid_and_can_be_gone_on_with(place: int) -> None:
    async with opened() as (session, _):
        both = Reply(thinking="Hm.", text="Both.") + calls("look", at="x") + calls("write", text="a")
        model = ScriptedModel(both, calls("spawn_agent", task="Look"), calls("look", at="y"), "There.", "Done.")
        agent = Agent(model, session)
        heard: list[AgentEvent] = []

        def cancels(event: AgentEvent) -> None:
            heard.append(event)
            if len(heard) == place + 1:
                agent.cancel()

        outcome = await agent.run("Look and write", on_event=cancels)
        model.steps[:] = ["Gone on."]
        after = await agent.run("Go on", history=outcome.history)

        assert (outcome.stopped, is_valid(outcome.history)) == ("cancelled", True)
        assert isinstance(heard[-1], Finished) and outcome.text
        assert (after.text, is_valid(after.history)) == ("Gone on.", True)
