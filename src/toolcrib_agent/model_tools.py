"""Tools in model requests: their definitions and instructions, and the calls of a response with their results."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic_ai.messages import (
    BinaryContent,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    SystemPromptPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from toolcrib.core.context import Output, Progress
from toolcrib.core.json import dumps, loads
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.crib import Session

from .events import AgentEvent, CallBegun, CallEnded, CallProgress
from .limits import Usage, UsageLimits

__all__ = ["Calls", "ToolDefinitions", "return_of"]

_DESCRIPTION: Final = 1024
"""Characters of a description that OpenAI takes; a longer one is refused with the whole request
(`string_above_max_length`)."""
_SHORT_OF_WORDS: Final = frozenset({"openai", "azure"})
"""Systems with that limit."""


class ToolDefinitions:
    """The tools and instructions of one run. Used for every request of it, in their order."""

    def __init__(self, model: Model, instructions: str) -> None:
        """`instructions` stay as they are for the run."""
        self._longest = _DESCRIPTION if model.system in _SHORT_OF_WORDS else None
        self._instructions = instructions
        self._announced = set(instructions.splitlines())
        self._tools: dict[str, Tool] = {}
        self._definitions: dict[str, ToolDefinition] = {}
        self._established: set[str] = set()
        """Names of the tools in the list of the first request."""
        self._revealed: set[str] = set()
        """Names of the tools that the conversation announces."""

    @property
    def names(self) -> tuple[str, ...]:
        """The tools of the newest request, in their order."""
        return tuple(self._definitions)

    @property
    def tokens(self) -> int:
        """Estimated tokens (UTF-8 bytes / 4) of instructions and definitions."""
        size = len(self._instructions.encode())
        for one in self._definitions.values():
            size += len(one.name) + len((one.description or "").encode()) + len(dumps(one.parameters_json_schema)) + 24
        return size // 4

    def news(
        self, tools: Iterable[Tool], instructions: str, messages: Sequence[ModelMessage]
    ) -> list[ModelRequestPart]:
        """Record the session's current tools and instructions; return the messages that announce changes.

        What goes out of the session is out of the list, everything else keeps its place.
        """
        shown = {tool.name: tool for tool in tools}
        for name in [name for name in self._tools if name not in shown]:
            del self._tools[name], self._definitions[name]
        for name, tool in shown.items():
            known = self._tools.get(name)
            if known is None or (known is not tool and known != tool):
                self._tools[name], self._definitions[name] = tool, self._defined(tool)
        announced = _announced(messages)
        if self._established.isdisjoint(self._definitions):  # there is no list yet that could be kept
            self._established = {name for name in self._definitions if name not in announced} or set(self._definitions)
        new = [name for name in self._definitions if name not in self._established and name not in announced]
        self._revealed = announced.union(new)
        parts: list[ModelRequestPart] = [ToolAvailabilityDeltaPart(tools_added=new)] if new else []
        return [*parts, *self._new_instructions(instructions)]

    def parameters(self, *, tools: bool = True) -> ModelRequestParameters:
        """Return what goes with a request; without `tools` there are none."""
        definitions = self._definitions if tools else {}
        return ModelRequestParameters(
            function_tools=list(definitions.values()),
            introduced_tool_names={name for name in definitions if name not in self._established},
            revealed_tool_names=self._revealed.intersection(definitions),
            instruction_parts=[InstructionPart(content=self._instructions)] if self._instructions else None,
        )

    def _new_instructions(self, instructions: str) -> list[ModelRequestPart]:
        """Return the lines of the instructions that are new to the model."""
        lines = [line for line in instructions.splitlines() if line and line not in self._announced]
        self._announced.update(lines)
        return [SystemPromptPart(content="\n".join(lines))] if lines else []

    def _defined(self, tool: Tool) -> ToolDefinition:
        schema: dict[str, Any] = loads(dumps(tool.input_schema))
        description = tool.description or tool.title
        if self._longest is not None and len(description) > self._longest:
            description = f"{description[: self._longest - 1].rstrip()}…"
        return ToolDefinition(name=tool.name, description=description, parameters_json_schema=schema)


def _announced(messages: Iterable[ModelMessage]) -> set[str]:
    """Return the names of the tools that the conversation tells of."""
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return {name for part in parts if isinstance(part, ToolAvailabilityDeltaPart) for name in part.tools_added}


_DENIED: Final = frozenset({"denied", "disabled", "not_in_scope", "quarantined"})
"""Codes of refusals: no tool has failed."""
_KEPT: Final = ("artifact", "call_id", "job", "rule", "trust")
"""Result metadata that stays in the history. It is never sent to a model."""


class Calls:
    """Makes the calls of one run. Keeps what has ended of the newest ones, should they be broken off."""

    def __init__(
        self, session: Session, usage: UsageLimits, tell: Callable[[AgentEvent], None], parent: str = ""
    ) -> None:
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
        self._ended[call.tool_call_id] = return_of(call, result)
        self._tell(CallEnded(id=call.tool_call_id, name=call.tool_name, result=result, seconds=took))


def return_of(call: ToolCallPart, result: ToolResult) -> ToolReturnPart:
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
        texts.append(f"The tool asks for input that is not available here: {dumps(result.input_required).decode()}")
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
