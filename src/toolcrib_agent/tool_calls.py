"""Tool calls of one run: made together, within the limits, and returned to the model as message parts."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic_ai.messages import BinaryContent, ToolCallPart, ToolReturnPart, UserContent

from toolcrib import Output, Progress, Session, ToolResult
from toolcrib.plugin import dumps, fenced_text

from .events import CallBegun, CallEnded, CallProgress, Tell
from .limits import Usage, UsageLimits

_DENIED: Final = frozenset({"denied", "disabled", "not_in_scope", "quarantined"})
"""Codes of refusals: no tool has failed."""
_KEPT: Final = ("artifact", "call_id", "job", "rule", "trust")
"""Result metadata that stays in the history. It is never sent to a model."""


class ToolCalls:
    """Makes the calls of one run. Keeps what has ended of the newest ones, should they be broken off.

    Not for several batches at the same time: `run` begins with an empty record of results.
    """

    def __init__(self, session: Session, usage: UsageLimits, tell: Tell, parent: str) -> None:
        """`parent` is the id of the call that runs this agent; empty for a root agent."""
        self._session = session
        self._usage = usage
        self._tell = tell
        self._parent = parent
        self._ended: dict[str, ToolReturnPart] = {}
        self._begun: dict[str, float] = {}
        self.was_cut = False
        """True if some of the newest calls did not run because the limit of tool calls was reached."""

    @property
    def ended(self) -> list[ToolReturnPart]:
        """Results that had arrived before the calls were interrupted."""
        return list(self._ended.values())

    async def run(self, calls: Sequence[ToolCallPart]) -> tuple[list[ToolReturnPart], list[ToolResult]]:
        """Return one return for each call, in their order, and the results.

        Reads run at the same time. Calls beyond the limits do not run.
        """
        self._ended, self._begun = {}, {}
        for call in calls:
            self._begun[call.tool_call_id] = time.monotonic()
            self._tell(CallBegun(id=call.tool_call_id, name=call.tool_name, arguments=_read(call), together=len(calls)))
        paid = [call for place, call in enumerate(calls) if place < self._usage.calls_left]
        self._usage.pay(Usage(calls=len(paid)))
        self.was_cut = len(paid) < len(calls)
        results = await self._session.call_many(
            [(call.tool_name, _arguments(call)) for call in paid],
            each=[{"listener": partial(self._hear, call)} for call in paid],
            ended=lambda place, result: self._end(paid[place], result),
            origin="agent",
            parent=self._parent,
        )
        for call in calls[len(paid) :]:
            results.append(_unpaid(call))
            self._end(call, results[-1])
        returns = [self._ended[call.tool_call_id] for call in calls]
        self._ended = {}
        return returns, results

    def _hear(self, call: ToolCallPart, update: Progress | Output) -> None:
        self._tell(CallProgress(id=call.tool_call_id, name=call.tool_name, update=update))

    def _end(self, call: ToolCallPart, result: ToolResult) -> None:
        took = time.monotonic() - self._begun[call.tool_call_id]
        self._ended[call.tool_call_id] = _return_of(call, result)
        self._tell(CallEnded(id=call.tool_call_id, name=call.tool_name, result=result, seconds=took))


def _return_of(call: ToolCallPart, result: ToolResult) -> ToolReturnPart:
    """Return the result of a call as a message part: text, and the images and sounds that it has."""
    content = list(_content(result))
    code = result.error.code if result.error is not None else ""
    kept = {key: result.meta[key] for key in _KEPT if result.meta.get(key)}
    return ToolReturnPart(
        tool_name=call.tool_name,
        content=content[0] if len(content) == 1 else content,
        tool_call_id=call.tool_call_id,
        metadata={**kept, "code": code} if code else kept or None,
        outcome="success" if not code else "denied" if code in _DENIED else "failed",
    )


def _arguments(call: ToolCallPart) -> Mapping[str, Any] | str:
    """Return the arguments as the model wrote them. Invalid JSON stays text: the pipeline reports the error."""
    return {} if call.args is None or call.args == "" else call.args


def _read(call: ToolCallPart) -> Mapping[str, Any] | str:
    """Return the parsed arguments, for events; the raw text if it is not a JSON object."""
    try:
        return call.args_as_dict(raise_if_invalid=True)
    except (AssertionError, ValueError):
        return str(call.args)


def _unpaid(call: ToolCallPart) -> ToolResult:
    return ToolResult.failed(
        "budget_exceeded",
        f"{call.tool_name} did not run: the tool calls of this task are used up",
        hint="answer with what you have",
    )


def _content(result: ToolResult) -> Iterator[UserContent]:
    """Yield what the model is to see: one text, then media."""
    texts = [text for block in result.content if (text := _text(block))]
    media = [part for block in result.content if (part := _media(block)) is not None]
    if not texts and result.structured_content is not None:
        texts = [dumps(result.structured_content).decode()]
    if result.input_required is not None:
        asked = dumps(result.input_required).decode()
        if result.meta.get("trust") == "untrusted":
            asked = fenced_text(asked, str(result.meta.get("source", "")))
        texts.append(f"The tool asks for input that is not available here: {asked}")
    if texts or not media:
        yield "\n".join(texts) or "(it returned nothing)"
    yield from media


def _text(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind in ("image", "audio"):
        return "" if _media(block) is not None else f"[{kind} that cannot be read]"
    if kind == "resource":
        resource: Mapping[str, Any] = block.get("resource") or {}
        return str(resource.get("text") or f"[resource {resource.get('uri', '')}, which is not text]")
    return dumps(block).decode()


def _media(block: Mapping[str, Any]) -> BinaryContent | None:
    if block.get("type") not in ("image", "audio"):
        return None
    try:
        data = base64.b64decode(str(block.get("data", "")), validate=True)
    except (binascii.Error, ValueError):
        return None
    return BinaryContent(data=data, media_type=str(block.get("mimeType") or "application/octet-stream"))
