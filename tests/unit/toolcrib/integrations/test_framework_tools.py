"""`crib.add` of tools of LangChain, Pydantic AI and OpenAI Agents: they run as functions of this process do."""

import base64
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import pytest
from agents import (
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolCallOutputItem,
    ToolOutputImage,
    WebSearchTool,
    function_tool,
)
from agents.testing import ScriptedModel as AgentsModel
from agents.testing import assistant_message, function_call
from fastapi import FastAPI
from fastmcp import FastMCP
from langchain.tools import InjectedState, ToolRuntime
from langchain_core.tools import InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import Tool as TextTool
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    ModelRetry,
    RunContext,
    Tool,
    ToolDefinition,
    ToolReturn,
)
from pydantic_ai.messages import ToolReturnPart

from toolcrib import Answer, Question, Toolcrib, defer_approval, tool
from toolcrib.errors import UsageError
from toolcrib.integrations.openai_agents import ToolcribAgent
from toolcrib.integrations.pydantic_ai import ToolcribToolset, answered, questions
from toolcrib.testing import RecordingApprover
from toolcrib.testing.models import ScriptedModel, calls

PICTURE = b"\x89PNG picture"
IMAGE = {"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"}


class Item(BaseModel):
    name: str
    sizes: list[int] = [1]


def order(item: Item, amount: int = 1) -> str:
    """Order an item."""
    return f"{amount} {item.name} {item.sizes}"


def of_langchain(function: Callable[..., Any]) -> Any:
    return langchain_tool(function)


def of_openai_agents(function: Callable[..., Any]) -> Any:
    return function_tool(function, strict_mode=False)


EVERY = [of_langchain, Tool[None], of_openai_agents]
each = pytest.mark.parametrize("made", EVERY, ids=["LangChain", "Pydantic AI", "OpenAI Agents"])


@each
async def test_its_name_description_and_schema_are_its_own_and_a_call_runs_it_with_values_of_its_types(
    made: Callable[..., Any],
) -> None:
    async with Toolcrib(mode="autonomous") as crib:
        crib.add(made(order))
        defined = crib.catalog.tools["order"]
        result = await crib.call("order", {"item": {"name": "tea"}, "amount": 2})
        wrong = await crib.call("order", {"item": {"name": 5}})

    assert (defined.description, defined.kind, defined.origin) == ("Order an item.", "destructive", "python")
    assert list(defined.input_schema["properties"]) == ["item", "amount"]
    assert (result.text, result.meta["trust"]) == ("2 tea [1]", "local")
    assert wrong.error is not None and wrong.error.code == "invalid_arguments"


@each
async def test_options_of_tool_say_what_it_does_not_and_leave_the_rest(made: Callable[..., Any]) -> None:
    crib = Toolcrib()
    read = tool(kind="read", traits=["untrusted"], timeout=5)(made(order))
    crib.add([read, tool(name="buy")(made(order))])
    async with crib:
        tools = crib.catalog.tools
        result = await crib.call("order", {"item": {"name": "tea"}})

    assert [(name, one.kind, one.execution.timeout) for name, one in tools.items()] == [
        ("order", "read", 5),
        ("buy", "destructive", None),
    ]
    assert result.meta["trust"] == "untrusted"


@each
async def test_an_exception_is_a_tool_error(made: Callable[..., Any]) -> None:
    def fail() -> str:
        """Fail."""
        raise OSError("no database")

    async with Toolcrib(mode="autonomous") as crib:
        crib.add(made(fail))
        result = await crib.call("fail")

    assert result.error is not None
    assert (result.error.code, result.error.message) == ("tool_error", "fail failed: OSError: no database")


