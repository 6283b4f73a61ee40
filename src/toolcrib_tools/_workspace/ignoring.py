"""What `.gitignore` and `.ignore` files leave out, as git and ripgrep read them.

Of the lines that match a path the last one counts, and a file in a folder counts before those above it, `.ignore`
before `.gitignore`. What lies in a folder that is left out is left out, whatever another line says. Only the files
inside the searched root count, so that a search gives the same on every machine: not the user's own, not
`.git/info/exclude`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolcrib.plugin import ToolFailure

from .globs import glob_regex
from .linear import compiled

__all__ = ["IGNORE_FILES", "NEVER", "Ignoring"]

IGNORE_FILES: Final = (".ignore", ".gitignore")
"""Names of the files that say what is left out, the stronger first."""
NEVER: Final = frozenset({".git", ".hg", ".jj", ".svn", ".toolcrib"})
"""Folders that are never searched: what version control and we ourselves keep beside the files."""
_MOST: Final = 10_000
"""Lines of one file that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One line: what it matches, of folders only or of anything; whether it takes back what another one left out."""

    regex: Any
    folders: bool
    takes_back: bool


_Rules = Sequence[_Rule]


def _parse(text: str) -> _Rules:
    """Return the lines that mean something; a line that cannot be read is left alone, as git does."""
    rules = (_rule(line) for line in text.splitlines()[:_MOST])
    return tuple(rule for rule in rules if rule is not None)


@dataclass(slots=True, kw_only=True)
class Ignoring:
    """The rules of one root, gathered folder by folder; a folder's are put before what is in it is asked about."""

    _rules: dict[str, _Rules] = field(default_factory=dict[str, _Rules])
    """Rules by folder (`""` is the root), those of the stronger file last."""

    def put(self, folder: str, files: Mapping[str, str]) -> None:
        """Take the text of the ignore files of a folder, by name."""
        rules = [rule for name in reversed(IGNORE_FILES) if name in files for rule in _parse(files[name])]
        if rules:
            self._rules[folder] = rules

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        """Whether a line leaves out just this path, relative to the root; the folders that it is in were asked before.

        So what is searched because a caller named it is searched, though a line leaves its folder out.
        """
        name = path.rpartition("/")[2]
        if is_folder and name in NEVER:
            return True
        for folder in _above(path):
            relative = path[len(folder) + 1 :] if folder else path
            for rule in reversed(self._rules.get(folder, ())):
                if (is_folder or not rule.folders) and rule.regex.fullmatch(relative.encode()):
                    return not rule.takes_back
        return False


def _above(path: str) -> Iterator[str]:
    """Yield the folders that a path is in, the nearest first, the root last."""
    parent = path
    while parent:
        parent = parent.rpartition("/")[0]
        yield parent


def _rule(line: str) -> _Rule | None:
    pattern = _without_spaces(line)
    if not pattern or pattern.startswith("#"):
        return None
    takes_back = pattern.startswith("!")
    pattern = pattern[1:] if takes_back else pattern
    folders = pattern.endswith("/")
    pattern = pattern.rstrip("/") if folders else pattern
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    try:
        regex = glob_regex(pattern, braces=False)
        ready = compiled((f"(?s){regex}" if anchored else f"(?s)(?:.*/)?{regex}").encode())
    except ToolFailure:
        return None
    return _Rule(regex=ready, folders=folders, takes_back=takes_back)


def _without_spaces(line: str) -> str:
    """Return the line without spaces at its end, unless a backslash keeps them."""
    stripped = line.rstrip(" \t\r")
    kept = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + line[len(stripped) : len(stripped) + 1] if kept % 2 else stripped
