"""Patterns of `Bash(…)` rules, as Claude Code writes them, and their match with a command.

    npm test            exactly this command
    git push:*          commands that begin with these words; `git push *` is the same
    git push*           texts that begin so, `git pushx` too
    * --force           `*` is any text, anywhere; a backslash takes it as it is

A deny and an ask mean every command in the text, wherever a shell would find it. An allow must cover every one of them.

    deny, ask   `match_script`  a command anywhere, also one that another runs; a doubt or a hole may be undecidable
                `_is_run_by`    a file of the workspace that the commands run; a match there is undecidable, never a yes
    allow       `covering`      every command of the text, by several rules together; a doubt or an effect allows none

A command that is allowed covers what it runs in turn: `Bash(bash:*)` allows `bash -c 'rm x'`. Therefore a deny is held
against everything that runs, and comes first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ...core.patterns import regex
from ..argument_conditions import PROCESS_FOLDER, glob
from .command_tools import CallArguments, scripts_of, texts_of
from .deletions import deletes
from .harmless_programs import HARMLESS
from .readonly_commands import is_known, only_reads
from .script import HOLE, Script, ShellCommand, Word

if TYPE_CHECKING:  # loaded with the first command
    from .started_file import StartedFile

_MAX_WORD_DISTANCE: Final = 200
"""Characters in code between the words of one command."""
_MAX_PLACES: Final = 1_000
"""Places of a program's name in one text that are looked at; whether one of more is a command is not known."""
_MAX_PREFIX_LENGTH: Final = 600
"""Characters before a program's name that are looked at, without blanks and the folders of its path."""
_MAX_PATH_LENGTH: Final = 4_096
_PATH_CHARACTERS: Final = f"{ascii_letters}{digits}_.~/-"
_MAX_FORMS: Final = 16
"""Ways to leave out the options in front of a sub-command."""
_ESCAPE: Final = regex(r"\\[abefnrtv]")
_QUOTING: Final = regex(r"['\"\\]|\$(?=['\"])")
"""Signs that a shell takes out of the words that it reads."""
_NEEDS_QUOTES: Final = regex(r"[\s'\"\\]")
_INTERPRETERS: Final = regex(
    r"(?:python|pypy|perl|ruby|node|lua|php|tclsh)[\d.]*|deno|bun|[gmn]?awk|g?sed|ed|ex|emacs|n?vim?|view|less|more|gdb"
    r"|sqlite3|psql|mysql|mariadb|osascript|guile|racket|Rscript|julia|ghc|java|jshell|groovy|scala|elixir|erl"
    r"|[gb]?make|m4|gcc|g\+\+|cc|c\+\+|clang|clang\+\+|apt|apt-get|aptitude|debugfs|run-parts|pip[\d.]*|crontab|[gb]?tar|socat|ncat|nc"
)
"""Programs that may run commands which their arguments name in another language than the shell's."""
_READERS: Final = regex(
    r"(?:python|pypy|perl|ruby|node|lua|php|tclsh|sqlite3)[\d.]*|duckdb|[gb]?make|m4|ed|ex|psql|mysql|mariadb|bc|crontab"
)
"""Programs of those that run their standard input."""
_Surroundings = Sequence[tuple[re.Pattern[str], re.Pattern[str]]]
"""Pairs of what stands before a program's name, up to it, and behind it."""
_BIN_FOLDER: Final = r"(?:\./|[\w.~/-]*bin/)?\Z"
_WORD_END: Final = r"(?=$|[\s;&|<)\"'`}\],])"
_COMMAND_START: Final = ((regex(rf"(?:^|[\s;&|!$(\"'`={{\[,]){_BIN_FOLDER}"), regex("")),)
_WHOLE_WORD: Final = ((regex(r"(?<![\w-])\Z"), regex("")),)

_COPIERS: Final = frozenset("cat cp dd gcp ginstall install link ln mv rsync scp tar tee".split())
"""Programs that give a file another name, or copy it: behind one, the matched program may run under that name."""
_WRITERS: Final = _COPIERS | {"chmod", "patch", "touch", "truncate"}
_RUNNERS: Final = frozenset("bun cargo just make gmake ninja npm npx nox pnpm pre-commit rake task tox yarn".split())
_MANIFESTS: Final = frozenset(
    "GNUmakefile Makefile makefile package.json justfile build.ninja build.rs noxfile.py Rakefile tox.ini Taskfile.yml"
    " .pre-commit-config.yaml".split()
)
_IN_QUOTES: Final = (
    (
        regex(
            r"(?:[\"'`]|\bq[qwx]?\s*[({\[/|])[ \t]*"
            rf"(?:[^\"'`\n]{{0,200}}(?:[;&|(]|\b(?:sudo|exec|xargs|env|then|do|else|time))\s*)?{_BIN_FOLDER}"
        ),
        regex(""),
    ),
    (regex(rf"\n[ \t]*{_BIN_FOLDER}"), regex(r"\S*[ \t]+[\w./~$*\"'-]")),
)
"""Around a program's name in code, where it may be a command."""
_IN_SETTINGS: Final = (
    (
        regex(
            r"(?:(?:^|[\n\"'`>=:\[,({;&|!$])[ \t]*|(?:-|\b(?:sudo|exec|xargs|env|then|do|else|time))[ \t]+)"
            rf"{_BIN_FOLDER}"
        ),
        regex(""),
    ),
)
"""Around a program's name in settings, where a value, or a command in one, may begin."""
_LOCATORS: Final = frozenset("command readlink realpath type whereis which".split())


