"""What a loop of one's own sends and gets: the SDKs' own objects in, what the APIs take back out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from toolcrib import Answer, Session, Toolcrib, ToolResult, UsageError, defer_approval, tool
from toolcrib.core.result import ToolError
from toolcrib.integrations import anthropic, openai
from toolcrib.integrations.turns import begin, check_session

PIXEL, PAGE = "iVBORw0KGgo=", "JVBERi0="


@tool(kind="read")
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


def numbered(number: int) -> Callable[..., Any]:
    """Return one tool of many, which costs enough that they are not all shown."""

    @tool(name=f"add_{number}", kind="read", description="Add. " * 60)
    def one(left: int, right: int) -> int:
        return left + right

    return one


@tool(kind="read")
def screenshot() -> ToolResult:
    """Take a picture, and write about it."""
    blocks: tuple[Mapping[str, Any], ...] = (
        {"type": "text", "text": "the screen"},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a/b.pdf", "blob": PAGE, "mimeType": "application/pdf"}},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "https://example.org/log", "name": "log"},
    )
    return ToolResult(content=blocks)


@tool(kind="read")
def drawing() -> ToolResult:
    """Draw what no model API takes."""
    return ToolResult(content=({"type": "image", "data": PIXEL, "mimeType": "image/svg+xml"},))


@tool(kind="read")
def crashed() -> ToolResult:
    """Fail, and show where."""
    blocks: tuple[Mapping[str, Any], ...] = (
        {"type": "text", "text": "it crashed"},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    )
    return ToolResult(content=blocks, error=ToolError(code="tool_error", message="it crashed"))


@pytest.fixture
async def ran() -> list[str]:
    """Files that were removed."""
    return []


@pytest.fixture
async def session(ran: list[str]) -> AsyncGenerator[Session]:
    """Five tools, and nobody to ask before the user is asked."""

    @tool(kind="destructive")
    def remove(path: str) -> str:
        """Remove a file."""
        ran.append(path)
        return f"{path} is gone"

    async with Toolcrib() as crib:
        crib.add(add, screenshot, drawing, crashed, remove)
        yield crib.session(mode="cautious", approver=defer_approval)


def message(*content: Mapping[str, Any], stop: str = "tool_use") -> Message:
    """Return an answer of Anthropic's API."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "x", "stop_sequence": None, "usage": usage}
    return Message.model_validate({**head, "content": content, "stop_reason": stop})


def use(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Return a call in Anthropic's words."""
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def completion(*calls: tuple[str, str, str], finish: str = "tool_calls") -> ChatCompletion:
    """Return an answer of OpenAI's chat API, as a stream ends with; a call is id, name and arguments."""
    made = [
        {"index": place, "id": id, "type": "function", "function": {"name": name, "arguments": text}}
        for place, (id, name, text) in enumerate(calls)
    ]
    said = {"role": "assistant", "content": None, "tool_calls": made, "annotations": [], "refusal": None}
    choice = {"index": 0, "finish_reason": finish, "logprobs": None, "message": said}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "x"}
    return ChatCompletion.model_validate({**head, "choices": [choice]})


def response(*output: Mapping[str, Any], status: str = "completed") -> Response:
    """Return an answer of OpenAI's Responses API."""
    head = {"id": "r", "object": "response", "created_at": 1, "model": "x", "parallel_tool_calls": True}
    return Response.model_validate({**head, "tools": [], "tool_choice": "auto", "status": status, "output": output})


