"""A session in a loop over the `openai` SDK that is your own, for both of its APIs.

    session.begin()                                                    # Chat Completions, and all that speak it
    messages = [{"role": "user", "content": "How many tickets are open?"}]
    while True:
        completion = await client.chat.completions.create(model=MODEL, **chat(session, messages))
        turn = await answer(session, completion)
        messages += turn.messages
        if turn.is_final:
            break

    items = [{"role": "user", "content": "How many tickets are open?"}]            # Responses
        response = await client.responses.create(model=MODEL, **responses(session, items))

Streams as well: `answer` takes the final object (`await stream.get_final_completion()`, `get_final_response()`). Where
the API keeps the conversation (`previous_response_id`), only `turn.outputs` is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Required, TypedDict, cast

from ..core.extras import needs_extra
from ..core.result import ToolResult
from ..crib.session import Session
from ..errors import UsageError
from .turns import Media, Turn, parts, run

with needs_extra("openai"):
    from openai import BaseModel
    from openai.types.chat import (
        ChatCompletion,
        ChatCompletionMessageFunctionToolCall,
        ChatCompletionMessageParam,
        ChatCompletionToolUnionParam,
    )
    from openai.types.responses import Response, ResponseFunctionToolCall, ResponseInputItemParam, ToolParam

__all__ = ["ChatRequest", "ResponsesRequest", "answer", "chat", "responses"]

_NOT_SENT: Final = ("annotations", "audio", "index", "parsed", "parsed_arguments")
"""Fields of an answer and of its calls that no request takes; `index` is of streams."""


class ChatRequest(TypedDict, total=False):
    """Parameters for `client.chat.completions.create` beside the model."""

    messages: Required[list[ChatCompletionMessageParam]]
    tools: list[ChatCompletionToolUnionParam]


class ResponsesRequest(TypedDict, total=False):
    """Parameters for `client.responses.create` beside the model."""

    input: Required[list[ResponseInputItemParam]]
    tools: list[ToolParam]
    instructions: str


def chat(session: Session, messages: Iterable[Any], *, system: str = "") -> ChatRequest:
    """Return `messages` and `tools` of the next Chat Completions request, as the session stands now.

    A system message comes first: your own `system`, then the profile's instructions.
    """
    wanted: ChatRequest = {"messages": list(messages)}
    if instructions := "\n\n".join(part for part in (system, session.instructions) if part):
        wanted["messages"].insert(0, {"role": "system", "content": instructions})
    if tools := session.definitions("openai"):
        wanted["tools"] = cast("list[ChatCompletionToolUnionParam]", list(tools))
    return wanted


def responses(session: Session, items: Iterable[Any], *, system: str = "", defer: bool = False) -> ResponsesRequest:
    """Return `input`, `tools` and `instructions` of the next Responses request, as the session stands now.

    `defer` declares all other tools, too, as ones that the API itself searches. Raises `UsageError` where the profile
    cannot have that.
    """
    wanted: ResponsesRequest = {"input": list(items)}
    if instructions := "\n\n".join(part for part in (system, session.instructions) if part):
        wanted["instructions"] = instructions
    if tools := session.definitions("openai-responses", defer=defer):
        wanted["tools"] = cast("list[ToolParam]", list(tools))
    return wanted


async def answer(session: Session, reply: ChatCompletion | Response) -> Turn:
    """Make the calls of the model's answer, all at once, and return the next messages.

    Of several choices the first one counts. Of an answer that was cut off at its limit, the unfinished call does not
    run.
    """
    if isinstance(reply, dict):  # the JSON of the API
        hint = "ChatCompletion.model_validate(…) makes one of a dictionary"
        raise UsageError(f"a ChatCompletion or Response was expected, not dict; {hint}")
    return await (_of_chat(session, reply) if isinstance(reply, ChatCompletion) else _of_response(session, reply))


async def _of_chat(session: Session, completion: ChatCompletion) -> Turn:
    choice = completion.choices[0]
    calls = [
        call for call in choice.message.tool_calls or () if isinstance(call, ChatCompletionMessageFunctionToolCall)
    ]
    made = [(call.function.name, call.function.arguments) for call in calls]
    return Turn(
        session=session,
        reply=({"role": "assistant", **_sent(choice.message)},),  # a stream of some servers names no role
        ids=tuple(call.id for call in calls),
        results=await run(session, made, is_cut=choice.finish_reason == "length", origin="openai"),
        send=_messages,
    )


async def _of_response(session: Session, response: Response) -> Turn:
    calls = [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]
    is_cut = response.status == "incomplete" and bool(calls) and response.output[-1] is calls[-1]
    return Turn(
        session=session,
        reply=tuple(_sent(item) for item in response.output),
        ids=tuple(call.call_id for call in calls),
        results=await run(session, [(call.name, call.arguments) for call in calls], is_cut=is_cut, origin="openai"),
        send=_items,
    )


def _sent(part: BaseModel) -> dict[str, Any]:
    """Return a part of an answer as a request takes it."""
    shown = part.to_dict(mode="json", exclude_none=True)
    if calls := cast("list[dict[str, Any]]", shown.get("tool_calls")):
        shown["tool_calls"] = [_without_rest(call) for call in calls]
    return _without_rest(shown)


def _without_rest(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in _NOT_SENT}


def _messages(results: Sequence[tuple[str, ToolResult]]) -> list[dict[str, Any]]:
    """Return a message a result. This API takes text only; any other content is named by its kind."""
    return [{"role": "tool", "tool_call_id": id, "content": _as_text(result)} for id, result in results]


def _as_text(result: ToolResult) -> str:
    text, others = parts(result)
    named = [one.label for one in others]
    return "\n".join(part for part in (text, *named) if part)


def _items(results: Sequence[tuple[str, ToolResult]]) -> list[dict[str, Any]]:
    return [{"type": "function_call_output", "call_id": id, "output": _output(result)} for id, result in results]


def _output(result: ToolResult) -> Any:
    text, others = parts(result)
    if not others:
        return text
    first = [{"type": "input_text", "text": text}] if text else []
    return [*first, *map(_other, others)]


def _other(media: Media) -> dict[str, Any]:
    url = f"data:{media.kind};base64,{media.data}"
    if media.is_image:
        return {"type": "input_image", "detail": "auto", "image_url": url}
    return {"type": "input_file", "filename": media.name, "file_data": url}
