"""What a run of the OpenAI Agents SDK has of a session, with the SDK's own scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    ModelBehaviorError,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunState,
    ToolSearchTool,
    function_tool,
    set_tracing_disabled,
)
from agents.items import ToolCallOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call

from toolcrib import Answer, Session, Toolcrib, ToolResult, UsageError, defer_approval, tool
from toolcrib.integrations.openai_agents import ToolcribAgent

DONE = [assistant_message("Done.")]


@pytest.fixture(autouse=True, scope="module")
def untraced() -> Generator[None]:
    """Nothing is told to the platform whose SDK it is."""
    set_tracing_disabled(True)
    yield
    set_tracing_disabled(False)


class Office:
    """Three tools, and what they have done."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool(kind="read")
        def look(place: str) -> str:
            """Look at a place."""
            self.ran.append(f"look {place}")
            return f"{place} is empty"

        @tool(kind="destructive", category="tables")
        def drop(table: str) -> str:
            """Drop a table."""
            self.ran.append(f"drop {table}")
            return f"{table} is gone"

        @tool(kind="read")
        def picture() -> ToolResult:
            """Draw."""
            image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
            return ToolResult(content=({"type": "text", "text": "a dot"}, image))

        self.tools = [look, drop, picture]


@pytest.fixture
async def office() -> Office:
    """What the tools work on."""
    return Office()


@pytest.fixture
async def crib(office: Office) -> AsyncGenerator[Toolcrib]:
    """A crib with the office's tools."""
    async with Toolcrib() as crib:
        crib.add(office.tools)
        yield crib


@pytest.fixture
async def session(crib: Toolcrib) -> Session:
    """A conversation that asks later."""
    return crib.session(approver=defer_approval)


def call(name: str, /, id: str = "1", **arguments: Any) -> Any:
    """Return a call as the model makes it."""
    return function_call(name, json.dumps(arguments), call_id=id)


def agent_of(session: Any, *lines: Any, **given: Any) -> ToolcribAgent[Any]:
    """Return an agent whose model says these lines and then that it is done."""
    return ToolcribAgent(name="Office", model=ScriptedModel([*lines, DONE]), session=session, **given)


def told(result: Any) -> dict[str, Any]:
    """Return what the model reads of each call, by its id."""
    outputs = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    return {str(item.call_id): item.output for item in outputs}


