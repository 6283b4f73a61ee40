"""Tool definitions and instructions of one run: the same for every request; messages announce later changes.

The order is fixed because an API reads from its cache only the prefix that a request shares with earlier ones: a tool
that changed its place, or an instruction that was rewritten, would make the whole conversation be paid anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    SystemPromptPart,
    ToolAvailabilityDeltaPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from toolcrib import Tool
from toolcrib.plugin import dumps

_MAX_DESCRIPTION_CHARS: Final = 1024
"""Characters of a description that OpenAI takes; a longer one is refused with the whole request
(`string_above_max_length`)."""
_LIMITED_SYSTEMS: Final = frozenset({"openai", "azure"})
"""Systems with that limit."""


class ToolDefinitions:
    """The tools and instructions of one run. Used for every request of it, in their order."""

    def __init__(self, model: Model, instructions: str) -> None:
        """`instructions` stay as they are for the run."""
        self._max_description_chars = _MAX_DESCRIPTION_CHARS if model.system in _LIMITED_SYSTEMS else None
        self._instructions = instructions
        self._announced_lines = set(instructions.splitlines())
        self._tools: dict[str, Tool] = {}
        self._definitions: dict[str, ToolDefinition] = {}
        self._initial_names: set[str] = set()
        """Names of the tools in the list of the first request."""
        self._revealed_names: set[str] = set()
        """Names of the tools that the conversation announces."""

    @property
    def tokens(self) -> int:
        """Estimated tokens (UTF-8 bytes / 4) of instructions and definitions."""
        size = len(self._instructions.encode())
        for one in self._definitions.values():
            size += len(one.name) + len((one.description or "").encode()) + len(dumps(one.parameters_json_schema)) + 24
        return size // 4

    def announce(
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
                self._tools[name], self._definitions[name] = tool, self._define(tool)
        announced = _announced_names(messages)
        if self._initial_names.isdisjoint(self._definitions):  # there is no list yet that could be kept
            self._initial_names = {name for name in self._definitions if name not in announced} or set(
                self._definitions
            )
        new = [name for name in self._definitions if name not in self._initial_names and name not in announced]
        self._revealed_names = announced.union(new)
        parts: list[ModelRequestPart] = [ToolAvailabilityDeltaPart(tools_added=new)] if new else []
        return [*parts, *self._new_instructions(instructions)]

    def parameters(self, *, tools: bool = True) -> ModelRequestParameters:
        """Return the parameters of a request; without `tools` it has no tools."""
        definitions = self._definitions if tools else {}
        return ModelRequestParameters(
            function_tools=list(definitions.values()),
            introduced_tool_names={name for name in definitions if name not in self._initial_names},
            revealed_tool_names=self._revealed_names.intersection(definitions),
            instruction_parts=[InstructionPart(content=self._instructions)] if self._instructions else None,
        )

    def _new_instructions(self, instructions: str) -> list[ModelRequestPart]:
        """Return the lines of the instructions that are new to the model."""
        lines = [line for line in instructions.splitlines() if line and line not in self._announced_lines]
        self._announced_lines.update(lines)
        return [SystemPromptPart(content="\n".join(lines))] if lines else []

    def _define(self, tool: Tool) -> ToolDefinition:
        schema: dict[str, Any] = orjson.loads(dumps(tool.input_schema))
        description = tool.description or tool.title
        if self._max_description_chars is not None and len(description) > self._max_description_chars:
            description = f"{description[: self._max_description_chars - 1].rstrip()}…"
        return ToolDefinition(name=tool.name, description=description, parameters_json_schema=schema)


def _announced_names(messages: Iterable[ModelMessage]) -> set[str]:
    """Return the names of the tools that the conversation mentions."""
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return {name for part in parts if isinstance(part, ToolAvailabilityDeltaPart) for name in part.tools_added}