@each
async def test_an_awaited_one_is_cancelled_with_its_call(made: Callable[..., Any]) -> None:
    ended = anyio.Event()

    async def hang() -> str:
        """Hang."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    async with Toolcrib(mode="autonomous") as crib:
        crib.add(made(hang))
        result = await crib.call("hang", timeout=0.1)

    assert result.error is not None and result.error.code == "timeout" and ended.is_set()


async def test_errors_that_a_framework_has_for_the_model_are_read_as_they_are_written() -> None:
    def refuse() -> str:
        """Refuse."""
        raise ToolException("closed")

    def retry() -> str:
        """Retry."""
        raise ModelRetry("take tea")

    def explain(context: Any, error: Exception) -> str:
        return f"explained: {error}"

    @function_tool(failure_error_function=explain)
    def explained() -> str:
        """Fail."""
        raise OSError("no database")

    tools = [StructuredTool.from_function(refuse), Tool(retry), explained]
    handled = StructuredTool.from_function(refuse, name="handled", handle_tool_error=True)
    async with Toolcrib(mode="autonomous") as crib:
        crib.add([*tools, handled])
        results = [await crib.call(name) for name in ("refuse", "retry", "explained", "handled")]

    errors = [(one.error.code, one.error.message) for one in results if one.error]
    assert errors == [("tool_error", text) for text in ("closed", "take tea", "explained: no database", "closed")]


async def test_pictures_reach_the_model_as_pictures_and_a_json_object_is_structured_content() -> None:
    url = f"data:image/png;base64,{IMAGE['data']}"

    def look() -> list[Any]:
        """Look."""
        return ["seen", {"type": "image", "base64": IMAGE["data"], "mime_type": "image/png"}]

    def count() -> ToolReturn:
        """Count."""
        return ToolReturn({"tea": 2}, metadata={"for": "the application"})

    taken = Tool(lambda: BinaryContent(PICTURE, media_type="image/png"), name="take", description="Take")
    drawn = function_tool(lambda: ToolOutputImage(image_url=url), name_override="draw")
    async with Toolcrib(mode="autonomous") as crib:
        crib.add([of_langchain(look), taken, drawn, Tool(count)])
        looked, took, drew, counted = [await crib.call(name) for name in ("look", "take", "draw", "count")]

    assert list(looked.content) == [{"type": "text", "text": "seen"}, IMAGE]
    assert [list(took.content), list(drew.content)] == [[IMAGE], [IMAGE]]
    assert counted.structured_content == {"tea": 2}


async def test_one_that_wants_approval_is_asked_about_in_every_mode() -> None:
    asked: list[str] = []

    def answer(question: Question) -> Answer:
        asked.append(question.tool.name)
        return Answer(verdict="no")

    def needed(name: str) -> FunctionTool:
        return function_tool(lambda: "", name_override=name, needs_approval=True)

    async with Toolcrib(mode="autonomous") as crib, crib.session(approver=answer) as session:
        crib.add([Tool(order, requires_approval=True), needed("pay")])
        results = [await session.call("order", {"item": {"name": "tea"}}), await session.call("pay")]

    assert asked == ["order", "pay"] and all(one.error and one.error.code == "denied" for one in results)


async def test_a_tool_of_one_text_and_one_that_takes_the_id_of_its_call_run_as_their_framework_runs_them() -> None:
    def say(call: Annotated[str, InjectedToolCallId]) -> str:
        """Say."""
        return f"call {len(call)}"

    async with Toolcrib(mode="autonomous") as crib:
        crib.add([TextTool(name="shout", func=str.upper, description="Shout"), of_langchain(say)])
        shouted = await crib.call("shout", {"__arg1": "tea"})
        answered = await crib.call("say")

    assert (shouted.text, answered.text) == ("TEA", "call 32")


def of_context(ctx: RunContext[str], greeting: str) -> str:
    """Need a context."""
    return f"{greeting} {ctx.deps}"


async def prepared(ctx: RunContext[None], definition: ToolDefinition) -> ToolDefinition | None:
    return definition


async def test_one_of_pydantic_ai_has_the_dependencies_of_the_run_that_calls_it_asked_about_or_not() -> None:
    async with Toolcrib() as crib:
        crib.add(tool(kind="read")(Tool(of_context, name="greet")), Tool(of_context, name="welcome"))
        toolset = ToolcribToolset[str](crib.session(approver=defer_approval))
        model = ScriptedModel(calls("greet", greeting="Hello") + calls("welcome", greeting="Hi"), "Done.")
        agent = Agent(model, deps_type=str, toolsets=[toolset], output_type=[str, DeferredToolRequests])
        first = await agent.run("Greet.", deps="Ada")
        assert isinstance(first.output, DeferredToolRequests)
        results = answered(first.output, dict.fromkeys(questions(first.output), Answer(verdict="yes")))
        done = await agent.run(message_history=first.all_messages(), deferred_tool_results=results, deps="Bob")
        outside = await crib.call("greet", {"greeting": "Hello"})

    messages = done.all_messages()
    returned = [part.content for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    assert returned == ["Hello Ada", "Hi Bob"]
    assert outside.error and outside.error.message == "greet needs the RunContext of an agent of Pydantic AI"


@pytest.mark.parametrize("approver", [defer_approval, RecordingApprover()], ids=["asked later", "asked meanwhile"])
async def test_one_of_openai_agents_has_the_context_of_the_run_that_calls_it(approver: Any) -> None:
    def greet(run: RunContextWrapper[str]) -> str:
        """Greet the user."""
        return f"Hello {run.context}"

    model = AgentsModel([[function_call("greet", {}, call_id="1")], [assistant_message("Done.")]])
    async with Toolcrib() as crib:
        crib.add(tool(kind="read")(function_tool(greet)))
        agent = ToolcribAgent[str](name="Host", model=model, session=crib.session(approver=approver))
        result = await Runner.run(agent, "Greet.", context="Ada", run_config=RunConfig(tracing_disabled=True))

    assert [one.output for one in result.new_items if isinstance(one, ToolCallOutputItem)] == ["Hello Ada"]


def of_state(state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Need a state."""
    return ""


def of_runtime(runtime: ToolRuntime[None, Any]) -> str:
    """Need a runtime."""
    return ""


@pytest.mark.parametrize(
    ("thing", "needs"),
    [
        (lambda: Tool(order, prepare=prepared), "prepare"),
        (lambda: of_langchain(of_state), "'state'"),
        (lambda: of_langchain(of_runtime), "'runtime'"),
        (lambda: function_tool(order, strict_mode=False, is_enabled=False), "is_enabled"),
    ],
)
def test_one_that_needs_a_run_of_its_framework_is_refused_when_it_is_added(thing: Any, needs: str) -> None:
    with pytest.raises(UsageError, match=f"cannot run outside of its framework: it needs .*{needs}"):
        Toolcrib().add(thing())


@pytest.mark.parametrize("thing", [WebSearchTool(), FastMCP("shop"), FastAPI()])
def test_what_is_no_function_is_refused_with_what_add_takes_and_where_the_rest_belongs(thing: Any) -> None:
    with pytest.raises(UsageError, match=r"MCP servers are mounted with crib\.mount"):
        Toolcrib().add(thing)


def test_a_failure_of_a_name_that_is_taken_names_the_tool() -> None:
    crib = Toolcrib()
    crib.add(order)
    with pytest.raises(UsageError, match="there is a tool 'order' already"):
        crib.add(Tool(order))
