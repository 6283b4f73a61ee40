"""Destructive commands: they need approval in every mode, even when a rule allows them.

Every command that a shell would run is checked, in any position (`policy.shell`). In doubt it asks: a quoted text that
only looks like such a command may lead to a question, the reverse must not happen easily. The check is a question, not
a barrier: a command is prevented by a deny rule.

`decision` asks this after denies, and before asks and allows. The words that it returns are the rule of the question
(`irrecoverable_effect: rm -rf …`), and the command word that a person types to approve (`questions.confirmation_word`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..core.patterns import regex
from ..core.tool import Tool
from .shell.command_tools import as_cell, runs_shell, scripts_of
from .shell.script import HOLE, UNREAD, Script, ShellCommand, Word

_DESTRUCTIVE_SQL: Final = regex(
    r"\b(?:DROP\s+(?:TABLE|DATABASE|SCHEMA|INDEX|VIEW|USER|ROLE)|TRUNCATE\s+TABLE)\b", re.IGNORECASE
)
_TRUNCATE: Final = regex(r"\bTRUNCATE\s+[\w\"`\[]", re.IGNORECASE)
_DATABASE_PROGRAMS: Final = frozenset({"duckdb", "mariadb", "mysql", "psql", "sqlcmd", "sqlite3"})
_SEARCH_PROGRAMS: Final = frozenset({"ag", "egrep", "fgrep", "grep", "rg"})
"""Commands that only search for such a text."""
_BROAD_PATH: Final = regex(r"(?:/|~\w*|\$\{?HOME\}?)[/.*]*")
"""Arguments that cover the whole disk or a home directory."""

_ANSWER_COMMANDS: Final = (["guard", "on"], ["guard", "off"], ["guard", "accept"], ["pending", "accept"])
"""Commands by which people answer."""


def irrecoverable_effect(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return the irreversible effect of this call, in a few words; empty without a known one.

    Only tools that run shell commands are checked (category or tag `shell`, or known to rules as `Bash`), and cells.

    Reads no files: the scripts that a command starts are the concern of deny and ask rules.
    """
    if not runs_shell(tool):
        return ""
    return next((found for script in scripts_of(as_cell(tool, arguments)) for found in _effects_of_script(script)), "")


def _effects_of_script(script: Script) -> Iterator[str]:
    for command in script.every():
        yield from _effects_of_command(command)
    yield from (doubt for doubt in script.every_doubt() if doubt.startswith(UNREAD))


def _effects_of_command(command: ShellCommand) -> Iterator[str]:
    words = [_text_of(word) for word in command.words]
    check = _CHECKS.get(command.name)
    if check is not None and (found := check(words[1:])):
        yield found
    if command.name not in _SEARCH_PROGRAMS:
        yield from _sql(command.name, " ".join([*words, command.stdin]))


def _text_of(word: Word) -> str:
    """Return the word; one that only the shell will know as it was written: `$HOME`."""
    return word.source.strip("\"'") if HOLE in word.text else word.text


def _sql(name: str, text: str) -> Iterator[str]:
    """Yield the statement in `text`, the words and the input of the program `name`; a plain TRUNCATE for databases."""
    if found := _DESTRUCTIVE_SQL.search(text):
        yield " ".join(found[0].split()).upper()
    elif name in _DATABASE_PROGRAMS and _TRUNCATE.search(text):
        yield "TRUNCATE"


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
    """Whether a long option is `word`, or an abbreviation that GNU and git accept.

    `least` is the length of the shortest one that counts.
    """
    return any(flag.startswith("--") and len(flag) >= least and word.startswith(flag) for flag in flags)


def _rm(rest: Sequence[str]) -> str:
    flags = _flags(rest)
    recursive = bool(flags & {"r", "R"}) or _abbreviates(flags, "--recursive", 3)
    forced = "f" in flags or _abbreviates(flags, "--force", 3)
    return "rm -rf" if recursive and forced else "rm -r" if recursive else ""


def _git(rest: Sequence[str]) -> str:
    verb, options = _git_sub_command(rest)
    check = _GIT_CHECKS.get(verb)
    return check(options) if check is not None else ""


def _git_sub_command(rest: Sequence[str]) -> tuple[str, Sequence[str]]:
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


def _check_permissions(name: str) -> Callable[[Sequence[str]], str]:
    def check(rest: Sequence[str]) -> str:
        target = next((word for word in rest if _BROAD_PATH.fullmatch(word)), "")
        return f"{name} on {target}" if target else ""

    return check


_GIT_CHECKS: Final[Mapping[str, Callable[[Sequence[str]], str]]] = {
    "branch": _git_branch,
    "clean": _git_clean,
    "push": _git_push,
    "reset": _git_reset,
}


def _toolcrib(rest: Sequence[str]) -> str:
    """A model that may run commands must not answer for its user.

    Answering, trusting and accepting are acts of the user; reading commands of the same groups is not one.
    """
    arguments = [word for word in rest if not word.startswith("-")][:2]
    is_answer = arguments[:1] == ["approvals"] and len(arguments) > 1 and arguments[1] not in ("list", "show", "watch")
    if is_answer or arguments in _ANSWER_COMMANDS or arguments[:1] in (["accept"], ["trust"]):
        return f"toolcrib {' '.join(arguments if is_answer or arguments in _ANSWER_COMMANDS else arguments[:1])}"
    return ""


_CHECKS: Final[Mapping[str, Callable[[Sequence[str]], str]]] = {
    "chmod": _check_permissions("chmod"),
    "chown": _check_permissions("chown"),
    "git": _git,
    "rm": _rm,
    "toolcrib": _toolcrib,
}
"""Command → irreversible effects of its words. The patterns are seed 002's."""
