"""Commands that cannot be taken back: they are asked for in every mode, whatever was allowed before.

A shell command is read word by word as far as a shell would, and every command in it is looked at: after `;`, `&&`, `|`
and a newline, inside `$(…)`, `sh -c '…'` and behind `sudo`, `env`, `xargs` and their like. It errs on the side of
asking: a text in quotes that only looks like such a command may be asked for, the reverse must not happen easily.
This is a question, not a fence: who wants to keep a command from running writes a deny rule.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from ..core.tool import Tool
from .rules import names_of

__all__ = ["irrecoverable", "irrecoverable_command"]

_WORDS: Final = frozenset({"shell", "bash", "terminal"})
"""Tags and categories of tools whose arguments are commands."""
_NAMES: Final = frozenset({"Bash"})
"""Names by which rules mean such a tool."""
_COMMAND_ARGUMENTS: Final = frozenset({"args", "argv", "cmd", "command", "commands", "code", "input", "script"})
_MAX_TEXT: Final = 32_000
"""Characters of one command that are read: at most a tenth of a second or two; a longer one counts as irrecoverable."""
_MAX_DEPTH: Final = 4
"""Commands inside commands inside commands."""

_SEPARATORS: Final = re.compile(r"(?:&&|\|\|?|;|&(?!>)|\n|\$\(|\(|\)|`|\{(?=\s)|(?<=\s)\}|<\()")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_CARRIERS: Final = frozenset(
    "builtin busybox command doas do else env exec if ionice nice nohup setsid stdbuf sudo then time timeout until"
    " while xargs !".split()
)
"""Words in front of a command that run it."""
_SHELLS: Final = frozenset({"ash", "bash", "dash", "eval", "ksh", "sh", "zsh"})
_SQL: Final = re.compile(
    r"\b(?:DROP\s+(?:TABLE|DATABASE|SCHEMA|INDEX|VIEW|USER|ROLE)|TRUNCATE\s+TABLE)\b", re.IGNORECASE
)
_TRUNCATE: Final = re.compile(r"\bTRUNCATE\s+[\w\"`\[]", re.IGNORECASE)
_DATABASES: Final = frozenset({"duckdb", "mariadb", "mysql", "psql", "sqlcmd", "sqlite3"})
_SEEKERS: Final = frozenset({"ag", "egrep", "fgrep", "grep", "rg"})
"""Commands that only look for such a text."""
_BROAD: Final = re.compile(r"(?:/|~\w*|\$\{?HOME\}?)[/.*]*")
"""What stands for the whole disk or a home directory."""


def irrecoverable(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return what about this call cannot be taken back, in a few words; empty when nothing is known to be.

    Only tools that run shell commands are looked at: by category or tag `shell`, or known to rules as `Bash`.
    """
    if not _runs_commands(tool):
        return ""
    for text in _commands(arguments):
        if found := irrecoverable_command(text):
            return found
    return ""


def irrecoverable_command(text: str) -> str:
    """Return what in a shell command cannot be taken back; empty when nothing is known to be."""
    if len(text) > _MAX_TEXT:
        return f"a command of {len(text):,} characters"
    return next(_found(text, 0), "")


@lru_cache(maxsize=4096)
def _runs_commands(tool: Tool) -> bool:
    if tool.category.lower() in _WORDS or any(tag.lower() in _WORDS for tag in tool.tags):
        return True
    return not _NAMES.isdisjoint(names_of(tool))


