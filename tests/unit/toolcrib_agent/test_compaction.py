"""Making room: what is taken away, what stays, and that calls keep their returns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from toolcrib_agent.compaction import (
    SplitConversation,
    join_summary,
    outline,
    shorten_results,
    split_conversation,
    tokens_of,
    transcript,
)
from toolcrib_agent.messages import make_valid


def asked(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(content=text)])


def said(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def called(id: str, result: str, *, artifact: str = "") -> list[ModelMessage]:
    """Return a round: a call, and what came back."""
    kept: dict[str, Any] | None = {"artifact": artifact} if artifact else None
    return [
        ModelResponse(parts=[ToolCallPart(tool_name="look", args={"at": id}, tool_call_id=id)]),
        ModelRequest(parts=[ToolReturnPart(tool_name="look", content=result, tool_call_id=id, metadata=kept)]),
    ]


def rounds(number: int, size: int = 400) -> list[ModelMessage]:
    messages: list[ModelMessage] = [asked("Look at everything")]
    for place in range(number):
        messages += called(f"c{place}", "x" * size)
    return messages


def test_about_as_much_stays_as_was_wanted_and_the_rest_is_older() -> None:
    messages = rounds(10)
    made = split_conversation(messages, 400)

    assert made is not None
    assert [*made.older, *made.newer] == messages
    assert 200 < tokens_of(made.newer) <= 400


def test_the_newest_round_stays_however_large_it_is() -> None:
    messages = [*rounds(3), *called("last", "x" * 8000)]
    made = split_conversation(messages, 100)

    assert made is not None and list(made.newer) == messages[-2:]


@pytest.mark.parametrize(
    "messages",
    [[], [asked("Hello")], [asked("Hello"), said("Hi.")], rounds(1)],
    ids=["nothing", "a question", "an answer", "one round"],
)
def test_where_there_is_nothing_to_take_away_nothing_is(messages: list[ModelMessage]) -> None:
    assert split_conversation(messages, 10) is None


@pytest.mark.slow
@given(st.integers(1, 12), st.integers(1, 2000), st.booleans())
def test_no_call_is_parted_from_its_return(number: int, keep: int, has_answer: bool) -> None:
    messages = [*rounds(number, size=300), *([said("Done."), asked("And now?")] if has_answer else [])]
    made = split_conversation(messages, keep)

    if made is not None:
        whole = join_summary(made, "A summary.")
        assert make_valid(whole) == whole
        assert tokens_of(whole) < tokens_of(messages) + 60


def test_what_the_user_wants_now_stays_word_for_word() -> None:
    made = split_conversation(rounds(10), 300)
    assert made is not None
    first = join_summary(made, "They looked.")[0]

    assert "Look at everything" in transcript([first]) and "They looked." in transcript([first])
    both = SplitConversation(older=(asked("Old"), said("Yes.")), newer=(asked("New"), said("Sure.")))
    assert "Old" not in transcript(join_summary(both, "A summary."))


def test_references_to_kept_outputs_stay_also_through_a_second_summary() -> None:
    messages = [asked("Look"), *called("a", "x" * 400, artifact="art_1"), *called("b", "y" * 400), *called("c", "z")]
    made = split_conversation(messages, 10)
    assert made is not None
    once = join_summary(made, "First.")
    assert "art_1: look" in transcript(once)

    again = split_conversation([*once, said("So."), asked("More"), *called("d", "w" * 400), *called("e", "v")], 10)
    assert again is not None
    twice = transcript(join_summary(again, "Second."))
    assert "art_1: look" in twice and "More" in twice and "First." not in twice


def test_an_outline_tells_what_was_asked_called_and_said() -> None:
    messages = [asked("Look at a"), *called("a", "a is there"), said("It is there."), asked("And b?")]

    assert outline(messages).splitlines() == [
        "The user: Look at a",
        "The user: And b?",
        '- look({"at":"a"}) success: a is there',
        "Last text: It is there.",
    ]


def test_an_outline_of_a_conversation_that_was_summarised_keeps_that_summary() -> None:
    made = split_conversation([asked("Look"), *called("a", "x" * 400), *called("b", "y")], 10)
    assert made is not None
    once = join_summary(made, "They looked at a.")

    assert outline(once).splitlines()[:2] == ["They looked at a.", "The user: Look"]


def test_an_outline_names_the_newest_calls_of_many() -> None:
    lines = outline(rounds(100, size=4)).splitlines()

    assert lines[1] == "40 earlier calls are not listed."
    assert len(lines) == 62 and '"c99"' in lines[-1]


def test_results_are_cut_from_the_oldest_on_until_there_is_room_and_say_where_the_whole_is() -> None:
    messages = [asked("Look"), *called("a", "x" * 8000, artifact="art_1"), *called("b", "y" * 8000), *called("c", "z")]
    made = shorten_results(messages, 2500)

    first, second = made[2].parts[0], made[4].parts[0]
    assert isinstance(first, ToolReturnPart) and isinstance(second, ToolReturnPart)
    assert str(first.content).endswith("[cut to make room: the whole is artifact art_1]")
    assert second.content == "y" * 8000
    assert tokens_of(made) < 2500 and make_valid(made) == made
    assert shorten_results(messages, 10_000) == messages
