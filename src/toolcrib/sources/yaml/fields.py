"""Fields of one entry of a YAML catalog: read, checked and expanded, each error with its place; and templates in them.

In a template `{name}` is the place of an argument, `{{` and `}}` are braces, `${NAME}` is a variable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from ...core.documents.tree import Node
from ...core.json import dumps
from ...core.patterns import regex
from ...core.similar import did_you_mean
from ...errors import ConfigError

_PIECE: Final = regex(r"(\$\{[^{}]*\})|\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}|[{}]")

Expand = Callable[[str, bool], str]
"""Replaces `${VAR}` in a text; True marks the result as possibly secret. Raises `ConfigError` when it is unset."""

_OPEN: Final = ("cwd", "url")
"""Keys whose variables are places, not secrets."""

_MAX_SHOWN: Final = 20
"""Unknown keys of one mapping that are reported one by one."""

_SHOWN: Final = 80
"""Characters of a wrong value that an error quotes."""

_NOTHING: Final = Node(kind="scalar", start=0, end=0, line=0)


class Template(Struct, frozen=True, kw_only=True):
    """Literal pieces and names of arguments, in turn: a name at every odd place."""

    pieces: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, variable: Callable[[str], str]) -> Template:
        """`variable` returns the fixed value of a `${…}`. Raises `ValueError` for a single brace."""
        pieces = [""]
        position = 0
        for match in _PIECE.finditer(text):
            pieces[-1] += text[position : match.start()]
            position = match.end()
            found = match.group()
            if match.group(1):
                pieces[-1] += variable(match.group(1))
            elif match.group(2):
                pieces += [match.group(2), ""]
            elif found in ("{{", "}}"):
                pieces[-1] += found[0]
            else:
                raise ValueError(f"{found!r} at character {match.start() + 1} stands alone; write {found * 2} for one")
        pieces[-1] += text[position:]
        return cls(pieces=tuple(pieces))

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that it uses."""
        return self.pieces[1::2]

    @property
    def only(self) -> str:
        """The argument that it consists of, and nothing else; empty for any other template."""
        return self.pieces[1] if len(self.pieces) == 3 and not self.pieces[0] and not self.pieces[2] else ""

    def fill(self, arguments: Mapping[str, Any], write: Callable[[Any], str]) -> str | None:
        """Return the text with each argument as `write` writes it; None when one of them was not given."""
        if any(arguments.get(name) is None for name in self.names):
            return None
        return "".join(write(arguments[piece]) if place % 2 else piece for place, piece in enumerate(self.pieces))


def as_text(value: Any) -> str:
    """Write a value as a person would: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else dumps(value).decode()


class Fields:
    """Reads one mapping. Made for one pass over one entry."""

    def __init__(self, node: Node, file: str, path: tuple[str, ...], expand: Expand) -> None:
        """`path` leads to the mapping, for messages. Raises `ConfigError` for another node."""
        self._node = node
        self._file = file
        self._path = path
        self._expand = expand
        if node.kind != "mapping":
            raise ConfigError("a mapping was expected", file=f"{file}:{node.line}", key=".".join(path))

    def __contains__(self, key: str) -> bool:
        """Whether `key` stands there with a value."""
        return not self._is_null(self._at(key))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys in their order."""
        return tuple(member.key for member in self._node.members)

    def error(self, message: str, *keys: str) -> ConfigError:
        """An error at this mapping, or at a key inside it."""
        where = f"{self._file}:{self._node.line_of(keys)}"
        return ConfigError(message, file=where, key=".".join((*self._path, *keys)))

    def unknown(self, known: Iterable[str]) -> list[str]:
        """Return one sentence for each key outside of `known`, with the nearest known one."""
        names = tuple(known)
        sentences: list[str] = []
        for key in self.keys:
            if key not in names:
                if len(sentences) == _MAX_SHOWN:
                    sentences.append(str(self.error("and more keys that are unknown and not used")))
                    break
                sentences.append(str(self.error(f"unknown key, not used{did_you_mean(key, names)}", key)))
        return sentences

    def text(self, key: str, default: str = "") -> str:
        """Return a text as it is written; a number or a word like `true` counts as one."""
        node = self._at(key)
        if self._is_null(node):
            return default
        if node.kind != "scalar":
            raise self.error("a string was expected", key)
        return str(node.strings())

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text alone counts as a list of it."""
        node = self._at(key)
        if self._is_null(node):
            return ()
        items = (node,) if node.kind == "scalar" else node.items
        if node.kind == "mapping" or any(item.kind != "scalar" or item.value is None for item in items):
            raise self.error("a list of strings was expected", key)
        return tuple(str(item.strings()) for item in items)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        node = self._at(key)
        if self._is_null(node):
            return default
        if not isinstance(node.value, bool):
            raise self.error("true or false was expected", key)
        return node.value

    def number(self, key: str) -> float | None:
        """Return a number above 0, or None if missing."""
        node = self._at(key)
        if self._is_null(node):
            return None
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise self.error("a number above 0 was expected", key)
        return value

    def choice(self, key: str, choices: Iterable[str], default: str) -> str:
        """Return one of `choices`, ignoring case."""
        given = self.text(key, default)
        names = {choice.lower(): choice for choice in choices}
        found = names.get(given.lower())
        if found is None:
            meant = did_you_mean(given[:_SHOWN], names.values())
            raise self.error(f"{given[:_SHOWN]!r} is not one of {', '.join(names.values())}{meant}", key)
        return found

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return a mapping as plain data, empty if missing."""
        node = self._at(key)
        if self._is_null(node):
            return {}
        if node.kind != "mapping":
            raise self.error("a mapping was expected", key)
        return node.plain()

    def strings(self, key: str) -> Mapping[str, str]:
        """Return a mapping from name to text, empty if missing."""
        node = self._at(key)
        inner = self.inside(key) if not self._is_null(node) else None
        return {name: inner.text(name) for name in inner.keys} if inner else {}

    def inside(self, key: str) -> Fields:
        """Return the reader of the mapping at `key`."""
        return Fields(self._at(key), self._file, (*self._path, key), self._expand)

    def expanded(self, text: str, *keys: str) -> str:
        """Return `text` with its variables replaced; raises `ConfigError` at `keys`."""
        try:
            return self._expand(text, not keys or keys[0] not in _OPEN)
        except ConfigError as error:
            raise self.error(str(error), *keys) from None

    def template(self, text: str, *keys: str) -> Template:
        """Return `text`, found at `keys`, as a template."""
        try:
            return Template.parse(text, lambda variable: self.expanded(variable, *keys))
        except ValueError as error:
            raise self.error(str(error), *keys) from None

    def node(self, key: str) -> Node:
        """Return the node at `key`; a null node if missing."""
        return self._at(key)

    def _at(self, key: str) -> Node:
        member = self._node.member(key)
        return member.node if member else _NOTHING

    @staticmethod
    def _is_null(node: Node) -> bool:
        return node.kind == "scalar" and node.value is None