class ShellPattern(Struct, frozen=True, kw_only=True):
    """One pattern. `matches` answers as every matcher of arguments does.

    Made once a rule. `regex` is matched against the words with one blank between, and against the source text.
    """

    body: str
    regex: re.Pattern[str]
    head: str
    """Common beginning of every matching command."""

    def matches(self, arguments: Mapping[str, Any], *, every: bool, cwd: Path = PROCESS_FOLDER) -> bool | None:
        """Whether the arguments match: with `every` all their commands, else one; None when undecidable."""
        if every:
            return bool(covering((self,), arguments))
        given = arguments if isinstance(arguments, CallArguments) else CallArguments(arguments)
        if (self.body, cwd) not in given.answers:
            given.answers[self.body, cwd] = self._matches(given, cwd)
        return given.answers[self.body, cwd]

    def _matches(self, arguments: CallArguments, cwd: Path) -> bool | None:
        """Whether a command, or a file that it runs from `cwd`, matches; without a folder no files are read."""
        scripts = scripts_of(arguments)
        answers = [self.match_script(script) for script in scripts]
        if True in answers:
            return True
        if None in answers or not answers:
            return None
        if cwd == PROCESS_FOLDER:
            return False
        return None if self._is_run_by(arguments.started_in(cwd)) else False

    def _is_run_by(self, files: Iterable[StartedFile]) -> bool:
        """Whether a file of the workspace that the commands run names a matched command, or cannot be read.

        Most scripts have parts that only the shell will know: where the program is not named, they count for nothing.
        """
        from .started_file import is_same_program  # it was loaded to find the files

        for found in files:
            if found.unread or (found.is_program and is_same_program(Path(found.file), self._name)):
                return True
            if found.script is not None and self._is_named(found.script, is_short=found.is_short):
                return True
            begins = _COMMAND_START if found.script is not None else _IN_SETTINGS if found.is_settings else _IN_QUOTES
            if found.text and self._has_words(found.text, begins, _MAX_WORD_DISTANCE):
                return True
        return False

    def _is_named(self, script: Script, *, is_short: bool) -> bool:
        commands = tuple(script.every())
        if is_short and any(map(self._may_be_started_by, commands)):
            return True
        if self.head == "rm" and any(map(deletes, commands)):
            return True
        if (
            any(self._match_command(command) for command in commands)
            or self._may_be_set(script)
            or self._may_be_fed(script)
        ):
            return True
        if self._may_be_copied(script):
            return True
        doubted = any(script.every_doubt()) or any(_INTERPRETERS.fullmatch(command.name) for command in commands)
        texts = (" ".join((*(word.text for word in one.words[1:]), one.stdin)) for one in commands)
        return doubted and any(
            self._has_words(_ESCAPE.sub(" ", f" {text}"), _WHOLE_WORD, _MAX_WORD_DISTANCE) for text in texts
        )

    def match_script(self, script: Script) -> bool | None:
        """Whether one of the commands of `script` matches; None when undecidable."""
        unclear = False
        for command in script.every():
            answer = self._match_command(command)
            if answer:
                return True
            unclear = unclear or answer is None
        unclear = unclear or any(script.every_doubt()) or self._may_be_fed(script) or self._may_be_copied(script)
        unclear = unclear or self._may_be_set(script) or self._may_be_written(script)
        return None if unclear else False

    def permits(self, command: ShellCommand) -> bool:
        """Whether exactly this command matches, independent of the values of its holes.

        Blanks and quotes count here: a word with a blank is quoted, so that it cannot look like two words.
        """
        if not command.words or not command.words[0].known:
            return False
        text = " ".join(_quote_word(word.text) for word in command.words)
        return self.regex.fullmatch(text) is not None or (
            bool(command.source) and self.regex.fullmatch(command.source) is not None
        )

    def is_literally(self, text: str) -> bool:
        """Whether the pattern is this text, character by character."""
        return "*" not in self.body and self.body == text

    def _match_command(self, command: ShellCommand) -> bool | None:
        if command.source and self.regex.fullmatch(command.source):
            return True
        answer: bool | None = False
        for words in _forms(command.words, several=" " in self.head):
            loose = " ".join(word.loose for word in words)
            if self.regex.fullmatch(" ".join(word.text for word in words)):
                return True
            if HOLE in loose and self._may_become(loose):
                answer = None
        if answer is False and self.head == "rm" and deletes(command):
            answer = None
        if answer is False and (
            (_INTERPRETERS.fullmatch(command.name) and self._is_surrounded(command)) or self._may_be_started_by(command)
        ):
            answer = None
        return answer

    def _may_be_started_by(self, command: ShellCommand) -> bool:
        """Whether the command may start the matched program: any program may that has no description here."""
        from .wrapper_commands import describes  # it was loaded with the grammar, which read the command

        name = command.name
        if not self._first or not name or name in HARMLESS or name in _COPIERS or is_known(name) or describes(name):
            return False
        return self._has_words(" ".join(word.text for word in command.words[1:]), _COMMAND_START)

    def _has_words(self, text: str, around: _Surroundings, within: int | None = None) -> bool:
        """Whether a text has the words of the matched command: the first one with `around` it, the others near it."""
        if not self._first or self._name not in text:
            return False
        places = re.compile(f"{self._first}{_WORD_END}").finditer(text)
        for number, found in enumerate(places):
            if number >= _MAX_PLACES:
                return True
            if not _is_surrounded(text, found, around):
                continue
            place = found.end()
            end = len(text) if within is None else place + within
            for word in self.head.split()[1:]:  # anywhere behind it: options may stand between
                behind = re.compile(rf"[\s\"'`=]{re.escape(word)}{_WORD_END}").search(text, place, end)
                if behind is None:
                    break
                place = behind.end()
            else:
                return True
            if within is None:  # what is not behind the first place is not behind a later one
                return False
        return False

    def _may_be_set(self, script: Script) -> bool:
        """Whether a variable gets the matched program as its value: `CC='rm -f x' make`, `GOFLAGS=-toolexec=rm`."""
        begins = re.compile(rf"(?:^|[=,])\s*(?:\S*/)?{self._first}{_WORD_END}")
        named = (word.text.partition("=") for command in script.every() for word in command.words[1:])
        values = (*script.values, *(value for name, _, value in named if name.isidentifier()))
        return bool(self._first) and any(begins.search(value) for value in values)

    def _may_be_written(self, script: Script) -> bool:
        """Whether the text writes a file that names a matched command, and runs that file, or its runner."""
        commands = tuple(script.every())
        written = [word for one in commands if one.name in _WRITERS for word in (*one.words[1:], *one.files)]
        names = {word.loose.rpartition("/")[2] for word in (*script.files, *written)} - {"", "null"}
        if not names or not any(self._is_surrounded(one) or self._is_named_in(one) for one in commands):
            return False
        is_git = any("/hooks/" in word.text or ".git/" in word.text for word in (*script.files, *written))
        return any(
            (one.words[0].text.rpartition("/")[2] in names if one.words else False)
            or (one.name in _RUNNERS and not names.isdisjoint(_MANIFESTS))
            or (
                _INTERPRETERS.fullmatch(one.name)
                and any(word.text.rpartition("/")[2] in names for word in one.words[1:])
            )
            or (one.name == "git" and is_git)
            for one in commands
        )

    def _is_named_in(self, command: ShellCommand) -> bool:
        """Whether the arguments or the input of a command are a script with a matched command."""
        from .grammar import read_script  # it was loaded to read the command

        texts = (" ".join(word.text for word in command.words[1:]), command.stdin)
        return any(self._is_named(read_script(text), is_short=False) for text in texts if text)

    @property
    def _name(self) -> str:
        """The matched program."""
        return self.head.partition(" ")[0]

    @property
    def _first(self) -> str:
        """The matched program, as a part of a regular expression."""
        return re.escape(self._name)

    def _may_be_fed(self, script: Script) -> bool:
        """Whether the text contains both a program that runs its input and the name of a matched command."""
        commands = script.commands
        return any(_READERS.fullmatch(one.name) for one in commands) and any(map(self._is_surrounded, commands))

    def _may_be_copied(self, script: Script) -> bool:
        """Whether the text may give the matched program another name, by which it may be called afterwards."""
        commands = tuple(script.every())
        if not any(command.name in _COPIERS for command in commands):
            return False
        first = self.head.partition(" ")[0]
        asked = (one.words[1:] for one in commands if one.name in _LOCATORS)
        return any(map(self._is_program, script.words())) or any(
            word.text == first for words in asked for word in words
        )

    def _is_program(self, word: Word) -> bool:
        """Whether a word may be the path of the matched program."""
        folder, _, name = word.loose.rpartition("/")
        first = self.head.partition(" ")[0]
        return folder.endswith("bin") and re.fullmatch(".*".join(map(re.escape, name.split(HOLE))), first) is not None

    def _is_surrounded(self, command: ShellCommand) -> bool:
        """Whether the arguments of a command, or its input, contain the name of a matched command."""
        first = self.head.partition(" ")[0]
        whole = re.compile(rf"(?<![\w-]){re.escape(first)}(?![\w-])")
        given = (_ESCAPE.sub(" ", text) for text in (*(word.text for word in command.words[1:]), command.stdin))
        return bool(first) and any(whole.search(text) or whole.search(_QUOTING.sub("", text)) for text in given)

    def _may_become(self, loose: str) -> bool:
        """Whether a text with holes may turn into a match, which its known beginning decides."""
        known = loose.partition(HOLE)[0]
        return self.head.startswith(known) or known.startswith(self.head)


