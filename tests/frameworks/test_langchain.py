"""LangChain's agent and a LangGraph graph of one's own, over the model classes that LangChain has for each API."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# LangGraph's builders are generic over types of theirs that cannot be told.

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from openai import DefaultAsyncHttpxClient

from frameworks.world import APIS, ASKING, CASES, OTHERS, Api, Case, Mock, Stage, Talk, played, reference
from toolcrib import defer_approval
from toolcrib.integrations.langchain import ToolcribMiddleware, session_tools, tool_node


@asynccontextmanager
async def opened_model(mock: Mock, api: Api) -> AsyncGenerator[BaseChatModel]:
    """Open LangChain's own model class for an API, with a client that ends with it."""
    if api == "anthropic":
        settings: dict[str, Any] = {"model": "claude-opus-4-8", "base_url": mock.url, "api_key": "mock"}
        model = ChatAnthropic(**settings, timeout=next(mock.timeouts), max_retries=0)
        try:
            yield model
        finally:
            if "_async_client" in vars(model):
                await vars(model)["_async_client"].close()
        return
    async with DefaultAsyncHttpxClient() as client:
        responses = api == "openai-responses"
        settings = {"model": "gpt-5", "base_url": f"{mock.url}/v1", "api_key": "mock", "use_responses_api": responses}
        yield ChatOpenAI(**settings, max_retries=0, http_async_client=client)


def agent_of(stage: Stage, model: BaseChatModel) -> Any:
    """Return LangChain's agent."""
    return create_agent(model, middleware=[ToolcribMiddleware(stage.session)], checkpointer=InMemorySaver())


def deferring_agent_of(stage: Stage, model: BaseChatModel) -> Any:
    """Return LangChain's agent, whose model's API searches."""
    return create_agent(model, middleware=[ToolcribMiddleware(stage.session, defer=True)], checkpointer=InMemorySaver())


def graph_of(stage: Stage, model: BaseChatModel) -> Any:
    """Return a graph as people write it who want their own."""
    session = stage.session

    async def ask(state: MessagesState) -> dict[str, list[AnyMessage]]:
        told: list[AnyMessage] = [SystemMessage(session.instructions)] if session.instructions else []
        return {"messages": [await model.bind_tools(session_tools(session)).ainvoke([*told, *state["messages"]])]}

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


@asynccontextmanager
async def talking(
    stage: Stage, mock: Mock, api: Api, *, make: Callable[[Stage, BaseChatModel], Any] = agent_of
) -> AsyncGenerator[Talk]:
    async with opened_model(mock, api) as model:
        agent, config = make(stage, model), {"configurable": {"thread_id": "1"}}

        async def talk(prompt: str) -> str:
            state = await agent.ainvoke({"messages": [("user", prompt)]}, config)
            while asked := state.get("__interrupt__"):
                said = {one.id: stage.user.answer(one.value["name"]) for one in asked}
                answers = {id: {"verdict": answer.verdict, "by": answer.by} for id, answer in said.items()}
                state = await agent.ainvoke(Command(resume=answers), config)
            return str(state["messages"][-1].text)

        yield talk


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_an_agent_comes_to_what_a_session_comes_to(case: Case, api: Api, mock: Mock) -> None:
    assert await played(case, mock, api, talking) == await reference(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_graph_of_ones_own_comes_to_the_same(case: Case, mock: Mock) -> None:
    assert await played(case, mock, "openai", partial(talking, make=graph_of)) == await reference(case)


@pytest.mark.parametrize("make", [agent_of, graph_of])
@pytest.mark.parametrize("case", ASKING, ids=lambda case: case.name)
async def test_an_interrupt_asks_and_its_answer_goes_on(
    case: Case, make: Callable[[Stage, BaseChatModel], Any], mock: Mock
) -> None:
    outcome = await played(case, mock, "openai", partial(talking, make=make), approver=lambda user: defer_approval)

    assert outcome == await reference(case)


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
async def test_in_other_profiles_it_comes_to_the_same(case: Case, mock: Mock) -> None:
    assert await played(case, mock, "anthropic", talking) == await reference(case)
