"""Messages: always valid, written down and read again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from toolcrib import UsageError
from toolcrib_agent.compaction import tokens_of
from toolcrib_agent.messages import (
    INTERRUPTED,
    calls_of,
    dump,
    finished_part,
    load,
    make_valid,
    merge_adjacent,
    text_of,
)

ASK = ModelRequest(parts=[UserPromptPart(content="Look")])
CALL = ToolCallPart(tool_name="look", args={"at": "x"}, tool_call_id="1")
OTHER = ToolCallPart(tool_name="look", args='{"at": "y"}', tool_call_id="2")
BACK = ToolReturnPart(tool_name="look", content="x", tool_call_id="1")


def request(*parts: ModelRequestPart) -> ModelRequest:
    return ModelRequest(parts=list(parts))


def response(*parts: ModelResponsePart) -> ModelResponse:
    return ModelResponse(parts=list(parts))


def told(messages: list[ModelMessage]) -> list[list[str]]:
    return [[part.part_kind for part in message.parts] for message in messages]


def test_a_valid_history_stays_the_same_objects() -> None:
    history: list[ModelMessage] = [ASK, response(CALL), request(BACK), response(TextPart("There."))]

    assert all(after is before for after, before in zip(make_valid(history), history, strict=True))


def test_a_call_without_a_return_gets_one_that_says_so() -> None:
    made = make_valid([ASK, response(CALL, OTHER), request(BACK), response(TextPart("There."))])
    assert told(made)[2] == ["tool-return", "tool-return"]
    missing = made[2].parts[1]
    assert isinstance(missing, ToolReturnPart) and missing.tool_call_id == "2"
    assert (missing.content, missing.outcome) == (INTERRUPTED, "interrupted")
    assert told(make_valid([ASK, response(CALL)])) == [["user-prompt"], ["tool-call"], ["tool-return"]]


def test_returns_come_in_the_order_of_the_calls_and_before_what_else_was_said() -> None:
    late = ToolReturnPart(tool_name="look", content="y", tool_call_id="2")
    made = make_valid([ASK, response(CALL, OTHER), request(UserPromptPart(content="Hurry"), late, BACK)])

    assert told(made)[2] == ["tool-return", "tool-return", "user-prompt"]
    assert list(made[2].parts[:2]) == [BACK, late]


def test_a_return_without_its_call_is_left_out_and_so_is_one_given_twice() -> None:
    assert told(make_valid([request(BACK, UserPromptPart(content="Hi"))])) == [["user-prompt"]]
    assert told(make_valid([ASK, response(CALL), request(BACK, BACK)]))[2] == ["tool-return"]


def test_a_history_begins_with_a_request_and_has_no_empty_message() -> None:
    made = make_valid([response(TextPart("Hello")), ASK, response(), request(UserPromptPart(content="Now"))])

    assert told(made) == [["user-prompt", "user-prompt"]]


def test_requests_that_follow_one_another_become_one() -> None:
    made = merge_adjacent([ASK, request(SystemPromptPart(content="Now")), response(CALL), ASK, request(BACK)])

    assert told(made) == [["user-prompt", "system-prompt"], ["tool-call"], ["tool-return", "user-prompt"]]


PARTS = st.sampled_from(["1", "2", "3"])
MESSAGES = st.lists(
    st.one_of(
        st.lists(PARTS, max_size=3).map(
            lambda ids: response(*(ToolCallPart(tool_name="f", args={}, tool_call_id=id) for id in ids))
        ),
        st.lists(PARTS, max_size=3).map(
            lambda ids: request(*(ToolReturnPart(tool_name="f", content=id, tool_call_id=id) for id in ids))
        ),
        st.just(ASK),
        st.just(response(TextPart("Hm."))),
    ),
    max_size=8,
)


@pytest.mark.slow
@given(MESSAGES)
def test_whatever_comes_becomes_valid_and_stays_so(messages: list[ModelMessage]) -> None:
    made = make_valid(messages)

    assert make_valid(made) == made
    assert all(isinstance(message, ModelRequest) == (place % 2 == 0) for place, message in enumerate(made))
    for place, message in enumerate(made):
        assert message.parts
        if isinstance(message, ModelResponse) and (ids := [call.tool_call_id for call in calls_of(message)]):
            back = [part for part in made[place + 1].parts if isinstance(part, ToolReturnPart)]
            assert [part.tool_call_id for part in back] == ids


def test_of_an_answer_that_was_broken_off_its_text_stays() -> None:
    broken = ModelResponse(parts=[ThinkingPart("Hm."), TextPart("I be"), CALL], state="incomplete")
    kept = finished_part(broken)

    assert kept is not None and (kept.parts, kept.state) == ([TextPart("I be")], "interrupted")
    assert finished_part(response(ThinkingPart("Hm."), CALL)) is None


def test_a_history_is_read_as_it_was_written() -> None:
    image = BinaryContent(data=b"\x89PNG", media_type="image/png")
    back = ToolReturnPart(tool_name="look", content=["a", image], tool_call_id="1", metadata={"artifact": "art_1"})
    history: list[ModelMessage] = [
        ASK,
        response(ThinkingPart("Hm.", signature="s"), CALL),
        request(back, ToolAvailabilityDeltaPart(tools_added=["write"])),
        response(TextPart("There.")),
    ]

    assert dump(load(dump(history))) == dump(history)


@pytest.mark.parametrize("text", ["", "{}", '[{"kind": "nonsense"}]', json.dumps([{"kind": "request"}])])
def test_what_is_no_history_is_refused_and_named(text: str) -> None:
    with pytest.raises(UsageError):
        load(text)


def test_a_history_that_was_written_amid_a_call_is_valid_when_it_is_read() -> None:
    assert told(list(load(dump([ASK, response(CALL)])))) == [["user-prompt"], ["tool-call"], ["tool-return"]]


def test_text_and_calls_of_a_response_are_told_apart() -> None:
    mixed = response(ThinkingPart("Hm."), TextPart("One. "), CALL, TextPart("Two."), OTHER)

    assert (text_of(mixed), calls_of(mixed)) == ("One. Two.", [CALL, OTHER])


def test_tokens_are_estimated_from_what_the_model_reads() -> None:
    image = BinaryContent(data=b"0" * 100_000, media_type="image/png")
    long = request(ToolReturnPart(tool_name="look", content="x" * 4000, tool_call_id="1"))
    seen = request(ToolReturnPart(tool_name="look", content=["x" * 400, image], tool_call_id="1"))

    assert 1000 <= tokens_of([long]) <= 1020
    assert 1500 <= tokens_of([seen]) <= 1700
    assert tokens_of([request(UserPromptPart(content="ж" * 40))]) >= 20
