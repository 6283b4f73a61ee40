"""How results are made to fit, as data: a profile's style, and what tool and caller say about one result.

    tokens, characters   the budget of one result; the limits of the session are the ceiling either way
    head, note           the share of the room that the beginning gets · what is kept free for the marker
    marker               what stands where something was left out
    hints, spare         whether a tool or a caller may say how (`HINTS`) · what keeps the ceiling as its only limit

The originals: seed 002 shows 60 % head and 40 % tail of 4,000 tokens and counts the bytes elided; seed 004 shows 75 %
head of what 1,500 characters leave beside 350 for its marker `[COMPRESSED:<ref>]`, and leaves errors and lists alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, cast, get_args

from ..core.result import Trust

__all__ = ["HINTS", "PLAIN_FIT", "Fit", "Hint", "Marker", "Spared", "Way"]

Marker = Literal["toolcrib", "elided", "compressed"]
Spared = Literal["errors", "lists"]
Hint = Literal["skip", "normal", "force", "search"]

HINTS: Final[tuple[Hint, ...]] = get_args(Hint)
"""`skip` only the ceiling · `normal` the budget · `force` a smaller one · `search` the first items with short texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The style of one profile."""

    tokens: int | None = None
    """Estimated tokens (UTF-8 bytes / 4) of one result; None is what the session allows."""
    characters: int | None = None
    """The same in characters; it goes before `tokens`."""
    head: float = 0.6
    note: int = 330
    """Bytes or characters of the budget that the marker may take."""
    marker: Marker = "toolcrib"
    hints: bool = False
    spare: tuple[Spared, ...] = ()
    force: int = 500
    """Characters of a result whose hint is `force`."""
    items: int = 5
    """Items that `search` shows."""
    snippet: int = 200
    """Characters of each text that `search` shows."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Fit:
        """Return what `given` says, as it stands in a profile; raises `ValueError` with key and reason."""
        known = [entry.name for entry in fields(cls)]
        for key, value in given.items():
            if key not in known:
                raise ValueError(f"{key}: there is no such key, only {', '.join(known)}")
            _check(key, value)
        values: dict[str, Any] = {**given, **({"spare": tuple(given["spare"])} if "spare" in given else {})}
        made = cls(**values)
        for size in (made.characters, made.force if made.hints else None):
            if size is not None and size <= made.note:
                raise ValueError(f"note: {made.note} leaves nothing of {size} characters")
        return made

    @property
    def is_sized(self) -> bool:
        """Whether the profile has a budget of its own, which holds for every session."""
        return self.tokens is not None or self.characters is not None

    @property
    def least(self) -> float:
        """Bytes within which a result fits, whatever is said of it."""
        least = math.inf if self.characters is None else self.characters
        if self.tokens is not None:
            least = min(least, self.tokens * 4)
        return min(least, self.force) if self.hints else least


PLAIN_FIT: Final = Fit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How one result is to fit: the style, and what is known of the call."""

    fit: Fit = PLAIN_FIT
    hint: Hint | None = None
    """What the caller, else the declaration of the tool says; a result may say it for itself where neither does."""
    lines: bool = False
    """The text is a list of lines, best first: whole first lines are shown, and no tail."""
    schema: Mapping[str, Any] | None = None
    """The `outputSchema` that the caller has read: structured content stays valid for it, whole or shortened."""
    whole: bool = False
    """An MCP client reads the result: up to the limiter's `pass_whole` it stays as it is."""
    read: str = "read_artifact"
    """The name under which the model finds what reads artifacts; empty where it has nothing of the kind."""
    source: str = ""
    """The source of the tool, and how far it is trusted: artifacts say so, too."""
    trust: Trust = "local"


def _check(key: str, value: Any) -> None:
    if key == "hints":
        expected, is_right = "true or false", isinstance(value, bool)
    elif key == "head":
        expected, is_right = "a share from 0 to 1", _is_number(value) and 0 <= value <= 1
    elif key == "marker":
        expected, is_right = f"one of {', '.join(get_args(Marker))}", value in get_args(Marker)
    elif key == "spare":
        words = get_args(Spared)
        expected = f"a list of {', '.join(words)}"
        is_right = isinstance(value, list) and all(word in words for word in cast("list[Any]", value))
    else:
        expected, is_right = "a number above 0", _is_number(value) and isinstance(value, int) and value > 0
    if not is_right:
        raise ValueError(f"{key}: takes {expected}, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
