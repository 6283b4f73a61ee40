"""One agent, whatever the profile of its session and the API of its model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse

from contract.model_apis import APIS, Api, Say, busy
from contract.seats import PROFILES
from toolcrib import Session, Toolcrib, ToolResult, tool
from toolcrib.core.context import Context
from toolcrib.testing import ScriptedSource
from toolcrib.testing.models import Call, Reply, ScriptedModel, Seen
from toolcrib_agent import Agent, AgentLimits, dump, load
from toolcrib_agent.events import AgentEvent, Retrying
from toolcrib_agent.messages import make_valid

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class World:
    """A shop of tools, more than a model is shown at once."""

    def __init__(self) -> None:
        self.booked: list[str] = []

    @tool(kind="write", category="travel")
    async def book_train(self, to: str) -> str:
        """Book a seat on a train.

        Args:
            to: The town that it goes to.
        """
        self.booked.append(to)
        return f"a seat to {to}"


def filler(number: int) -> Any:
    @tool(kind="read", category=f"area{number % 7}", name=f"measure_{number}")
    async def measure(item: str, unit: str = "mm") -> str:
        """Measure one of many things that have nothing to do with travelling, to a tenth of the unit that is given.

        Args:
            item: The thing, by the number that stands on it.
            unit: What is counted in; millimetres unless something else is wanted.
        """
        return f"{item}: 1 {unit}"

    return measure


@asynccontextmanager
async def opened(profile: str = "adaptive", many: int = 30) -> AsyncGenerator[tuple[Session, World]]:
    world = World()
    async with Toolcrib() as crib:
        crib.add(*[filler(number) for number in range(many)])
        crib.add(world)
        async with crib.session(profile=profile, mode="autonomous") as session:
            yield session, world


FINDING: Mapping[str, list[tuple[str, dict[str, Any]]]] = {
    "adaptive": [("search_tools", {"query": "book a train"}), ("book_train", {"to": "Oslo"})],
    "flat": [("book_train", {"to": "Oslo"})],
    "gateway": [
        ("tool_help", {"path": "root"}),
        ("tool_exec", {"op": "x.python.book_train", "args": {"to": "Oslo"}}),
    ],
    "introspection": [("get_tool_schemas", {"names": ["book_train"]}), ("book_train", {"to": "Oslo"})],
    "selection": [("book_train", {"to": "Oslo"})],
    "tiered": [("load_tools", {"category": "travel"}), ("book_train", {"to": "Oslo"})],
}
"""What a model does that knows its profile."""


@pytest.mark.parametrize("profile", PROFILES)
async def test_in_every_profile_a_model_gets_to_the_tool_and_its_list_of_tools_is_only_added_to(profile: str) -> None:
    async with opened(profile) as (session, world):
        steps = [Reply(calls=(Call(name=name, arguments=arguments),)) for name, arguments in FINDING[profile]]
        model = ScriptedModel(*steps, "Booked.")
        intent = {"complexity": "complex", "required_tools": ["book_train"]}
        outcome = await Agent(model, session).run("I need a train to Oslo", intent=intent)

        assert (outcome.text, world.booked) == ("Booked.", ["Oslo"])
        assert list(outcome.history) == make_valid(outcome.history)
        for before, after in zip(model.seen, model.seen[1:], strict=False):
            assert after.tools[: len(before.tools)] == before.tools
            assert after.listing.startswith(before.listing[:-1])
            assert after.instructions == before.instructions


async def test_a_tool_that_comes_while_an_agent_works_is_there_at_its_next_request() -> None:
    async def works(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text("late but here")

    async with Toolcrib() as crib:
        source = ScriptedSource("own", {"first": works})
        await crib.tools.mount_source(source, prefix=False, trusted=True)
        session = crib.session(profile="flat", mode="autonomous")

        def comes(seen: Seen) -> Reply:
            source.set("afterwards", works)
            return Reply(calls=(Call(name="first"),))

        model = ScriptedModel(comes, Reply(calls=(Call(name="afterwards"),)), "Done.")
        await Agent(model, session).run("Work")

        assert model.seen[1].tools == (*model.seen[0].tools, "afterwards")
        assert "afterwards" in model.seen[1].prompts[-1]
        assert model.seen[2].results[-1] == "late but here"


SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string", "description": "The town that it goes to."}},
    "required": ["to"],
    "additionalProperties": False,
}
SEAT = "Book a seat on a train."
LATER: Mapping[str, list[Mapping[str, Any]]] = {
    "anthropic": [{"name": "book_train", "description": SEAT, "input_schema": SCHEMA, "defer_loading": True}],
    "openai": [
        {
            "type": "function",
            "function": {"name": "book_train", "description": SEAT, "parameters": SCHEMA, "strict": True},
        }
    ],
    "openai-responses": [],
}
"""What a tool that comes later adds to the list: held back, plainly, or nothing where the conversation carries it."""
ANNOUNCED: Mapping[str, str] = {
    "anthropic": '{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "book_train"}}',
    "openai": "now available: `book_train`",
    "openai-responses": '{"type": "additional_tools", "role": "developer", "tools": [{"name": "book_train"',
}
"""How the model learns of it."""


@pytest.mark.parametrize("name", APIS)
async def test_over_the_wire_the_model_says_what_a_task_needs_before_it_is_given_the_tools(name: str) -> None:
    async with opened("selection") as (session, world):
        wanted = (
            '{"complexity": "simple", "is_follow_up": false, "relevant_skill_groups": [], "required_tools": ["%s"]}'
        )
        answer = Say(calls=(("c1", "classify_intent", wanted % "book_train"),))
        call = Say(calls=(("c2", "book_train", '{"to": "Oslo"}'),))
        api = Api(name=name, script=[answer, call, Say(text="Booked.")])
        outcome = await Agent(api.model(), session).run("A train to Oslo")

        assert (outcome.text, world.booked, outcome.usage.requests) == ("Booked.", ["Oslo"], 3)
        assert [("classify_intent" in sent.text, "book_train" in str(sent.tools)) for sent in api.sent] == [
            (True, False),
            (False, True),
            (False, True),
        ]


@pytest.mark.parametrize("name", APIS)
async def test_over_the_wire_a_tool_that_was_found_is_called_and_the_list_before_it_stays_as_it_was(name: str) -> None:
    async with opened() as (session, world):
        api = Api(
            name=name,
            script=[
                Say(text="Let me see.", calls=(("c1", "search_tools", '{"query": "book a train"}'),)),
                Say(calls=(("c2", "book_train", '{"to": "Oslo"}'), ("c3", "book_train", '{"to": "Rome"}'))),
                Say(text="Booked twice."),
            ],
        )
        outcome = await Agent(api.model(), session).run("Trains to Oslo and Rome")

        assert (outcome.text, world.booked) == ("Booked twice.", ["Oslo", "Rome"])
        first, second, third = api.sent
        assert second.listing[: len(first.tools)] == first.listing
        assert third.body["tools"] == second.body["tools"]
        assert [tool for tool in second.listing if tool not in first.listing] == LATER[name]
        assert ANNOUNCED[name] in second.text and ANNOUNCED[name] not in first.text
        assert third.text.index("a seat to Oslo") < third.text.index("a seat to Rome")
        assert (outcome.usage.input_tokens, outcome.usage.is_estimated, outcome.usage.cost > 0) == (300, False, True)


@pytest.mark.parametrize("name", APIS)
async def test_over_the_wire_a_limit_ends_in_a_request_that_lets_no_tool_be_called(name: str) -> None:
    async with opened() as (session, _):
        call = Say(calls=(("c1", "measure_1", '{"item": "a"}'),))
        api = Api(name=name, script=[call, Say(text="That is all.")])
        outcome = await Agent(api.model(), session, limits=AgentLimits(requests=1)).run("Measure")

        assert (outcome.text, outcome.stopped) == ("That is all.", "limit")
        assert [sent.may_call for sent in api.sent] == [True, False]


@pytest.mark.parametrize("name", APIS)
async def test_over_the_wire_a_request_is_repeated_when_the_api_is_busy_after_as_long_as_it_says(name: str) -> None:
    async with opened() as (session, _):
        api = Api(name=name, script=[busy(429, retry_after_ms="20"), busy(503), Say(text="Hello.")])
        events: list[AgentEvent] = []
        limits = AgentLimits(backoff=0.01)
        outcome = await Agent(api.model(), session, limits=limits).run("Hello", on_event=events.append)

        waits = [event.wait for event in events if isinstance(event, Retrying)]
        assert (outcome.text, len(api.sent), waits[0], len(waits)) == ("Hello.", 3, 0.02, 2)


@pytest.mark.parametrize("name", APIS)
async def test_over_the_wire_arguments_that_are_no_json_come_back_as_an_error_that_the_api_takes(name: str) -> None:
    async with opened() as (session, world):
        broken = Say(calls=(("c1", "book_train", '{"to": "Os'),))
        api = Api(name=name, script=[broken, Say(text="I cannot.")])
        outcome = await Agent(api.model(), session).run("A train")

        assert (outcome.text, world.booked) == ("I cannot.", [])
        assert "invalid_arguments" in api.sent[1].text


@pytest.mark.parametrize("name", APIS)
async def test_over_the_wire_an_image_of_a_tool_reaches_the_model(name: str) -> None:
    async def photograph(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        return ToolResult(content=({"type": "text", "text": "one pixel"}, image))

    async with Toolcrib() as crib:
        await crib.tools.mount_source(ScriptedSource("own", {"photograph": photograph}), prefix=False, trusted=True)
        session = crib.session(mode="autonomous")
        api = Api(name=name, script=[Say(calls=(("c1", "photograph", "{}"),)), Say(text="A pixel.")])
        outcome = await Agent(api.model(), session).run("Photograph it")

        assert outcome.text == "A pixel."
        assert "one pixel" in api.sent[1].text and PIXEL in api.sent[1].text


@pytest.mark.parametrize("first", APIS)
@pytest.mark.parametrize("second", APIS)
async def test_a_conversation_that_one_api_began_another_goes_on_with(first: str, second: str) -> None:
    async with opened() as (session, _):
        look = Say(calls=(("c1", "search_tools", '{"query": "train"}'), ("c2", "measure_1", '{"item": "a"}')))
        begun = Api(name=first, script=[look, Say(text="One millimetre.")])
        outcome = await Agent(begun.model(), session).run("Measure a")
        other = Api(name=second, script=[Say(calls=(("c1", "measure_1", '{"item": "b"}'),)), Say(text="The same.")])
        after = await Agent(other.model(), session).run("And b?", history=load(dump(outcome.history)))

        assert after.text == "The same."
        assert "a: 1 mm" in other.sent[0].text and "b: 1 mm" in other.sent[1].text
        ids = [
            call.tool_call_id
            for message in after.history
            if isinstance(message, ModelResponse)
            for call in message.tool_calls
        ]
        assert len(ids) == len(set(ids)) == 3