def _commands(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of `arguments` that are commands; a list of words is one command."""
    for name, value in arguments.items():
        if isinstance(value, str) and name.lower() in _COMMAND_ARGUMENTS:
            yield value
        elif isinstance(value, list | tuple) and name.lower() in _COMMAND_ARGUMENTS:
            words = [str(word) for word in cast("Sequence[object]", value)]
            yield shlex.join(words)
            yield from words
    command, rest = arguments.get("command"), arguments.get("args")
    if isinstance(command, str) and isinstance(rest, list | tuple):
        yield f"{command} {shlex.join(str(word) for word in cast('Sequence[object]', rest))}"


def _found(text: str, depth: int) -> Iterator[str]:
    for words in _split(text):
        command = _without_carriers(words)
        if not command:
            continue
        name, rest = command[0].rpartition("/")[2], command[1:]
        check = _CHECKS.get(name)
        if check is not None and (found := check(rest)):
            yield found
        yield from _sql(name, " ".join(command))
        if depth < _MAX_DEPTH:
            for inner in _inner(name, rest):
                yield from _found(inner, depth + 1)


def _sql(name: str, command: str) -> Iterator[str]:
    if name in _SEEKERS:
        return
    if found := _SQL.search(command):
        yield " ".join(found[0].split()).upper()
    elif name in _DATABASES and _TRUNCATE.search(command):
        yield "TRUNCATE"


def _split(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in `text`; the text as it stands where its quotes do not close."""
    joined = text.replace("\\\n", " ")
    try:
        lexer = shlex.shlex(joined, posix=True, punctuation_chars=";&|()\n`")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words = list(lexer)
    except ValueError:
        for part in _SEPARATORS.split(joined):
            yield part.replace('"', " ").replace("'", " ").split()
        return
    command: list[str] = []
    for word in words:
        if word and set(word) <= set(";&|()\n`"):
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _without_carriers(words: list[str]) -> list[str]:
    """Return the command itself, without assignments, `sudo -u x`, `env A=b`, `timeout 5` and the like before it."""
    rest = [word for word in words if word not in ("{", "}", "$")]
    carried, begin = False, 0
    for begin, full in enumerate([*rest, ""]):  # noqa: B007 - where the command begins
        word = full.rpartition("/")[2]
        if word in _CARRIERS:
            carried = True
        elif not (_ASSIGNMENT.fullmatch(full) or (carried and (word.startswith("-") or word[:1].isdigit()))):
            break
    rest = rest[begin:]
    if carried and rest and rest[0].rpartition("/")[2] not in _CHECKS:
        later = next((place for place, word in enumerate(rest) if word.rpartition("/")[2] in _CHECKS), 0)
        return rest[later:]  # `sudo -u root rm`: the value of an option stands before the command
    return rest


def _inner(name: str, rest: Sequence[str]) -> Iterator[str]:
    """Yield the commands that a command runs: `sh -c '…'`, `eval …`, `find … -exec …`, `$(…)` inside quotes."""
    if name in _SHELLS:
        yield from (word for word in rest if not word.startswith("-"))
        if name == "eval":
            yield " ".join(rest)
    if name == "find":
        for place, word in enumerate(rest):
            if word in ("-exec", "-execdir", "-ok", "-okdir"):
                yield shlex.join(rest[place + 1 :])
    if name in ("ssh", "su", "docker", "kubectl", "watch", "parallel"):
        yield from (word for word in rest if " " in word)
    for word in rest:
        if "$(" in word or "`" in word:
            yield word.partition("$(")[2] if "$(" in word else word.partition("`")[2]


def _flags(rest: Sequence[str]) -> set[str]:
    """Return the options: long ones whole without a value, short ones letter by letter."""
    flags: set[str] = set()
    for word in rest:
        if word == "--":
            break
        if word.startswith("--"):
            flags.add(word.partition("=")[0])
        elif word.startswith("-"):
            flags.update(word[1:])
    return flags


def _abbreviates(flags: set[str], word: str, least: int) -> bool:
    """Whether a long option is `word`, or as much of it as GNU and git take for it."""
    return any(flag.startswith("--") and len(flag) >= least and word.startswith(flag) for flag in flags)


def _rm(rest: Sequence[str]) -> str:
    flags = _flags(rest)
    recursive = bool(flags & {"r", "R"}) or _abbreviates(flags, "--recursive", 3)
    forced = "f" in flags or _abbreviates(flags, "--force", 3)
    return "rm -rf" if recursive and forced else "rm -r" if recursive else ""


def _git(rest: Sequence[str]) -> str:
    verb, options = _git_verb(rest)
    check = _GIT.get(verb)
    return check(options) if check is not None else ""


def _git_verb(rest: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return git's sub-command and its own words, behind git's options (`-C path`, `-c key=value` …)."""
    place = 0
    while place < len(rest) and rest[place].startswith("-"):
        takes_value = rest[place] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
        place += 2 if takes_value else 1
    return (rest[place], rest[place + 1 :]) if place < len(rest) else ("", ())


def _git_push(rest: Sequence[str]) -> str:
    flags = _flags(rest)
    if any(flag.startswith("--force-w") and "--force-with-lease".startswith(flag) for flag in flags):
        return "git push --force-with-lease"
    if "f" in flags or any(flag.startswith("--force") or flag == "--mirror" for flag in flags):
        return "git push --force"
    if any(word.startswith("+") for word in rest):
        return "git push +ref"
    return ""


def _git_reset(rest: Sequence[str]) -> str:
    return "git reset --hard" if _abbreviates(_flags(rest), "--hard", 4) else ""


def _git_branch(rest: Sequence[str]) -> str:
    flags = _flags(rest)
    forced = "D" in flags or (
        ("d" in flags or "--delete" in flags) and ("f" in flags or _abbreviates(flags, "--force", 3))
    )
    return "git branch -D" if forced else ""


def _git_clean(rest: Sequence[str]) -> str:
    flags = _flags(rest)
    if "n" in flags or "--dry-run" in flags:
        return ""
    return "git clean" if flags & {"f", "d", "x", "X"} or _abbreviates(flags, "--force", 3) else ""


def _permissions(name: str) -> Callable[[Sequence[str]], str]:
    def check(rest: Sequence[str]) -> str:
        target = next((word for word in rest if _BROAD.fullmatch(word)), "")
        return f"{name} on {target}" if target else ""

    return check


_GIT: Final[Mapping[str, Callable[[Sequence[str]], str]]] = {
    "branch": _git_branch,
    "clean": _git_clean,
    "push": _git_push,
    "reset": _git_reset,
}

_CHECKS: Final[Mapping[str, Callable[[Sequence[str]], str]]] = {
    "chmod": _permissions("chmod"),
    "chown": _permissions("chown"),
    "git": _git,
    "rm": _rm,
}
"""Command → what in its words cannot be taken back. The patterns are seed 002's."""
