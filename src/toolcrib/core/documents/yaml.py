"""Safe YAML reader: no aliases, no tags, no duplicate keys, no dates and no `no` that means false.

Built from the events of libyaml's C parser, one at a time, so neither nesting nor size can hurt (security.md T18).
Scalars follow the core schema of YAML 1.2: null, true/false, numbers; everything else is a string.
"""

from __future__ import annotations

from typing import Any, Final

import yaml
from msgspec import Struct, field

from ...errors import ConfigError
from ..patterns import regex
from .tree import MAX_DEPTH, MAX_NODES, Member, Node, unique

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER: Final = regex(r"[-+]?[0-9]{1,18}")
_FLOAT: Final = regex(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")


class TooManyValues(ConfigError):
    """A document with an excessive number of values, made to keep its reader busy."""


def parse_yaml(text: str, file: str = "", *, max_nodes: int = MAX_NODES, first_line: int = 1) -> Node:
    """Return the tree of one YAML document; an empty one is an empty mapping.

    `max_nodes` bounds its values, some 8 µs each. `first_line` is the position of `text` in `file`. Raises
    `ConfigError` with file and line for broken YAML and for unsupported features.
    """
    builder = _Builder(file, max_nodes, first_line)
    try:
        loader = yaml.CSafeLoader(text)
        while (event := loader.get_event()) is not None:
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = (mark.line if mark else 0) + first_line
        raise ConfigError(f"this is not YAML: {yaml_reason(error, text)}", file=_where(file, line)) from error
    except yaml.YAMLError as error:  # a control character: its position counts bytes
        line = text.encode()[: getattr(error, "position", 0)].count(b"\n") + first_line
        raise ConfigError(f"this is not YAML: {str(error).splitlines()[0]}", file=_where(file, line)) from error
    return builder.root or Node(kind="mapping", start=len(text), end=len(text), line=first_line, flow=False)


def yaml_reason(error: yaml.MarkedYAMLError, text: str) -> str:
    """Return the reason of libyaml; of two frequent mistakes what to write instead."""
    mark = error.problem_mark or error.context_mark
    if mark is not None and text[mark.index : mark.index + 1] == "\t":  # "character that cannot start any token"
        return "a tab; lines are indented with spaces"
    if error.problem == "mapping values are not allowed in this context":
        return f"{error.problem}: quote a text that has `: ` in it, and indent the keys of a mapping alike"
    return error.problem or "not YAML"


class _Open(Struct):
    """A collection that has not ended yet."""

    event: yaml.CollectionStartEvent
    members: list[Member] = field(default_factory=list[Member])
    items: list[Node] = field(default_factory=list[Node])
    key: Node | None = None

    @property
    def mapping(self) -> bool:
        return isinstance(self.event, yaml.MappingStartEvent)


class _Builder:
    """Puts events together; used once.

    `_open` holds the collections around the next event, the innermost last. In a mapping, nodes are a key and a value
    in turns (`_Open.key`).
    """

    def __init__(self, file: str, max_nodes: int, first_line: int) -> None:
        self.root: Node | None = None
        self._file = file
        self._max_nodes = max_nodes
        self._first_line = first_line
        self._open: list[_Open] = []
        self._count = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self._error(event, "aliases (*name) are not supported here: write the value out")
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise self._error(event, "one document is expected, here a second one begins")
        if isinstance(event, yaml.CollectionStartEvent):
            self._check(event)
            self._open.append(_Open(event))
            if len(self._open) > MAX_DEPTH:
                raise self._error(event, f"nested deeper than {MAX_DEPTH}")
        elif isinstance(event, yaml.CollectionEndEvent):
            self._add(self._close(self._open.pop(), event))
        elif isinstance(event, yaml.ScalarEvent):
            self._check(event)
            self._add(_scalar(event, self._first_line))

    def _check(self, event: yaml.CollectionStartEvent | yaml.ScalarEvent) -> None:
        self._count += 1
        if self._count > self._max_nodes:
            message = f"more than {self._max_nodes} values"
            raise TooManyValues(message, file=_where(self._file, event.start_mark.line + self._first_line))
        if event.tag is not None and event.tag not in ("!", "tag:yaml.org,2002:str"):
            raise self._error(event, f"the tag {event.tag} is not supported here")

    def _add(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        around = self._open[-1]
        if not around.mapping:
            around.items.append(node)
        elif around.key is None:
            around.key = node
        else:
            around.members.append(self._member(around.key, node))
            around.key = None

    def _member(self, key: Node, node: Node) -> Member:
        if key.kind != "scalar":
            raise ConfigError("a key must be a plain name", file=_where(self._file, key.line))
        name = key.value if isinstance(key.value, str) else _spelled(key.value)
        return Member(key=name, start=key.start, line=key.line, column=key.column, node=node)

    def _close(self, opened: _Open, event: yaml.Event) -> Node:
        start = opened.event.start_mark
        flow = bool(opened.event.flow_style)
        inner = [member.node.end for member in opened.members] + [item.end for item in opened.items]
        end = event.end_mark.index if flow or not inner else inner[-1]
        return Node(
            kind="mapping" if opened.mapping else "sequence",
            start=start.index,
            end=end,
            line=start.line + self._first_line,
            column=start.column,
            members=unique(opened.members, self._file),
            items=tuple(opened.items),
            flow=flow,
        )

    def _error(self, event: yaml.Event, message: str) -> ConfigError:
        return ConfigError(message, file=_where(self._file, event.start_mark.line + self._first_line))


def _scalar(event: yaml.ScalarEvent, first_line: int) -> Node:
    """Return a node; a quoted scalar, and one with the tag of strings, is a string even if it reads like a number."""
    plain = event.style is None or event.style == ""
    value = resolve_scalar(event.value) if plain and event.tag is None else event.value
    start = event.start_mark
    return Node(
        kind="scalar",
        start=start.index,
        end=event.end_mark.index,
        line=start.line + first_line,
        column=start.column,
        value=value,
        text=event.value,
        flow=event.style not in ("|", ">"),
    )


def resolve_scalar(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _spelled(value: Any) -> str:
    """A key that reads like a number or a constant is a name all the same."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _where(file: str, line: int) -> str:
    return f"{file}:{line}" if file else f"line {line}"