async def test_calls_go_through_the_session_beside_the_agents_own_tools(session: Session, office: Office) -> None:
    @function_tool
    async def greet(name: str) -> str:
        """Greet."""
        return f"hello {name}"

    turn = [
        call("greet", name="Ada"),
        call("look", id="2", place="home"),
        call("picture", id="3"),
        call("look", id="4"),
    ]
    agent = agent_of(session, turn, instructions="Be brief.", tools=[greet])
    result = await Runner.run(agent, "go")

    outputs = told(result)
    assert (outputs["1"], outputs["2"]) == ("hello Ada", "home is empty")
    assert [part.model_dump(exclude_none=True) for part in outputs["3"]] == [
        {"type": "text", "text": "a dot"},
        {"type": "image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    ]
    assert outputs["4"].startswith("invalid_arguments: ")
    assert office.ran == ["look home"]
    assert result.final_output == "Done."


async def test_a_turn_shows_what_the_session_shows_and_a_tool_that_stays_is_the_same_object(crib: Toolcrib) -> None:
    session = crib.session(profile="tiered")
    agent = agent_of(session, [call("load_tools", category="tables")])
    model: Any = agent.model
    first = await agent.get_all_tools(RunContextWrapper(None))
    await Runner.run(agent, "go")
    before, after = ([one.name for one in seen.tools] for seen in model.calls)
    last = await agent.get_all_tools(RunContextWrapper(None))

    assert after == [*before, "drop"]
    assert all(any(one is other for other in last) for one in first)
    assert model.calls[0].system_instructions == session.instructions


async def test_every_run_begins_an_interaction_and_one_that_goes_on_does_not(crib: Toolcrib, office: Office) -> None:
    session = crib.session(profile="tiered", approver=defer_approval)
    turns = [[call("load_tools", category="tables")], [call("drop", id="2", table="a")]]
    agent = agent_of(session, *turns, DONE)
    result = await Runner.run(agent, "go")

    assert tuple(session.loaded) == ("drop",)
    state = result.to_state()
    state.approve(result.interruptions[0])
    await Runner.run(agent, state)
    assert (office.ran, tuple(session.loaded)) == (["drop a"], ("drop",))
    await Runner.run(agent, "again")
    assert tuple(session.loaded) == ()


@pytest.mark.parametrize(
    ("answer", "wanted", "ran"),
    [
        (Answer(verdict="yes", by="Ada"), "users is gone", ["drop users"]),
        (Answer(verdict="edit", by="Ada", arguments={"table": "old"}), "old is gone", ["drop old"]),
        (Answer(verdict="no", by="Ada"), "denied: Ada refused drop", []),
        (Answer(verdict="comment", by="Ada", comment="not now"), "denied: Ada refused drop: not now", []),
    ],
    ids=["yes", "edit", "no", "comment"],
)
async def test_an_interrupted_run_goes_on_with_the_answer(
    session: Session, office: Office, answer: Answer, wanted: str, ran: list[str]
) -> None:
    agent = agent_of(session, [call("drop", table="users"), call("look", id="2", place="home")])
    result = await Runner.run(agent, "go")
    (item,) = result.interruptions
    question = await agent.question(item)

    assert (question.tool, json.loads(question.arguments)) == ("drop", {"table": "users"})
    assert office.ran == ["look home"]
    state = result.to_state()
    await agent.answer(state, item, answer)
    done = await Runner.run(agent, state)
    assert told(done)["1"].partition("\n")[0].startswith(wanted)
    assert office.ran == ["look home", *ran]


async def test_the_sdks_own_no_is_written_down(crib: Toolcrib, session: Session, office: Office) -> None:
    agent = agent_of(session, [call("drop", table="users")])
    result = await Runner.run(agent, "go")
    state = result.to_state()
    state.reject(result.interruptions[0], rejection_message="not today")
    done = await Runner.run(agent, state)

    assert (told(done), office.ran) == ({"1": "not today"}, [])
    assert [(one.state, one.by) for one in await crib.approvals.list()] == [("denied", "OpenAI Agents SDK")]


async def test_a_run_that_was_kept_as_json_goes_on_in_another_process(office: Office) -> None:
    async with Toolcrib() as crib:
        crib.add(office.tools)
        result = await Runner.run(agent_of(crib.session(approver=defer_approval), [call("drop", table="users")]), "go")
        kept = result.to_state().to_json()
    async with Toolcrib() as crib:
        crib.add(office.tools)
        agent = agent_of(crib.session(approver=defer_approval))
        state = await RunState[Any].from_json(agent, json.loads(json.dumps(kept)))
        (item,) = state.get_interruptions()
        state.approve(item)
        done = await Runner.run(agent, state)

    assert (told(done), office.ran) == ({"1": "users is gone"}, ["drop users"])


async def test_what_the_sdk_approves_for_ever_counts_for_what_was_asked(session: Session, office: Office) -> None:
    agent = agent_of(session, [call("drop", table="a")], [call("drop", id="2", table="b")])
    result = await Runner.run(agent, "go")
    state = result.to_state()
    state.approve(result.interruptions[0], always_approve=True)
    done = await Runner.run(agent, state)

    assert office.ran == ["drop a"]
    assert told(done)["2"].startswith("denied: drop did not run yet")


async def test_of_two_questions_one_can_be_answered_before_the_other(session: Session, office: Office) -> None:
    agent = agent_of(session, [call("drop", table="a"), call("drop", id="2", table="b")])
    result = await Runner.run(agent, "go")
    asked = list[str]()
    while result.interruptions:
        asked.append((await agent.question(result.interruptions[0])).approval)
        state = result.to_state()
        await agent.answer(state, result.interruptions[0], Answer(verdict="yes", by="Ada"))
        result = await Runner.run(agent, state)

    assert office.ran == ["drop a", "drop b"]
    assert len(set(asked)) == 2


async def test_a_call_that_has_the_id_of_one_that_was_left_behind_is_asked_about_by_itself(
    session: Session, office: Office
) -> None:
    await Runner.run(agent_of(session, [call("drop", table="old")]), "go")
    agent = agent_of(session, [call("drop", table="new")])
    result = await Runner.run(agent, "go")
    (item,) = result.interruptions

    assert json.loads((await agent.question(item)).arguments) == {"table": "new"}
    state = result.to_state()
    state.approve(item)
    await Runner.run(agent, state)
    assert office.ran == ["drop new"]


async def test_an_interruption_that_is_none_of_the_sessions_is_not_answered_by_it(session: Session) -> None:
    @function_tool(needs_approval=True)
    async def launch() -> str:
        """Launch."""
        return "up"

    agent = agent_of(session, [call("launch")], tools=[launch])
    result = await Runner.run(agent, "go")

    with pytest.raises(UsageError, match="launch asks nothing"):
        await agent.question(result.interruptions[0])


async def test_one_agent_serves_many_users_each_with_his_own_session(crib: Toolcrib) -> None:
    shown = dict[str, list[str]]()

    def opens(run: RunContextWrapper[Any]) -> Session:
        return crib.session(profile="tiered", key=run.context)

    for name, category in (("ada", "tables"), ("bob", "none")):
        agent = agent_of(opens, [call("load_tools", category=category)])
        await Runner.run(agent, "go", context=name)
        model: Any = agent.model
        shown[name] = [one.name for one in model.calls[-1].tools]

    assert shown["ada"] == [*shown["bob"], "drop"]


async def test_a_streamed_run_is_the_same(session: Session, office: Office) -> None:
    agent = agent_of(session, [call("look", place="home"), call("drop", id="2", table="a")])
    stream = Runner.run_streamed(agent, "go")
    kinds = [event.type async for event in stream.stream_events()]
    state = stream.to_state()
    await agent.answer(state, stream.interruptions[0], Answer(verdict="yes", by="Ada"))
    rest = Runner.run_streamed(agent, state)
    kinds += [event.type async for event in rest.stream_events()]

    assert "run_item_stream_event" in kinds
    assert (rest.final_output, office.ran) == ("Done.", ["look home", "drop a"])


async def test_a_tool_that_was_not_shown_ends_the_run_unless_the_run_says_otherwise(session: Session) -> None:
    with pytest.raises(ModelBehaviorError):
        await Runner.run(agent_of(session, [call("lok")]), "go")

    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    assert (await Runner.run(agent_of(session, [call("lok")]), "go", run_config=config)).final_output == "Done."


async def test_deferred_tools_stand_in_a_namespace_that_the_api_searches(crib: Toolcrib, office: Office) -> None:
    session = crib.session(profile="tiered", allowed_tools=["drop", "look", "picture"])
    with pytest.raises(UsageError, match="refuses tools"):
        await ToolcribAgent(name="Office", session=crib.session(profile="introspection"), defer=True).get_all_tools(
            RunContextWrapper(None)
        )
    agent = agent_of(session, [function_call("look", {"place": "home"}, call_id="1", namespace="python")], defer=True)
    shown = await agent.get_all_tools(RunContextWrapper(None))

    assert isinstance(shown[0], ToolSearchTool)
    deferred = [one for one in shown if isinstance(one, FunctionTool) and one.defer_loading]
    assert sorted(one.qualified_name for one in deferred) == ["python.drop", "python.look", "python.picture"]
    assert told(await Runner.run(agent, "go")) == {"1": "home is empty"}


async def test_a_clone_and_a_plain_agent_beside_it_work_on(session: Session, office: Office) -> None:
    helper = Agent[Any](name="Helper", model=ScriptedModel([DONE]))
    agent = agent_of(session, [call("look", place="home")]).clone(name="Twin", handoffs=[helper])
    result = await Runner.run(agent, "go")

    assert (result.last_agent.name, office.ran) == ("Twin", ["look home"])


@pytest.mark.parametrize("asks", [None, defer_approval])
async def test_a_model_that_goes_round_in_circles_is_told(crib: Toolcrib, office: Office, asks: Any) -> None:
    turns = [[call("look", id=f"{turn}{at}", place="home") for at in "ab"] for turn in range(4)]
    result = await Runner.run(agent_of(crib.session(profile="flat", approver=asks), *turns), "go")

    assert office.ran == ["look home"] * 6
    assert [id for id, text in told(result).items() if text.startswith("look did not run: the same call ")] == [
        "3a",
        "3b",
    ]


async def test_a_turn_may_make_as_many_calls_as_its_profile_allows(crib: Toolcrib, office: Office) -> None:
    turn = [call("look", id=str(number), place=str(number)) for number in range(1, 14)]
    result = await Runner.run(agent_of(crib.session(profile="flat"), turn), "go")

    assert len(office.ran) == 12
    assert told(result)["13"].startswith("one turn may make 12 calls, this was number 13; it did not run")


async def test_an_interaction_that_the_application_has_begun_is_that_of_the_run(crib: Toolcrib) -> None:
    session = crib.session(profile="selection", intent={"required_tools": ["drop"]})
    agent, shown = agent_of(session, DONE, DONE), list[list[str]]()
    for needs in ({}, {}, {"intent": {"required_tools": ["look"]}}):
        if needs:
            session.begin(**needs)
        await Runner.run(agent, "go")
        shown.append([one.name for one in session.tools if one.name != "select_tools"])

    assert shown == [["drop"], ["look", "drop", "picture"], ["look"]]