def _is_surrounded(text: str, name: re.Match[str], around: _Surroundings) -> bool:
    """Whether what one pair of `around` describes stands before and behind a name.

    Each is held against the surroundings alone: over a whole text of a megabyte, one search would stop every thread.
    """
    place = name.start()
    near = text[max(0, place - _MAX_PATH_LENGTH) : place]
    rest = near.rstrip(_PATH_CHARACTERS if near.endswith("/") else "").rstrip()
    if not rest and len(near) == _MAX_PATH_LENGTH:
        return True
    start = max(0, place - len(near) + len(rest) - _MAX_PREFIX_LENGTH)
    return any(before.search(text, start, place) and behind.match(text, name.end()) for before, behind in around)


def parse_shell(body: str) -> ShellPattern:
    """Read the brackets of a rule for shell commands. Raises `ValueError` when they cannot mean any command."""
    begins = next((body.removesuffix(end) for end in (":*", " *") if body.endswith(end)), None)
    fixed = (body if begins is None else begins).rstrip()
    if not fixed:
        raise ValueError("it names no command; Bash without brackets means every command")
    regex = glob(fixed.replace("?", "\\?"))
    if begins is not None:
        regex = re.compile(rf"(?:{regex.pattern})(?:\s.*)?", re.DOTALL)
    head = re.sub(r"\\(.)", r"\1", re.split(r"(?<!\\)\*", fixed)[0])
    return ShellPattern(body=body, regex=regex, head=head)


