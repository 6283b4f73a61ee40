"""The analysis of a task by the agent's model: one request with structured output, and what stands without it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from toolcrib import Toolcrib, tool
from toolcrib.testing.models import Hold, Reply, ScriptedModel, calls
from toolcrib_agent import Agent, AgentLimits
from toolcrib_agent.events import Finished, Selected, UsageReport

SIMPLE: dict[str, Any] = {
    "complexity": "simple",
    "is_follow_up": False,
    "relevant_skill_groups": [],
    "required_tools": [],
}


@tool(kind="read", core=True)
def plan() -> str:
    """Make a plan."""
    return "planned"


@tool(kind="read")
def nodes() -> str:
    """Run a command."""
    return "run"


@tool(kind="read", tags=["weather"])
def forecast(city: str) -> str:
    """Forecast the weather of a city."""
    return f"{city}: sun"


@tool(kind="read", tags=["charts"])
def draw() -> str:
    """Draw a diagram."""
    return "drawn"


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    groups = {
        "figures": {"description": "charts and tables", "capabilities": ["charts"]},
        "pictures": {"skills": ["draw"]},
    }
    async with Toolcrib() as opened:
        opened.add(plan, nodes, forecast, draw)
        options = {"skill_groups": groups, "simple_task_tools": ["nodes"]}
        for name, more in {"mine": {}, "ranked": {"analyser": "ranking"}, "off": {"analyse": False}}.items():
            given = {"name": name, "extends": "selection", "core": ["plan"], "options": options | more}
            opened.profiles.add(given)
        yield opened


async def selected(
    crib: Toolcrib, model: ScriptedModel, prompt: str = "Weather in Oslo?", *, profile: str = "mine", **options: Any
) -> tuple[list[Selected], set[str]]:
    """Return the selections of one run, and the tools that the model had for its answer."""
    heard: list[Any] = []
    async with crib.session(profile=profile) as session:
        outcome = await Agent(model, session, **options).run(prompt, on_event=heard.append)
    assert outcome.stopped == "answered"
    return [event for event in heard if isinstance(event, Selected)], set(model.seen[-1].tools) & OWN


OWN = {"plan", "nodes", "forecast", "draw"}


async def test_the_answer_of_the_model_is_the_intent(crib: Toolcrib) -> None:
    wanted = {**SIMPLE, "complexity": "medium", "relevant_skill_groups": ["figures"], "required_tools": ["forecast"]}
    model = ScriptedModel(calls("classify_intent", **wanted), "Sun.")
    (event,), tools = await selected(crib, model)
    assert event.intent == {**wanted, "needs_plan": True}
    assert (event.by, event.problem, tools) == ("model", "", {"plan", "forecast", "draw"})


async def test_the_group_of_a_skill_that_the_task_names_is_there_whatever_the_model_chose(crib: Toolcrib) -> None:
    chosen = {**SIMPLE, "complexity": "medium"}
    (event,), tools = await selected(
        crib, ScriptedModel(calls("classify_intent", **chosen), "Done."), "Draw the harbour"
    )
    assert event.intent == {**chosen, "needs_plan": True, "relevant_skill_groups": ["pictures"]}
    assert tools == {"plan", "draw"}


async def test_the_model_chooses_from_the_groups_and_the_tools_that_fit(crib: Toolcrib) -> None:
    model = ScriptedModel(calls("classify_intent", **SIMPLE), "Sun.", calls("classify_intent", **SIMPLE), "Rain.")
    async with crib.session(profile="mine") as session:
        agent = Agent(model, session)
        outcome = await agent.run("Weather in Oslo?")
        await agent.run("The weather in Rome", history=outcome.history)
    first, second = model.seen[0], model.seen[2]
    assert (first.outputs, first.tools) == (("classify_intent",), ())
    (prompt,) = second.prompts
    assert "- figures: charts and tables" in prompt
    assert "- forecast: Forecast the weather of a city." in prompt
    before, answer, newest = (
        prompt.index(text) for text in ("User: Weather in Oslo?", "newest message): Sun.", "User: The weather in Rome")
    )
    assert before < answer < newest


@pytest.mark.parametrize(
    ("answer", "intent"),
    [
        ({"complexity": "huge"}, {"complexity": "medium", "needs_plan": True}),
        ({"is_follow_up": "yes"}, {}),
        ({"required_tools": ["teleport", 7, "draw"]}, {"required_tools": ["draw"]}),
        ({"relevant_skill_groups": ["x", "figures"]}, {"relevant_skill_groups": ["figures"]}),
    ],
    ids=["complexity", "flag", "tools", "groups"],
)
async def test_what_is_invalid_in_the_answer_has_no_effect(
    crib: Toolcrib, answer: dict[str, Any], intent: dict[str, Any]
) -> None:
    (event,), _ = await selected(crib, ScriptedModel(calls("classify_intent", **SIMPLE | answer), "Sun."))
    assert (event.intent, event.by) == ({**SIMPLE, "needs_plan": False, **intent}, "model")


async def test_an_answer_in_words_that_is_the_json_counts(crib: Toolcrib) -> None:
    text = '{"complexity": "simple", "required_tools": ["forecast"]}'
    (event,), tools = await selected(crib, ScriptedModel(text, "Sun."))
    assert (event.by, tools) == ("model", {"nodes", "forecast"})


@pytest.mark.parametrize(
    "step",
    [
        ModelHTTPError(status_code=503, model_name="scripted"),
        "I would say it is simple.",
        calls("classify_intent", required_tools=["draw"]),
        Reply(text="Well", hold=Hold()),
    ],
    ids=["error", "prose", "incomplete", "late"],
)
async def test_without_a_usable_answer_nothing_is_narrowed(crib: Toolcrib, step: Any) -> None:
    model = ScriptedModel(step, "Sun.")
    (event,), tools = await selected(crib, model, limits=AgentLimits(analysis_seconds=0.2))
    assert (event.intent["complexity"], event.intent["needs_plan"], event.by) == ("medium", True, "ranking")
    assert event.problem
    assert {"plan", "forecast"} <= tools
    assert len(model.seen) == 2, "there is no second attempt"


async def test_the_request_counts_against_the_limits_and_is_left_out_where_it_would_take_the_last_one(
    crib: Toolcrib,
) -> None:
    heard: list[Any] = []
    model = ScriptedModel(calls("classify_intent", **SIMPLE), "Sun.")
    async with crib.session(profile="mine") as session:
        outcome = await Agent(model, session, limits=AgentLimits(requests=2)).run("Weather?", on_event=heard.append)
    assert outcome.usage.requests == 2
    assert [event.total.requests for event in heard if isinstance(event, UsageReport)] == [1, 2]
    (event,), _ = await selected(crib, ScriptedModel("Sun."), limits=AgentLimits(requests=1))
    assert (event.intent["complexity"], "limits" in event.problem) == ("medium", True)


@pytest.mark.parametrize(("profile", "analysed"), [("ranked", ["ranking"]), ("off", []), ("flat", [])])
async def test_no_model_is_asked_where_the_profile_does_not_say_so(
    crib: Toolcrib, profile: str, analysed: list[str]
) -> None:
    events, _ = await selected(crib, ScriptedModel("Sun."), profile=profile)
    assert [event.by for event in events] == analysed


@pytest.mark.parametrize(
    "options",
    [
        {"intent": {"complexity": "medium"}},
        {"plan": {"required_tools": ["draw"]}},
        {"required_capabilities": ["charts"]},
    ],
    ids=["intent", "plan", "capabilities"],
)
async def test_what_the_caller_knows_of_the_task_wins(crib: Toolcrib, options: Any) -> None:
    model = ScriptedModel("Sun.")
    async with crib.session(profile="mine") as session:
        await Agent(model, session).run("Weather in Oslo?", **options)
    assert len(model.seen) == 1


async def test_a_sub_agent_is_given_the_tools_of_its_own_task(crib: Toolcrib) -> None:
    wanted = calls("classify_intent", **{**SIMPLE, "required_tools": ["draw"]})
    medium = calls("classify_intent", **{**SIMPLE, "complexity": "medium", "required_tools": ["spawn_agent"]})
    model = ScriptedModel(medium, calls("spawn_agent", task="Draw it"), wanted, "Drawn.", "Done.")
    _, tools = await selected(crib, model, "Have a diagram drawn")
    assert {"nodes", "draw"} == set(model.seen[3].tools) & OWN
    assert "draw" not in tools


async def test_a_run_that_is_cancelled_during_the_analysis_ends_at_once(crib: Toolcrib) -> None:
    hold, heard = Hold(), list[Any]()
    async with crib.session(profile="mine") as session:
        agent = Agent(ScriptedModel(Reply(text="Well", hold=hold)), session, limits=AgentLimits(analysis_seconds=60))
        async with agent.stream("Weather in Oslo?") as events:
            await hold.reached.wait()
            agent.cancel()
            heard += [event async for event in events]
    assert [event.problem for event in heard if isinstance(event, Selected)] == ["cancelled"]
    assert [event.outcome.stopped for event in heard if isinstance(event, Finished)] == ["cancelled"]
