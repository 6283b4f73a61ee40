"""Options and operands by which programs start other programs: `tar -I`, `ssh -o ProxyCommand`, `sed e`, `python -c`.

`launchers.toml` lists them by program. An option bundle in which such an option may stand behind an unlisted letter is
a doubt, and so is code of an interpreter that can start a program: which one, only the code knows when it runs.

    _WordReader.read   sorts the words: operands, code, options that start something
    Started            texts (read again as shell text) and doubts

The table is read at the first command of a process; a key that it does not know is an error of ours, and is raised.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast

from msgspec import Struct, field

from ...core.patterns import regex
from .script import HOLE, Word, literal

_DATA: Final = Path(__file__).with_suffix(".toml")
_VERSION_SUFFIX: Final = regex(r"[-.\d]+$")
_WITH_SUB_COMMANDS: Final = frozenset({"bun", "deno", "git"})
_STANDARD_INPUT: Final = regex(r"^(?:-[a-zA-Z]*|--[\w-]+=)?(?:-|/dev/stdin|/dev/fd/\d+|/proc/\w+/fd/\d+)$")
"""Standard input as the name of a file: `-f-`, `/dev/stdin`."""
_MODULE: Final = regex(r"-[bBdEIOPqRsSuvx]*m(.*)", re.DOTALL)
_ASSIGNMENT: Final = regex(r"[^\s=:+?!]+[:+?!]*=")
_MAX_CODE_LENGTH: Final = 20_000
"""Characters of code that are searched."""

_INFORMATION_WORDS: Final = frozenset("-h --help -l -v --version -version version".split())
"""Words that make a program say only what it is."""
_COMMAND_KEYS: Final = frozenset("proxycommand localcommand knownhostscommand remotecommand use_askpass".split())

_SED_PART: Final = r"(?:\\.|(?!(?P={0}))[^\\])*(?P={0})"
"""Text up to the delimiter of this group, as GNU sed takes it: a bracket hides none."""
_SED_COMMAND: Final = regex(
    r"(?:e[ \t]*(?P<command>[^\n]*)"
    r"|s(?P<s>[^\\\n])" + _SED_PART.format("s") + _SED_PART.format("s") + r"(?P<flags>[gpiIMme\d]*)(?:w[^\n]*)?"
    r"|y(?P<y>[^\\\n])"
    + _SED_PART.format("y")
    + _SED_PART.format("y")
    + r"|[aic](?:[^\n\\]|\\.)*|[rRwWv][^\n]*|[btT:][^\n;}]*"
    r"|[#][^\n]*|[{}=dDgGhHlnNpPqQxzF](?:[ \t]*\d+)?|[;\s]|/(?:\\.|[^\\/])*/[IM]*"
    r"|\\(?P<a>[^\n\\])" + _SED_PART.format("a") + r"[IM]*|[\d$,+~!]+)",
    re.DOTALL,
)
"""One command of sed, or a part of its address."""


class Launcher(Struct, frozen=True, kw_only=True):
    """Ways of one program; `launchers.toml` describes the fields."""

    flags: str = ""
    valued: str = ""
    glued: str = ""
    runs: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    loads: str = ""
    modules: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    language: str = ""
    operand: Literal["", "first", "all"] = ""
    input: Literal["", "alone", "always", "named"] = ""
    pipes: bool = False
    plus: bool = False
    old_bundle: bool = False
    one_dash: bool = False
    partial: bool = False
    assigns: bool = False

    def kind(self, option: str) -> str:
        """Return the list in which an option stands: a letter, or a long name or its beginning; empty without one."""
        if option in self.whole:
            return ""
        for kind, names in (
            ("runs", self.runs),
            ("opaque", self.opaque),
            ("code", self.code),
            ("settings", self.settings),
        ):
            if any(name == option or (len(option) > 1 and len(name) > 1 and name.startswith(option)) for name in names):
                return kind
        return ""


class Started(Struct):
    """Programs that the words of one command start."""

    texts: list[str] = field(default_factory=list[str])
    """Shell texts."""
    doubts: list[str] = field(default_factory=list[str])


@cache
def _data() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))


@cache
def _starting_code(language: str) -> re.Pattern[str]:
    return re.compile(_data()["languages"][language], re.VERBOSE)


@cache
def launchers() -> Mapping[str, Launcher]:
    """Return the launchers by the names of their programs; sub-commands of git are `git rebase`."""
    table = _data()["programs"]
    known = set(Launcher.__struct_fields__)
    found: dict[str, Launcher] = {}
    for names, row in table.items():
        if unknown := row.keys() - known:
            raise ValueError(f"{_DATA.name}: [{names}] has the unknown key {min(unknown)}")
        values: dict[str, Any] = {
            key: tuple(cast("list[str]", value)) if isinstance(value, list) else value for key, value in row.items()
        }
        launcher = Launcher(**values)
        is_sub_command = names.partition(" ")[0] in _WITH_SUB_COMMANDS
        found.update(dict.fromkeys([names] if is_sub_command else names.split(), launcher))
    return found


def is_launcher(name: str) -> bool:
    """Whether the table describes this program, or a sub-command of it."""
    launcher = launchers().get(name) or launchers().get(_VERSION_SUFFIX.sub("", name))
    return name in _WITH_SUB_COMMANDS or (launcher is not None and not launcher.partial)


def started_by(name: str, rest: Sequence[Word], stdin: str) -> Started:
    """Return the commands that the program `name` starts, given these words and the input of a here-document."""
    table = launchers()
    found = Started()
    if name in _WITH_SUB_COMMANDS:
        for place, word in enumerate(rest):
            if launcher := table.get(f"{name} {word.text}"):
                _read_words(f"{name} {word.text}", launcher, rest[place + 1 :], "", found)
    if launcher := table.get(name) or table.get(_VERSION_SUFFIX.sub("", name)):
        _read_words(name, launcher, rest, stdin, found)
    return found


def _read_words(name: str, launcher: Launcher, rest: Sequence[Word], stdin: str, found: Started) -> None:
    words = _WordReader(name, launcher, rest, found)
    words.read()
    code = [_as_shell_word(word) for word in words.code]
    operands = words.operands
    if launcher.operand and not words.has_code:
        given = operands if launcher.operand == "all" else operands[:1]
        code += map(_as_shell_word, given)
        operands = operands[len(given) :]
    is_named = any(_STANDARD_INPUT.search(word.text) for word in rest)
    is_alone = not (words.has_code or operands or words.only_asks)
    if launcher.input and stdin and not (launcher.input == "named" and is_named):
        code.append(stdin)
    elif launcher.input == "always" or (launcher.input and is_named) or (launcher.input == "alone" and is_alone):
        found.doubts.append(f"what {name} reads")
    if launcher.modules and (module := _module_of(rest)) in launcher.modules:
        found.doubts.append(f"what {name} -m {module} takes as code")
    if launcher.assigns:
        given = [word.text for word in operands if word.known and _ASSIGNMENT.match(word.text)]
        code += given
        found.texts += [text.partition("=")[2] for text in given]
    if launcher.pipes:
        found.texts += [_as_shell_word(word).strip("| ") for word in operands if "|" in (word.text[:1], word.text[-1:])]
    for text in words.loaded:
        _add_started(name, launcher.language, text, found)
    for text in code:
        _add_started(name, launcher.language, text, found)


def _module_of(rest: Sequence[Word]) -> str:
    """Return the module that `python -m` runs; empty without one."""
    for place, word in enumerate(rest):
        if found := _MODULE.fullmatch(word.text):
            return found[1] or next((one.text for one in rest[place + 1 :]), "")
        if not word.text.startswith("-"):
            break
    return ""


def _add_started(name: str, language: str, code: str, found: Started) -> None:
    """Add what code starts; code with a hole, and more than is searched, is a doubt."""
    if language == "sed":
        _read_sed(code, found)
    elif (
        language == "any"
        or len(code) > _MAX_CODE_LENGTH
        or _starting_code(language).search(unicodedata.normalize("NFKC", code))
    ):
        found.doubts.append(f"code of {name} that may start a program")


class _WordReader:
    """The words of one command, option by option; used once.

    An option that gives code counts as the code only before the first operand: behind it, options are the script's.
    """

    def __init__(self, name: str, launcher: Launcher, rest: Sequence[Word], found: Started) -> None:
        self.code: list[Word] = []
        self.operands: list[Word] = []
        self.loaded: list[str] = []
        """Code besides: perl makes `use X` of `-MX`, and takes `-FX` into a `split`."""
        self.has_code = False
        """Whether an option gives the code, so that no operand does."""
        self.only_asks = bool(rest) and all(word.text.lower() in _INFORMATION_WORDS for word in rest)
        self._name, self._launcher, self._rest, self._found = name, launcher, rest, found
        self._unsure = {one[:end] for one in launcher.unsure for end in range(1, len(one) + 1)}
        self._place = 0

    def read(self) -> None:
        """Go through the words."""
        launcher, ended = self._launcher, False
        while self._place < len(self._rest):
            word = self._rest[self._place]
            self._place += 1
            text = word.text
            if text.startswith(HOLE) or (text.startswith(("-", "+")) and not word.known):
                self._add_doubt("options that only the shell will know")
            if launcher.old_bundle and self._place == 1 and not text.startswith("-"):
                self._read_old_bundle(text)
            elif launcher.plus and text.startswith("+"):
                self.code.append(literal(text[1:]))
            elif ended or text == "-" or not text.startswith("-"):
                self.operands.append(word)
                # Options of an interpreter end at its script; what is behind belongs to the script.
                ended = ended or (launcher.input and bool(launcher.code) and not launcher.one_dash)
            elif text.startswith("--") or (launcher.one_dash and len(text) > 2):
                self._read_long_option(text)
            else:
                self._read_bundle(text)

    def _add_doubt(self, text: str) -> None:
        self._found.doubts.append(f"{self._name} with {text}")

    def _next_word(self) -> Word | None:
        if self._place < len(self._rest):
            self._place += 1
            return self._rest[self._place - 1]
        return None

    def _read_long_option(self, text: str) -> None:
        name, equals, value = text.lstrip("-").partition("=")
        if kind := self._launcher.kind(name) if name else "":
            before = self.has_code
            self._take_option(kind, literal(value) if equals else self._next_word())
            self.has_code = before if name in self._unsure else self.has_code
        elif glued := next((one for one in self._launcher.runs if len(one) > 1 and name.startswith(one)), ""):
            self._take_option("runs", literal(name.removeprefix(glued)))
        elif glued := next((one for one in self._launcher.opaque if one.endswith(":") and name.startswith(one)), ""):
            self._take_option("opaque", literal(name.removeprefix(glued)))
        elif not text.startswith("--") and (kind := self._launcher.kind(name[:1])):
            self._take_option(kind, literal(text[2:]))

    def _read_bundle(self, text: str) -> None:
        """Read `-xzf`: letters without a value, then at most one with a value."""
        launcher, unclear = self._launcher, False
        for place, letter in enumerate(text[1:], start=2):
            behind = text[place:]
            if kind := launcher.kind(letter):
                if unclear:
                    self._add_doubt(f"the options {text}")
                self._take_option(kind, literal(behind) if behind else self._next_word())
                if not unclear:
                    return
            elif letter in launcher.loads:
                self.loaded.append(behind if letter == "F" else f"use {behind}")
                return
            elif letter in launcher.valued and not unclear:
                if not behind:
                    self._next_word()
                return
            elif letter in launcher.glued and not unclear:
                return
            unclear = unclear or letter not in launcher.flags

    def _read_old_bundle(self, text: str) -> None:
        """Read `cIf`: the values of its letters are the next words, in order."""
        for letter in text:
            if kind := self._launcher.kind(letter):
                self._take_option(kind, self._next_word())
            elif letter in self._launcher.valued:
                self._next_word()

    def _take_option(self, kind: str, value: Word | None) -> None:
        if value is None:
            return
        if kind == "code":
            self.has_code = self.has_code or not self.operands
            self.code.append(value)
        elif kind == "opaque":
            self.has_code = self.has_code or not self.operands
            self._add_doubt("an option that loads commands")
        elif kind == "settings":
            key, _, command = value.text.strip().replace("=", " ", 1).partition(" ")
            if HOLE in key or key.strip().lower().startswith(self._launcher.keys):
                self._found.texts.append(_as_shell_word(Word(command.strip(" '\""), "")))
                if key.strip().lower() not in _COMMAND_KEYS:
                    self._add_doubt(f"the setting {key.strip()}")
        else:
            text = _as_shell_word(value)
            self._found.texts.append(text.removeprefix("exec=").lstrip("|! "))


def _as_shell_word(word: Word) -> str:
    """Return the word as part of a shell text: an unknown part is a variable there, too."""
    return word.text.replace(HOLE, "${_}")


def _read_sed(code: str, found: Started) -> None:
    """Read a script of sed, command by command: `e COMMAND` and the flag `e` of `s` run shell commands.

    Reads the whole script, because a command that runs a program may stand behind any other one.
    """
    place = 0
    if "${_}" in code:
        found.doubts.append("a script of sed that only the shell will know")
    while place < len(code):
        read = _SED_COMMAND.match(code, place)
        if read is None:
            found.doubts.append("a script of sed that cannot be read")
            return
        place = read.end()
        if command := read["command"]:
            found.texts.append(command)
        elif command == "" or "e" in (read["flags"] or ""):
            found.doubts.append("sed that runs the lines that it reads or makes")
