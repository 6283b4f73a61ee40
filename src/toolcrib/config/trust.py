"""Record of the project files that the user trusts.

A cloned repository may bring a configuration that starts programs; it counts only once its user has confirmed
exactly this content. The record is ours (`$XDG_STATE_HOME/toolcrib/trusted.json`), outside of every project.

    "/src/shop/.toolcrib/config.yaml": "SHA-256 of the confirmed content"
    the same path, NUL, the name of a server: JSON text with the digests of the files behind it (`launch_pins`)

A file is read once, and the bytes that were compared are the bytes that are used: one that changes in between is never
taken for what was confirmed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import orjson

from ..core.events import Problem
from ..errors import ConfigError
from . import files
from .directories import PROJECT_FOLDER, Directories

_UNCONFIRMED: Final = "is not read: it came with the project, or changed, and you have not confirmed it"
_CONFIRM: Final = "look at it, then run `toolcrib trust` in this project"
_MAX_FILES: Final = 5_000
"""Entries that are kept; the oldest go first."""

_NO_PINS: Final[Mapping[tuple[Path, str], Mapping[str, str]]] = {}


class Trust:
    """The record of one user, read once, when it is made. `confirm` writes it anew; a broken record trusts nothing."""

    def __init__(self, directories: Directories) -> None:
        self._path = directories.state / "trusted.json"
        self._known = self._load()

    def covers(self, path: Path, content: bytes) -> bool:
        """Whether the user has confirmed exactly this `content` of `path`."""
        return self._known.get(_place_of(path)) == _content_digest(content)

    def gone(self) -> list[Path]:
        """Return the confirmed files that do not exist."""
        return [path for name in self._known if "\0" not in name and not (path := Path(name)).exists()]

    def require(self, path: Path, content: bytes, what: str) -> None:
        """Raise `ConfigError` unless the user has confirmed exactly this `content`; `what` names its purpose."""
        if not self.covers(path, content):
            raise ConfigError(f"the {what} {_UNCONFIRMED}; {_CONFIRM}", file=str(path))

    def pins(self, path: Path, server: str) -> Mapping[str, str]:
        """Return the confirmed digests of the files behind a server of the project's file `path`."""
        try:
            found: Any = orjson.loads(self._known.get(_behind(path, server), "{}"))
        except ValueError:
            return {}
        return cast("Mapping[str, str]", found) if isinstance(found, dict) else {}

    def confirm(
        self, confirmed: Iterable[tuple[Path, bytes]], pins: Mapping[tuple[Path, str], Mapping[str, str]] = _NO_PINS
    ) -> None:
        """Remember that the user has agreed to these files as they are now, and to `pins` of servers by name."""
        given = tuple(confirmed)
        for path, _ in given:
            for gone in [known for known in self._known if known.startswith(_behind(path, ""))]:
                del self._known[gone]
        for (path, server), files_behind in pins.items():
            self._known[_behind(path, server)] = orjson.dumps(dict(files_behind)).decode()
        for path, content in given:
            self._known.pop(_place_of(path), None)
            self._known[_place_of(path)] = _content_digest(content)
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


def unconfirmed(path: Path, subject: str = "") -> Problem:
    """Return the problem of a file that the user has not confirmed; `subject` begins its message."""
    return Problem(source=str(path), code="untrusted", message=f"{subject}{_UNCONFIRMED}", hint=_CONFIRM)


def _behind(path: Path, server: str) -> str:
    return f"{_place_of(path)}\0{server}"


def _place_of(path: Path) -> str:
    """Return the real path of a file. A project's folder counts by its own path: it may link to a confirmed one."""
    path = Path(os.path.abspath(path))
    marks = [folder for folder in path.parents if folder.name == PROJECT_FOLDER]
    if not marks:
        return str(path.resolve())
    root = marks[-1].parent
    return str(root.resolve() / path.relative_to(root))


def _content_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
