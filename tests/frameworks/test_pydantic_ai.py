"""Toolcrib inside Pydantic AI, with the real framework and a model that nobody here wrote."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from frameworks.mock import Heard
from frameworks.world import APIS, ASKING, CASES, OTHERS, Api, Case, Mock, Stage, Talk, played, reference
from toolcrib.crib import defer_approval
from toolcrib.integrations.pydantic_ai import ToolcribToolset, answered, questions


def _model(mock: Mock, api: Api) -> Model:
    if api == "anthropic":
        return AnthropicModel("claude-opus-4-8", provider=AnthropicProvider(api_key="mock", base_url=mock.url))
    provider = OpenAIProvider(api_key="mock", base_url=f"{mock.url}/v1")
    if api == "openai":
        return OpenAIChatModel("gpt-4o", provider=provider)
    return OpenAIResponsesModel("gpt-5.4", provider=provider)


@asynccontextmanager
async def talking(stage: Stage, mock: Mock, api: Api) -> AsyncGenerator[Talk]:
    agent = Agent(_model(mock, api), toolsets=[ToolcribToolset(stage.session)], output_type=[str, DeferredToolRequests])
    history: list[ModelMessage] = []

    async def talk(prompt: str) -> str:
        run = await agent.run(prompt, message_history=history)
        while isinstance(run.output, DeferredToolRequests):
            asked = questions(run.output)
            said = {id: stage.user.answer(question.tool) for id, question in asked.items()}
            run = await agent.run(message_history=run.all_messages(), deferred_tool_results=answered(run.output, said))
        history[:] = run.all_messages()
        return run.output

    async with agent:
        yield talk


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_it_comes_to_what_a_session_comes_to(case: Case, api: Api, mock: Mock) -> None:
    assert await played(case, mock, api, talking) == await reference(case)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", ASKING, ids=lambda case: case.name)
async def test_a_run_that_stops_to_ask_comes_to_the_same(case: Case, api: Api, mock: Mock) -> None:
    assert await played(case, mock, api, talking, approver=lambda user: defer_approval) == await reference(case)


@asynccontextmanager
async def streaming(stage: Stage, mock: Mock, api: Api) -> AsyncGenerator[Talk]:
    """The same with streamed answers."""
    agent = Agent(_model(mock, api), toolsets=[ToolcribToolset(stage.session)])

    async def talk(prompt: str) -> str:
        async with agent.run_stream(prompt) as run:
            return await run.get_output()

    async with agent:
        yield talk


@pytest.mark.parametrize("api", APIS)
async def test_a_streamed_run_comes_to_the_same(api: Api, mock: Mock) -> None:
    case = next(case for case in CASES if case.name == "parallel")

    assert await played(case, mock, api, streaming) == await reference(case)


LATE = {
    "openai": ("tools", [5, 6, 7, 7], ()),
    "openai-responses": ("additional_tools", [5, 5, 5, 5], ()),
    "anthropic": ("tool_addition", [5, 6, 7, 7], ("send_letter", "days_between")),
}
"""How tools that come in the middle are told: where, how long the array is each time, and what of it is deferred."""


@pytest.mark.parametrize("api", APIS)
async def test_tools_that_come_in_the_middle_use_the_channel_that_the_api_has(api: Api, mock: Mock) -> None:
    case = next(case for case in CASES if case.name == "find")
    before = len(mock.bodies)
    await played(case, mock, api, talking)

    where, lengths, deferred = LATE[api]
    bodies = mock.bodies[before:]
    arrays = [json.dumps(body["tools"])[:-1] for body in bodies]
    assert [len(body["tools"]) for body in bodies] == lengths
    assert all(later.startswith(first) for first, later in pairwise(arrays))
    assert Heard(body=bodies[-1]).deferred == deferred
    assert where in json.dumps(bodies[-1])


SEARCH = Case(
    name="search",
    profile="flat",
    turns=(
        (("search_tools", {"queries": ["send a letter by post"]}),),
        (("send_letter", {"to": "Ada", "text": "Hello"}),),
    ),
    verdicts=("yes",),
    says=(),
)


@asynccontextmanager
async def searching(stage: Stage, mock: Mock, api: Api) -> AsyncGenerator[Talk]:
    """An agent that finds tools by Pydantic AI's own search, with our ranking."""
    toolset = ToolcribToolset(stage.session, deferred=50)
    agent = Agent(_model(mock, api), toolsets=[toolset], capabilities=[toolset.tool_search(limit=1)])

    async def talk(prompt: str) -> str:
        return (await agent.run(f"{prompt}: write a letter")).output

    async with agent:
        yield talk


@pytest.mark.parametrize("api", ["openai", "anthropic"])  # aimock makes no `tool_search_call` of OpenAI's Responses
async def test_pydantic_ais_tool_search_finds_with_our_ranking(api: Api, mock: Mock) -> None:
    before = len(mock.bodies)
    # Where the API holds nothing back, Pydantic AI puts what was found before its search.
    outcome = await played(SEARCH, mock, api, searching, appends=api == "anthropic")

    first, last = (Heard(body=mock.bodies[at]) for at in (before, -1))
    assert (outcome.ran, outcome.asked) == (('send_letter {"to": "Ada", "text": "Hello"}',), ("send_letter",))
    assert outcome.results[1] == "sent to Ada"
    assert len(first.deferred) == (50 if api == "anthropic" else 0)
    assert set(first.tools) - set(first.deferred) == {"read_artifact", "search_tools"}
    assert "send_letter" in last.tools


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
async def test_in_other_profiles_it_comes_to_the_same(case: Case, mock: Mock) -> None:
    assert await played(case, mock, "openai-responses", talking) == await reference(case)
