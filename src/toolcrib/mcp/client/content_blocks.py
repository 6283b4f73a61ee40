"""Content blocks of a server: checked once, before any other part of the program reads their fields.

https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ...core.json import as_mapping
from ...errors import ToolFailure

MOST_BLOCKS: Final = 1_000
"""Blocks of one result. A line of 16 MiB has room for 600,000, whose handling would stop the event loop for seconds."""

_TEXTS: Final = frozenset({"text", "data", "mimeType", "uri", "name", "blob"})
"""Fields of blocks, and of the resources in them, that are texts where they are there; servers also write null."""


def block_error(block: Mapping[str, Any]) -> str:
    """Return why a block cannot be used; empty for one that can."""
    kind = block.get("type")
    if not isinstance(kind, str):
        return "a block without a type"
    if kind == "text" and not isinstance(block.get("text"), str):
        return "a text block without text"
    resource: Any = block.get("resource", {})
    if not isinstance(resource, dict):
        return "a block whose resource is not an object"
    for part in (block, cast("dict[str, Any]", resource)):
        for name, value in part.items():  # few, most of them texts
            if not isinstance(value, str) and value is not None and name in _TEXTS:
                return f"a block of type {kind} whose {name} is not a text"
    return ""


def content_blocks(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the content of a result; more texts than a result may have become one.

    Raises `ToolFailure("tool_error")` for content that is malformed, and `too_large` for more blocks.
    """
    if not isinstance(value, list):
        raise ToolFailure("tool_error", "the server answered with a malformed result: `content` is not a list")
    blocks: list[Mapping[str, Any]] = [as_mapping(block) for block in cast("list[Any]", value)]
    if len(blocks) > MOST_BLOCKS:
        texts = [text for block in blocks if block.get("type") == "text" and isinstance(text := block.get("text"), str)]
        if len(texts) < len(blocks):
            message = f"the server answered with {len(blocks)} blocks; a result has at most {MOST_BLOCKS}"
            raise ToolFailure("too_large", message, hint="The tool ran; ask for less at once.")
        return ({"type": "text", "text": "\n".join(texts)},)
    for block in blocks:
        if wrong := block_error(block):
            raise ToolFailure("tool_error", f"the server answered with a malformed result: {wrong}")
    return tuple(blocks)
