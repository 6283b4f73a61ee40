"""Files that a command or another tool names, held against rules for files: `cat .env*` and a deny of `Read(.env)`.

A name in a command is not yet its use, so the answer about a command is never a plain yes but undecidable, which asks.

A word of a command is read as the shell will make it, as far as that is known before:

    .en?  ~/.ss*/id*          the files that it means now; in quotes, too, as programs have globs of their own
    $HOME/.ssh  $PWD/.env     the home of the process, and the folder of the command
    ${x}v  .e$(echo nv)       a part that only the shell will know is `*`; a word that is nothing else is not seen

So is a name that a program makes up itself. A text that was not read to its end is undecidable, and so are globs after
`shopt -s globstar` and its like, or in another shell than bash: they mean more files, `**` those of a whole tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import iglob
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from ..core.patterns import regex
from .argument_conditions import PROCESS_FOLDER
from .path_patterns import PathPattern
from .shell.command_tools import folders_of, scripts_of
from .shell.script import HOLE, UNREAD, Script, Word

_MAX_NAMES: Final = 500
"""Names of one command that are examined; more are undecidable."""
_MAX_PATHS: Final = 2_000
"""Folders that are looked into for the globs of one command, and files that these mean; more are undecidable."""
_GLOB_CHARACTER: Final = regex(r"[*?\[]")
_GLOB_SET: Final = regex(r"\[[!^]?(?:\[[:.=]\w+[:.=]\]|\]?[^\]/])[^\]/]*\]")
"""A set of a glob of bash. `fnmatch` reads `[^a]` and `[[:alpha:]]` otherwise."""
_READS_NAMES: Final = regex(r"xargs\b.*|parallel\b.*|(?:ba|da|k|z)?sh(?: -\S+)*", re.DOTALL)
"""Commands that take names from their input: `echo 'cat .env' | sh`, `xargs cat <<< 'a .env'`."""
_SHELL_WORD: Final = regex(r"[^\s'\"`;&|()<>]+")
_VARIABLE: Final = regex(r"\"?\$\{?(HOME|PWD)\b")
_UNSEEN_DOUBTS: Final = (*UNREAD, "very many ", "braces that ", "a long text that ")
"""Beginnings of doubts about a text that may have words which are not seen."""
_WIDER_GLOB_NAMES: Final = frozenset("globstar dotglob nocaseglob extglob zsh fish ksh".split())
"""Options and shells with other globs than those of bash as it starts."""
_WIDER_DOUBT: Final = "the variable GLOBIGNORE"
_WIDER_GLOB: Final = regex(r"[*?\[(]")
_PROCESS_PATH: Final = regex(r"/+(?:proc/.*/(?:cwd|root)|(?:proc/.*|dev)/fd/[^/]+)/")
"""Places that only the running process knows."""


class CommandFileMatcher(Struct, frozen=True):
    """A pattern of files, held against the words of commands.

    Stands for a rule about files where the tool runs commands: `Rules` puts it in place of the path pattern.
    """

    pattern: PathPattern

    def matches(self, arguments: Mapping[str, Any], *, every: bool, cwd: Path = PROCESS_FOLDER) -> bool | None:
        """Return None if a matching file is named, else False."""
        scripts = scripts_of(arguments)
        names = dict.fromkeys(islice(_names_in(scripts), _MAX_NAMES + 1))
        doubts = [doubt for script in scripts for doubt in script.every_doubt()]
        is_seen = len(names) <= _MAX_NAMES and not any(doubt.startswith(_UNSEEN_DOUBTS) for doubt in doubts)
        if not is_seen or _has_wider_globs(names, doubts) or any(map(_PROCESS_PATH.match, names)):
            return None
        folders = folders_of(arguments, cwd)
        found = _expand_globs(names, folders)
        if found is None:
            return None
        paths = dict.fromkeys(str(folder / os.path.expanduser(name)) for folder in folders for name in names)
        meant = (self.pattern.matches({"path": path}, every=False, cwd=cwd) is True for path in (*paths, *found))
        return None if any(meant) else False


class NamedFileMatcher(Struct, frozen=True):
    """A pattern of files, held against the files that arguments of a tool name which is not one for files."""

    pattern: PathPattern

    def matches(self, arguments: Mapping[str, Any], *, every: bool, cwd: Path = PROCESS_FOLDER) -> bool:
        """Whether a matching file is named. A folder above one is none: such a tool need not read all in it."""
        return self.pattern.matches(arguments, every=False, cwd=cwd) is True


def _names_in(scripts: Iterable[Script]) -> Iterator[str]:
    """Yield every word that may be a path, also behind `=`, `@` and `:`, and the values of variables.

    As in `if=FILE`, `--file=FILE`, `-d @FILE`, `git show HEAD:FILE`, `-v FOLDER:/data` and `x=FILE; cat $x`.
    """
    for script in scripts:
        fed = [command for command in script.every() if _READS_NAMES.fullmatch(command.text())]
        for command in fed:
            yield from _SHELL_WORD.findall(command.stdin)
        for text in filter(None, map(_text_of, script.words())):
            yield text
            if fed:
                yield from _SHELL_WORD.findall(text)
            _, sign, value = text.partition("=")
            rest = value if sign else text
            if sign or rest.startswith("@"):
                yield rest.removeprefix("@")
            if ":" in rest and "://" not in rest:
                yield from filter(None, rest.split(":", 2)[:2])


def _has_wider_globs(names: Iterable[str], doubts: Iterable[str]) -> bool:
    """Whether globs mean more than `_expand_globs` finds. Those of `extglob` are no words to the grammar."""
    wider = {name.rpartition("/")[2] for name in names} & _WIDER_GLOB_NAMES
    if not wider and not any(doubt.startswith(_WIDER_DOUBT) for doubt in doubts):
        return False
    return "extglob" in wider or any(map(_WIDER_GLOB.search, names))


def _text_of(word: Word) -> str:
    """Return the word as a glob: with `*` for what only the shell will know. Empty where that is all."""
    text = word.text
    if HOLE not in text:
        return text
    if text.startswith(HOLE) and (variable := _VARIABLE.match(word.source)):
        text = ("~" if variable[1] == "HOME" else ".") + text[1:]
    return text.replace(HOLE, "*") if text.strip(HOLE) else ""


def _expand_globs(names: Iterable[str], folders: Sequence[Path]) -> list[str] | None:
    """Return the files that the globs among the names mean in these folders; None where there are too many.

    Level by level, and only so many: a glob of several levels below the root of the machine reads all of the disk.
    """
    looked, meant = 0, list[str]()
    for name in filter(_GLOB_CHARACTER.search, names):
        glob = _GLOB_SET.sub("?", os.path.expanduser(name))
        places = ["/"] if glob.startswith("/") else [str(folder) for folder in folders]
        for part in filter(None, glob.split("/")):
            looked += len(places)
            if looked > _MAX_PATHS:
                return None
            places = [os.path.join(place, found) for place in places for found in iglob(part, root_dir=place)]
        meant += places
    return meant if len(meant) <= _MAX_PATHS else None
