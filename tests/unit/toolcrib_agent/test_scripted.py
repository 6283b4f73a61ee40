"""The model with a script: a double that any agent takes for a model."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from toolcrib.testing.models import Call, Reply, ScriptedModel, Seen, calls


def twice(number: int) -> int:
    """Return the double."""
    return number * 2


async def test_it_is_a_model_for_the_agents_of_pydantic_ai_too() -> None:
    model = ScriptedModel(Reply(thinking="Hm.", text="Let me see.") + calls("twice", number=21), "It is 42.")
    result = await Agent(model, tools=[twice], instructions="Count.").run("Twice 21?")

    assert result.output == "It is 42."
    first, second = model.seen
    assert (first.instructions, first.tools, first.prompts) == ("Count.", ("twice",), ["Twice 21?"])
    assert second.results == ["42"]


async def test_it_streams_what_it_says() -> None:
    model = ScriptedModel("One two three four five.")
    async with Agent(model).run_stream("Count") as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]

    assert len(pieces) == 2 and "".join(pieces) == "One two three four five."


async def test_it_may_decide_by_what_it_has_seen_and_tell_what_it_used() -> None:
    def answers(seen: Seen) -> Reply:
        return Reply(text=seen.prompts[-1].upper(), usage=RequestUsage(input_tokens=7, output_tokens=1))

    result = await Agent(ScriptedModel(answers)).run("louder")

    assert (result.output, result.usage.input_tokens) == ("LOUDER", 7)


async def test_it_fails_as_an_api_fails() -> None:
    with pytest.raises(ModelHTTPError):
        await Agent(ScriptedModel(ModelHTTPError(500, "scripted"))).run("Hello")


async def test_a_request_after_the_end_of_the_script_says_how_many_there_were() -> None:
    model = ScriptedModel("Hello.")
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt("Hi")]
    await model.request(messages, None, ModelRequestParameters())

    with pytest.raises(AssertionError, match="ends after 1 requests"):
        await model.request(messages, None, ModelRequestParameters())


def test_replies_add_up() -> None:
    both = Reply(text="Two: ") + calls("a") + calls("b", x=1)

    assert both == Reply(text="Two: ", calls=(Call(name="a"), Call(name="b", arguments={"x": 1})))
