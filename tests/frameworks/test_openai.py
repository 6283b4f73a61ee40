"""A ten-line loop over the `openai` SDK, for Chat Completions and for Responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from frameworks.world import ASKING, CASES, OTHERS, Api, Case, Mock, Stage, Talk, played, reference
from toolcrib import defer_approval
from toolcrib.integrations.openai import answer, chat, responses

MODEL = "gpt-5"
BOTH: tuple[Api, ...] = ("openai", "openai-responses")


@asynccontextmanager
async def talking(
    stage: Stage, mock: Mock, api: Api, *, streams: bool = False, defer: bool = False
) -> AsyncGenerator[Talk]:
    messages = list[Any]()

    async with AsyncOpenAI(base_url=f"{mock.url}/v1", api_key="mock", max_retries=0) as client:
        completions_api: Any = client.chat.completions
        responses_api: Any = client.responses

        async def complete(**wanted: Any) -> ChatCompletion:
            completion: ChatCompletion
            if streams:
                async with completions_api.stream(model=MODEL, **wanted) as stream:
                    completion = await stream.get_final_completion()
            else:
                completion = await completions_api.create(model=MODEL, **wanted)
            return completion

        async def respond(**wanted: Any) -> Response:
            response: Response
            if streams:
                async with responses_api.stream(model=MODEL, store=False, **wanted) as stream:
                    response = await stream.get_final_response()
            else:
                response = await responses_api.create(model=MODEL, store=False, **wanted)
            return response

        async def talk(prompt: str) -> str:
            messages.append({"role": "user", "content": prompt})
            while True:
                if api == "openai":
                    reply = await complete(**chat(stage.session, messages))
                else:
                    reply = await respond(**responses(stage.session, messages, defer=defer))
                turn = await answer(stage.session, reply)
                while turn.questions:
                    said = {question.approval: stage.user.answer(question.tool) for question in turn.questions}
                    turn = await turn.resume(said)
                messages.extend(turn.messages)
                if turn.is_final:
                    return reply.output_text if isinstance(reply, Response) else reply.choices[0].message.content or ""

        yield talk


@pytest.mark.parametrize("api", BOTH)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_loop_comes_to_what_a_session_comes_to(case: Case, api: Api, mock: Mock) -> None:
    assert await played(case, mock, api, talking) == await reference(case)


@pytest.mark.parametrize("api", BOTH)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_loop_that_streams_comes_to_the_same(case: Case, api: Api, mock: Mock) -> None:
    assert await played(case, mock, api, partial(talking, streams=True)) == await reference(case)


@pytest.mark.parametrize("api", BOTH)
@pytest.mark.parametrize("case", ASKING, ids=lambda case: case.name)
async def test_questions_are_answered_between_two_requests(case: Case, api: Api, mock: Mock) -> None:
    outcome = await played(case, mock, api, talking, approver=lambda user: defer_approval)

    assert outcome == await reference(case)


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
async def test_in_other_profiles_it_comes_to_the_same(case: Case, mock: Mock) -> None:
    assert await played(case, mock, "openai", talking) == await reference(case)
