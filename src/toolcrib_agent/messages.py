"""Messages of a conversation: made valid for any model's API, read and written, and what they say.

Valid means what every model's API wants: the first message is a request, requests and responses alternate, every tool
call has exactly one return, right after it, and no return is without its call. Messages are Pydantic AI's own.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from toolcrib.errors import UsageError

INTERRUPTED: Final = "This call was interrupted: no result came back. It may have run in part, or not at all."
"""Substitute for the result of a call that was cancelled, or whose process ended."""


def make_valid(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return the messages as every API takes them; those that are valid already stay the same objects.

    A call without a return gets one that says so, a return without a call and an empty message are left out.
    """
    result: list[ModelMessage] = []
    open_calls: dict[str, ToolCallPart] = {}
    for message in merge_adjacent(messages):
        if isinstance(message, ModelResponse):
            if result and message.parts:
                result.append(_without_duplicate_calls(message))
                open_calls = {call.tool_call_id: call for call in calls_of(message)}
            continue
        request = _with_returns(message, open_calls)
        open_calls = {}
        if request.parts:
            result.append(request)
    if open_calls:
        result.append(_with_returns(ModelRequest(parts=[]), open_calls))
    return merge_adjacent(result)


def merge_adjacent(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return the messages with requests that follow one another made one, tool returns first; responses likewise."""
    result: list[ModelMessage] = []
    for message in messages:
        last = result[-1] if result else None
        if isinstance(message, ModelRequest) and isinstance(last, ModelRequest):
            parts = sorted((*last.parts, *message.parts), key=lambda part: not _is_return(part))
            result[-1] = replace(last, parts=parts, instructions=message.instructions or last.instructions)
        elif isinstance(message, ModelResponse) and isinstance(last, ModelResponse):
            result[-1] = replace(message, parts=[*last.parts, *message.parts])
        else:
            result.append(message)
    return result


def _with_returns(request: ModelRequest, calls: dict[str, ToolCallPart]) -> ModelRequest:
    """Return the request with one return for each of the calls before it, in their order, and no other return."""
    returned = {str(getattr(part, "tool_call_id", "")): part for part in request.parts if _is_return(part)}
    others = [part for part in request.parts if not _is_return(part)]
    returns = [returned.get(id) or _interrupted_return(call) for id, call in calls.items()]
    parts = [*returns, *others]
    is_same = len(parts) == len(request.parts) and all(map(operator.is_, parts, request.parts))
    return request if is_same else replace(request, parts=parts)


def _without_duplicate_calls(response: ModelResponse) -> ModelResponse:
    """Return the response with one call of each id."""
    calls = calls_of(response)
    first = {call.tool_call_id: id(call) for call in reversed(calls)}
    if len(first) == len(calls):
        return response
    kept = [
        part for part in response.parts if not isinstance(part, ToolCallPart) or first[part.tool_call_id] == id(part)
    ]
    return replace(response, parts=kept)


def _interrupted_return(call: ToolCallPart) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=call.tool_name, content=INTERRUPTED, tool_call_id=call.tool_call_id, outcome="interrupted"
    )


def _is_return(part: ModelRequestPart) -> bool:
    if part.part_kind == "retry-prompt":  # the form that Pydantic AI has deprecated, in histories of its agents
        return part.tool_name is not None
    return part.part_kind == "tool-return"


def finished_part(response: ModelResponse) -> ModelResponse | None:
    """Return the part of an interrupted response that may stay in a history: its text.

    A call may be half written, and thoughts whose signature did not come any more are refused by the API that made
    them. None if nothing is left.
    """
    parts = [part for part in response.parts if isinstance(part, TextPart) and part.content.strip()]
    return replace(response, parts=parts, state="interrupted") if parts else None


def calls_of(response: ModelResponse) -> list[ToolCallPart]:
    """Return the calls of our tools, in their order; what an API runs by itself is none of them."""
    return [part for part in response.parts if isinstance(part, ToolCallPart)]


def text_of(response: ModelResponse) -> str:
    """Return the model's text in it, without thoughts."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart)).strip()


def dump(messages: Sequence[ModelMessage]) -> bytes:
    """Serialise a history as JSON, for `load`. It holds the whole conversation: protect it like other user data."""
    return ModelMessagesTypeAdapter.dump_json(list(messages))


def load(text: str | bytes) -> tuple[ModelMessage, ...]:
    """Return the history that `dump` wrote, made valid. Raises `UsageError` for invalid JSON."""
    try:
        return tuple(make_valid(ModelMessagesTypeAdapter.validate_json(text)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the text"
        raise UsageError(f"this is not a history of messages: {where}: {first['msg']}") from None


def user_parts(message: ModelMessage) -> Iterator[UserPromptPart]:
    """Yield what the user says in a message."""
    parts: Sequence[ModelRequestPart] = message.parts if isinstance(message, ModelRequest) else ()
    yield from (part for part in parts if isinstance(part, UserPromptPart))


def prompt_text(part: UserPromptPart) -> str:
    """Return the text of what the user says; `[a file]` stands for anything else."""
    if isinstance(part.content, str):
        return part.content
    texts = (item if isinstance(item, str) else getattr(item, "content", "") for item in part.content)
    return "\n".join(text if isinstance(text, str) and text else "[a file]" for text in texts)


def tool_returns(messages: Iterable[ModelMessage]) -> Iterator[ToolReturnPart]:
    """Yield the results of tools."""
    yield from (part for message in messages for part in message.parts if isinstance(part, ToolReturnPart))
