"""TOML of projects, which strangers may have written: the parser of Python takes minutes for a long dotted key."""

from __future__ import annotations

from typing import Any, Final

_MAX_CHARACTERS: Final = 256 * 1024
_MAX_LINE: Final = 10_000
"""Characters of a line: a key with half as many parts takes 0.1 s."""


def read_toml(text: str) -> dict[str, Any]:
    """Return a document. Raises `ValueError` for a broken one, and for one that would take seconds."""
    if len(text) > _MAX_CHARACTERS or any(len(line) > _MAX_LINE for line in text.splitlines()):
        raise ValueError("too large")
    import tomllib  # compiles its patterns for 2 ms: few programs read such a file

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
