"""Texts with places for arguments: `{name}` is one, `{{` and `}}` are braces, `${NAME}` is a variable.

A template lists its arguments in advance, so that one missing from the schema is found when the catalog is read, and it
is filled piece by piece: an argument never changes the boundaries of a piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...core.json import dumps

__all__ = ["Template", "as_text"]

_PIECE: Final = re.compile(r"(\$\{[^{}]*\})|\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}|[{}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
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
