"""The values of one mapping in a catalog, checked one by one; every error says file, line and key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...catalog.naming import nearest
from ...core.tree import Node
from ...errors import ConfigError
from .template import Template

__all__ = ["Expand", "Fields"]

Expand = Callable[[str, bool], str]
"""Replaces `${VAR}` in a text; True says that what comes out may be a secret. Raises `ConfigError` when it is unset."""

_OPEN: Final = ("cwd", "url")
"""Keys whose variables are places, not secrets."""

_MAX_TOLD: Final = 20
"""Unknown keys of one mapping that are told one by one."""
_SHOWN: Final = 80
"""Characters of a wrong value that an error quotes."""

_NOTHING: Final = Node(kind="scalar", start=0, end=0, line=0)


class Fields:
    """Reads one mapping. Made for one pass over one entry."""

    def __init__(self, node: Node, file: str, path: tuple[str, ...], expand: Expand) -> None:
        """`path` leads to the mapping, for messages. Raises `ConfigError` when it is none."""
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
        """Return one sentence for each key that is none of `known`, with the one that it may have meant."""
        names = tuple(known)
        sentences: list[str] = []
        for key in self.keys:
            if key not in names:
                if len(sentences) == _MAX_TOLD:
                    sentences.append(str(self.error("and more keys that are unknown and not used")))
                    break
                close = nearest(key, names, 1)
                meant = f"; did you mean {close[0]!r}?" if close else ""
                sentences.append(str(self.error(f"unknown key, not used{meant}", key)))
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
        """Return a number above 0, or None when there is none."""
        node = self._at(key)
        if self._is_null(node):
            return None
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.error("a number above 0 was expected", key)
        return value

    def choice(self, key: str, choices: Iterable[str], default: str) -> str:
        """Return one of `choices`, whatever its case."""
        given = self.text(key, default)
        names = {choice.lower(): choice for choice in choices}
        found = names.get(given.lower())
        if found is None:
            close = nearest(given[:_SHOWN], names.values(), 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise self.error(f"{given[:_SHOWN]!r} is none of {', '.join(names.values())}{meant}", key)
        return found

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return a mapping as plain data, empty when there is none."""
        node = self._at(key)
        if self._is_null(node):
            return {}
        if node.kind != "mapping":
            raise self.error("a mapping was expected", key)
        return node.plain()

    def strings(self, key: str) -> Mapping[str, str]:
        """Return a mapping from name to text, empty when there is none."""
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
        """Return `text`, which stands at `keys`, as a template."""
        try:
            return Template.parse(text, lambda variable: self.expanded(variable, *keys))
        except ValueError as error:
            raise self.error(str(error), *keys) from None

    def node(self, key: str) -> Node:
        """Return what stands at `key`; a null when nothing does."""
        return self._at(key)

    def _at(self, key: str) -> Node:
        member = self._node.member(key)
        return member.node if member else _NOTHING

    @staticmethod
    def _is_null(node: Node) -> bool:
        return node.kind == "scalar" and node.value is None
