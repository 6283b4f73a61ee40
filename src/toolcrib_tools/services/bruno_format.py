"""File format of Bruno: blocks of pairs, texts and names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct, field

_OPENING: Final = re.compile(r"\s*([A-Za-z][\w.-]*(?::[\w.-]+)*)\s*([{\[])(.*)")
_COLOR: Final = re.compile(r"\s*color\s*:.*")
_PAIR: Final = re.compile(r'(~?)\s*+(?:"((?:\\.|[^"\\])*+)"|([^\s:"]*+))\s*+:\s*+(.*)')
"""Pair on a stripped line. Linear, without backtracking: a line may be as long as a file."""
_REMARK: Final = re.compile(r"\s*@[^\s:(]+(\(.*)?")
_TEXT: Final = re.compile(r"body(:(json|text|xml|sparql|graphql|graphql:vars))?|script:.*|tests|docs|example")
_QUOTES: Final = "'''"


class Pair(Struct, frozen=True, kw_only=True):
    """A key and its value."""

    key: str
    value: str
    enabled: bool = True


class Bru(Struct):
    """Content of a file, by block name."""

    pairs: dict[str, list[Pair]] = field(default_factory=dict[str, list[Pair]])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def get(self, block: str, key: str) -> str:
        """Return the value of an enabled pair; empty if there is none."""
        return next((pair.value for pair in self.pairs.get(block, []) if pair.key == key and pair.enabled), "")

    def mapping(self, block: str) -> Mapping[str, str]:
        """Return the pairs of a block that are switched on."""
        return {pair.key: pair.value for pair in self.pairs.get(block, []) if pair.enabled}


def read_bru(text: str) -> Bru:
    """Parse a file. Raises `ValueError` with the number of the line that cannot be read."""
    return _Reader(text).read()


class _Reader:
    """One pass over the lines of a file."""

    def __init__(self, text: str) -> None:
        self._lines = text.removeprefix("\ufeff").splitlines()
        self._at = 0

    def read(self) -> Bru:
        made = Bru()
        while self._at < len(self._lines):
            line = self._next()
            if not line.strip() or _COLOR.fullmatch(line):
                continue
            opening = _OPENING.fullmatch(line)
            if opening is None:
                raise ValueError(f"line {self._at}: {line.strip()[:60]!r} begins no block")
            name, bracket, rest = opening[1], opening[2], opening[3]
            if bracket == "[":
                made.names.setdefault(name, []).extend(self._listed(rest))
            elif rest.strip():
                raise ValueError(f"line {self._at}: nothing may follow the bracket of {name}")
            elif _TEXT.fullmatch(name):
                made.texts[name] = _outdented(self._block(name))
            else:
                made.pairs.setdefault(name, []).extend(self._pairs(self._block(name)))
        return made

    def _next(self) -> str:
        self._at += 1
        return self._lines[self._at - 1]

    def _block(self, name: str) -> list[str]:
        """Return the lines up to the bracket that closes a block; inside of `'''` none does."""
        begun, lines, inside = self._at, list[str](), False
        while self._at < len(self._lines):
            line = self._next()
            if line.startswith("}") and not inside:
                return lines
            if not _TEXT.fullmatch(name) and line.count(_QUOTES) % 2:
                inside = not inside
            lines.append(line)
        raise ValueError(f"line {begun}: the block {name} is not closed")

    def _listed(self, rest: str) -> list[str]:
        """Return the names of a list in brackets, over several lines, with or without commas."""
        begun, lines = self._at, [rest]
        while "]" not in lines[-1]:
            if self._at >= len(self._lines):
                raise ValueError(f"line {begun}: the list is not closed")
            lines.append(self._next())
        text = "\n".join(lines).partition("]")[0]
        words = (re.sub(r"@\w+(\([^()]*\))?", "", word).strip() for word in re.split(r"[,\n]", text))
        return [word.removeprefix("~") for word in words if word]

    def _pairs(self, lines: list[str]) -> Iterator[Pair]:
        place = 0
        while place < len(lines):
            line = lines[place]
            place += 1
            if not line.strip():
                continue
            if _REMARK.fullmatch(line):
                if line.count(_QUOTES) == 1:
                    _, place = _quoted(lines, place, line)
                continue
            found = _PAIR.fullmatch(line.strip())
            if found is None:
                raise ValueError(f"line {self._at}: in the block before, {line.strip()[:60]!r} is not a pair")
            off, quoted, plain, value = found.groups()
            if value.startswith(_QUOTES) and value.count(_QUOTES) == 1:
                value, place = _quoted(lines, place, value)
            elif value == "[":
                gathered: list[str] = []
                while place < len(lines) and lines[place].strip() != "]":
                    gathered.append(lines[place].strip())
                    place += 1
                value, place = " ".join(gathered), place + 1
            key = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            yield Pair(key=key, value=value.removeprefix(_QUOTES).removesuffix(_QUOTES), enabled=not off)


def _quoted(lines: list[str], place: int, first: str) -> tuple[str, int]:
    """Return a text between `'''` that begins on a line before `place`, and the line after it."""
    gathered = [rest] if (rest := first.partition(_QUOTES)[2]) else []
    while place < len(lines):
        before, quotes, _ = lines[place].partition(_QUOTES)
        place += 1
        if quotes:
            gathered += [before] if before.strip() else []
            break
        gathered.append(before)
    return _outdented(gathered), place


def _outdented(lines: list[str]) -> str:
    """Return a text without the blanks that all its lines begin with."""
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[depth:] for line in lines).strip("\n")
