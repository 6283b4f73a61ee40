"""Editor of one member of a mapping in JSON or JSONC text: every other byte stays.

A new member goes first: nothing around it needs a comma or a comment moved, and taking it out again is the exact
inverse. Every edit is checked by parsing the outcome.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..core.document_tree import Member, Node
from ..errors import ConfigError
from .edit_check import checked
from .jsonc import parse_json

__all__ = ["insert_json", "member_text_json", "remove_json"]

_AFTER = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*(,)?", re.DOTALL)
_BLANK_BEFORE = re.compile(r"(?:\r?\n)?[ \t]*\Z")


def insert_json(text: str, path: tuple[str, ...], name: str, value: Any, file: str = "") -> str:
    """Return `text` with `name: value` in the mapping at `path`, which is made when it is missing.

    Raises `ConfigError` when the member exists, or a parent is not a mapping.
    """
    if not text.strip():
        text = "{}" + (text or "\n")
    root = parse_json(text, file)
    node, depth = root, 0
    while depth < len(path) and (member := node.member(path[depth])) is not None:
        node, depth = member.node, depth + 1
    if node.kind != "mapping":
        raise ConfigError("a mapping was expected", file=f"{file}:{node.line}", key=".".join(path[:depth]))
    if depth == len(path) and node.member(name):
        raise ConfigError("is there already", file=file, key=".".join((*path, name)))
    key, inner = name, value
    for step in reversed(path[depth:]):
        key, inner = step, {key: inner}
    changed = _insert_first(text, node, _Style.of(text, root, node), key, inner)
    return _checked(text, changed, (*path, name), file)


def remove_json(text: str, path: tuple[str, ...], name: str, file: str = "") -> str:
    """Return `text` without the member `name` of the mapping at `path`; raises `ConfigError` when it is not there."""
    root = parse_json(text, file)
    around = root.find(path)
    member = around.member(name) if around else None
    if around is None or member is None:
        raise ConfigError("is not there", file=file, key=".".join((*path, name)))
    return _checked(text, _cut(text, around, member), (*path, name), file)


def member_text_json(text: str, path: tuple[str, ...], name: str, file: str = "") -> str:
    """Return the member's value as it is written."""
    node = parse_json(text, file).find((*path, name))
    return text[node.start : node.end] if node else ""


class _Style:
    """How the text around is laid out."""

    def __init__(self, *, newline: str, unit: str, outer: str, inner: str, block: bool) -> None:
        self.newline = newline
        self.unit = unit
        self.outer = outer
        """White space before the closing brace of the mapping."""
        self.inner = inner
        """White space before its members."""
        self.block = block
        """Whether members have lines of their own."""

    @classmethod
    def of(cls, text: str, root: Node, node: Node) -> _Style:
        newline = "\r\n" if "\r\n" in text else "\n"
        first = root.members[0] if root.members else None
        unit = (_margin(text, first.start) if first and first.line > root.line else "") or "  "
        outer = _margin(text, node.start)
        members = node.members
        block = members[0].line > node.line if members else True
        inner = _margin(text, members[0].start) if members and block else outer + unit
        return cls(newline=newline, unit=unit, outer=outer, inner=inner, block=block)

    def dump(self, value: Any) -> str:
        if not self.block:
            return json.dumps(value, ensure_ascii=False)
        text = json.dumps(value, ensure_ascii=False, indent=self.unit)
        return text.replace("\n", self.newline + self.inner)


def _insert_first(text: str, node: Node, style: _Style, key: str, value: Any) -> str:
    place = node.start + 1
    member = f"{json.dumps(key, ensure_ascii=False)}: {style.dump(value)}"
    if not style.block:
        gap = "" if text[place] in " \t" else " "
        return f"{text[:place]} {member},{gap}{text[place:]}"
    opened = f"{text[:place]}{style.newline}{style.inner}{member}"
    if node.members:
        return f"{opened},{text[place:]}"
    closing = "" if "\n" in text[place : node.end] else style.newline + style.outer
    return f"{opened}{closing}{text[place:]}"


def _cut(text: str, around: Node, member: Member) -> str:
    blank = _BLANK_BEFORE.search(text, 0, member.start)
    start = blank.start() if blank else member.start
    after = _AFTER.match(text, member.node.end)
    if after and after.group(1):
        return text[:start] + text[after.end() :]
    earlier = [other for other in around.members if other.start < member.start]
    if earlier:
        comma = _AFTER.match(text, earlier[-1].node.end)
        if comma and comma.group(1):
            return text[: comma.end() - 1] + text[comma.end() : start] + text[member.node.end :]
    return text[:start] + text[member.node.end :]


def _margin(text: str, offset: int) -> str:
    """The white space that the line of `offset` begins with."""
    start = text.rfind("\n", 0, offset) + 1
    line = text[start:offset]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _checked(before: str, after: str, path: tuple[str, ...], file: str) -> str:
    return checked(before, after, path, file, lambda text: parse_json(text).plain())
