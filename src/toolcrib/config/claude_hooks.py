"""Editor of our hook in Claude Code's settings: added to the existing hooks, and removed again without a trace.

The file is edited as text, as `rewriting` does it for servers: foreign hooks, comments and layout stay as they are.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

from ..core.document_tree import Node
from ..errors import ConfigError
from . import files
from .claude_rules import claude_files
from .clients import Places
from .edit_check import checked
from .edit_json import insert_json, remove_json
from .jsonc import parse_json
from .rewriting import Connection, connection_of, forget, restore, rewrite

__all__ = [
    "HOOK_SECONDS",
    "connect_hook",
    "disconnect_hook",
    "has_hook",
    "hook_file",
    "is_connected",
    "list_item_text",
    "without_item",
]

HOOK_SECONDS: Final = 600
"""What Claude Code gives our hook; it answers by itself before that."""
_EVENT: Final = "PreToolUse"
_CLIENT: Final = "claude-code"
_WORDS: Final = ("hook", "claude")
"""What follows the program in the command of our hook."""


def hook_file(places: Places, *, project: bool) -> Path:
    """Return the settings file of the user, or of this project."""
    return claude_files(places)[1 if project else 0]


def connect_hook(file: Path, program: str, options: Sequence[str], *, state: Path) -> Connection | None:
    """Add our hook to `file`; None when it is there already. `options` are those of `toolcrib hook claude`.

    Raises `ConfigError` when the file cannot be read, or cannot be changed without touching the rest.
    """
    if has_hook(file):
        return None
    command = shlex.join([program, *_WORDS, *options])
    # Where the hook cannot even start, Claude Code would go on without it: `onFailure` makes that a deny (2.1.329).
    hook = {"type": "command", "command": command, "timeout": HOOK_SECONDS, "onFailure": "block"}
    entry = {"matcher": "*", "hooks": [hook]}
    return rewrite(_CLIENT, file, lambda text: _added(text, entry, str(file)), state=state)


def disconnect_hook(
    file: Path, *, state: Path, keep_changes: bool = False
) -> Literal["restored", "deleted", "removed"]:
    """Undo `connect_hook`: put the file back, or delete the one that it made.

    A file that changed since raises `ChangedSince`, unless `keep_changes`: then only our hook is taken out. Raises
    `ConfigError` when it is not in the file.
    """
    outcome = restore(_CLIENT, file, state=state, keep_changes=keep_changes)
    if outcome is not None:
        return outcome
    if not has_hook(file):
        forget(state, file)
        raise ConfigError("Toolcrib's hook is not in this file", file=str(file))
    current = files.read(file, limit=files.FOREIGN_MAX_BYTES)
    files.write(file, _removed(files.decode(current, str(file)), str(file)).encode())
    forget(state, file)
    return "removed"


def has_hook(file: Path) -> bool:
    """Whether our hook is in the settings `file`. Raises `ConfigError` for a file that cannot be read."""
    if not file.is_file():
        return False
    text = files.decode(files.read(file, limit=files.FOREIGN_MAX_BYTES), str(file))
    return bool(text.strip()) and next(_ours(parse_json(text, str(file))), None) is not None


def is_connected(file: Path, state: Path) -> bool:
    """Whether `connect_hook` has changed `file`, or our hook is in it."""
    return connection_of(state, file) is not None or has_hook(file)


def _ours(root: Node) -> Iterator[Node]:
    """Yield the entries of the event whose hooks are ours, all of them."""
    listed = root.find(("hooks", _EVENT))
    for entry in listed.items if listed is not None else ():
        value: Any = entry.plain()
        hooks: Any = cast("dict[str, Any]", value).get("hooks") if isinstance(value, dict) else None
        if isinstance(hooks, list) and hooks and all(map(_is_ours, cast("list[Any]", hooks))):
            yield entry


def _is_ours(hook: Any) -> bool:
    command = cast("dict[str, Any]", hook).get("command") if isinstance(hook, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    return len(words) > 2 and tuple(words[1:3]) == _WORDS and Path(words[0]).stem == "toolcrib"


def _added(text: str, entry: dict[str, Any], file: str) -> str:
    listed = parse_json(text, file).find(("hooks", _EVENT)) if text.strip() else None
    if listed is None:
        return insert_json(text, ("hooks",), _EVENT, [entry], file)
    if listed.kind != "sequence":
        raise ConfigError("a list of hooks was expected", file=f"{file}:{listed.line}", key=f"hooks.{_EVENT}")
    place = listed.start + 1
    after = text[:place] + list_item_text(text, listed, entry) + text[place:]
    return _checked(text, after, file)


def list_item_text(text: str, listed: Node, entry: Any) -> str:
    """Return `entry` as the first of a list: on lines of its own where the list has lines."""
    if not listed.items:
        return json.dumps(entry, ensure_ascii=False)
    first = listed.items[0]
    gap = text[listed.start + 1 : first.start]
    if "\n" not in gap or gap.strip():
        return f"{json.dumps(entry, ensure_ascii=False)}, "
    margin = gap[gap.rindex("\n") + 1 :]
    newline = "\r\n" if "\r\n" in gap else "\n"
    unit = "\t" if margin.startswith("\t") else "  "
    shown = json.dumps(entry, ensure_ascii=False, indent=unit).replace("\n", newline + margin)
    return f"{newline}{margin}{shown},"


def _removed(text: str, file: str) -> str:
    """Return `text` without our entries, the list with them where it held nothing else."""
    root = parse_json(text, file)
    listed, ours = root.find(("hooks", _EVENT)), list(_ours(root))
    if listed is None or not ours:
        return text
    if len(ours) == len(listed.items):
        return remove_json(text, ("hooks",), _EVENT, file)
    before = text
    for entry in reversed(ours):
        text = without_item(text, listed, entry)
    return _checked(before, text, file)


def without_item(text: str, listed: Node, entry: Node) -> str:
    """Return `text` without one item of a list, and without the comma that belongs to it."""
    if len(listed.items) == 1:
        return text[: entry.start] + text[entry.end :]
    place = next(number for number, item in enumerate(listed.items) if item.start == entry.start)
    if place + 1 < len(listed.items):
        return text[: entry.start] + text[listed.items[place + 1].start :]
    return text[: listed.items[place - 1].end] + text[entry.end :]


def _checked(before: str, after: str, file: str) -> str:
    return checked(before, after, ("hooks", _EVENT), file, lambda text: parse_json(text).plain())
