"""One permission of a client, and the words of settings that its clients share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from ....catalog.names import declared, portable, qualify
from ....core.json import as_list, as_mapping
from ....core.permission import Effect
from ... import files

Names = Mapping[str, str]
"""Our name of each server that was moved, by the client's."""
ALL: Final = "*"
EFFECTS: Final[tuple[Effect, ...]] = ("allow", "ask", "deny")
META_TOOLS: Final = ("call_tool", "describe_tools", "read_artifact", "search_tools")
"""Our meta-tools that a client need not ask about: what `call_tool` calls is asked about here, the others only show."""
READS: Final = "call_tool_readonly"
"""Our meta-tool about which the client's own prompt is the question."""


class Permission(Struct, frozen=True):
    """Permission of a client's settings for one tool, or for all tools of a server (`*`)."""

    effect: Effect
    server: str
    """As the client names it."""
    tool: str


def settings_of(file: Path) -> Mapping[str, Any]:
    """Return the content of a settings file, nothing for one that is not there. Raises `ConfigError`."""
    return data_of(files.read(file, limit=files.FOREIGN_MAX_BYTES), file) if file.is_file() else {}


def data_of(content: bytes, file: Path) -> Mapping[str, Any]:
    """Return the mapping that a settings file holds, in JSON with comments, YAML or TOML. Raises `ConfigError`."""
    return as_mapping(files.parse(content, str(file)).plain() if content.strip() else {})


def texts(value: Any) -> list[str]:
    """Return the texts of a list; empty for another value."""
    return [item for item in as_list(value) if isinstance(item, str)]


def longest_first(servers: Iterable[str]) -> list[str]:
    """Return names of servers so that one that another begins with comes later."""
    return sorted(servers, key=lambda name: -len(name))


def declared_name(ours: str, tool: str) -> str:
    """Return the name under which we declare a tool; a pattern stays one, and so do brackets."""
    return (
        f"{portable(ours)}__{tool}"
        if any(sign in tool for sign in "*?(")
        else declared(qualify(ours, tool), ours, tool)
    )


def claude_name(name: str) -> str:
    """Return the name of a server as Claude Code and OpenCode write it before the name of a tool."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def pattern_rests(pattern: str, prefix: str) -> list[str]:
    """Return the patterns of what may follow `prefix` in a name that fits `pattern`."""
    pattern, places = re.sub(r"\*+", ALL, pattern), {0}
    for character in prefix:
        places |= {place + 1 for place in places if pattern[place : place + 1] == ALL}
        stars = {place for place in places if pattern[place : place + 1] == ALL}
        places = stars | {place + 1 for place in places - stars if pattern[place : place + 1] in (character, "?")}
    return sorted((pattern[place:] for place in places), key=len)
