"""Editor of client configurations: adds Toolcrib to a file, and removes it again without a trace.

The file is edited as text, so comments, order and layout of the rest stay. What it was before is kept, with the hash
of what we made of it, under `$XDG_STATE_HOME/toolcrib/connections/` (mode 0600: such files hold secrets); as long as
the file is still that, `disconnect` puts every byte back.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from ..core.document_tree import Path as Steps
from ..errors import ConfigError, UsageError
from . import files
from .clients import Client, Format
from .edits import insert_json, insert_toml, insert_yaml, remove_json, remove_toml, remove_yaml

__all__ = [
    "NAME",
    "ChangedSince",
    "Connection",
    "connect",
    "connection_of",
    "connections",
    "disconnect",
    "entries",
    "forget",
    "restore",
    "rewrite",
]

NAME: Final = "toolcrib"
"""Our name in a client's configuration; clients put it before our tools' names."""

_Insert = Callable[[str, tuple[str, ...], str, Any, str], str]
_Remove = Callable[[str, tuple[str, ...], str, str], str]

_EDITORS: Final[Mapping[Format, tuple[_Insert, _Remove]]] = {
    "json": (insert_json, remove_json),
    "toml": (insert_toml, remove_toml),
    "yaml": (insert_yaml, remove_yaml),
}

_BOM: Final = b"\xef\xbb\xbf"


class ChangedSince(UsageError):
    """The file is not what `connect` left: it cannot be put back byte for byte without losing what changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What was done to one file."""

    client: str
    file: str
    before: str
    """The whole file as it was, in base64; empty when there was none."""
    existed: bool
    after: str
    """SHA-256 of what it became."""
    moved: tuple[str, ...] = ()
    """Servers of the client that were taken out because they are reached through Toolcrib now."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Their names here, by those that the client's own permissions had."""

    @property
    def content(self) -> bytes:
        """The file as it was."""
        return base64.b64decode(self.before)


def connect(
    client: Client,
    file: Path,
    entry: Mapping[str, Any],
    *,
    moved: Sequence[str],
    state: Path,
    names: Mapping[str, str] | None = None,
    also: Callable[[str], str] | None = None,
) -> Connection:
    """Add `entry` to `file` under our name and take out the servers `moved`; return what was done.

    `also` makes further changes of the text, `names` are those by which it is undone. Raises `ConfigError` when the
    file cannot be read, or cannot be changed without touching the rest.
    """
    insert, remove = _EDITORS[client.format]

    def change(text: str) -> str:
        text = also(text) if also is not None else text
        for name in moved:
            text = remove(text, client.path, name, str(file))
        return insert(text, client.path, NAME, entry, str(file))

    return rewrite(client.name, file, change, moved=moved, names=names, state=state)


def rewrite(
    client: str,
    file: Path,
    change: Callable[[str], str],
    *,
    moved: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    state: Path,
) -> Connection:
    """Let `change` edit the text of `file`, and keep what it was before so that `restore` can put it back.

    A file that is as we left it before is put back as it was before that. Raises `ConfigError` when the file cannot be
    read, and what `change` raises.
    """
    existed = file.exists()
    before = files.read(file, limit=files.FOREIGN_MAX_BYTES) if existed else b""
    after = _encoded(change(files.decode(before, str(file))), before)
    first = connection_of(state, file)
    first = first if first is not None and first.after == _digest(before) else None
    done = Connection(
        client=client,
        file=str(file),
        before=first.before if first else base64.b64encode(before).decode(),
        existed=first.existed if first else existed,
        after=_digest(after),
        moved=(*(first.moved if first else ()), *moved),
        names={**(first.names if first else {}), **(names or {})},
    )
    files.write(_record(state, file), orjson.dumps(asdict(done), option=orjson.OPT_INDENT_2))
    files.write(file, after)
    return done


def disconnect(
    client: Client, file: Path, *, state: Path, keep_changes: bool = False
) -> Literal["restored", "deleted", "removed"]:
    """Undo `connect`: put the file back, or delete the one that it made.

    A file that changed since raises `ChangedSince`, unless `keep_changes`: then only our entry is taken out, and the
    servers that were moved are put back in. Raises `ConfigError` when we are not in the file.
    """
    outcome = restore(client.name, file, state=state, keep_changes=keep_changes)
    if outcome is not None:
        return outcome
    done = connection_of(state, file)
    current = files.read(file, limit=files.FOREIGN_MAX_BYTES) if file.exists() else b""
    text = _taken_out(client, files.decode(current, str(file)), done, file)
    files.write(file, _encoded(text, current))
    forget(state, file)
    return "removed"


def restore(
    client: str, file: Path, *, state: Path, keep_changes: bool
) -> Literal["restored", "deleted", "removed"] | None:
    """Put `file` back as `rewrite` found it; None where only our part can be taken out of it.

    Raises `ChangedSince` for a file that changed since, unless `keep_changes`.
    """
    done = connection_of(state, file)
    if done is None:
        return None
    current = files.read(file, limit=files.FOREIGN_MAX_BYTES) if file.exists() else b""
    if _digest(current) == done.after:
        if done.existed:
            files.write(file, done.content)
        else:
            file.unlink()
        forget(state, file)
        return "restored" if done.existed else "deleted"
    if not keep_changes:
        raise ChangedSince(
            f"{file} was changed since Toolcrib was put into it, so putting back the old file would lose that change. "
            f"Take out only Toolcrib's entry with `toolcrib disconnect {client} --keep-changes`"
        )
    if not file.exists() and not done.moved:
        forget(state, file)
        return "removed"
    return None


def forget(state: Path, file: Path) -> None:
    """Keep nothing of what was done to `file`."""
    _record(state, file).unlink(missing_ok=True)


def connections(state: Path) -> list[Connection]:
    """Return everything that is connected, in the order of the files' names."""
    folder = _folder(state)
    found = [_read(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return sorted((done for done in found if done), key=lambda done: done.file)


def connection_of(state: Path, file: Path) -> Connection | None:
    """Return what was done to `file`, or None."""
    return _read(_record(state, file))


def entries(client: Client, content: bytes, file: str) -> Mapping[str, Any]:
    """Return the raw entries of the client's file `content`, ours included."""
    if not content.strip():
        return {}
    if client.format == "toml":
        found: Any = files.parse_toml(content, file)
        for step in client.path:
            found = found.get(step, {})
        return found
    path: Steps = client.path
    node = files.parse(content, file).find(path)
    return node.plain() if node and node.kind == "mapping" else {}


def _taken_out(client: Client, text: str, done: Connection | None, file: Path) -> str:
    insert, remove = _EDITORS[client.format]
    there = entries(client, text.encode(), str(file))
    if NAME in there:
        text = remove(text, client.path, NAME, str(file))
    elif done is None:
        raise ConfigError(f"Toolcrib is not in this file of {client.title}", file=str(file))
    if done and done.moved:
        before = entries(client, done.content, str(file))
        for name in done.moved:
            if name not in there:
                text = insert(text, client.path, name, before[name], str(file))
    return text


def _read(path: Path) -> Connection | None:
    try:
        known: dict[str, Any] = orjson.loads(path.read_bytes())
        known["moved"] = tuple(known["moved"])
        return Connection(**known)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _record(state: Path, file: Path) -> Path:
    return _folder(state) / f"{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:24]}.json"


def _folder(state: Path) -> Path:
    return state / "connections"


def _encoded(text: str, before: bytes) -> bytes:
    """The text as bytes, with the byte order mark that the file had."""
    return (_BOM if before.startswith(_BOM) else b"") + text.encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
