"""Commands of a `build.ninja`, with the values that its variables have anywhere in the file.

Which value holds for which build is not decided: each value of a variable that a command uses counts as a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ...core.patterns import regex
from .makefile_recipes import LARGEST, TooLarge

_ASSIGNED: Final = regex(r"[ ]*([\w.-]+)[ ]*=[ ]*(.*)")
_BUILD: Final = regex(r"build[ ]+((?:[^:$]|\$.)*):[ ]*[\w.-]+(.*)")
_VARIABLE_USE: Final = regex(r"\$(?:\{([\w.-]+)\}|([\w-]+)|(.))")
_RUNS_FILE: Final = regex(r"(?:^|[;&|(])[ ]*(?:\./)?\$\{?(?:in|out)(?:_newline)?\b")
_INCLUDE: Final = regex(r"^(?:include|subninja)[ ]+(.+)$", re.MULTILINE)
_COMMAND: Final = "command"
_MAX_DEPTH: Final = 8


def included_by_ninja(text: str) -> list[str]:
    """Return the names of the files that a `build.ninja` includes."""
    return [found.strip() for found in _INCLUDE.findall(text)]


def ninja_commands(text: str) -> list[str]:
    """Return the commands, and the values from which they are made. Raises `TooLarge`.

    The size is that of all expanded lines together; beyond `LARGEST` characters the file counts as not read.
    """
    if len(text) > LARGEST:
        raise TooLarge
    values: dict[str, dict[str, None]] = {}
    files: dict[str, None] = {}
    for line in re.sub(r"\$\n[ ]*", "", text).splitlines():
        if found := _ASSIGNED.fullmatch(line):
            values.setdefault(found[1], {})[found[2]] = None
        elif found := _BUILD.match(line):
            files |= dict.fromkeys((found[1].strip(), found[2].partition("|")[0].strip()))
    commands = list(values.pop(_COMMAND, ()))
    last = {name: next(reversed(known)) for name, known in values.items()}
    lines = dict.fromkeys(_expand_variables(command, last) for command in commands)
    for name in _used_variables(commands, values):
        lines |= dict.fromkeys(_expand_variables(value, last) for value in values[name])
    if any(map(_RUNS_FILE.search, commands)):
        lines |= dict.fromkeys(_expand_variables(name, last) for name in files)
    if sum(map(len, lines)) > LARGEST:
        raise TooLarge
    return list(lines)


def _used_variables(commands: list[str], values: Mapping[str, Mapping[str, None]]) -> Iterator[str]:
    """Yield the variables that the commands use, and those in their values."""
    waiting, seen = list(commands), set[str]()
    while waiting:
        for found in _VARIABLE_USE.finditer(waiting.pop()):
            name = found[1] or found[2] or ""
            if name in values and name not in seen:
                seen.add(name)
                waiting += values[name]
                yield name


def _expand_variables(text: str, values: Mapping[str, str]) -> str:
    """Return the text with the last values of its variables; one without a value is empty, as for ninja."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name in ("in", "out", "in_newline"):
            return name
        return values.get(name, "") if name else f"${found[3]}"

    for _ in range(_MAX_DEPTH):
        before, text = text, _VARIABLE_USE.sub(value, text)
        if len(text) > LARGEST:
            raise TooLarge
        if text == before:
            break
    return re.sub(r"\$(.)", r"\1", text)
