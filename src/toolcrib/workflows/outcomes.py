"""Outcome of a call that a workflow or a program made: its value, or its failure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..core.json import read_json
from ..core.result import ToolError, ToolResult, Trust

__all__ = ["failure_of", "least_trusted", "value_of", "was_cut_off"]

_CUT_OFF: Final = ("cancelled", "outcome_unknown")
"""Outcomes of a call that was stopped midway."""


def was_cut_off(result: ToolResult) -> bool:
    """Whether this is the outcome of a call that an earlier process left unfinished."""
    return "replayed" in result.meta and result.error is not None and result.error.code in _CUT_OFF


def failure_of(result: ToolResult) -> ToolError | None:
    """Return why there is no value; None if there is one."""
    if was_cut_off(result):
        reason = result.error.message if result.error is not None else ""
        return ToolError(code="outcome_unknown", message=f"it was cut off, and not run again: {reason}")
    if result.input_required is not None:
        return ToolError(code="tool_error", message="the tool asks its client for input, which no other tool can give")
    if result.error is None and "artifact" in result.meta:
        id = result.meta["artifact"]
        return ToolError(code="too_large", message=f"the result is too large to be handed on; artifact {id} has it")
    return result.error


def value_of(result: ToolResult) -> Any:
    """Return the structured content, else the text, parsed if it is a JSON object or array.

    A result without text gives its content blocks: an image can be handed on, or returned to the model.
    """
    if result.structured_content is not None:
        return result.structured_content
    text = result.text
    if not text and any(block.get("type") != "text" for block in result.content):
        return [dict(block) for block in result.content]
    if text.lstrip()[:1] in ("{", "["):
        try:
            return read_json(text, limit=len(text))
        except ValueError:
            return text
    return text


def least_trusted(known: Iterable[Trust]) -> Trust:
    """Return the trust of what was made of results of these trusts."""
    found = {*known}
    return "untrusted" if "untrusted" in found else "reviewed" if "reviewed" in found else "local"
