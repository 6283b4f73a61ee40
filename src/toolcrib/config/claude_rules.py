"""Permission rules of Claude Code's settings files, and their addition to our own file.

Of a settings file `permissions.deny`, `.ask` and `.allow` are read. A rule that means the same here is taken as it is
written; one that cannot be read is reported, and so is one for an unknown tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from ..core.document_tree import Node
from ..core.permission import Effect
from ..core.yaml_document import parse_yaml
from ..errors import ConfigError
from ..policy.claude_names import WORDS
from ..policy.rules import parse_rule
from ..policy.settings import EFFECTS
from . import files
from .clients import Places
from .edit_check import checked
from .edit_yaml import insert_yaml

__all__ = ["FoundRule", "add_rules", "claude_files", "read_claude_rules"]

_FOREIGN: Final = frozenset(
    {"Agent", "ExitPlanMode", "KillShell", "Skill", "SlashCommand", "Task", "TodoWrite", "WebSearch"}
)
"""Tools of Claude Code's own that no word of ours stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRule:
    """One rule of a settings file."""

    effect: Effect
    text: str
    file: str
    taken: bool
    note: str = ""
    """Why it is not taken, or what is to be known of it."""


def claude_files(places: Places) -> list[Path]:
    """Return where Claude Code keeps permissions: the user's file, the project's and its local one."""
    folder = Path(places.environ.get("CLAUDE_CONFIG_DIR") or places.home / ".claude")
    project = places.project / ".claude"
    return [folder / "settings.json", project / "settings.json", project / "settings.local.json"]


def read_claude_rules(path: Path, home: str, *, wary: bool = False) -> list[FoundRule]:
    """Return the rules of one settings file, in the order deny, ask, allow. Raises `ConfigError` for a broken file.

    `wary` takes none of its allow rules: it came with an unconfirmed project.
    """
    root = files.parse(files.read(path, limit=files.FOREIGN_MAX_BYTES), str(path))
    permissions = root.find(("permissions",))
    found: list[FoundRule] = []
    for effect in EFFECTS:
        listed = permissions.member(effect) if permissions is not None and permissions.kind == "mapping" else None
        items = listed.node.items if listed is not None else ()
        found += [_rule(effect, item.plain(), f"{path}:{item.line}", home) for item in items]
    if wary:
        note = "it came with the project: --trust takes what it allows"
        found = [replace(rule, taken=False, note=note) if rule.effect == "allow" else rule for rule in found]
    return found


def add_rules(path: Path, rules: Iterable[FoundRule], *, write: bool = True) -> str:
    """Put rules that were taken into our file, which is made when it is missing; return what it says then.

    Rules that it has already stay as they are, comments too. Raises `ConfigError` when it cannot be changed as text.
    """
    text = files.decode(files.read(path), str(path)) if path.is_file() else ""
    for effect in EFFECTS:
        fresh = list(dict.fromkeys(rule.text for rule in rules if rule.taken and rule.effect == effect))
        text = _added(text, effect, fresh, str(path))
    if write:
        files.write(path, text.encode())
    return text


def _rule(effect: Effect, text: Any, file: str, home: str) -> FoundRule:
    if not isinstance(text, str):
        return FoundRule(effect=effect, text=str(text), file=file, taken=False, note="a rule is a text")
    try:
        parse_rule(effect, text, home=home)
    except ConfigError as error:
        return FoundRule(effect=effect, text=text, file=file, taken=False, note=str(error).rpartition(": ")[2])
    word = text.partition("(")[0].strip()
    note = ""
    if word in _FOREIGN:
        note = f"kept; nothing here is {word}, so that it says nothing"
    elif word[:1].isupper() and word not in WORDS:
        note = f"kept; it means a tool named {word}, if there is one"
    return FoundRule(effect=effect, text=text, file=file, taken=True, note=note)


def _added(text: str, effect: Effect, fresh: Sequence[str], file: str) -> str:
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
    return checked(text, changed, ("rules", effect), file, lambda said: parse_yaml(said, file).plain())


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
