"""From the text of a catalog to its entries, each with its lines, whatever stands beside them.

The document is parsed as a whole. Where that fails it is taken apart at its list items and every item is parsed by
itself, at its own lines: one that is broken, or a character that strayed into the file, costs nobody else anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...core.tree import Node
from ...core.yamltext import TooManyValues, parse_yaml
from ...errors import ConfigError

__all__ = ["ENTRIES", "MAX_NODES", "Document", "read_document"]

ENTRIES: Final = "capabilities"
"""The key that the entries stand under; a document that is a list has them at its root."""

MAX_NODES: Final = 60_000
"""Values in one catalog: some 1,500 entries, parsed in half a second."""

_MAX_CHUNKS: Final = 5_000
"""Parts that a broken document is taken apart into, some 30 µs each."""

_MAX_TOLD: Final = 100
"""Broken places of one document that are told one by one."""

_ODD: Final = re.compile("[^\\t\\n\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""What YAML refuses, and bytes that were no UTF-8."""

_KEY: Final = re.compile(r"(?:[A-Za-z_][\w.-]*|\"[^\"]+\"|'[^']+')\s*:(?:\s|$)")
_DASH: Final = re.compile(r"( *)-(?:\s|$)")
_NAMED: Final = re.compile(r"( *)-\s+name\s*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a catalog says: its entries in order, the other keys at its root, and what could not be read."""

    entries: tuple[Node, ...] = ()
    sections: dict[str, Node] = field(default_factory=dict[str, Node])
    broken: tuple[str, ...] = ()
    """One sentence a place, each with file and line."""


def read_document(text: str, file: str) -> Document:
    """Return what `text` says. Raises `ConfigError` when it is no catalog at all."""
    try:
        root = parse_yaml(text, file, max_nodes=MAX_NODES)
    except TooManyValues:
        raise
    except (ConfigError, UnicodeEncodeError) as error:
        found = _taken_apart(text, file)
        if not found.entries and isinstance(error, ConfigError):
            raise
        return found if found.broken else Document(entries=found.entries, sections=found.sections, broken=(str(error),))
    return _whole(root, file)


def _whole(root: Node, file: str) -> Document:
    if root.kind == "sequence":
        return Document(entries=root.items)
    sections = {member.key: member.node for member in root.members}
    entries = sections.pop(ENTRIES, None)
    if entries is None:
        raise ConfigError(f"this is no catalog: it has no list `{ENTRIES}`", file=file)
    if entries.kind == "scalar" and entries.value is None:
        return Document(sections=sections)
    if entries.kind != "sequence":
        raise ConfigError("a list of entries was expected", file=f"{file}:{entries.line}", key=ENTRIES)
    return Document(entries=entries.items, sections=sections)


@dataclass(slots=True)
class _Chunk:
    """Lines that belong together: one item of the list, or one section at the root."""

    first: int
    """Its first line, counted from 0."""
    lines: list[str]
    key: str = ""
    """The key of a section; empty for an item."""

    def parse(self, file: str, max_nodes: int) -> Node:
        """Raise `ConfigError` with the line in the file."""
        text = "\n".join((*self.lines, ""))
        if (odd := _ODD.search(text)) is not None:
            line = self.first + text.count("\n", 0, odd.start()) + 1
            raise ConfigError("a character that no text has", file=f"{file}:{line}")
        return parse_yaml(text, file, max_nodes=max_nodes, first_line=self.first + 1)


def _taken_apart(text: str, file: str) -> Document:
    entries: list[Node] = []
    sections: dict[str, Node] = {}
    broken: list[str] = []
    left = MAX_NODES
    chunks, strays = _split(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    if len(chunks) > _MAX_CHUNKS:
        raise ConfigError(f"has more than {_MAX_CHUNKS} entries", file=file)
    for chunk in chunks:
        try:
            node = chunk.parse(file, left)
            left -= _count(node)
        except TooManyValues:
            raise
        except ConfigError as error:
            what = "this entry" if not chunk.key else f"`{chunk.key}`"
            broken.append(f"{error} ({what}, from line {chunk.first + 1}, is left out)")
            continue
        if chunk.key:
            sections |= {member.key: member.node for member in node.members}
        else:
            entries += node.items
    broken += [f"{file}:{line + 1}: this line belongs to nothing and is left out" for line in strays]
    if len(broken) > _MAX_TOLD:
        broken[_MAX_TOLD:] = [f"{file}: {len(broken) - _MAX_TOLD} more places could not be read"]
    return Document(entries=tuple(entries), sections=sections, broken=tuple(broken))


def _count(node: Node) -> int:
    pending, count = [node], 0
    while pending:
        found = pending.pop()
        count += 1 + len(found.members)
        pending += [*(member.node for member in found.members), *found.items]
    return count


def _split(lines: Sequence[str]) -> tuple[list[_Chunk], list[int]]:
    """Return the chunks in order, and the lines (from 0) that belong to none."""
    chunks: list[_Chunk] = []
    strays: list[int] = []
    column = _column(lines)
    in_list = _DASH.match(next(_said(lines), "")) is not None
    for number, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith("#") or line.rstrip() in ("---", "..."):
            if chunks:  # kept: a text may have lines that begin with `#`
                chunks[-1].lines.append("" if line.startswith(("---", "...")) else line)
            continue
        dash = _DASH.match(line)
        indent = len(line) - len(line.lstrip(" "))
        if in_list and dash and indent <= column:
            chunks.append(_Chunk(number, [line]))
        elif indent == 0 and _KEY.match(line):
            key = line.partition(":")[0].strip().strip("\"'")
            in_list = key == ENTRIES
            if not in_list:
                chunks.append(_Chunk(number, [line], key))
        elif not chunks or (in_list and indent <= column):
            strays.append(number)
        else:
            chunks[-1].lines.append(line)
    return chunks, strays


def _column(lines: Sequence[str]) -> int:
    """Return how far the entries' dashes are indented: as most that begin with a name are, else as the first is."""
    named = Counter(len(match[1]) for match in map(_NAMED.match, lines) if match)
    if named:
        return min(named, key=lambda indent: (-named[indent], indent))
    return next((len(match[1]) for match in map(_DASH.match, lines) if match), 0)


def _said(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines that say something."""
    return (line for line in lines if line.strip() and not line.lstrip().startswith("#") and line.rstrip() != "---")
