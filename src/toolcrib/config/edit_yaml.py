"""Editor of one member of a mapping in YAML text: every other line stays; checked by parsing the outcome."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from ..core.document_tree import Member, Node
from ..core.yaml_document import parse_yaml
from ..errors import ConfigError
from .edit_check import checked

__all__ = ["insert_yaml", "remove_yaml", "set_yaml"]

_UNIT: Final = 2
_COMMA: Final = re.compile(r"\s*,\s*")


def insert_yaml(text: str, path: tuple[str, ...], name: str, value: Any, file: str = "") -> str:
    """Return `text` with `name: value` last in the mapping at `path`, which is made when it is missing.

    Raises `ConfigError` when the member exists, or a parent is not a mapping.
    """
    node, depth, last = parse_yaml(text, file), 0, None
    inside_flow = False
    while depth < len(path) and (member := node.member(path[depth])) is not None:
        inside_flow = inside_flow or node.flow
        node, depth, last = member.node, depth + 1, member
    if depth == len(path) and node.member(name):
        raise ConfigError("is there already", file=file, key=".".join((*path, name)))
    if node.kind != "mapping" and node.value is not None:
        raise ConfigError("a mapping was expected", file=f"{file}:{node.line}", key=".".join(path[:depth]))
    key, inner = name, value
    for step in reversed(path[depth:]):
        key, inner = step, {key: inner}
    if inside_flow or (node.members and node.flow):
        changed = _inline(text, node, _dump({key: inner}, flow=True).strip()[1:-1])
    elif node.members:
        changed = _append(text, node, _block(key, inner, node.column))
    elif last is not None:
        changed = _fill(text, last, _block(key, inner, last.column + _UNIT))
    else:
        changed = _ended(text[: node.start] if node.flow else text) + _block(key, inner, 0)
    return _checked(text, _newlines(text, changed), (*path, name), file)


def set_yaml(text: str, path: tuple[str, ...], name: str, value: Any, file: str = "") -> str:
    """Return `text` with `name: value` in the mapping at `path`, in place of any old value; a comment behind it stays.

    Raises `ConfigError` when a parent is not a mapping.
    """
    around = parse_yaml(text, file).find(path)
    member = around.member(name) if around else None
    if member is None:
        return insert_yaml(text, path, name, value, file)
    node = member.node
    if node.kind == "scalar" and "\n" not in text[node.start : node.end]:
        space = "" if text[node.start - 1 : node.start].isspace() else " "
        written = space + _dump([value], flow=True).strip()[1:-1]
        return _checked(text, text[: node.start] + written + text[node.end :], (*path, name), file)
    return insert_yaml(remove_yaml(text, path, name, file), path, name, value, file)


def remove_yaml(text: str, path: tuple[str, ...], name: str, file: str = "") -> str:
    """Return `text` without the member `name` of the mapping at `path`; raises `ConfigError` when it is not there."""
    root = parse_yaml(text, file)
    around = root.find(path)
    member = around.member(name) if around else None
    if around is None or member is None:
        raise ConfigError("is not there", file=file, key=".".join((*path, name)))
    if around.flow:
        return _checked(text, _cut(text, around, member), (*path, name), file)
    start, end = member.start - member.column, _line_end(text, member.node)
    changed = text[:start] + text[end:]
    if len(around.members) == 1 and path:
        outer = root.find(path[:-1])
        owner = outer.member(path[-1]) if outer else None
        colon = text.index(":", owner.start) + 1 if owner else start
        changed = f"{text[:colon]} {{}}{text[colon:start]}{text[end:]}"
    return _checked(text, changed, (*path, name), file)


def _cut(text: str, around: Node, member: Member) -> str:
    """Take a member out of `{…}` with the comma that belongs to it."""
    after = _COMMA.match(text, member.node.end)
    if after:
        return text[: member.start] + text[after.end() :]
    earlier = [other.node.end for other in around.members if other.start < member.start]
    return text[: max(earlier, default=member.start)] + text[member.node.end :]


def _block(key: str, value: Any, indent: int) -> str:
    return "".join(f"{' ' * indent}{line}\n" for line in _dump({key: value}, flow=False).splitlines())


def _dump(value: Any, *, flow: bool) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=1_000_000)


def _inline(text: str, node: Node, member: str) -> str:
    """Put `member` first into `{…}`, or in the place of nothing inside one."""
    if node.members:
        return f"{text[: node.start + 1]}{member}, {text[node.start + 1 :]}"
    return f"{text[: node.start]} {{{member}}}{text[node.end :]}"


def _append(text: str, node: Node, block: str) -> str:
    place = _line_end(text, node)
    return _ended(text[:place]) + block + text[place:]


def _fill(text: str, last: Member, block: str) -> str:
    """Put `block` under a key that has nothing, or `{}`, behind it."""
    node = last.node
    empty = node.start == node.end
    colon = text.index(":", last.start) + 1
    rest = text[colon if empty else node.end :]
    line, newline, below = rest.partition("\n")
    return f"{text[:colon]}{line.rstrip()}\n{block}{below if newline else ''}"


def _line_end(text: str, node: Node) -> int:
    """The offset after the last line of `node`."""
    if node.end and text[node.end - 1 : node.end] == "\n":
        return node.end
    found = text.find("\n", node.end)
    return len(text) if found < 0 else found + 1


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _newlines(before: str, after: str) -> str:
    return after.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in before else after


def _checked(before: str, after: str, path: tuple[str, ...], file: str) -> str:
    return checked(before, after, path, file, lambda text: parse_yaml(text).plain())
