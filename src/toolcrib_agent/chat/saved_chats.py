"""Conversations on disk: one file each (0600) in `$XDG_DATA_HOME/toolcrib/chats`, written after every turn.

The first line says what it is, the second holds the messages, so that a list of all reads a few hundred bytes of each.
Secrets are masked as everywhere else; what only the model's API can read (signatures, images) stays as it is.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from toolcrib.config import Settings
from toolcrib.config.files import write
from toolcrib.core.json import dumps, loads
from toolcrib.errors import ConfigError, UsageError
from toolcrib.results.redact import Redactor

__all__ = ["Chats", "SavedChat", "new_id"]

_VERSION: Final = 1
_KEPT: Final = 500
"""Conversations; older ones are removed when one is written."""
_TITLE: Final = 80
_LONGEST: Final = 64 << 20
"""Bytes of a file that is read."""
_OPAQUE: Final = ("signature", "provider_details", "id", "tool_call_id", "provider_response_id", "timestamp")
"""Fields of messages that hold no text of anybody's."""
_ID: Final = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedChat:
    """Metadata of a saved conversation, without its messages."""

    id: str
    folder: str
    """Working folder: `--continue` looks for a chat of the same folder."""
    model: str = ""
    profile: str = ""
    mode: str = ""
    title: str = ""
    """Description of the session, else its first prompt."""
    turns: int = 0
    created: float = 0.0
    changed: float = 0.0
    """Seconds since 1970."""
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    version: int = _VERSION


def new_id() -> str:
    """Return an id for a conversation: 48 random bits, hexadecimal."""
    return secrets.token_hex(6)


class Chats:
    """The conversations of one user."""

    def __init__(self, settings: Settings, redactor: Redactor) -> None:
        """Read and create files on first use only."""
        self._folder = settings.directories.data / "chats"
        self._redactor = redactor

    def save(self, chat: SavedChat, messages: Sequence[Any]) -> SavedChat:
        """Write a conversation down in one step; return what was written. Raises `ConfigError` when the disk refuses.

        `messages` are JSON.
        """
        now = time.time()
        title = " ".join(self._redactor.text(chat.title).split())[:_TITLE]
        chat = replace(chat, title=title, created=chat.created or now, changed=now)
        clean = [_without_secrets(message, self._redactor) for message in messages]
        write(self._path(chat.id), dumps(asdict(chat)) + b"\n" + dumps(clean) + b"\n")
        self._prune()
        return chat

    def all(self, folder: str = "") -> list[SavedChat]:
        """Return the conversations held in `folder`, or all, the newest first. A file that is none is passed over."""
        found = [chat for path in self._folder.glob("*.jsonl") if (chat := _head(path)) is not None]
        return sorted((one for one in found if folder in ("", one.folder)), key=lambda one: -one.changed)

    def find(self, id: str) -> SavedChat:
        """Return the one conversation whose id begins with `id`. Raises `UsageError`."""
        fitting = [one for one in self.all() if one.id.startswith(id)] if _ID.fullmatch(id) else []
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(f"several conversations begin with {id!r}: {', '.join(one.id for one in fitting[:5])}")
        newest = ", ".join(one.id for one in self.all()[:3])
        raise UsageError(f"there is no conversation {id[:40]!r}" + (f"; the newest are {newest}" if newest else ""))

    def messages(self, chat: SavedChat) -> list[Any]:
        """Return the messages of a conversation, as JSON. Raises `ConfigError` for a file that is broken."""
        path = self._path(chat.id)
        try:
            with path.open("rb") as file:
                content = file.read(_LONGEST + 1)
            data: Any = loads(content.split(b"\n", 2)[1])
        except (OSError, IndexError, ValueError) as error:
            raise ConfigError(f"the conversation cannot be read: {error}", file=str(path)) from error
        if not isinstance(data, list):
            raise ConfigError("the conversation cannot be read: a list of messages was expected", file=str(path))
        return cast("list[Any]", data)

    def _path(self, id: str) -> Path:
        return self._folder / f"{id}.jsonl"

    def _prune(self) -> None:
        for old in self.all()[_KEPT:]:
            self._path(old.id).unlink(missing_ok=True)


def _head(path: Path) -> SavedChat | None:
    """Read the first line; None for another kind of file, and for a format newer than this version."""
    try:
        with path.open("rb") as file:
            data: Any = loads(file.readline(_LONGEST))
    except (OSError, ValueError):
        return None
    values = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    known = {key: values[key] for key in SavedChat.__dataclass_fields__ if key in values}
    is_ours = values.get("version") == _VERSION and values.get("id") == path.stem and "folder" in known
    if not is_ours or not isinstance(known.get("changed", 0), int | float):
        return None
    return SavedChat(**known)


def _without_secrets(message: Any, redactor: Redactor) -> Any:
    """Return a message with its texts clean, and what is opaque untouched."""
    if not isinstance(message, dict):
        return redactor.value(message)
    entries = cast("dict[str, Any]", message)
    parts: Any = entries.get("parts")
    clean = _clean(entries, redactor)
    if isinstance(parts, list):
        each = cast("list[Any]", parts)
        clean["parts"] = [_clean(cast("dict[str, Any]", part), redactor) for part in each if isinstance(part, dict)]
    return clean


def _clean(entries: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Clean a message without its parts, or one part: pictures and sounds in its content stay as they are."""
    clean: dict[str, Any] = {}
    for key, value in entries.items():
        if key in _OPAQUE or key == "parts":
            clean[key] = value
        elif key == "content" and isinstance(value, list):
            pieces = cast("list[Any]", value)
            clean[key] = [piece if _is_binary(piece) else redactor.value(piece) for piece in pieces]
        else:
            clean |= redactor.value({key: value})
    return clean


def _is_binary(piece: Any) -> bool:
    return isinstance(piece, dict) and cast("dict[str, Any]", piece).get("kind") == "binary"
