"""The runner of the OpenAI Agents SDK, over both of OpenAI's APIs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
from agents import (
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    SQLiteSession,
)
from openai import AsyncOpenAI

from frameworks.world import ASKING, CASES, OTHERS, Api, Case, Mock, Stage, Talk, played, reference
from toolcrib import defer_approval
from toolcrib.integrations.openai_agents import ToolcribAgent

BOTH: tuple[Api, ...] = ("openai", "openai-responses")
QUIETLY = RunConfig(tracing_disabled=True)
Ask = Callable[[ToolcribAgent[None], RunState[None], Stage, RunResult], Awaitable[RunState[None]]]


async def answering(
    agent: ToolcribAgent[None], state: RunState[None], stage: Stage, result: RunResult
) -> RunState[None]:
    """Ask the user what the session asks, and hand his answer to the agent."""
    for item in result.interruptions:
        question = await agent.question(item)
        await agent.answer(state, item, stage.user.answer(question.tool))
    return state


async def approving(
    agent: ToolcribAgent[None], state: RunState[None], stage: Stage, result: RunResult
) -> RunState[None]:
    """Keep the run as JSON, and say yes or no in the SDK's own words to what comes back of it."""
    restored = await RunState.from_json(agent, state.to_json())
    for item in restored.get_interruptions():
        question = await agent.question(item)
        if stage.user.answer(question.tool).verdict == "yes":
            restored.approve(item)
        else:
            restored.reject(item)
    return restored


@asynccontextmanager
async def talking(
    stage: Stage, mock: Mock, api: Api, *, ask: Ask = answering, defer: bool = False
) -> AsyncGenerator[Talk]:
    async with AsyncOpenAI(base_url=f"{mock.url}/v1", api_key="mock", max_retries=0) as client:
        kind = OpenAIChatCompletionsModel if api == "openai" else OpenAIResponsesModel
        model = kind("gpt-5", client)
        agent = ToolcribAgent[None](name="Office", model=model, session=stage.session, defer=defer)
        history = SQLiteSession("1")

        async def talk(prompt: str) -> str:
            result = await Runner.run(agent, prompt, session=history, run_config=QUIETLY)
            while result.interruptions:
                state = await ask(agent, result.to_state(), stage, result)
                result = await Runner.run(agent, state, session=history, run_config=QUIETLY)
            return str(result.final_output)

        yield talk
        history.close()


@pytest.mark.parametrize("api", BOTH)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_run_comes_to_what_a_session_comes_to(case: Case, api: Api, mock: Mock) -> None:
    assert await played(case, mock, api, talking) == await reference(case)


@pytest.mark.parametrize("api", BOTH)
@pytest.mark.parametrize("case", ASKING, ids=lambda case: case.name)
async def test_a_run_is_interrupted_and_goes_on_with_the_answer(case: Case, api: Api, mock: Mock) -> None:
    outcome, wanted = (
        await played(case, mock, api, talking, approver=lambda user: defer_approval),
        await reference(case),
    )

    # What was interrupted comes after what was not: the SDK keeps the outputs that a turn has when it pauses.
    assert sorted(outcome.results) == sorted(wanted.results)
    assert replace(outcome, results=wanted.results) == wanted


@pytest.mark.parametrize("case", [case for case in ASKING if "no" not in case.verdicts], ids=lambda case: case.name)
async def test_a_run_that_was_kept_as_json_goes_on_with_the_sdks_own_yes(case: Case, mock: Mock) -> None:
    outcome = await played(case, mock, "openai", partial(talking, ask=approving), approver=lambda user: defer_approval)

    assert outcome == await reference(case)


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
async def test_in_other_profiles_it_comes_to_the_same(case: Case, mock: Mock) -> None:
    assert await played(case, mock, "openai", talking) == await reference(case)
