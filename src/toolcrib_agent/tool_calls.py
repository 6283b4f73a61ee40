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

from .events import CallBegun, CallEnded, CallProgress, EventListener
from .limits import Usage, UsageLimits

_REFUSAL_CODES: Final = frozenset({"denied", "disabled", "not_in_scope", "quarantined"})
"""Codes of refusals: no tool has failed."""
_KEPT_META_KEYS: Final = ("artifact", "call_id", "job", "rule", "trust")
"""Result metadata that stays in the history. It is never sent to a model."""


class ToolCalls:
    """Makes the calls of one run. Keeps what has ended of the newest ones, should they be broken off.

    Not for several batches at the same time: `run` begins with an empty record of results.
    """

    def __init__(self, session: Session, usage: UsageLimits, on_event: EventListener, parent: str) -> None:
        """`parent` is the id of the call that runs this agent; empty for a root agent."""
        self._session = session
        self._usage = usage
        self._on_event = on_event
        self._parent = parent
        self._completed: dict[str, ToolReturnPart] = {}
        self._started_at: dict[str, float] = {}
        self.is_limit_reached = False
        """True if some of the newest calls did not run because the limit of tool calls was reached."""

    @property
    def ended(self) -> list[ToolReturnPart]:
        """Results that had arrived before the calls were interrupted."""
        return list(self._completed.values())

    async def run(self, calls: Sequence[ToolCallPart]) -> tuple[list[ToolReturnPart], list[ToolResult]]:
        """Return one return for each call, in their order, and the results.

        Reads run at the same time. Calls beyond the limits do not run.
        """
        self._completed, self._started_at = {}, {}
        for call in calls:
            self._started_at[call.tool_call_id] = time.monotonic()
            self._on_event(
                CallBegun(
                    id=call.tool_call_id, name=call.tool_name, arguments=_parse_arguments(call), together=len(calls)
                )
            )
        allowed = [call for place, call in enumerate(calls) if place < self._usage.calls_left]
        self._usage.charge(Usage(calls=len(allowed)))
        self.is_limit_reached = len(allowed) < len(calls)
        results = await self._session.call_many(
            [(call.tool_name, _arguments(call)) for call in allowed],
            each=[{"listener": partial(self._on_update, call)} for call in allowed],
            ended=lambda place, result: self._record_result(allowed[place], result),
            origin="agent",
            parent=self._parent,
        )
        for call in calls[len(allowed) :]:
            results.append(_over_limit_result(call))
            self._record_result(call, results[-1])
        returns = [self._completed[call.tool_call_id] for call in calls]
        self._completed = {}
        return returns, results

    def _on_update(self, call: ToolCallPart, update: Progress | Output) -> None:
        self._on_event(CallProgress(id=call.tool_call_id, name=call.tool_name, update=update))

    def _record_result(self, call: ToolCallPart, result: ToolResult) -> None:
        seconds = time.monotonic() - self._started_at[call.tool_call_id]
        self._completed[call.tool_call_id] = _return_of(call, result)
        self._on_event(CallEnded(id=call.tool_call_id, name=call.tool_name, result=result, seconds=seconds))


def _return_of(call: ToolCallPart, result: ToolResult) -> ToolReturnPart:
    """Return the result of a call as a message part: text, and the images and sounds that it has."""
    content = list(_content_parts(result))
    code = result.error.code if result.error is not None else ""
    kept = {key: result.meta[key] for key in _KEPT_META_KEYS if result.meta.get(key)}
    return ToolReturnPart(
        tool_name=call.tool_name,
        content=content[0] if len(content) == 1 else content,
        tool_call_id=call.tool_call_id,
        metadata={**kept, "code": code} if code else kept or None,
        outcome="success" if not code else "denied" if code in _REFUSAL_CODES else "failed",
    )


def _arguments(call: ToolCallPart) -> Mapping[str, Any] | str:
    """Return the arguments as the model wrote them. Invalid JSON stays text: the pipeline reports the error."""
    return {} if call.args is None or call.args == "" else call.args


def _parse_arguments(call: ToolCallPart) -> Mapping[str, Any] | str:
    """Return the parsed arguments, for events; the raw text if it is not a JSON object."""
    try:
        return call.args_as_dict(raise_if_invalid=True)
    except (AssertionError, ValueError):
        return str(call.args)


def _over_limit_result(call: ToolCallPart) -> ToolResult:
    return ToolResult.failed(
        "budget_exceeded",
        f"{call.tool_name} did not run: the tool calls of this task are used up",
        hint="answer with what you have",
    )


def _content_parts(result: ToolResult) -> Iterator[UserContent]:
    """Yield what the model is to see: one text, then media."""
    texts = [text for block in result.content if (text := _block_text(block))]
    media = [part for block in result.content if (part := _block_media(block)) is not None]
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


def _block_text(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind in ("image", "audio"):
        return "" if _block_media(block) is not None else f"[{kind} that cannot be read]"
    if kind == "resource":
        resource: Mapping[str, Any] = block.get("resource") or {}
        return str(resource.get("text") or f"[resource {resource.get('uri', '')}, which is not text]")
    return dumps(block).decode()


def _block_media(block: Mapping[str, Any]) -> BinaryContent | None:
    if block.get("type") not in ("image", "audio"):
        return None
    try:
        data = base64.b64decode(str(block.get("data", "")), validate=True)
    except (binascii.Error, ValueError):
        return None
    return BinaryContent(data=data, media_type=str(block.get("mimeType") or "application/octet-stream"))
