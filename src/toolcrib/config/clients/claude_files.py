"""Claude Code's settings files: our hook in them, and the permission rules that they hold.

The files are edited as text: foreign hooks, comments and layout stay as they are. Of the permissions `deny`, `ask` and
`allow` are read; a rule that means the same here is taken as it is written, every other one is reported.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from ...core.documents.tree import Node
from ...core.documents.yaml import parse_yaml
from ...core.json import as_mapping
from ...core.permission import EFFECTS, Effect
from ...errors import ConfigError
from .. import files
from ..directories import Places
from ..edits import check_edit, check_json_edit, insert_items, insert_json, insert_yaml, remove_item, remove_json
from ..files import parse_json
from .connections import ClientConnection, Outcome, forget, restore, rewrite
from .table import missing_program

_FOREIGN: Final = frozenset(
    {"Agent", "ExitPlanMode", "KillShell", "Skill", "SlashCommand", "Task", "TodoWrite", "WebSearch"}
)
"""Tools of Claude Code's own that no word of ours stands for."""

HOOK_SECONDS: Final = 600
"""Timeout that Claude Code gives our hook, in seconds; the hook answers earlier."""
_EVENT: Final = "PreToolUse"
_CLIENT: Final = "claude-code"
_WORDS: Final = ("hook", "claude")
"""Arguments in the command of our hook."""


class FoundRule(Struct, frozen=True, kw_only=True):
    """One rule of a settings file."""

    effect: Effect
    text: str
    file: str
    taken: bool
    note: str = ""
    """Reason why it is not taken, or a remark on it."""


def claude_files(places: Places) -> list[Path]:
    """Return the permission files of Claude Code: the user's, the project's and its local one."""
    folder = Path(places.environ.get("CLAUDE_CONFIG_DIR") or places.home / ".claude")
    project = places.project / ".claude"
    return [folder / "settings.json", project / "settings.json", project / "settings.local.json"]


def read_claude_rules(path: Path, home: str, *, unconfirmed: bool) -> list[FoundRule]:
    """Return the rules of one settings file, in the order deny, ask, allow. Raises `ConfigError` for a broken file.

    An `unconfirmed` project's file gives none of its allow rules.
    """
    root = files.parse(files.read(path, limit=files.FOREIGN_MAX_BYTES), str(path))
    permissions = root.find(("permissions",))
    found: list[FoundRule] = []
    for effect in EFFECTS:
        listed = permissions.member(effect) if permissions is not None and permissions.kind == "mapping" else None
        items = listed.node.items if listed is not None else ()
        found += [_read_rule(effect, item.plain(), f"{path}:{item.line}", home) for item in items]
    if unconfirmed:
        note = "it came with the project: --trust takes what it allows"
        found = [replace(rule, taken=False, note=note) if rule.effect == "allow" else rule for rule in found]
    return found


def add_rules(path: Path, rules: Iterable[FoundRule], *, write: bool) -> None:
    """Add the accepted rules to our file, which is made when it is missing; without `write` only try it.

    Rules that it has already stay as they are, comments too. Raises `ConfigError` when it cannot be changed as text.
    """
    text = files.decode(files.read(path), str(path)) if path.is_file() else ""
    for effect in EFFECTS:
        fresh = list(dict.fromkeys(rule.text for rule in rules if rule.taken and rule.effect == effect))
        text = _with_rules(text, effect, fresh, str(path))
    if write:
        files.write(path, text.encode())


def _read_rule(effect: Effect, text: Any, file: str, home: str) -> FoundRule:
    # `disconnect` comes by here without rules, and a person waits for it.
    from ...policy.claude_names import TOOL_WORDS
    from ...policy.rules import parse_rule

    if not isinstance(text, str):
        return FoundRule(effect=effect, text=str(text), file=file, taken=False, note="a rule is a text")
    try:
        parse_rule(effect, text, home=home)
    except ConfigError as error:
        return FoundRule(effect=effect, text=text, file=file, taken=False, note=str(error).rpartition(": ")[2])
    word = text.partition("(")[0].strip()
    note = ""
    if word in _FOREIGN:
        note = f"kept; nothing here is {word}, so that it has no effect"
    elif word[:1].isupper() and word not in TOOL_WORDS:
        note = f"kept; it means a tool named {word}, if there is one"
    return FoundRule(effect=effect, text=text, file=file, taken=True, note=note)


def _with_rules(text: str, effect: Effect, fresh: Sequence[str], file: str) -> str:
    listed = parse_yaml(text, file).find(("rules", effect))
    if listed is None or (listed.kind == "scalar" and listed.value is None):
        return insert_yaml(text, ("rules",), effect, list(fresh), file) if fresh and listed is None else text
    known = cast("list[Any]", listed.plain()) if listed.kind == "sequence" else []
    missing = [rule for rule in fresh if rule not in known]
    if not missing:
        return text
    if listed.kind != "sequence":
        raise ConfigError("a list of rules was expected", file=f"{file}:{listed.line}", key=f"rules.{effect}")
    changed = _appended(text, listed, missing)
    return check_edit(text, changed, ("rules", effect), file, lambda edited: parse_yaml(edited, file).plain())


