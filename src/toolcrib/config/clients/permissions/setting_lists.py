"""Cursor and Gemini CLI: permissions that are lists, of tools and of servers: read, rewritten and put back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from ....core.documents.tree import Node
from ....core.json import as_mapping
from ....core.patterns import regex
from ...directories import Places
from ...edits import check_json_edit, insert_items, remove_item
from ...files import parse_json
from ..connections import NAME, ClientConnection
from .permission import ALL, Names, Permission, data_of, declared_name, settings_of, texts

_CURSOR_LIST: Final = "mcpAllowlist"
_CURSOR_TOKEN: Final = regex(r"Mcp\(\s*([^:,()]+?)\s*(?:[:,]\s*([^()]*?)\s*)?\)")
"""`Mcp(server:tool)` of Cursor's command line."""


def cursor_permissions(places: Places, servers: Sequence[str], *, project: bool) -> list[Permission]:
    """Return the permissions of Cursor (`permissions.json`) and of its command line.

    Without `project` what one project allows is left out.
    """
    found: list[Permission] = []
    files_of = [places.home / ".cursor" / "permissions.json"]
    files_of += [places.project / ".cursor" / "permissions.json"] if project else []
    for file in files_of:
        for pattern in texts(settings_of(file).get(_CURSOR_LIST)):
            server, colon, tool = pattern.partition(":")
            found += [Permission("allow", name, tool) for name in servers if colon and server in (name, ALL)]
    of_command_line = [
        (places.home / ".cursor" / "cli-config.json", True),
        (places.project / ".cursor" / "cli.json", project),
    ]
    for file, holds in of_command_line:
        permissions = as_mapping(settings_of(file).get("permissions"))
        for effect in ("allow", "deny") if holds else ("deny",):
            tokens = filter(None, map(_CURSOR_TOKEN.fullmatch, texts(permissions.get(effect))))
            found += [
                Permission(effect, name, token[2] or ALL)
                for token in tokens
                for name in servers
                if token[1] in (name, ALL)
            ]
    return found


def rename_cursor_list(
    text: str, names: Names, *, listed: Mapping[str, Sequence[str]], allow: Sequence[str], file: str
) -> str:
    """Return `permissions.json` of Cursor with the tools of moved servers under their new names.

    A file without a list stays so: the list would take the place of the one in Cursor's settings.
    """
    node = parse_json(text, file).find((_CURSOR_LIST,)) if text.strip() else None
    if node is None or node.kind != "sequence" or not node.items:
        return text
    after = text
    values = [item.plain() for item in node.items]
    for item, value in reversed([*zip(node.items, values, strict=True)]):
        new = [one for one in _cursor_names(value, names, listed) if one not in values]
        if new:
            after = after[: item.start] + ", ".join(map(json.dumps, new)) + after[item.end :]
    verbs = [f"{NAME}:{verb}" for verb in allow if f"{NAME}:{verb}" not in values]
    after = insert_items(after, node, reversed(verbs))
    return check_json_edit(text, after, (_CURSOR_LIST,), file)


def _cursor_names(value: Any, names: Names, listed: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the new entries for one of Cursor's list; none for one that is about no moved server alone."""
    server, colon, tool = value.partition(":") if isinstance(value, str) else ("", "", "")
    ours = names.get(server)
    if ours is None or not colon:
        return []
    tools = listed.get(ours) or [ALL] if tool == ALL else [tool]
    return [f"{NAME}:{declared_name(ours, one)}" for one in tools]


def original_cursor_list(text: str, done: ClientConnection, file: str) -> str:
    """Return `permissions.json` with the entries of moved servers that it had, and without ours."""

    def list_of(content: str) -> Node | None:
        node = parse_json(content, file).find((_CURSOR_LIST,))
        return node if node is not None and node.kind == "sequence" else None

    after = text
    while (node := list_of(after)) is not None:
        ours = next((item for item in node.items if str(item.plain()).startswith(f"{NAME}:")), None)
        if ours is None:
            before = texts(data_of(done.content, Path(file)).get(_CURSOR_LIST))
            after = insert_items(after, node, [one for one in before if one.partition(":")[0] in done.names.values()])
            break
        after = remove_item(after, node, ours)
    return check_json_edit(text, after, (_CURSOR_LIST,), file)


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
    return check_json_edit(text, insert_items(text, listed, [NAME]), ("mcp",), file)


def original_gemini_list(text: str, done: ClientConnection, file: str) -> str:
    """Return the settings of Gemini CLI without us in its list of allowed servers, unless it was there before."""
    listed = parse_json(text, file).find(("mcp", "allowed"))
    had = texts(as_mapping(data_of(done.content, Path(file)).get("mcp")).get("allowed"))
    ours = [item for item in listed.items if item.plain() == NAME] if listed is not None else []
    if listed is None or not ours or NAME in had:
        return text
    after = remove_item(text, listed, ours[0])
    return check_json_edit(text, after, ("mcp",), file)
