"""Parsed documents that keep the text position of every node.

JSON, JSONC and YAML are read into the same small tree, so that an error can name a line and an edit can change one
entry without touching a byte of the rest. Offsets count characters of the text without its byte order mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct

from ...errors import ConfigError

MAX_BYTES = 1 << 20
"""Maximum size of a configuration file (security.md T18)."""

MAX_DEPTH = 64
"""Deepest nesting of any document."""

MAX_NODES = 20_000
"""Most values in one YAML document; a real configuration has hundreds."""

Path = tuple[str | int, ...]
"""The way from the root: keys of mappings and places in sequences."""


class Node(Struct, frozen=True, kw_only=True):
    """One value: a scalar, a mapping with its members or a sequence with its items."""

    kind: Literal["scalar", "mapping", "sequence"]
    start: int
    end: int
    line: int
    """Counted from 1."""
    column: int = 0
    """Characters before it on its line."""
    value: Any = None
    text: str = ""
    """Source text of a scalar: `1.10` and `007` stay unchanged where a string is expected."""
    members: tuple[Member, ...] = ()
    items: tuple[Node, ...] = ()
    flow: bool = True
    """False for a YAML block, which is laid out by indentation."""

    @classmethod
    def of(cls, value: Any) -> Node:
        """Return the tree of Python data, which has no text: every position is 0. Other objects are scalars."""
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            members = (Member(key=str(key), start=0, line=0, column=0, node=cls.of(inner)) for key, inner in items)
            return cls(kind="mapping", start=0, end=0, line=0, members=tuple(members))
        if isinstance(value, list | tuple):
            inner = tuple(cls.of(item) for item in cast("Sequence[Any]", value))
            return cls(kind="sequence", start=0, end=0, line=0, items=inner)
        return cls(kind="scalar", start=0, end=0, line=0, value=value, text=str(value))

    def plain(self) -> Any:
        """Return the value as Python data."""
        if self.kind == "mapping":
            return {member.key: member.node.plain() for member in self.members}
        if self.kind == "sequence":
            return [item.plain() for item in self.items]
        return self.value

    def strings(self) -> Any:
        """Return the value with every scalar as its source text; null is None."""
        if self.kind == "mapping":
            return {member.key: member.node.strings() for member in self.members}
        if self.kind == "sequence":
            return [item.strings() for item in self.items]
        return self.value if self.value is None or isinstance(self.value, str) else self.text

    def member(self, key: str) -> Member | None:
        """Return the member with `key`, or None; None also for a node that is not a mapping."""
        return next((member for member in self.members if member.key == key), None)

    def find(self, path: Path) -> Node | None:
        """Return the node at `path`, or None when it does not exist."""
        node: Node | None = self
        for step in path:
            if node is None:
                return None
            if isinstance(step, int):
                node = node.items[step] if step < len(node.items) else None
            else:
                member = node.member(step)
                node = member.node if member else None
        return node

    def line_of(self, path: Path) -> int:
        """Return the line of the key at `path`, else of the nearest thing around it that is there."""
        line, node = self.line, self
        for step in path:
            if isinstance(step, int):
                if step >= len(node.items):
                    break
                node = node.items[step]
                line = node.line
            else:
                member = node.member(step)
                if member is None:
                    break
                node, line = member.node, member.line
        return line


class Member(Struct, frozen=True, kw_only=True):
    """One `key: value` of a mapping."""

    key: str
    start: int
    """Start of the key."""
    line: int
    column: int
    node: Node


def unique(members: Sequence[Member], file: str) -> tuple[Member, ...]:
    """Return `members`; raises `ConfigError` for a duplicate key (one of the two would be lost silently)."""
    seen: dict[str, Member] = {}
    for member in members:
        first = seen.setdefault(member.key, member)
        if first is not member:
            where = f"{file}:{member.line}" if file else f"line {member.line}"
            message = f"{member.key!r} stands here a second time (first on line {first.line}); rename or remove one"
            raise ConfigError(message, file=where)
    return tuple(members)


def without(data: Any, path: Sequence[str]) -> Any:
    """Return `data` without the value at `path`; mappings that become empty on the way are removed too."""
    if not isinstance(data, dict):
        return data
    mapping = cast("dict[str, Any]", data)
    if path[0] not in mapping:
        return mapping
    rest = {key: value for key, value in mapping.items() if key != path[0]}
    inner = without(mapping[path[0]], path[1:]) if len(path) > 1 else None
    return rest | {path[0]: inner} if inner else rest
