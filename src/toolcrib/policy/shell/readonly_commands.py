"""Commands that only read, by name and option. An unknown command does not count as one.

The list is Claude Code's idea with our exclusions: no option that writes, runs or connects, in any spelling that GNU
accepts, and no unresolved part in which an option could hide.

A command that only reads is a read to the mode (`decision._decide_by_mode`), asks nothing in a tainted session
(`taint`), and needs no rule beside others that are allowed (`pattern.covering`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...core.patterns import regex
from .command_tools import is_handle, scripts_of
from .harmless_programs import READERS
from .script import HOLE, ShellCommand, Word

_WRITING_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "diff": ("--to-file", "--from-file"),
    "file": ("-C", "--compile", "-m", "--magic-file", "-z", "--uncompress", "-Z", "--uncompress-noreport"),
    "find": (
        "-delete",
        "-exec",
        "-execdir",
        "-fls",
        "-fprint",
        "-fprint0",
        "-fprintf",
        "-ok",
        "-okdir",
        "-files0-from",
    ),
    "ps": (),
    "rg": ("--pre", "--pre-glob", "--hostname-bin", "--search-zip", "-z"),
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"),
    "tree": ("-o", "--output", "-R"),
}
"""Name → options that write, run, or read other files."""

_GIT_WRITING_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "blame": (),
    "cat-file": ("--textconv", "--filters"),
    "describe": (),
    "diff": ("--output", "--ext-diff", "--textconv"),
    "log": ("--output", "--ext-diff", "--textconv"),
    "ls-files": (),
    "ls-tree": (),
    "merge-base": (),
    "rev-list": (),
    "rev-parse": (),
    "shortlog": ("--output",),
    "show": ("--output", "--ext-diff", "--textconv"),
    "status": (),
}
"""Sub-commands of git that only read → their options that do not."""

_GIT_EXACT: Final = frozenset(
    {
        *("branch", "branch -a", "branch -r", "branch -v", "branch -vv", "branch --list", "branch --show-current"),
        *("remote", "remote -v", "stash list", "tag", "tag -l", "tag --list", "config --list", "config -l"),
        *("worktree list", "reflog", "version", "--version"),
    }
)
_FOLDER_ARGUMENTS: Final = frozenset(
    {"cwd", "dir", "directory", "folder", "workdir", "working_dir", "working_directory"}
)
"""Arguments that name the working directory of a command."""
_GIT_LEADING_OPTIONS: Final = frozenset({"--no-pager", "--no-optional-locks", "-P"})
_SED_PRINTS: Final = regex(r"(?:\d+|\$)?(?:,(?:\d+|\$))?p")


def is_known(name: str) -> bool:
    """Whether the options of this program are known here."""
    return name in READERS or name in _WRITING_OPTIONS or name in _CHECKS


def is_read_only_call(arguments: Mapping[str, Any]) -> bool:
    """Whether everything that these arguments of a shell tool run is known, and only reads.

    Any doubt and any effect of the text (it writes a file, sets a variable, defines a function) makes it False.
    """
    if arguments.get("session_id"):
        return False  # input typed into a waiting program can have any effect
    if is_handle(arguments):
        return True
    scripts = scripts_of(arguments)
    if not scripts or any(script.doubts or script.effects for script in scripts):
        return False
    elsewhere = any(
        name.lower() in _FOLDER_ARGUMENTS and value not in (None, "", ".") for name, value in arguments.items()
    )
    return all(script.commands and only_reads(script.commands, elsewhere=elsewhere) for script in scripts)


def only_reads(
    commands: Sequence[ShellCommand], *, among: Sequence[ShellCommand] = (), elsewhere: bool = False
) -> bool:
    """Whether all of `commands` only read; `among` are the others of the same text.

    After a `cd`, or with an argument for `elsewhere`, git may find a repository whose configuration runs something: it
    then does not count.
    """
    moved = elsewhere or any(command.name in ("cd", "pushd") for command in (*commands, *among))
    return all(_only_reads(command, moved=moved) for command in commands)


def _only_reads(command: ShellCommand, *, moved: bool) -> bool:
    while command.same_as is not None:
        command = command.same_as
    if not command.words or not command.words[0].known:
        return False
    name, rest = command.words[0].text, command.words[1:]
    if name in READERS:
        return not command.doubts and not (name == "printf" and _has_option(rest, ("-v",)))
    if name in _WRITING_OPTIONS:
        return not any(_hides_an_option(word) for word in rest) and not _has_option(rest, _WRITING_OPTIONS[name])
    check = _CHECKS.get(name)
    return check is not None and not (moved and name == "git") and check(rest)


def _git_only_reads(rest: Sequence[Word]) -> bool:
    words = [word.text for word in rest]
    while words and words[0] in _GIT_LEADING_OPTIONS:
        del words[0]
    if any(_hides_an_option(word) for word in rest) or not words:
        return False
    if " ".join(words) in _GIT_EXACT:
        return True
    return words[0] in _GIT_WRITING_OPTIONS and not _has_option(
        [word for word in rest if word.text != words[0]], _GIT_WRITING_OPTIONS[words[0]]
    )


def _sed_only_reads(rest: Sequence[Word]) -> bool:
    """`sed -n 1,20p file`: prints lines, nothing else."""
    words = [word.text for word in rest]
    return (
        len(words) >= 2
        and words[0] == "-n"
        and _SED_PRINTS.fullmatch(words[1]) is not None
        and not any(word.text.startswith("-") or _hides_an_option(word) for word in rest[2:])
    )


def _uniq_only_reads(rest: Sequence[Word]) -> bool:
    """A second file is the one that it writes; `-` is a file too, and behind `--` everything is."""
    operands = [word for word in rest if not word.text.startswith("-") or word.text in ("-", "--")]
    return all(word.known for word in rest) and len(operands) <= 1


def _date_only_reads(rest: Sequence[Word]) -> bool:
    """A word that is not an option, a value of one or a format is the time to set."""
    before = ["", *(word.text for word in rest)]
    is_set = any(
        not word.text.startswith(("-", "+")) and option not in ("-d", "--date", "-r", "--reference", "-f", "--file")
        for option, word in zip(before, rest, strict=False)
    )
    return not is_set and all(word.known for word in rest) and not _has_option(rest, ("-s", "--set"))


def _hostname_only_reads(rest: Sequence[Word]) -> bool:
    return not rest


_CHECKS: Final[Mapping[str, Callable[[Sequence[Word]], bool]]] = {
    "date": _date_only_reads,
    "git": _git_only_reads,
    "hostname": _hostname_only_reads,
    "sed": _sed_only_reads,
    "uniq": _uniq_only_reads,
}


def _hides_an_option(word: Word) -> bool:
    """Whether the shell could make an option of the word, or several words."""
    return HOLE in word.text or (not word.known and word.loose.startswith((HOLE, "-")))


def _has_option(words: Sequence[Word], options: Sequence[str]) -> bool:
    """Whether one of the options is there: long ones abbreviated, short ones with others or a value behind them.

    Short options match anywhere in a bundle, as `-o` does in `-ro`: some harmless bundles count as writing.
    """
    for word in words:
        name = word.text.partition("=")[0]
        for option in options:
            if option.startswith("--"):
                found = len(name) > 2 and name.startswith("--") and option.startswith(name)
            elif len(option) == 2:
                found = name.startswith("-") and not name.startswith("--") and option[1] in name
            else:
                found = name == option
            if found:
                return True
    return False
