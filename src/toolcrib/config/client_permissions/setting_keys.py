"""Permissions beside the servers of a client whose keys name tools: renamed for moved servers, and put back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ...core.json import as_mapping
from ..connections import ClientConnection
from ..edits import check_json_edit
from ..files import parse_json
from .opencode import opencode_key
from .permission import Names, data_of
from .zed import ZED_TOOLS, zed_key

__all__ = ["original_keys", "rename_keys"]

_SECTIONS: Final[Mapping[str, tuple[tuple[tuple[str, ...], ...], Callable[[str, Names], str]]]] = {
    "opencode": ((("permission",), ("tools",)), opencode_key),
    "zed": ((ZED_TOOLS,), zed_key),
}
"""By client: paths of its sections, and the function that returns a key's new name (empty: it stays)."""


def rename_keys(client: str, text: str, names: Names, file: str = "") -> str:
    """Return the configuration of a client with its permissions of moved servers under their new names."""
    if client not in _SECTIONS or not names:
        return text
    sections, renamed = _SECTIONS[client]
    for section in sections:
        text = _with_keys(text, section, lambda key: renamed(key, names), file)
    return text


def original_keys(client: str, text: str, done: ClientConnection, file: str) -> str:
    """Return the configuration of a client with the keys of moved servers that it had, and without ours."""
    if client not in _SECTIONS:
        return text
    sections, renamed = _SECTIONS[client]
    names = {server: ours for ours, server in done.names.items()}
    for section in sections:
        before = data_of(done.content, Path(file))
        for step in section:
            before = as_mapping(before.get(step))
        old_by_new = {renamed(key, names): key for key in before}
        text = _with_keys(text, section, lambda key, old=old_by_new: old.get(key, ""), file)
    return text


def _with_keys(text: str, section: tuple[str, ...], rename: Callable[[str], str], file: str) -> str:
    """Return `text` with other keys in a section, where `rename` returns one."""
    node = parse_json(text, file).find(section) if text.strip() else None
    after, read = text, json.JSONDecoder().raw_decode
    for member in sorted(node.members if node is not None else (), key=lambda one: -one.start):
        if key := rename(member.key):
            _, end = read(text, member.start)
            after = after[: member.start] + json.dumps(key, ensure_ascii=False) + after[end:]
    return check_json_edit(text, after, section, file)