def covering(patterns: Sequence[ShellPattern], arguments: Mapping[str, Any]) -> tuple[ShellPattern, ...]:
    """Return the patterns that together permit everything that the arguments run; empty when they do not.

    A read-only command needs none. A command that is undecidable, writes a file or sets a variable is permitted only
    by a pattern that is the whole text.
    """
    texts = texts_of(arguments)
    for pattern in patterns:
        if len(texts) == 1 and pattern.is_literally(texts[0]) and len(scripts_of(arguments)) == 1:
            return (pattern,)
    scripts = scripts_of(arguments)
    commands = [command for script in scripts for command in script.commands]
    if not commands or any(script.doubts or script.effects for script in scripts):
        return ()
    used: dict[int, ShellPattern] = {}
    for command in commands:
        place = _permitting(patterns, command)
        if place is not None:
            used[place] = patterns[place]
        elif not only_reads((command,), among=commands):
            return ()
    return tuple(used[place] for place in sorted(used))


def _permitting(patterns: Sequence[ShellPattern], command: ShellCommand) -> int | None:
    """Return the place of the pattern that permits the command, or what it is inside of harmless wrappers."""
    while True:
        for place, pattern in enumerate(patterns):
            if pattern.permits(command):
                return place
        if command.same_as is None:
            return None
        command = command.same_as


def _forms(words: Sequence[Word], *, several: bool) -> Iterator[Sequence[Word]]:
    """Yield the words in every way a deny may mean them: the program with and without its folder, options left out."""
    yield words
    first, rest = words[0], words[1:]
    name = first.text.rpartition("/")[2]
    if name != first.text and first.known:
        first = Word(name, name)
        yield (first, *rest)
    if not several or not rest or not rest[0].text.startswith("-"):
        return
    for place in range(1, min(len(rest), _MAX_FORMS)):
        if not (rest[place - 1].text.startswith("-") or (place > 1 and rest[place - 2].text.startswith("-"))):
            return
        yield (first, *rest[place:])


def _quote_word(text: str) -> str:
    return shlex.quote(text) if not text or _NEEDS_QUOTES.search(text) else text
