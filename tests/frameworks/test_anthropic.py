"""A ten-line loop over the `anthropic` SDK: all that any framework gets from a session, it gets."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message

from frameworks.world import ASKING, CASES, OTHERS, Api, Case, Mock, Stage, Talk, played, reference
from toolcrib import defer_approval
from toolcrib.integrations.anthropic import answer, request

MODEL, LIMIT = "claude-opus-4-8", 1000


@asynccontextmanager
async def talking(
    stage: Stage, mock: Mock, api: Api, *, streams: bool = False, defer: bool = False
) -> AsyncGenerator[Talk]:
    messages = list[Any]()

    async with AsyncAnthropic(base_url=mock.url, api_key="mock", max_retries=0) as client:
        messages_api: Any = client.messages

        async def create(**wanted: Any) -> Message:
            message: Message
            if streams:
                async with messages_api.stream(model=MODEL, max_tokens=LIMIT, **wanted) as stream:
                    message = await stream.get_final_message()
            else:
                message = await messages_api.create(model=MODEL, max_tokens=LIMIT, **wanted)
            return message

        async def talk(prompt: str) -> str:
            messages.append({"role": "user", "content": prompt})
            while True:
                message = await create(**request(stage.session, messages, defer=defer))
                turn = await answer(stage.session, message)
                while turn.questions:
                    said = {question.approval: stage.user.answer(question.tool) for question in turn.questions}
                    turn = await turn.resume(said)
                messages.extend(turn.messages)
                if turn.is_final:
                    return "".join(block.text for block in message.content if block.type == "text")

        yield talk


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_loop_comes_to_what_a_session_comes_to(case: Case, mock: Mock) -> None:
    assert await played(case, mock, "anthropic", talking) == await reference(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_loop_that_streams_comes_to_the_same(case: Case, mock: Mock) -> None:
    assert await played(case, mock, "anthropic", partial(talking, streams=True)) == await reference(case)


@pytest.mark.parametrize("case", ASKING, ids=lambda case: case.name)
async def test_questions_are_answered_between_two_requests(case: Case, mock: Mock) -> None:
    outcome = await played(case, mock, "anthropic", talking, approver=lambda user: defer_approval)

    assert outcome == await reference(case)


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
async def test_in_other_profiles_it_comes_to_the_same(case: Case, mock: Mock) -> None:
    assert await played(case, mock, "anthropic", talking) == await reference(case)
