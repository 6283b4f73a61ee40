"""Docstrings as text for models: Google, NumPy and Sphinx style; texts of parameters apart from the description."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from ...core.patterns import regex

_GOOGLE_PARAMETERS: Final = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
)
_GOOGLE_OTHERS: Final = frozenset(
    {"returns", "return", "raises", "yields", "yield", "attributes", "example", "examples"}
)
_NUMPY_PARAMETERS: Final = frozenset({"parameters", "other parameters"})
_SHOWN: Final = frozenset({"example", "examples", "note", "notes"})
"""Docstring sections that are useful to a model; the others are for Python callers."""

_SPHINX: Final = regex(
    r":(?P<field>param|parameter|arg|argument|key|keyword)\s+(?:[^:]*?\s)?\*{0,2}(?P<name>\w+)\s*:\s*(?P<text>.*)"
)
_SPHINX_OTHER: Final = regex(r":(?:type|rtype|returns?|raises?|except|exception|yields?)\b[^:]*:")
_GOOGLE_ENTRY: Final = regex(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY: Final = regex(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_UNDERLINE: Final = regex(r"-{3,}\s*")


class Docstring(Struct, frozen=True, kw_only=True):
    """Parts of a docstring."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse_docstring(text: str | None) -> Docstring:
    """Parse a cleaned docstring; text outside parameters, results and errors stays in the description, line by line."""
    if not text:
        return Docstring()
    parameters: dict[str, str] = {}
    kept: list[str] = []
    for title, lines in _sections(text.splitlines()):
        if title is None:
            kept += _without_sphinx(lines, parameters)
        elif title.numpy and title.name in _NUMPY_PARAMETERS:
            _read_entries(lines, _NUMPY_ENTRY, parameters)
        elif not title.numpy and title.name in _GOOGLE_PARAMETERS:
            _read_entries(lines, _GOOGLE_ENTRY, parameters)
        elif title.name in _SHOWN:
            kept += ["", f"{title.name.capitalize()}:", *lines]
    return Docstring(description=_joined(kept), parameters=parameters)


class _Title(Struct, frozen=True):
    name: str
    numpy: bool


def _sections(lines: list[str]) -> Iterator[tuple[_Title | None, list[str]]]:
    """Split at section titles; text before the first and unindented text after a Google section has no title."""
    title: _Title | None = None
    part: list[str] = []
    position = 0
    while position < len(lines):
        found, used = _title(lines, position)
        ended = title is not None and not title.numpy and lines[position].strip() and not lines[position][0].isspace()
        if found is not None or ended:
            yield title, part
            title, part = found, []
        if found is None:
            part.append(lines[position])
        position += used
    yield title, part


def _title(lines: list[str], position: int) -> tuple[_Title | None, int]:
    line = lines[position]
    name = line.strip().rstrip(":").lower()
    if position + 1 < len(lines) and line.strip() and _UNDERLINE.fullmatch(lines[position + 1].strip()):
        return _Title(name, numpy=True), 2
    known = name in _GOOGLE_PARAMETERS or name in _GOOGLE_OTHERS or name in _SHOWN
    if line.endswith(":") and not line[0].isspace() and known:
        return _Title(name, numpy=False), 1
    return None, 1


def _read_entries(lines: list[str], entry: re.Pattern[str], parameters: dict[str, str]) -> None:
    """Read `name: text` or `name : type` with indented lines below."""
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    names: list[str] = []
    for line in lines:
        found = entry.fullmatch(line.strip()) if _indent(line) == margin else None
        if found is not None and line.strip():
            groups = found.groupdict()
            names = [name.strip().lstrip("*") for name in (groups.get("names") or groups["name"]).split(",")]
            parameters.update(dict.fromkeys(names, (groups.get("text") or "").strip()))
        elif line.strip():
            for name in names:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()


def _without_sphinx(lines: list[str], parameters: dict[str, str]) -> Iterator[str]:
    name: str | None = None
    inside = False
    for line in lines:
        found = _SPHINX.match(line.strip())
        if found is not None:
            name, inside = str(found["name"]), True
            parameters[name] = str(found["text"]).strip()
        elif _SPHINX_OTHER.match(line.strip()):
            name, inside = None, True
        elif inside and line.strip() and _indent(line):
            if name is not None:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()
        else:
            inside = inside and not line.strip()
            yield line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(lines: list[str]) -> str:
    """One text, with single blank lines between paragraphs."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()
