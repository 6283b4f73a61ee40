"""Gemini CLI: the lists of servers `allowed` and `excluded` under `mcp`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ...core.json import as_mapping
from ..claude_files import list_item_text, without_item
from ..connections import NAME, ClientConnection
from ..edits import check_json_edit
from ..files import parse_json
from .permission import ALL, Permission, data_of, texts

__all__ = ["allow_in_gemini", "gemini_permissions", "original_gemini_list"]


def gemini_permissions(lists: Mapping[str, Any], servers: Sequence[str]) -> list[Permission]:
    """Return a deny of each server that Gemini CLI does not start."""
    allowed, excluded = lists.get("allowed"), lists.get("excluded")
    off = set(cast("list[str]", excluded) if isinstance(excluded, list) else ())
    off |= set(servers) - set(cast("list[str]", allowed)) if isinstance(allowed, list) else set()
    return [Permission("deny", server, ALL) for server in servers if server in off]


def allow_in_gemini(text: str, file: str = "") -> str:
    """Return the settings of Gemini CLI with us in its list of allowed servers, where it has one."""
    listed = parse_json(text, file).find(("mcp", "allowed")) if text.strip() else None
    if listed is None or listed.kind != "sequence" or NAME in [item.plain() for item in listed.items]:
        return text
    place = listed.start + 1
    after = text[:place] + list_item_text(text, listed, NAME) + text[place:]
    return check_json_edit(text, after, ("mcp",), file)


def original_gemini_list(text: str, done: ClientConnection, file: str) -> str:
    """Return the settings of Gemini CLI without us in its list of allowed servers, unless it was there before."""
    listed = parse_json(text, file).find(("mcp", "allowed"))
    had = texts(as_mapping(data_of(done.content, Path(file)).get("mcp")).get("allowed"))
    ours = [item for item in listed.items if item.plain() == NAME] if listed is not None else []
    if listed is None or not ours or NAME in had:
        return text
    after = without_item(text, listed, ours[0])
    return check_json_edit(text, after, ("mcp",), file)
