"""The user is asked by whoever the session has for it, or by the client, and what was answered comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.elicitation import DISMISSED, Clarification
from toolcrib.crib.session import Session
from toolcrib.testing import RecordingApprover, RecordingPeer
from toolcrib.testing.models import ScriptedModel
from toolcrib_agent import Agent
from toolcrib_tools import human

TOOLS = ["ask_user", "hitl", "request_clarification"]
FORM: dict[str, Any] = {
    "title": "The new order",
    "description": "For the shop in the harbour.",
    "questions": [
        {"question": "How many?", "name": "count", "kind": "number"},
        {"question": "Which colour?", "name": "colour", "options": ["red", "blue"]},
        {"question": "Wrapped?", "name": "wrapped", "kind": "yes_no"},
        {"question": "Anything else?", "name": "note", "required": False},
    ],
}


class Person:
    """Somebody who answers in turn, and keeps what was asked."""

    def __init__(self, *answers: str | None) -> None:
        self.asked: list[Clarification] = []
        self._answers: list[str | None] = list(answers)

    async def __call__(self, asked: Clarification) -> str | None:
        self.asked.append(asked)
        return self._answers.pop(0)

    @property
    def seen(self) -> list[tuple[str, Sequence[str], bool]]:
        return [(asked.question, asked.options, asked.allow_custom) for asked in self.asked]


GUESTS = (human,)


def of(crib: Toolcrib, *answers: str | None) -> tuple[Session, Person]:
    person = Person(*answers)
    return crib.session(profile="flat", mode="cautious", elicitor=person), person


async def test_only_sessions_with_somebody_to_ask_have_the_tools(crib: Toolcrib) -> None:
    with_person, _ = of(crib)
    with_approver = crib.session(profile="flat", approver=RecordingApprover())
    with_nobody = crib.session(profile="flat")

    listed = [
        sorted(tool.name for tool in session.tools if tool.category == "human")
        for session in (with_person, with_approver, with_nobody)
    ]
    assert listed == [TOOLS, TOOLS, []]


async def test_a_question_is_asked_with_the_first_five_options(crib: Toolcrib) -> None:
    session, person = of(crib, "seven")
    result = await session.call("ask_user", {"question": "Which?", "options": [*"abcdef"]})

    assert (result.text, person.seen) == ("seven", [("Which?", ("a", "b", "c", "d", "e"), True)])


async def test_only_the_options_count_where_no_other_answer_is_taken(crib: Toolcrib) -> None:
    session, _ = of(crib, "seven", "b")
    question = {"question": "Which?", "options": ["a", "b"], "allow_custom": False}

    assert [(await session.call("ask_user", question)).text for _ in range(2)] == [DISMISSED, "b"]


@pytest.mark.parametrize("arguments", [{}, {"question": ""}, {"question": " "}, {"question": "x", "options": [""]}])
async def test_what_is_no_question_is_refused_before_anybody_is_asked(
    crib: Toolcrib, arguments: dict[str, Any]
) -> None:
    session, person = of(crib)
    result = await session.call("ask_user", arguments)

    assert result.error is not None
    assert (result.error.code, person.asked) == ("invalid_arguments", [])


async def test_the_clients_user_is_asked_with_one_form(crib: Toolcrib) -> None:
    filled = {"count": 3, "colour": "blue", "wrapped": False}
    peer = RecordingPeer({"elicitation/create": {"action": "accept", "content": filled}})
    session = crib.session(profile="flat", approver=RecordingApprover())
    result = await session.call("hitl", FORM, peer=peer)

    assert result.structured_content == {"state": "answered", "answers": filled}
    [(method, form)] = peer.requests
    assert (method, form["message"]) == ("elicitation/create", "The new order\n\nFor the shop in the harbour.")
    assert form["requestedSchema"] == {
        "type": "object",
        "properties": {
            "count": {"type": "number", "title": "How many?"},
            "colour": {"type": "string", "title": "Which colour?", "enum": ["red", "blue"]},
            "wrapped": {"type": "boolean", "title": "Wrapped?"},
            "note": {"type": "string", "title": "Anything else?"},
        },
        "required": ["count", "colour", "wrapped"],
    }


async def test_several_options_may_be_the_answer_and_a_default_stands_for_what_was_left_open(crib: Toolcrib) -> None:
    which = {"question": "Which?", "name": "which", "kind": "choices", "options": ["a", "b", "c"], "default": "b, c"}
    why = {"question": "Why?", "name": "why", "required": False, "default": "no reason"}
    form = {"title": "t", "questions": [which, why]}
    session = crib.session(profile="flat", approver=RecordingApprover())
    found, shown = list[Any](), {}
    for content in ({"which": ["c", "a"]}, {"which": ["d"]}):
        peer = RecordingPeer({"elicitation/create": {"action": "accept", "content": content}})
        result = await session.call("hitl", form, peer=peer)
        found.append(result.structured_content)
        shown = peer.requests[0][1]["requestedSchema"]["properties"]
    assert found[0] == {"state": "answered", "answers": {"which": ["c", "a"], "why": "no reason"}}
    assert found[1]["state"] == "dismissed"
    assert shown == {
        "which": {
            "type": "array",
            "title": "Which?",
            "default": ["b", "c"],
            "minItems": 1,
            "items": {"type": "string", "enum": ["a", "b", "c"]},
        },
        "why": {"type": "string", "title": "Why?", "default": "no reason"},
    }


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "accept", "content": {"count": 3}},
        {"action": "accept", "content": {"count": "three", "colour": "blue", "wrapped": True}},
        {"action": "accept", "content": {"count": True, "colour": "blue", "wrapped": True}},
        {"action": "accept", "content": {"count": 3, "colour": "green", "wrapped": True}},
        {"action": "accept", "content": {"count": 3, "colour": "red", "wrapped": "perhaps"}},
        {"action": "accept"},
    ],
)
async def test_a_form_that_is_not_whole_is_no_answer(crib: Toolcrib, answer: dict[str, Any]) -> None:
    session = crib.session(profile="flat", approver=RecordingApprover())
    result = await session.call("hitl", FORM, peer=RecordingPeer({"elicitation/create": answer}))

    assert result.structured_content == {"state": "dismissed", "answers": {}, "note": DISMISSED}


async def test_who_answers_for_the_session_is_asked_one_question_after_the_other(crib: Toolcrib) -> None:
    session, person = of(crib, "many", "2.0", "red", "yes", None)
    result = await session.call("hitl", FORM)

    assert result.structured_content == {
        "state": "answered",
        "answers": {"count": 2, "colour": "red", "wrapped": True},
    }
    assert person.seen == [
        ("The new order\n\nFor the shop in the harbour.\n\nHow many? (1 of 4)", (), True),
        ("How many? (1 of 4) A number is needed, such as 12.5.", (), True),
        ("Which colour? (2 of 4)", ("red", "blue"), False),
        ("Wrapped? (3 of 4)", ("yes", "no"), False),
        ("Anything else? (4 of 4) (need not be answered)", (), True),
    ]


async def test_who_dismisses_a_required_question_is_asked_no_more(crib: Toolcrib) -> None:
    session, person = of(crib, "2", None)
    result = await session.call("hitl", FORM)

    assert (result.structured_content["state"], len(person.asked)) == ("dismissed", 2)


async def test_a_confirmation_takes_yes_or_no_for_each_question(crib: Toolcrib) -> None:
    session, person = of(crib, "yes", "no")
    form = {"title": "Before I begin", "type": "confirm", "questions": ["Is the shop closed?", "Keep the old prices?"]}
    result = await session.call("hitl", form)

    assert result.structured_content["answers"] == {"1_is_the_shop_closed": True, "2_keep_the_old_prices": False}
    assert [asked.options for asked in person.asked] == [("yes", "no")] * 2


async def test_a_form_that_nobody_answers_in_time_says_so(crib: Toolcrib) -> None:
    async def never(asked: Clarification) -> str | None:
        await anyio.sleep_forever()

    session = crib.session(profile="flat", elicitor=never)
    result = await session.call("hitl", {**FORM, "timeout": 0.05})

    assert result.structured_content == {
        "state": "timeout",
        "answers": {},
        "note": "no answer within 0.05 s",
    }


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([{"question": "a", "name": "x"}, {"question": "b", "name": "x"}], "questions[1].name: there are two"),
        (
            [{"question": "a", "kind": "number", "options": ["1"]}],
            "questions[0].options: a question of the kind number",
        ),
        ([], ""),
        ([{"name": "x"}], ""),
        ([{"question": "a", "name": "1 x"}], ""),
        ([{"question": "a", "kind": "date"}], ""),
        ([{"question": "a", "kind": "choices"}], "questions[0].options: choices need some"),
        ([{"question": "a", "options": ["x"], "default": "y"}], "questions[0].default: 'y' is not an answer to it"),
    ],
)
async def test_a_form_that_is_none_is_refused_before_anybody_is_asked(
    crib: Toolcrib, questions: list[Any], message: str
) -> None:
    session, person = of(crib)
    result = await session.call("hitl", {"title": "t", "questions": questions})

    assert result.error is not None
    assert (result.error.code, person.asked) == ("invalid_arguments", [])
    assert result.error.message.startswith(message)


async def test_what_is_unclear_is_asked_at_once_and_some_of_it_may_stay_open(crib: Toolcrib) -> None:
    session, person = of(crib, "reports/", None)
    questions = ["Which folder holds them?", "Shall I keep those of this year?"]
    result = await session.call(
        "request_clarification", {"context": "The old reports are to go.", "questions": questions}
    )

    assert result.text == ("Which folder holds them?\nreports/\n\nShall I keep those of this year?\n(not answered)")
    assert person.asked[0].question.startswith("The old reports are to go.\n\nWhich folder holds them? (1 of 2)")


async def test_nothing_answered_is_a_neutral_sentence(crib: Toolcrib) -> None:
    session, _ = of(crib, None, None)

    result = await session.call("request_clarification", {"context": "", "questions": ["a?", "b?"]})
    assert (result.text, result.is_error) == (DISMISSED, False)


async def test_a_client_that_cannot_ask_its_user_is_a_failure_that_says_what_to_do(crib: Toolcrib) -> None:
    session = crib.session(profile="flat", approver=RecordingApprover())

    for name, arguments in (
        ("ask_user", {"question": "Which?"}),
        ("hitl", FORM),
        ("request_clarification", {"context": "", "questions": ["a?"]}),
    ):
        result = await session.call(name, arguments)
        assert result.error is not None
        assert result.error.code == "unavailable" and result.error.hint


@pytest.mark.parametrize("builtins", [True, False])
async def test_an_agent_has_one_tool_to_ask_the_user_with_whether_or_not_the_built_in_ones_are_there(
    builtins: bool,
) -> None:
    person = Person("blue")
    async with Toolcrib(bare().with_values(builtins=builtins), memory=True) as crib:
        session = crib.session(profile="flat", mode="autonomous", elicitor=person)
        await Agent(ScriptedModel(), session).ready()

        asking = [tool.name for tool in crib.catalog.tools.values() if tool.local_name == "ask_user"]
        assert asking == ["ask_user"]
        assert (await session.call("ask_user", {"question": "Which colour?"})).text == "blue"
