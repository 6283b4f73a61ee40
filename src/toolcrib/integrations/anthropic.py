"""A session in a loop over the `anthropic` SDK that is your own.

    session.begin()
    messages = [{"role": "user", "content": "How many tickets are open?"}]
    while True:
        message = await client.messages.create(model=MODEL, max_tokens=4096, **request(session, messages))
        turn = await answer(session, message)
        messages += turn.messages
        if turn.is_final:
            break

Streams as well: `async with client.messages.stream(…) as stream` and `message = await stream.get_final_message()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Required, TypedDict, cast

from ..core.extras import needs_extra
from ..core.result import ToolResult
from ..crib.session import Session
from ..errors import UsageError
from .turns import Media, Turn, parts, run

with needs_extra("anthropic"):
    from anthropic.types import Message, MessageParam, ToolUnionParam
    from anthropic.types.beta import BetaMessage

__all__ = ["Request", "answer", "request"]

_CUT: Final = ("max_tokens", "model_context_window_exceeded")
"""Stop reasons of an answer that may end in the middle of a call."""


class Request(TypedDict, total=False):
    """Parameters for `client.messages.create` beside the model and the token limit."""

    messages: Required[list[MessageParam]]
    tools: list[ToolUnionParam]
    system: str


def request(session: Session, messages: Iterable[Any], *, system: str = "", defer: bool = False) -> Request:
    """Return `messages`, `tools` and `system` of the next request, as the session stands now.

    The profile's instructions follow your own `system`. `defer` declares all other tools, too, as ones that the API
    itself searches. Raises `UsageError` where the profile cannot have that.
    """
    wanted: Request = {"messages": list(messages)}
    if tools := session.definitions("anthropic", defer=defer):
        wanted["tools"] = cast("list[ToolUnionParam]", list(tools))
    if instructions := "\n\n".join(part for part in (system, session.instructions) if part):
        wanted["system"] = instructions
    return wanted


async def answer(session: Session, message: Message | BetaMessage) -> Turn:
    """Make the calls of the model's message, all at once, and return the next messages.

    Of a message that was cut off at its limit, the unfinished call does not run.
    """
    if isinstance(message, dict):  # the JSON of the API
        hint = "Message.model_validate(…) makes one of a dictionary"
        raise UsageError(f"a Message was expected, not dict; {hint}")
    uses = [block for block in message.content if block.type == "tool_use"]
    is_cut = message.stop_reason in _CUT and bool(uses) and message.content[-1] is uses[-1]
    results = await run(session, [(use.name, use.input) for use in uses], is_cut=is_cut, origin="anthropic")
    content = [block.to_dict(mode="json") for block in message.content]
    return Turn(
        session=session,
        reply=({"role": "assistant", "content": content},) if content else (),
        ids=tuple(use.id for use in uses),
        results=results,
        send=_results,
        is_paused=message.stop_reason == "pause_turn",
    )


def _results(results: Sequence[tuple[str, ToolResult]]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [_block(id, result) for id, result in results]}]


def _block(id: str, result: ToolResult) -> dict[str, Any]:
    text, others = parts(result)
    content: Any = text
    if others:
        content = [*([{"type": "text", "text": text}] if text else []), *map(_other, others)]
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id, "content": content}
    return {**block, "is_error": True} if result.is_error else block


def _other(media: Media) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media.kind, "data": media.data}
    return {"type": "image" if media.is_image else "document", "source": source}