def function_call(id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a call in the words of the Responses API."""
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


async def test_anthropic_gets_one_message_with_a_result_for_each_call_in_their_order(session: Session) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    calls = (use("1", "add", left=1, right=2), use("2", "ad"), use("3", "add", left="x", right=2))

    turn = await anthropic.answer(session, message(thinking, *calls))

    assert turn.reply == ({"role": "assistant", "content": [thinking, *calls]},)
    (told,) = turn.outputs
    results = told["content"]
    assert [(one["tool_use_id"], one.get("is_error", False)) for one in results] == [
        ("1", False),
        ("2", True),
        ("3", True),
    ]
    assert results[0] == {"type": "tool_result", "tool_use_id": "1", "content": "3"}
    assert [one["content"].partition(":")[0] for one in results[1:]] == ["not_found", "invalid_arguments"]
    assert turn.messages == [*turn.reply, told]
    assert not turn.is_final


async def test_chat_gets_a_message_for_each_call_and_nothing_that_it_does_not_take(session: Session) -> None:
    turn = await openai.answer(session, completion(("1", "add", '{"left": 1, "right": 2}'), ("2", "add", "{left: 1")))

    made = [
        {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"left": 1, "right": 2}'}},
        {"id": "2", "type": "function", "function": {"name": "add", "arguments": "{left: 1"}},
    ]
    assert turn.messages[:2] == [
        {"role": "assistant", "tool_calls": made},
        {"role": "tool", "tool_call_id": "1", "content": "3"},
    ]
    assert [(result.error.code if result.error else "") for result in turn.results] == ["", "invalid_arguments"]


async def test_responses_get_their_own_items_back_and_an_output_for_each_call(session: Session) -> None:
    reasoning: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"}
    call = function_call("1", "add", '{"left": 1, "right": 2}')

    turn = await openai.answer(session, response(reasoning, call))

    assert turn.messages == [reasoning, call, {"type": "function_call_output", "call_id": "1", "output": "3"}]
    assert turn.outputs == turn.messages[2:]


async def test_an_answer_as_json_is_refused_with_what_makes_it_an_object(session: Session) -> None:
    sent: Any = completion(("1", "add", "{}")).to_dict()
    for answer, hint in (
        (openai.answer, "ChatCompletion.model_validate"),
        (anthropic.answer, "Message.model_validate"),
    ):
        with pytest.raises(UsageError, match=hint):
            await answer(session, sent)


async def test_what_shows_no_tools_is_refused_before_a_model_is_asked() -> None:
    crib = Toolcrib()
    with pytest.raises(UsageError, match="is not open"):
        crib.session().begin()
    with pytest.raises(UsageError, match="is not open"):
        begin(crib.session())
    with pytest.raises(UsageError, match=r"crib\.session"):
        check_session(crib)


async def test_an_answer_without_calls_is_the_last_one_and_a_paused_one_is_not(session: Session) -> None:
    text = {"type": "text", "text": "Done."}
    done = await anthropic.answer(session, message(text, stop="end_turn"))
    paused = await anthropic.answer(session, message(text, stop="pause_turn"))

    assert (done.is_final, paused.is_final) == (True, False)
    assert done.messages == paused.messages == [{"role": "assistant", "content": [text]}]
    assert (await anthropic.answer(session, message(stop="end_turn"))).messages == []
    assert (await openai.answer(session, completion(finish="stop"))).is_final
    assert (await openai.answer(session, response())).is_final


async def test_a_call_that_the_answer_was_cut_off_in_does_not_run_however_whole_it_looks(
    session: Session, ran: list[str]
) -> None:
    session.state.approvals.approver = None
    session.mode = "autonomous"
    whole, cut = '{"path": "/tmp-old"}', '{"path": "/"}'
    items = (function_call("1", "remove", whole), function_call("2", "remove", cut))
    turns = [
        await anthropic.answer(
            session, message(use("1", "remove", path="/tmp-old"), use("2", "remove", path="/"), stop="max_tokens")
        ),
        await openai.answer(session, completion(("1", "remove", whole), ("2", "remove", cut), finish="length")),
        await openai.answer(session, response(*items, status="incomplete")),
    ]

    assert ran == ["/tmp-old"] * 3
    assert {turn.results[0].text for turn in turns} == {"/tmp-old is gone"}
    assert {turn.results[1].text.partition(":")[0] for turn in turns} == {"invalid_arguments"}
    assert all(len(turn.results) == 2 for turn in turns)


async def test_pictures_and_files_go_where_an_api_takes_them_and_are_named_where_it_does_not(session: Session) -> None:
    on_claude = await anthropic.answer(session, message(use("1", "screenshot")))
    on_chat = await openai.answer(session, completion(("1", "screenshot", "{}")))
    on_responses = await openai.answer(session, response(function_call("1", "screenshot", "{}")))

    text = "the screen\n[audio/wav, which cannot be shown here]\nlog https://example.org/log"
    image = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    page = {"type": "base64", "media_type": "application/pdf", "data": PAGE}
    assert on_claude.outputs[0]["content"][0]["content"] == [
        {"type": "text", "text": text},
        {"type": "image", "source": image},
        {"type": "document", "source": page},
    ]
    named = [f"[{kind}, which cannot be shown here]" for kind in ("image/png", "application/pdf")]
    assert on_chat.outputs == [{"role": "tool", "tool_call_id": "1", "content": "\n".join([text, *named])}]
    assert on_responses.outputs[0]["output"] == [
        {"type": "input_text", "text": text},
        {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"},
        {"type": "input_file", "filename": "b.pdf", "file_data": f"data:application/pdf;base64,{PAGE}"},
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("drawing", "[image/svg+xml, which cannot be shown here]"),
        ("crashed", "it crashed\n[image/png, which cannot be shown here]"),
    ],
)
async def test_a_block_for_which_an_api_refuses_the_conversation_is_named(
    name: str, text: str, session: Session
) -> None:
    on_claude = await anthropic.answer(session, message(use("1", name)))
    on_responses = await openai.answer(session, response(function_call("1", name, "{}")))

    is_error = {"is_error": True} if name == "crashed" else {}
    assert on_claude.outputs[0]["content"] == [{"type": "tool_result", "tool_use_id": "1", "content": text, **is_error}]
    assert on_responses.outputs[0]["output"] == text


async def test_only_the_calls_that_ask_wait_and_each_runs_once_when_it_is_answered(
    session: Session, ran: list[str]
) -> None:
    calls = (use("1", "remove", path="a"), use("2", "add", left=1, right=2), use("3", "remove", path="b"))
    turn = await anthropic.answer(session, message(*calls))

    first, second = turn.questions
    assert [(one.tool, " ".join(one.arguments.split())) for one in turn.questions] == [
        ("remove", '{ "path": "a" }'),
        ("remove", '{ "path": "b" }'),
    ]
    assert ran == []

    half = await turn.resume({second.approval: Answer(verdict="yes", by="Ada")})
    assert (ran, half.questions) == (["b"], (first,))
    whole = await half.resume({first.approval: Answer(verdict="comment", by="Ada", comment="keep it")})
    again = await half.resume({first.approval: Answer(verdict="yes", by="Bob")})

    assert (ran, whole.questions) == (["b"], ())
    assert [one["content"].partition("\n")[0] for one in whole.outputs[0]["content"]] == [
        "denied: Ada refused remove: keep it",
        "3",
        "b is gone",
    ]
    assert again.results[0].text == whole.results[0].text


async def test_an_answer_to_what_was_not_asked_is_refused(session: Session) -> None:
    turn = await anthropic.answer(session, message(use("1", "remove", path="a")))

    with pytest.raises(UsageError, match=r"'approval_x'.*approval_"):
        await turn.resume({"approval_x": Answer(verdict="yes")})


async def test_a_turn_that_nobody_resumes_tells_the_model_that_the_call_waits(session: Session) -> None:
    turn = await openai.answer(session, completion(("1", "remove", '{"path": "a"}')))

    assert turn.outputs[0]["content"].startswith("denied: remove did not run yet")


async def test_a_request_holds_the_tools_and_the_words_of_the_session_and_ones_own() -> None:
    async with Toolcrib() as crib:
        crib.add([add, screenshot])
        session = crib.session(profile="gateway")
        said = [{"role": "user", "content": "hello"}]
        told = f"Be brief.\n\n{session.instructions}"
        definitions = session.definitions

        assert anthropic.request(session, said, system="Be brief.") == {
            "messages": said,
            "tools": definitions("anthropic"),
            "system": told,
        }
        assert openai.chat(session, said, system="Be brief.") == {
            "messages": [{"role": "system", "content": told}, *said],
            "tools": definitions("openai"),
        }
        assert openai.responses(session, said, system="Be brief.") == {
            "input": said,
            "tools": definitions("openai-responses"),
            "instructions": told,
        }


async def test_where_there_is_no_tool_the_request_names_none() -> None:
    async with Toolcrib() as crib:
        crib.add(add)
        session = crib.session()
        session.begin(tools=[])

        assert anthropic.request(session, []) == {"messages": []}
        assert openai.chat(session, []) == {"messages": []}
        assert openai.responses(session, []) == {"input": []}


async def test_deferred_tools_are_searched_by_the_api_and_run_by_the_session() -> None:
    async with Toolcrib() as crib:
        crib.add([add, *(numbered(number) for number in range(60))])
        session = crib.session()

        asked: Any = anthropic.request(session, [], defer=True).get("tools")
        spaces: Any = openai.responses(session, [], defer=True).get("tools")
        turn = await anthropic.answer(session, message(use("1", "add", left=1, right=2)))

        deferred = [one["name"] for one in asked if one.get("defer_loading")]
        assert len(deferred) == 61
        assert asked[0]["type"] == "tool_search_tool_bm25_20251119"
        assert [one["type"] for one in spaces] == ["tool_search", "function", "namespace"]
        assert turn.results[0].text == "3"
