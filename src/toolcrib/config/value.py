"""Value of a configuration on its way into the settings, with its position and its type checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from ..core.document_tree import Path
from ..errors import ConfigError
from .expand import expand
from .servers import did_you_mean

__all__ = ["Value", "Where"]

Where = Callable[[Path], str]
"""Says `file:line` of a path inside the document."""


class Value:
    """One value; made anew for everything inside of it."""

    __slots__ = ("environ", "path", "value", "where")

    def __init__(self, value: Any, path: Path, where: Where, environ: Mapping[str, str]) -> None:
        self.value: Any = value
        self.path = path
        self.where = where
        self.environ = environ

    def wrong(self, expected: str) -> ConfigError:
        """Return the error that `expected` should stand here."""
        return ConfigError(f"{expected} was expected", file=self.where(self.path), key=self.key)

    @property
    def key(self) -> str:
        """The dotted path inside the document."""
        return ".".join(str(step) for step in self.path)

    def text(self) -> str:
        """Return a text that is not empty, its variables replaced. Raises `ConfigError`, like all of these."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.wrong("a string")
        return expand(self.value, self.environ, file=self.where(self.path), key=self.key)

    def inner(self, step: str | int, value: Any) -> Value:
        """Return a value inside of this one."""
        return Value(value, (*self.path, step), self.where, self.environ)

    def members(self, known: Iterable[str] | None = None) -> list[tuple[str, Value]]:
        """Return the members of a mapping; those that are not `known` are an error with the nearest one."""
        given = self.value
        if not isinstance(given, Mapping):
            raise self.wrong("a mapping")
        members = [(key, self.inner(key, value)) for key, value in cast("Mapping[str, Any]", given).items()]
        for key, value in members:
            if known is not None and key not in known:
                raise ConfigError(f"unknown key{did_you_mean(key, known)}", file=self.where(value.path), key=value.key)
        return members

    def texts(self) -> tuple[str, ...]:
        """Return a list of texts."""
        items = self.value
        if not isinstance(items, list | tuple):
            raise self.wrong("a list of strings")
        return tuple(self.inner(place, item).text() for place, item in enumerate(cast("list[Any]", items)))

    def expanded(self) -> Any:
        """Return the value with the variables in its texts replaced."""
        if isinstance(self.value, Mapping):
            return {key: inner.expanded() for key, inner in self.members()}
        given: Any = self.value
        if isinstance(given, list):
            items = enumerate(cast("list[Any]", given))
            return [self.inner(place, item).expanded() for place, item in items]
        return self.text() if isinstance(given, str) and given.strip() else given

    def number(self, *, whole: bool) -> float:
        """Return a finite number above 0."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise self.wrong("a whole number" if whole else "a number")
        if not (math.isfinite(value) and value > 0):
            raise self.wrong("a number above 0")
        return value
