"""Editors of one member of a mapping in JSON, TOML and YAML text: every other line stays.

The parsers give nodes with their offsets in the text (`core.documents.tree`), and an edit cuts or inserts there:
writing the parsed data would lose comments, order and layout. Each edit is checked by parsing its outcome, which must
equal the data before it everywhere but at the edited path. A text that an editor does not understand is refused, never
damaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, Final, cast

import yaml

from ..core.documents.tree import Member, Node, without
from ..core.documents.yaml import parse_yaml
from ..core.patterns import regex
from ..errors import ConfigError
from .files import parse_json, parse_toml

_JSON_AFTER = regex(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*(,)?", re.DOTALL)
_JSON_BLANK = regex(r"(?:\r?\n)?[ \t]*\Z")

_TOML_HEADER: Final = regex(
    r"^[ \t]*\[\[?(?P<name>[^\]\n]+)\]\]?[ \t]*(?:#[^\n]*)?\r?$"
    r"|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|#[^\n]*",
    re.MULTILINE | re.DOTALL,
)
"""A table's header; strings and comments are matched too, so that their content is not taken for one."""
_TOML_PART: Final = regex(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*(?:\.|$)""")

_YAML_UNIT: Final = 2
_YAML_COMMA: Final = regex(r"\s*,\s*")


def check_edit(before: str, after: str, path: tuple[str, ...], file: str, read: Callable[[str], Any]) -> str:
    """Return `after` if it equals `before` everywhere but at `path`; raises `ConfigError` if it does not."""
    try:
        same = without(read(before), path) == without(read(after), path)
    except ConfigError:
        same = False
    if not same:
        raise ConfigError("cannot be changed without touching the rest: edit it by hand", file=file, key=".".join(path))
    return after


def _existing(root: Node, path: tuple[str, ...], name: str, file: str) -> tuple[Node, Member]:
    """Return the mapping at `path` and its member `name`; raises `ConfigError` when it is not there."""
    around = root.find(path)
    member = around.member(name) if around else None
    if around is None or member is None:
        raise ConfigError("is not there", file=file, key=".".join((*path, name)))
    return around, member


def insert_json(text: str, path: tuple[str, ...], name: str, value: Any, file: str = "") -> str:
    """Return `text` with `name: value` in the mapping at `path`, which is made when it is missing or null.

    Raises `ConfigError` when the member exists, or a parent is not a mapping.
    """
    if not text.strip():
        text = "{}" + (text or "\n")
    root = parse_json(text, file)
    node, depth = root, 0
    while depth < len(path) and (member := node.member(path[depth])) is not None:
        node, depth = member.node, depth + 1
    if depth and text[node.start : node.end] == "null":
        return insert_json(f"{text[: node.start]}{{}}{text[node.end :]}", path, name, value, file)
    if node.kind != "mapping":
        raise ConfigError("a mapping was expected", file=f"{file}:{node.line}", key=".".join(path[:depth]))
    if depth == len(path) and node.member(name):
        raise ConfigError("is there already", file=file, key=".".join((*path, name)))
    key, inner = name, value
    for step in reversed(path[depth:]):
        key, inner = step, {key: inner}
    changed = _insert_first_json(text, node, _JsonStyle.of(text, root, node), key, inner)
    return check_json_edit(text, changed, (*path, name), file)


def remove_json(text: str, path: tuple[str, ...], name: str, file: str = "") -> str:
    """Return `text` without the member `name` of the mapping at `path`; raises `ConfigError` when it is not there."""
    around, member = _existing(parse_json(text, file), path, name, file)
    return check_json_edit(text, _cut_json(text, around, member), (*path, name), file)


class _JsonStyle:
    """Layout of the surrounding text."""

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
    def of(cls, text: str, root: Node, node: Node) -> _JsonStyle:
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


def _insert_first_json(text: str, node: Node, style: _JsonStyle, key: str, value: Any) -> str:
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


def _cut_json(text: str, around: Node, member: Member) -> str:
    blank = _JSON_BLANK.search(text, 0, member.start)
    start = blank.start() if blank else member.start
    after = _JSON_AFTER.match(text, member.node.end)
    if after and after.group(1):
        return text[:start] + text[after.end() :]
    earlier = [other for other in around.members if other.start < member.start]
    if earlier:
        comma = _JSON_AFTER.match(text, earlier[-1].node.end)
        if comma and comma.group(1):
            return text[: comma.end() - 1] + text[comma.end() : start] + text[member.node.end :]
    return text[:start] + text[member.node.end :]


def _margin(text: str, offset: int) -> str:
    """The white space that the line of `offset` begins with."""
    start = text.rfind("\n", 0, offset) + 1
    line = text[start:offset]
    return line[: len(line) - len(line.lstrip(" \t"))]


def check_json_edit(before: str, after: str, path: tuple[str, ...], file: str) -> str:
    """Return `after`, as `check_edit` does, for JSON."""
    return check_edit(before, after, path, file, lambda text: parse_json(text).plain())


def insert_items(text: str, listed: Node, values: Iterable[Any]) -> str:
    """Return `text` with `values` in front of the items of a JSON list, on lines of their own where it has lines."""
    gap = text[listed.start + 1 : listed.items[0].start] if listed.items else ""
    if "\n" not in gap or gap.strip():
        shown = [json.dumps(value, ensure_ascii=False) for value in values]
        added = ", ".join([*shown, ""] if listed.items else shown)
    else:
        margin = gap[gap.rindex("\n") + 1 :]
        newline = ("\r\n" if "\r\n" in gap else "\n") + margin
        unit = "\t" if margin.startswith("\t") else "  "
        shown = [json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", newline) for value in values]
        added = "".join(f"{newline}{value}," for value in shown)
    return text[: listed.start + 1] + added + text[listed.start + 1 :]


def remove_item(text: str, listed: Node, entry: Node) -> str:
    """Return `text` without one item of a JSON list, and without the comma that belongs to it."""
    if len(listed.items) == 1:
        return text[: entry.start] + text[entry.end :]
    place = next(number for number, item in enumerate(listed.items) if item.start == entry.start)
    if place + 1 < len(listed.items):
        return text[: entry.start] + text[listed.items[place + 1].start :]
    return text[: listed.items[place - 1].end] + text[entry.end :]


def insert_toml(text: str, path: tuple[str, ...], name: str, value: Mapping[str, Any], file: str = "") -> str:
    """Return `text` with the table `name` at the end; mappings inside it become inline tables.

    Raises `ConfigError` when it exists or the text leaves no room for it (an inline table).
    """
    table = _toml_table(_toml_data(text, file), path)
    if name in table:
        raise ConfigError("is there already", file=file, key=".".join((*path, name)))
    newline = "\r\n" if "\r\n" in text else "\n"
    header = ".".join(_toml_key(part) for part in (*path, name))
    lines = [f"[{header}]", *(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items()), ""]
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return _checked_toml(text, text + gap + newline.join(lines), (*path, name), file)


def remove_toml(text: str, path: tuple[str, ...], name: str, file: str = "") -> str:
    """Return `text` without the table `name` and the tables inside it; raises `ConfigError` when it is not there."""
    wanted = (*path, name)
    if name not in _toml_table(_toml_data(text, file), path):
        raise ConfigError("is not there", file=file, key=".".join(wanted))
    changed, place = "", 0
    for start, end in _toml_spans(text, wanted):
        changed += text[place:start]
        place = end
    changed += text[place:]
    if place == len(text):
        changed = changed.rstrip() + (("\r\n" if "\r\n" in text else "\n") if changed.strip() else "")
    if name in _toml_table(_toml_data(changed, file), path):  # dotted keys or an inline table, without a header
        raise ConfigError("cannot be taken out as text: edit it by hand", file=file, key=".".join(wanted))
    return _checked_toml(text, changed, wanted, file)


def restore_toml(text: str, plain: str, before: str, tables: Iterable[tuple[str, ...]]) -> str:
    """Return `text` with `tables` as they stood in `before`: in their places, with their comments.

    `plain` has their values at the end, and is returned where `text` has changed too much for those places.
    """
    old, now = before.splitlines(keepends=True), text.splitlines(keepends=True)
    spans = [span for table in tables for span in _toml_spans(before, table)]
    taken = {line for start, end in spans for line in range(before.count("\n", 0, start), before.count("\n", 0, end))}
    merged = ""
    lines = SequenceMatcher(lambda line: not line.strip(), old, now, autojunk=False)
    for step, first, last, start, end in lines.get_opcodes():
        fresh = "".join(now[start:end])
        ours = [line in taken for line in range(first, last) if old[line].strip()]
        if step == "equal" or not any(ours):
            merged += fresh
        elif all(ours) and not fresh.strip():
            merged += "".join(old[first:last])  # with the blank lines between them
        else:
            back = "".join(old[line] for line in range(first, last) if line in taken)
            merged += back + fresh if ours[0] else fresh + back
    try:
        return merged if _toml_data(merged, "") == _toml_data(plain, "") else plain
    except ConfigError:
        return plain


def _toml_spans(text: str, wanted: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the table `wanted` and of those inside it, without the comments of the next table."""
    headers = [(match.start(), _toml_parts(match["name"])) for match in _TOML_HEADER.finditer(text) if match["name"]]
    for (start, parts), (following, next_parts) in zip(headers, [*headers, (len(text), ())][1:], strict=True):
        if parts[: len(wanted)] == wanted:
            inside = next_parts[: len(wanted)] == wanted or following == len(text)
            yield start, following if inside else _toml_end(text, following)


def _toml_end(text: str, place: int) -> int:
    """Return the offset where blank lines before `place`, and the comments of the next table, begin."""
    lines = text[:place].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        place -= len(lines.pop())
    return place


def _toml_data(text: str, file: str) -> Mapping[str, Any]:
    return parse_toml(text.encode(), file)


def _toml_table(data: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for step in path:
        data = data.get(step, {})
    return data


def _toml_key(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part)


def _toml_value(item: Any) -> str:
    """JSON strings, numbers, booleans and lists of them are TOML too."""
    if isinstance(item, Mapping):
        inner = cast("Mapping[str, Any]", item)
        return f"{{ {', '.join(f'{_toml_key(key)} = {_toml_value(value)}' for key, value in inner.items())} }}"
    return json.dumps(item, ensure_ascii=False)


def _toml_parts(header: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _TOML_PART.findall(header))


def _checked_toml(before: str, after: str, path: tuple[str, ...], file: str) -> str:
    return check_edit(before, after, path, file, lambda text: _toml_data(text, file))


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
        changed = _insert_flow(text, node, _dump_yaml({key: inner}, flow=True).strip()[1:-1])
    elif node.members:
        place = _line_end(text, node)
        changed = _with_newline(text[:place]) + _yaml_block(key, inner, node.column) + text[place:]
    elif last is not None:
        changed = _fill_empty(text, last, _yaml_block(key, inner, last.column + _YAML_UNIT))
    else:
        changed = _with_newline(text[: node.start] if node.flow else text) + _yaml_block(key, inner, 0)
    return _checked_yaml(text, _same_newlines(text, changed), (*path, name), file)


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
        written = space + _dump_yaml([value], flow=True).strip()[1:-1]
        return _checked_yaml(text, text[: node.start] + written + text[node.end :], (*path, name), file)
    return insert_yaml(remove_yaml(text, path, name, file), path, name, value, file)


def remove_yaml(text: str, path: tuple[str, ...], name: str, file: str = "") -> str:
    """Return `text` without the member `name` of the mapping at `path`; raises `ConfigError` when it is not there."""
    root = parse_yaml(text, file)
    around, member = _existing(root, path, name, file)
    if around.flow:
        return _checked_yaml(text, _cut_yaml(text, around, member), (*path, name), file)
    start, end = member.start - member.column, _line_end(text, member.node)
    changed = text[:start] + text[end:]
    if len(around.members) == 1 and path:
        outer = root.find(path[:-1])
        owner = outer.member(path[-1]) if outer else None
        colon = text.index(":", owner.start) + 1 if owner else start
        changed = f"{text[:colon]} {{}}{text[colon:start]}{text[end:]}"
    return _checked_yaml(text, changed, (*path, name), file)


def _cut_yaml(text: str, around: Node, member: Member) -> str:
    """Take a member out of `{…}` with the comma that belongs to it."""
    after = _YAML_COMMA.match(text, member.node.end)
    if after:
        return text[: member.start] + text[after.end() :]
    earlier = [other.node.end for other in around.members if other.start < member.start]
    return text[: max(earlier, default=member.start)] + text[member.node.end :]


def _yaml_block(key: str, value: Any, indent: int) -> str:
    return "".join(f"{' ' * indent}{line}\n" for line in _dump_yaml({key: value}, flow=False).splitlines())


def _dump_yaml(value: Any, *, flow: bool) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=1_000_000)


def _insert_flow(text: str, node: Node, member: str) -> str:
    """Put `member` first into `{…}`, or in the place of nothing inside one."""
    if node.members:
        return f"{text[: node.start + 1]}{member}, {text[node.start + 1 :]}"
    return f"{text[: node.start]} {{{member}}}{text[node.end :]}"


def _fill_empty(text: str, last: Member, block: str) -> str:
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


def _with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _same_newlines(before: str, after: str) -> str:
    return after.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in before else after


def _checked_yaml(before: str, after: str, path: tuple[str, ...], file: str) -> str:
    return check_edit(before, after, path, file, lambda text: parse_yaml(text).plain())
