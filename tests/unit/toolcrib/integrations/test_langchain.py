"""What an agent of LangChain's and a graph of one's own have of a session, with a model that says what it is told."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# LangGraph's builders are generic over types of theirs that cannot be told.

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, InvalidToolCall, ToolCall, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as plain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import ValidationError

from toolcrib import Answer, Session, Toolcrib, ToolResult, UsageError, defer_approval, tool
from toolcrib.integrations.langchain import ToolcribMiddleware, session_tools, tool_node

THREAD: RunnableConfig = {"configurable": {"thread_id": "1"}}


class Scripted(GenericFakeChatModel):
    """A chat model that says its lines in turn, and keeps what it was given."""

    seen: list[tuple[list[str], list[BaseMessage]]] = []
    bound: list[str] = []

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        """Take note of the names; the list in which requests are kept is shared."""
        return self.model_copy(update={"bound": [one["name"] if isinstance(one, dict) else one.name for one in tools]})

    def _generate(self, messages: list[BaseMessage], *args: Any, **given: Any) -> Any:
        self.seen.append((self.bound, messages))
        return super()._generate(messages, *args, **given)


def scripted(*lines: str | list[ToolCall] | AIMessage) -> Scripted:
    """Return a model that says these lines: text, calls, or a message."""

    def messages() -> Iterator[AIMessage]:
        for line in lines:
            if isinstance(line, AIMessage):
                yield line
            else:
                yield AIMessage(line) if isinstance(line, str) else AIMessage("", tool_calls=line)

    return Scripted(messages=messages(), seen=[])


def call(name: str, /, id: str = "1", **arguments: Any) -> ToolCall:
    """Return a call as LangChain has it."""
    return ToolCall(name=name, args=arguments, id=id, type="tool_call")


class Office:
    """Three tools, and what they have done."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool(kind="read")
        def look(config: str, self_: str = "", run_manager: str = "") -> dict[str, str]:
            """Look something up; its arguments have names that LangChain has its own use for."""
            self.ran.append(f"look {config}")
            return {"config": config, "run_manager": run_manager}

        @tool(kind="destructive", category="tables")
        def drop(table: str) -> str:
            """Drop a table."""
            self.ran.append(f"drop {table}")
            return f"{table} is gone"

        @tool(kind="read")
        def picture() -> ToolResult:
            """Draw."""
            sound = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}  # ChatAnthropic raises for one
            return ToolResult(content=({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}, sound))

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
    return crib.session(approver=defer_approval, key="1")


def agent_of(model: BaseChatModel, session: Any, **given: Any) -> Any:
    """Return an agent whose runs are kept."""
    return create_agent(model, middleware=[ToolcribMiddleware(session)], checkpointer=InMemorySaver(), **given)


def graph_of(model: BaseChatModel, session: Session) -> Any:
    """Return a graph with one node for the model and one for all calls of its message."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.bind_tools(session_tools(session)).ainvoke(state["messages"])]}

    def has_calls(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", tool_node(session))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", has_calls, ["tools", END])
    graph.add_edge("tools", "ask")
    return graph.compile(checkpointer=InMemorySaver())


def told(state: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the calls came to: status and the first line of what the model reads."""
    messages = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    return [(message.status, message.text.partition("\n")[0]) for message in messages]


def prompt(text: str = "go") -> dict[str, Any]:
    """Return the input of a run."""
    return {"messages": [HumanMessage(text)]}