def _appended(text: str, listed: Node, missing: Sequence[str]) -> str:
    """Return `text` with further items: inside the brackets, or below the last one at its indentation."""
    if listed.flow:
        before = ", " if listed.items else ""
        place = text.rindex("]", 0, listed.end)
        return text[:place] + before + ", ".join(map(_quoted, missing)) + text[place:]
    last = listed.items[-1]
    start = text.rfind("\n", 0, last.start) + 1
    indent = text[start : text.index("-", start)]
    end = text.find("\n", last.end)
    place = len(text) if end < 0 else end + 1
    ended = "" if text[:place].endswith("\n") else "\n"
    return text[:place] + ended + "".join(f"{indent}- {_quoted(rule)}\n" for rule in missing) + text[place:]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def hook_file(places: Places, *, project: bool) -> Path:
    """Return the settings file of the user, or of this project."""
    return claude_files(places)[1 if project else 0]


def connect_hook(file: Path, program: str, options: Sequence[str], *, state: Path) -> ClientConnection | None:
    """Add our hook to `file`; None when it is there already. `options` are those of `toolcrib hook claude`.

    One that starts a program that does not exist is replaced.

    Raises `ConfigError` when the file cannot be read, or cannot be changed without touching the rest.
    """
    there = hook_words(file)
    if there and not any(map(missing_program, there)):
        return None
    command = shlex.join([program, *_WORDS, *options])
    # Where the hook cannot even start, Claude Code would go on without it: `onFailure` makes that a deny (2.1.329).
    hook = {"type": "command", "command": command, "timeout": HOOK_SECONDS, "onFailure": "block"}
    entry = {"matcher": "*", "hooks": [hook]}
    return rewrite(
        _CLIENT, file, lambda text: _with_hook(_without_hooks(text, str(file)), entry, str(file)), state=state
    )


def disconnect_hook(file: Path, *, state: Path) -> Outcome:
    """Undo `connect_hook`: put the file back, or delete the one that it made.

    Of a file that changed since, only our hook is taken out. Raises `ConfigError` when it is not in the file.
    """
    outcome = restore(file, state=state)
    if outcome is not None:
        return outcome
    if not has_hook(file):
        forget(state, file)
        raise ConfigError("Toolcrib's hook is not in this file", file=str(file))
    current = files.read(file, limit=files.FOREIGN_MAX_BYTES)
    files.write(file, _without_hooks(files.decode(current, str(file)), str(file)).encode())
    forget(state, file)
    return "removed"


def has_hook(file: Path) -> bool:
    """Whether our hook is in the settings `file`. Raises `ConfigError` for a file that cannot be read."""
    return bool(hook_words(file))


def hook_words(file: Path) -> list[list[str]]:
    """Return the command lines of our hook in the settings `file`. Raises `ConfigError` for one that cannot be read."""
    text = files.decode(files.read(file, limit=files.FOREIGN_MAX_BYTES), str(file)) if file.is_file() else ""
    if not text.strip():
        return []
    ours = [entry.plain()["hooks"] for entry in _ours(parse_json(text, str(file)))]
    return [shlex.split(hook["command"]) for hooks in ours for hook in hooks]


def _ours(root: Node) -> Iterator[Node]:
    """Yield the entries of the event whose hooks are ours, all of them."""
    listed = root.find(("hooks", _EVENT))
    for entry in listed.items if listed is not None else ():
        hooks: Any = as_mapping(entry.plain()).get("hooks")
        if isinstance(hooks, list) and hooks and all(map(_is_ours, cast("list[Any]", hooks))):
            yield entry


def _is_ours(hook: Any) -> bool:
    command = as_mapping(hook).get("command")
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    return len(words) > 2 and tuple(words[1:3]) == _WORDS and Path(words[0]).stem == "toolcrib"


def _with_hook(text: str, entry: dict[str, Any], file: str) -> str:
    listed = parse_json(text, file).find(("hooks", _EVENT)) if text.strip() else None
    if listed is None:
        return insert_json(text, ("hooks",), _EVENT, [entry], file)
    if listed.kind != "sequence":
        raise ConfigError("a list of hooks was expected", file=f"{file}:{listed.line}", key=f"hooks.{_EVENT}")
    return _checked_hooks(text, insert_items(text, listed, [entry]), file)


def _without_hooks(text: str, file: str) -> str:
    """Return `text` without our entries, the list with them where it held nothing else."""
    if not text.strip():
        return text
    root = parse_json(text, file)
    listed, ours = root.find(("hooks", _EVENT)), list(_ours(root))
    if listed is None or not ours:
        return text
    if len(ours) == len(listed.items):
        return remove_json(text, ("hooks",), _EVENT, file)
    before = text
    for entry in reversed(ours):
        text = remove_item(text, listed, entry)
    return _checked_hooks(before, text, file)


def _checked_hooks(before: str, after: str, file: str) -> str:
    return check_json_edit(before, after, ("hooks", _EVENT), file)
