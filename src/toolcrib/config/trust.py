"""Trust of project files: those that the user has confirmed.

A cloned repository may bring a configuration that starts programs; it counts only once its user has confirmed
exactly this content. The record is ours (`$XDG_STATE_HOME/toolcrib/trusted.json`), outside of every project.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import orjson

from . import files
from .directories import Directories

__all__ = ["Trust"]

_MAX_FILES: Final = 5_000
"""Entries that are kept; the oldest go first."""


class Trust:
    """The record of one user, read once."""

    def __init__(self, directories: Directories) -> None:
        self._path = directories.state / "trusted.json"
        self._known = self._load()

    def covers(self, path: Path, content: bytes) -> bool:
        """Whether the user has confirmed that `path` says exactly `content`."""
        return self._known.get(_name(path)) == _digest(content)

    def confirm(self, confirmed: Iterable[tuple[Path, bytes]]) -> None:
        """Remember that the user has agreed to these files as they are now."""
        for path, content in confirmed:
            self._known.pop(_name(path), None)
            self._known[_name(path)] = _digest(content)
        kept = dict(list(self._known.items())[-_MAX_FILES:])
        files.write(self._path, orjson.dumps(kept, option=orjson.OPT_INDENT_2))

    def _load(self) -> dict[str, str]:
        try:
            known: Any = orjson.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(known, dict):
            return {}
        return {path: str(digest) for path, digest in cast("dict[str, Any]", known).items()}


def _name(path: Path) -> str:
    return str(path.resolve())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
