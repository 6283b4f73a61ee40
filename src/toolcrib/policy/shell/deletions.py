"""Commands that delete files without `rm`: a deny of every `rm` asks about them.

The table has what is made for it: overwriting, truncating and moving a file are other effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...core.patterns import regex
from .script import ShellCommand

_DELETING_FUNCTION: Final = regex(
    r"\b(?:unlink(?:Sync|_\w+)?|rmtree|rm(?:dir)?Sync|removedirs|rm_rf?|remove_(?:dir_all|entry|file|tree)|remove_tree)\b"
    r"|\bos\.(?:execute|remove|rmdir)\b|\bFile(?:Utils)?\.(?:delete|rm\w*)|\bfs(?:\.promises)?\.rm\b"
)
"""Functions of interpreters that delete."""
_INTERPRETERS: Final = regex(r"(?:python|pypy|perl|ruby|node|lua|php|tclsh)[\d.]*|deno|bun")
_GIT_OPTIONS_WITH_VALUE: Final = frozenset("-C -c --git-dir --work-tree --namespace --exec-path".split())
"""Options of git that take the next word."""
_DRY_RUN_OPTIONS: Final = frozenset({"-n", "--dry-run", "--cached"})


def deletes(command: ShellCommand) -> bool:
    """Whether the command, without what it starts, deletes files.

    Options of the sub-commands that only show (`git clean -n`) delete nothing.
    """
    words = [word.text for word in command.words[1:]]
    name = command.name
    if _INTERPRETERS.fullmatch(name):
        return any(_DELETING_FUNCTION.search(text) for text in (*words, command.stdin))
    check = _CHECKS.get(name)
    return check is not None and check(words)


def _has_option(*options: str) -> Callable[[Sequence[str]], bool]:
    return lambda words: any(word.startswith(options) for word in words)


def _always(words: Sequence[str]) -> bool:
    return any(word not in ("--help", "--version") for word in words)


def _git(words: Sequence[str]) -> bool:
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] in _GIT_OPTIONS_WITH_VALUE else 1
    if words[place : place + 1] not in (["clean"], ["rm"]):
        return False
    flags = words[place + 1 :]
    short = "".join(word[1:] for word in flags if word.startswith("-") and not word.startswith("--"))
    return _DRY_RUN_OPTIONS.isdisjoint(flags) and "n" not in short


def _shred(words: Sequence[str]) -> bool:
    return any(
        word.startswith("--rem") or (word.startswith("-") and word[1:2] != "-" and "u" in word) for word in words
    )


def _cmake(words: Sequence[str]) -> bool:
    return words[:1] == ["-E"] and words[1:2] in (["rm"], ["remove"], ["remove_directory"])


def _zip(words: Sequence[str]) -> bool:
    return any(word == "--move" or (word.startswith("-") and word[1:2] != "-" and "m" in word) for word in words)


_CHECKS: Final[Mapping[str, Callable[[Sequence[str]], bool]]] = {
    "7z": _has_option("-sdel"),
    "bfs": _has_option("-delete"),
    "cmake": _cmake,
    "find": _has_option("-delete"),
    "gfind": _has_option("-delete"),
    "gio": lambda words: words[:1] == ["remove"],
    "git": _git,
    "rclone": lambda words: words[:1] in (["delete"], ["deletefile"], ["purge"]),
    "rimraf": _always,
    "rsync": _has_option("--del", "--remove-s"),
    "shred": _shred,
    "srm": _always,
    "tar": _has_option("--remove-f"),
    "unlink": _always,
    "zip": _zip,
}
"""Program → whether its words delete."""
