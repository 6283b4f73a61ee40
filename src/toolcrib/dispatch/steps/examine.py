"""What strangers wrote, as a person would see it; and what in it looks like a command to the model.

It stands behind `limit`, so that only what is shown has to be read: what is kept stays as the tool wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from ...core.call import Call
from ...core.result import ToolError, ToolResult
from ...core.schema import compile_schema
from ...policy.taint import Taint
from ...results.suspicion import suspicions
from ...results.visible import visible_json, visible_text

__all__ = ["Examine"]

_SCANNED: Final = 64 * 1024
"""Characters of shown text in which commands to the model are looked for; 0.3 ms."""


class Examine:
    """Take out of an untrusted result what a person would not see, and say what looks like a command in it."""

    def __init__(self, taint: Taint) -> None:
        """`taint` is told of what looks like a command."""
        self._taint = taint

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result as a person would see it, with `hidden` (how many characters) and `suspicious`."""
        if result.meta.get("trust") != "untrusted" or result.input_required is not None or "fenced" in result.meta:
            return result
        found = suspicions(result.text[:_SCANNED])
        shown, hidden = _visible(call, result)
        if call.origin != "cli":  # a person at a terminal is shown escapes, and may ask for the raw text
            result = shown
        told: dict[str, Any] = {"hidden": hidden} if hidden else {}
        told |= {"suspicious": list(found)} if found else {}
        if found and call.tool is not None:
            self._taint.stain(call.tool, call.session)
        return result.with_meta(**told) if told else result


def _visible(call: Call, result: ToolResult) -> tuple[ToolResult, int]:
    content: list[Mapping[str, Any]] = []
    hidden = 0
    for block in result.content:
        shown, count = _visible_block(block)
        content.append(shown)
        hidden += count
    structured, count = visible_json(result.structured_content)
    hidden += count
    error = result.error
    if error is not None:
        error, count = _visible_error(error)
        hidden += count
    if not hidden:
        return result, 0
    shown = replace(result, content=tuple(content), structured_content=structured, error=error)
    return (shown if structured is result.structured_content else _kept_valid(call, shown)), hidden


def _visible_block(block: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """Return the block with its words seen; what is data (base64, a URI) and unknown blocks stay what they are."""
    words = {key: block[key] for key in ("text", "title", "name", "description") if isinstance(block.get(key), str)}
    shown, hidden = visible_json(words)
    inner: Any = block.get("resource")
    if isinstance(inner, Mapping):
        resource = cast("Mapping[str, Any]", inner)
        text, count = visible_text(resource["text"]) if isinstance(resource.get("text"), str) else ("", 0)
        hidden += count
        shown = {**shown, "resource": {**resource, "text": text}} if count else shown
    return ({**block, **shown}, hidden) if hidden else (block, 0)


def _visible_error(error: ToolError) -> tuple[ToolError, int]:
    words, hidden = visible_json({"message": error.message, "hint": error.hint, "details": error.details})
    return (replace(error, **words), hidden) if hidden else (error, 0)


def _kept_valid(call: Call, result: ToolResult) -> ToolResult:
    """Return the result, or an error where its structured content is what was promised only with hidden characters."""
    schema = call.tool.output_schema if call.tool is not None else None
    if schema is None or result.error is not None or not compile_schema(schema).check(result.structured_content):
        return result
    message = f"{call.name} ran, and its structured content keeps its schema only with characters that nobody sees"
    return replace(result, structured_content=None, error=ToolError(code="tool_error", message=message))