async def test_a_call_goes_through_the_session_and_keeps_beside_the_text_what_the_model_does_not_read(
    session: Session,
) -> None:
    model = scripted([call("look", config="a", run_manager="b"), call("picture", id="2")], "Done.")
    state = await agent_of(model, session, system_prompt="Be brief.").ainvoke(prompt(), THREAD)

    looked, drawn = (message for message in state["messages"] if isinstance(message, ToolMessage))
    assert json.loads(looked.text) == {"config": "a", "run_manager": "b"}
    assert looked.artifact["structured_content"] == {"config": "a", "run_manager": "b"}
    assert looked.artifact["error"] is None
    assert looked.artifact["meta"]["call_id"]
    assert json.loads(json.dumps(looked.artifact)) == looked.artifact
    assert drawn.content == [
        {"type": "text", "text": "[audio/wav, which cannot be shown here]"},
        {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
    ]
    names, messages = model.seen[0]
    assert names == [one.name for one in session.tools]
    assert messages[0].text.startswith("Be brief.")


async def test_errors_are_messages_with_the_status_error(session: Session) -> None:
    model = scripted([call("lok"), call("look", id="2")], "Done.")
    state = await agent_of(model, session).ainvoke(prompt(), THREAD)

    assert [(status, line.partition(":")[0]) for status, line in told(state)] == [
        ("error", "not_found"),
        ("error", "invalid_arguments"),
    ]
    codes = [message.artifact["error"]["code"] for message in state["messages"] if isinstance(message, ToolMessage)]
    assert codes == ["not_found", "invalid_arguments"]


async def test_tools_of_the_agents_own_run_beside_those_of_the_session(session: Session, office: Office) -> None:
    @plain_tool
    async def greet(name: str) -> str:
        """Greet."""
        return f"hello {name}"

    model = scripted([call("greet", name="Ada"), call("look", id="2", config="a")], "Done.")
    state = await agent_of(model, session, tools=[greet]).ainvoke(prompt(), THREAD)

    assert told(state)[0] == ("success", "hello Ada")
    assert office.ran == ["look a"]
    assert model.seen[0][0] == ["greet", *(one.name for one in session.tools)]


async def test_arguments_that_langchain_cannot_read_are_repaired_or_told_and_the_model_goes_on(
    session: Session, office: Office
) -> None:
    quoted = json.dumps('{"config": "a"}')
    broken = [
        InvalidToolCall(name="look", args=quoted, id="1", error="no object", type="invalid_tool_call"),
        InvalidToolCall(name="look", args="nonsense", id="2", error="no JSON", type="invalid_tool_call"),
    ]
    mixed = AIMessage("", invalid_tool_calls=broken[1:], tool_calls=[call("look", id="3", config="b")])
    model = scripted(AIMessage("", invalid_tool_calls=broken), mixed, "Done.")
    state = await agent_of(model, session).ainvoke(prompt(), THREAD)

    assert state["messages"][-1].text == "Done."
    ids = [message.tool_call_id for message in state["messages"] if isinstance(message, ToolMessage)]
    assert ids == ["1", "2", "2", "3"]
    assert [status for status, _ in told(state)] == ["success", "error", "error", "success"]
    assert office.ran == ["look a", "look b"]


@pytest.mark.parametrize("reason", [{"finish_reason": "length"}, {"stop_reason": "max_tokens"}], ids=str)
async def test_a_call_that_the_answer_was_cut_off_in_does_not_run(
    session: Session, office: Office, reason: dict[str, str]
) -> None:
    alone = AIMessage("", tool_calls=[call("look", config="a")], response_metadata=reason)
    behind = [call("look", id="2", config="b"), call("look", id="3", config="c")]
    model = scripted(alone, AIMessage("", tool_calls=behind, response_metadata=reason), "Done.")
    state = await agent_of(model, session).ainvoke(prompt(), THREAD)

    assert (office.ran, state["messages"][-1].text) == (["look b"], "Done.")
    assert sorted(status for status, _ in told(state)) == ["error", "error", "success"]


async def test_a_repaired_call_asks_as_any_other_does(session: Session, office: Office) -> None:
    broken = InvalidToolCall(
        name="drop", args=json.dumps('{"table": "users"}'), id="1", error="no object", type="invalid_tool_call"
    )
    agent = agent_of(scripted(AIMessage("", invalid_tool_calls=[broken]), "Done."), session)
    (asked,) = (await agent.ainvoke(prompt(), THREAD))["__interrupt__"]

    assert (asked.value["name"], asked.value["args"], office.ran) == ("drop", {"table": "users"}, [])
    state = await agent.ainvoke(Command(resume=True), THREAD)
    assert (told(state), office.ran) == ([("success", "users is gone")], ["drop users"])


@pytest.mark.parametrize(
    ("reply", "wanted", "ran"),
    [
        (True, ("success", "users is gone"), ["drop users"]),
        ("yes", ("success", "users is gone"), ["drop users"]),
        ({"verdict": "yes", "by": "Ada"}, ("success", "users is gone"), ["drop users"]),
        ({"type": "approve"}, ("success", "users is gone"), ["drop users"]),
        ({"type": "edit", "edited_action": {"name": "drop", "args": {"table": "old"}}}, None, ["drop old"]),
        ({"verdict": "edit", "arguments": {"table": "old"}}, None, ["drop old"]),
        (False, ("error", "denied: LangGraph refused drop"), []),
        ({"type": "reject", "message": "never"}, ("error", "denied: LangGraph refused drop: never"), []),
        ({"verdict": "comment", "by": "Ada", "comment": "no"}, ("error", "denied: Ada refused drop: no"), []),
    ],
    ids=["true", "word", "object", "approve", "edit", "changed", "false", "reject", "comment"],
)
async def test_an_interrupt_takes_the_answers_of_langchain_and_of_toolcrib(
    session: Session, office: Office, reply: Any, wanted: tuple[str, str] | None, ran: list[str]
) -> None:
    agent = agent_of(scripted([call("drop", table="users")], "Done."), session)
    asked = (await agent.ainvoke(prompt(), THREAD))["__interrupt__"][0]
    assert office.ran == []
    state = await agent.ainvoke(Command(resume=reply), THREAD)

    question = asked.value["question"]
    assert {**asked.value, "question": None, "description": ""} == {
        "type": "tool_approval",
        "tool_call_id": "1",
        "name": "drop",
        "args": {"table": "users"},
        "description": "",
        "question": None,
    }
    assert question["rule"] in asked.value["description"]
    assert office.ran == ran
    assert wanted is None or told(state) == [wanted]
    assert state["messages"][-1].text == "Done."


async def test_an_answer_that_says_nothing_clear_is_refused_and_can_be_given_again(
    session: Session, office: Office
) -> None:
    agent = agent_of(scripted([call("drop", table="users")], "Done."), session)
    await agent.ainvoke(prompt(), THREAD)
    with pytest.raises(ValidationError):
        await agent.ainvoke(Command(resume="fine by me"), THREAD)

    assert office.ran == []
    await agent.ainvoke(Command(resume="yes"), THREAD)
    assert office.ran == ["drop users"]


async def test_a_step_that_is_begun_again_runs_nothing_twice(session: Session, office: Office) -> None:
    calls = [
        call("look", id="1", config="a"),
        call("drop", id="2", table="one"),
        call("drop", id="3", table="two"),
        call("look", id="4", config="b"),
    ]
    graph = graph_of(scripted(calls, [call("look", id="1", config="a")], "Done."), session)
    state = await graph.ainvoke(prompt(), THREAD)
    asked = list[str]()
    while waiting := state.get("__interrupt__"):
        asked += [one.value["args"]["table"] for one in waiting]
        state = await graph.ainvoke(Command(resume=True), THREAD)

    assert asked == ["one", "two"]
    assert sorted(office.ran) == ["drop one", "drop two", "look a", "look a", "look b"]
    assert [status for status, _ in told(state)] == ["success"] * 5


async def test_a_run_goes_on_in_a_process_that_has_never_heard_of_its_question(office: Office) -> None:
    saver = InMemorySaver()
    async with Toolcrib() as crib:
        crib.add(office.tools)
        middleware = [ToolcribMiddleware(crib.session(approver=defer_approval))]
        agent: Any = create_agent(scripted([call("drop", table="users")]), middleware=middleware, checkpointer=saver)
        await agent.ainvoke(prompt(), THREAD)
    async with Toolcrib() as crib:
        crib.add(office.tools)
        middleware = [ToolcribMiddleware(crib.session(approver=defer_approval))]
        agent = create_agent(scripted("Done."), middleware=middleware, checkpointer=saver)
        state = await agent.ainvoke(Command(resume={"type": "approve"}), THREAD)

    assert told(state) == [("success", "users is gone")]
    assert office.ran == ["drop users"]


async def test_an_answer_in_another_process_is_none_to_a_tool_whose_definition_changed_since(tmp_path: Path) -> None:
    saver, ran = InMemorySaver(), list[str]()

    async def run(description: str, model: BaseChatModel, given: Any) -> dict[str, Any]:
        @tool(kind="destructive", description=description)
        async def drop(table: str) -> str:
            ran.append(description)
            return f"{table} is gone"

        async with Toolcrib(store=tmp_path / "records.db") as crib:
            crib.add(drop)
            middleware = [ToolcribMiddleware(crib.session(approver=defer_approval, key="1"))]
            agent: Any = create_agent(model, middleware=middleware, checkpointer=saver)
            return cast("dict[str, Any]", await agent.ainvoke(given, THREAD))

    approved: Command[Any] = Command(resume={"type": "approve"})
    await run("Drop a table.", scripted([call("drop", table="users")]), prompt())
    again = scripted([call("drop", id="2", table="users")])
    changed = await run("Drop a table and its backups.", again, approved)
    done = await run("Drop a table and its backups.", scripted("Done."), approved)

    assert "the tool changed after the question" in changed["messages"][2].text
    assert "__interrupt__" in changed
    assert (ran, told(done)[-1]) == (["Drop a table and its backups."], ("success", "users is gone"))


async def test_a_question_that_was_asked_anew_elsewhere_runs_nothing_when_the_first_is_answered_too(
    crib: Toolcrib, office: Office
) -> None:
    saver = InMemorySaver()
    here, there = (ToolcribMiddleware(crib.session(approver=defer_approval, key=key)) for key in ("here", "there"))
    calling: Any = create_agent(scripted([call("drop", table="users")]), middleware=[here], checkpointer=saver)
    (asked,) = (await calling.ainvoke(prompt(), THREAD))["__interrupt__"]
    answering: Any = create_agent(scripted("Done."), middleware=[there], checkpointer=saver)
    await answering.ainvoke(Command(resume={"type": "approve"}), THREAD)
    late = await crib.deferred_calls.resume(asked.value["question"]["approval"], Answer(verdict="yes", by="Ada"))

    assert (late.text, office.ran) == ("users is gone", ["drop users"])


async def test_one_agent_serves_many_threads_each_with_its_own_session(crib: Toolcrib) -> None:
    sessions = {name: crib.session(profile="tiered", key=name) for name in ("1", "2")}

    def opens(config: RunnableConfig) -> Session:
        return sessions[config.get("configurable", {})["thread_id"]]

    model = scripted([call("load_tools", category="tables")], "Done.", "Done.")
    agent = agent_of(model, opens)
    for name in sessions:
        await agent.ainvoke(prompt(), {"configurable": {"thread_id": name}})

    assert [bool(session.loaded) for session in sessions.values()] == [True, False]


async def test_outside_of_a_graph_a_tool_gives_its_content_and_asks_nobody(session: Session, office: Office) -> None:
    tools: dict[str, BaseTool] = {one.name: one for one in session_tools(session)}

    assert json.loads(await tools["look"].ainvoke({"config": "a"}))["config"] == "a"
    refused = await tools["drop"].ainvoke(call("drop", table="users"))
    assert (refused.status, refused.artifact["error"]["code"]) == ("error", "denied")
    assert office.ran == ["look a"]
    with pytest.raises(UsageError, match="ainvoke"):
        tools["look"].invoke({"config": "a"})


async def test_schemas_reach_the_model_as_the_session_defines_them(session: Session) -> None:
    from_session = {one["function"]["name"]: one["function"] for one in session.definitions("openai")}

    for one in session_tools(session):
        schema = one.tool_call_schema
        assert isinstance(schema, dict)
        assert {name: value for name, value in schema.items() if name != "description"} == from_session[one.name][
            "parameters"
        ]
        assert one.description == from_session[one.name]["description"]


@pytest.mark.parametrize("make", [agent_of, graph_of])
async def test_a_model_that_goes_round_in_circles_is_told(crib: Toolcrib, office: Office, make: Any) -> None:
    turns = [[call("look", id=f"{turn}{at}", config="home") for at in "ab"] for turn in range(4)]
    state = await make(scripted(*turns, "Done."), crib.session(profile="flat")).ainvoke(prompt(), THREAD)

    assert office.ran == ["look home"] * 6
    assert [status for status, _ in told(state)] == ["success"] * 6 + ["error"] * 2
    assert told(state)[-1][1].startswith("look did not run: the same call ")


async def test_a_profile_sees_how_many_calls_one_answer_makes(crib: Toolcrib, office: Office) -> None:
    unread = [
        InvalidToolCall(
            name="look", args=json.dumps('{"config": "home"}'), id="x", error="no object", type="invalid_tool_call"
        )
    ]
    turn = AIMessage(
        "", invalid_tool_calls=unread, tool_calls=[call("look", id=str(n), config=str(n)) for n in range(13)]
    )
    state = await agent_of(scripted(turn, "Done."), crib.session(profile="flat")).ainvoke(prompt(), THREAD)

    assert sorted(office.ran) == sorted(["look home", *(f"look {n}" for n in range(11))])
    assert [text for status, text in told(state) if status == "error"] == [
        f"one turn may make 12 calls, this was number {number}; it did not run" for number in (13, 14)
    ]


async def test_every_run_begins_an_interaction_unless_the_application_has(crib: Toolcrib) -> None:
    session = crib.session(profile="selection", intent={"required_tools": ["drop"]})
    model = scripted("One.", "Two.", "Three.")
    agent = agent_of(model, session)
    await agent.ainvoke(prompt(), THREAD)
    await agent.ainvoke(prompt(), THREAD)
    session.begin(intent={"required_tools": ["look"]})
    await agent.ainvoke(prompt(), THREAD)

    chosen = [[name for name in bound if name != "select_tools"] for bound, _ in model.seen]
    assert chosen == [["drop"], ["look", "drop", "picture"], ["look"]]


async def test_calls_of_a_run_that_was_stopped_have_a_result_when_the_conversation_goes_on(crib: Toolcrib) -> None:
    begun = anyio.Event()

    @tool(kind="read")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    crib.add(wait)
    model = scripted([call("look", config="a"), call("wait", id="2")], "Later.")
    agent = agent_of(model, crib.session())

    async with anyio.create_task_group() as group:
        group.start_soon(agent.ainvoke, prompt("go"), THREAD)
        await begun.wait()
        group.cancel_scope.cancel()
    state = await agent.ainvoke(prompt("and now?"), THREAD)

    assert [message.text for message in state["messages"] if not isinstance(message, ToolMessage)] == [
        "go",
        "",
        "and now?",
        "Later.",
    ]
    assert [type(message) for message in state["messages"][2:4]] == [ToolMessage, ToolMessage]
    assert ("error", "cancelled: the run was stopped during this call: it may have had an effect") in told(state)
    (_, messages) = model.seen[-1]
    assert [message.type for message in messages[-4:]] == ["ai", "tool", "tool", "human"]
