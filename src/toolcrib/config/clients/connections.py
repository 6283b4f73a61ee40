"""Editor of client configurations: adds Toolcrib to a file, and removes it again without a trace.

The file is edited as text, so comments, order and layout of the rest stay. What it was before is kept, with the hash
of what we made of it, under `$XDG_STATE_HOME/toolcrib/connections/` (mode 0600: such files hold secrets). As long as
the file is still that, `disconnect` puts every byte back; of one that its client has rewritten since, it takes out our
entry and puts the servers back.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, cast

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from ...core.documents.tree import Path as Steps
from ...core.json import fields_of
from ...errors import ConfigError
from .. import files
from ..directories import Places
from ..edits import insert_json, insert_toml, insert_yaml, remove_json, remove_toml, remove_yaml, restore_toml
from .table import CLIENTS, Client, Format
from .table import is_ours as is_gateway

NAME: Final = "toolcrib"
"""Our name in a client's configuration; clients put it before our tools' names."""

_Insert = Callable[[str, tuple[str, ...], str, Any, str], str]
_Remove = Callable[[str, tuple[str, ...], str, str], str]

_EDITORS: Final[Mapping[Format, tuple[_Insert, _Remove]]] = {
    "json": (insert_json, remove_json),
    "toml": (insert_toml, remove_toml),
    "yaml": (insert_yaml, remove_yaml),
}

Outcome = Literal["restored", "deleted", "removed"]
"""Outcome for a file: every byte restored, the file deleted, or our part removed."""

_BOM: Final = b"\xef\xbb\xbf"


class TakenEntry(Struct, frozen=True, kw_only=True):
    """One entry of a server that was taken out of a client's file, because it is reached through Toolcrib now."""

    path: tuple[str, ...]
    """The mapping that it stood in."""
    name: str
    value: Any


class ClientConnection(Struct, frozen=True, kw_only=True):
    """Record of the changes to one file."""

    client: str
    file: str
    before: str
    """The whole file as it was, in base64; empty when there was none."""
    existed: bool
    after: str
    """SHA-256 of what it became."""
    exact: bool = True
    """Whether `before` is the file as it was: false where it was changed between two changes of ours."""
    moved: tuple[str, ...] = ()
    """Names of servers that the client does not start any more because they are reached through Toolcrib now."""
    taken: tuple[TakenEntry, ...] = ()
    """The entries of those that were taken out of this file."""
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Our entry, as it was written."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names that the client's own permissions had for them, by their names here."""
    own: str = ""
    """Our configuration file that got the servers."""
    added: tuple[str, ...] = ()
    """Our names of those that it has for this connection, and others that moved them, too, alone."""
    folders: tuple[str, ...] = ()
    """Folders that were made for the file, innermost first."""
    state: str = ""
    """The folder that has the records; where a home was renamed, the paths above follow it."""

    @property
    def content(self) -> bytes:
        """The file as it was."""
        return base64.b64decode(self.before)


class Moved(Struct, frozen=True, kw_only=True):
    """Servers that one change of a client's file puts behind Toolcrib."""

    servers: Sequence[str] = ()
    """Their names in the file."""
    project: str = ""
    """A project of the user, in whose part of the file are `here`."""
    here: Sequence[str] = ()
    """Names of more servers, for that project alone."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Our names of servers, by the client's."""
    own: Path | None = None
    """Our configuration file that gets them."""
    added: Sequence[str] = ()
    """Our names of those that `own` has for this connection."""


_NOTHING: Final = Moved()


def connect(
    client: Client,
    file: Path,
    entry: Mapping[str, Any],
    moved: Moved = _NOTHING,
    *,
    state: Path,
    also: Callable[[str], str] | None = None,
) -> None:
    """Put `entry` into `file` under our name and take out the servers `moved`.

    `also` makes further changes of the text, which are undone by the names of `moved`. An entry of ours whose record is
    lost is replaced without one: what the file was before is not known any more.
    Raises `ConfigError` when the file cannot be read, or cannot be changed without touching the rest.
    """
    insert, remove = _EDITORS[client.format]
    before = files.read(file, limit=files.FOREIGN_MAX_BYTES) if file.exists() else b""
    of_project = _project_path(moved.project)
    places = [*((client.path, name) for name in moved.servers), *((of_project, name) for name in moved.here)]
    taken = [
        TakenEntry(path=path, name=name, value=_entries_at(client, before, path, str(file))[name])
        for path, name in places
    ]

    def change(text: str) -> str:
        text = also(text) if also is not None else text
        for path, name in places:
            text = remove(text, path, name, str(file))
        if NAME in entries(client, text.encode(), str(file)):
            text = remove(text, client.path, NAME, str(file))
        return insert(text, client.path, NAME, entry, str(file))

    if not places and connection_of(state, file) is None and NAME in entries(client, before, str(file)):
        files.write(file, _encoded(change(files.decode(before, str(file))), before))
        return
    rewrite(client.name, file, change, moved, taken=taken, entry=entry, state=state)


def rewrite(
    client: str,
    file: Path,
    change: Callable[[str], str],
    moved: Moved = _NOTHING,
    *,
    taken: Sequence[TakenEntry] = (),
    entry: Mapping[str, Any] | None = None,
    state: Path,
) -> ClientConnection:
    """Let `change` edit the text of `file`, and keep what it was before so that `restore` can put it back.

    A file that is as we left it before is put back as it was before that. `taken` is what `change` takes out, `entry`
    our entry that it puts in. Raises `ConfigError` when the file cannot be read, and what `change` raises.
    """
    existed = file.exists()
    before = files.read(file, limit=files.FOREIGN_MAX_BYTES) if existed else b""
    after = _encoded(change(files.decode(before, str(file))), before)
    first = connection_of(state, file)
    if first is not None and (first.existed, first.content) == (existed, before):
        first = None  # a person put the file back, or an earlier `connect` was interrupted before it wrote it
    if first is None:
        first = ClientConnection(
            client=client,
            file=str(file),
            before=base64.b64encode(before).decode(),
            existed=existed,
            after=_digest(before),
            folders=tuple(str(folder) for folder in file.parents if not folder.exists()),
        )
    done = replace(
        first,
        client=client,
        file=str(file),
        exact=first.exact and first.after == _digest(before),
        after=_digest(after),
        moved=tuple(dict.fromkeys((*first.moved, *moved.servers, *moved.here))),
        taken=(*first.taken, *taken),
        entry=entry or first.entry,
        names={**first.names, **{ours: theirs for theirs, ours in moved.names.items()}},
        own=str(moved.own) if moved.own else first.own,
        added=tuple(dict.fromkeys((*first.added, *moved.added))),
        state=str(state),
    )
    # The record first: a crash between the two writes leaves a file that is still what the record says it was before,
    # which `restore` recognises. The other order could lose the only copy of what the file was.
    record = _record(state, file)
    earlier = files.read(record) if record.exists() else b""
    files.write(record, orjson.dumps(fields_of(done), option=orjson.OPT_INDENT_2))
    try:
        files.write(file, after)
    except ConfigError:
        if earlier:
            files.write(record, earlier)
        else:
            forget(state, file)
        raise
    return done


def disconnect(
    client: Client,
    file: Path,
    *,
    state: Path,
    also: Callable[[str, ClientConnection], str] | None = None,
    unrecorded: bool = False,
) -> Outcome:
    """Undo `connect`: put the file back, or delete the one that it made.

    Of a file that changed since, only our entry is taken out, and the servers that were moved are put back in; `also`
    undoes there what its namesake of `connect` did. Raises `ConfigError` when we are not in the file, and where nothing
    is known of what was taken out of it, unless `unrecorded`.
    """
    outcome = restore(file, state=state)
    if outcome is not None:
        return outcome
    done = connection_of(state, file)
    current = files.read(file, limit=files.FOREIGN_MAX_BYTES) if file.exists() else b""
    text = files.decode(current, str(file))
    is_there = NAME in entries(client, current, str(file))
    if done is None and not is_there:
        raise ConfigError(f"Toolcrib is not in this file of {client.title}", file=str(file))
    if done is None and not unrecorded:
        raise ConfigError(
            f"Toolcrib's record of what it changed here is lost ({_folder(state)}), so the file stays as it is. "
            f"By hand: put back the servers that you want from Toolcrib's own configuration, then remove the entry "
            f"{NAME!r}",
            file=str(file),
            key=".".join(client.path),
        )
    if is_there:
        text = _EDITORS[client.format][1](text, client.path, NAME, str(file))
    if done is not None:
        text = also(text, done) if also is not None and text.strip() else text
        text = _with_taken(client, text, done, file)
    files.write(file, _encoded(text, current))
    forget(state, file)
    return "removed"


def restore(file: Path, *, state: Path) -> Outcome | None:
    """Put `file` back as `rewrite` found it; None where only our part can be taken out of it."""
    done = connection_of(state, file)
    if done is None:
        return None
    existed = file.exists()
    current = files.read(file, limit=files.FOREIGN_MAX_BYTES) if existed else b""
    if (done.existed, done.content) == (existed, current):
        forget(state, file)
        return "restored" if existed else "deleted"
    if done.exact and _digest(current) == done.after:
        if done.existed:
            files.write(file, done.content)
        else:
            file.unlink()
            remove_empty(done.folders)
        forget(state, file)
        return "restored" if done.existed else "deleted"
    if not file.exists() and not done.taken:
        forget(state, file)
        return "removed"
    return None


def remove_empty(folders: Iterable[str | Path]) -> None:
    """Remove folders, innermost first, as long as they are empty."""
    with suppress(OSError):
        for folder in folders:
            Path(folder).rmdir()


def forget(state: Path, file: Path) -> None:
    """Keep nothing of what was done to `file`."""
    _record(state, file).unlink(missing_ok=True)


def connections(state: Path) -> list[ClientConnection]:
    """Return everything that is connected, in the order of the files' names."""
    folder = _folder(state)
    found = [_read(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return sorted((done for done in found if done), key=lambda done: done.file)


def connection_of(state: Path, file: Path) -> ClientConnection | None:
    """Return the recorded change of `file`, or None."""
    return _read(_record(state, file))


def entries(client: Client, content: bytes, file: str) -> Mapping[str, Any]:
    """Return the raw entries of the client's file `content`, ours included."""
    return _entries_at(client, content, client.path, file)


def project_entries(client: Client, content: bytes, project: str, file: str) -> Mapping[str, Any]:
    """Return the raw entries that Claude Code's own file of the user has for one project."""
    return _entries_at(client, content, _project_path(project), file) if client.name == "claude-code" else {}


def _project_path(project: str) -> tuple[str, ...]:
    """Return the key path of one project's servers in the user's file of Claude Code."""
    return ("projects", project, "mcpServers")


def _entries_at(client: Client, content: bytes, path: tuple[str, ...], file: str) -> Mapping[str, Any]:
    if not content.strip():
        return {}
    if client.format == "toml":
        found: Any = files.parse_toml(content, file)
        for step in path:
            found = found.get(step, {})
        return found
    steps: Steps = path
    node = files.parse(content, file).find(steps)
    return node.plain() if node and node.kind == "mapping" else {}


def namesakes(places: Places) -> list[str]:
    """Return the servers of Claude Code whose tools have names that begin like those of ours: `mcp__toolcrib__`.

    An entry of the user's own file is ours by what it starts, one in a file that came with a project only if `connect`
    wrote it. A file that cannot be read counts as one.
    """
    client, found = CLIENTS["claude-code"], list[str]()
    own, state = client.user_file(places), places.directories.state
    files_of = [own, *(folder / ".mcp.json" for folder in (places.project, *places.project.parents))]
    for file in filter(Path.is_file, files_of):
        try:
            content = files.read(file, limit=files.FOREIGN_MAX_BYTES)
            there = [*entries(client, content, str(file)).items()]
            if file == own:
                there += project_entries(client, content, str(places.project), str(file)).items()
        except ConfigError:
            found.append(str(file))
            continue
        done = connection_of(state, file)
        for name, entry in there:
            known = done.entry if done is not None else None
            if file != own:
                is_ours = entry == known
            else:
                is_ours = isinstance(entry, Mapping) and is_gateway(cast("Mapping[str, Any]", entry))
            if f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}__".startswith(f"{NAME}__") and not is_ours:
                found.append(f"{name} ({file})")
    return found


def _with_taken(client: Client, text: str, done: ClientConnection, file: Path) -> str:
    """Return `text` with the servers that were taken out, but those whose names have a server again."""
    insert, _ = _EDITORS[client.format]
    missing = [one for one in done.taken if one.name not in _entries_at(client, text.encode(), one.path, str(file))]
    plain = text
    for one in reversed(missing) if client.format == "json" else missing:  # JSON gets new members first
        plain = insert(plain, one.path, one.name, one.value, str(file))
    if client.format != "toml" or not missing:
        return plain
    return restore_toml(text, plain, files.decode(done.content, str(file)), [(*one.path, one.name) for one in missing])


def _read(path: Path) -> ClientConnection | None:
    try:
        known: dict[str, Any] = orjson.loads(path.read_bytes())
        known["moved"] = tuple(known["moved"])
        if "taken" in known:
            stored = [
                TakenEntry(path=tuple(one["path"]), name=one["name"], value=one["value"]) for one in known["taken"]
            ]
        else:  # a record of the first version, which has them in `before` alone
            client, content = CLIENTS[known["client"]], base64.b64decode(known["before"])
            values = _entries_at(client, content, client.path, known["file"])
            stored = [TakenEntry(path=client.path, name=name, value=values[name]) for name in known["moved"]]
        known["taken"] = tuple(stored)
        known |= {name: tuple(known.get(name, ())) for name in ("added", "folders")}  # older records have none
        return _with_moved_paths(ClientConnection(**known), path.parents[1])
    except (OSError, ValueError, TypeError, KeyError, ConfigError):
        return None


def _with_moved_paths(done: ClientConnection, state: Path) -> ClientConnection:
    """Return a record with the paths of today, where the home that has its folder `state` was renamed or copied."""
    was, now = Path(done.state or state), state
    while was.name and was.name == now.name:
        was, now = was.parent, now.parent
    if was == now:
        return done

    def moved(path: str) -> str:
        return str(now / Path(path).relative_to(was)) if path and Path(path).is_relative_to(was) else path

    return replace(done, file=moved(done.file), own=moved(done.own), folders=tuple(map(moved, done.folders)))


def _record(state: Path, file: Path) -> Path:
    """Return the path of the record of `file`; it need not be there."""
    place = file.resolve()
    record = _folder(state) / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:24]}.json"
    if record.exists():
        return record
    others = ((path, _read(path)) for path in _folder(state).glob("*.json"))
    return next((path for path, done in others if done and Path(done.file).resolve() == place), record)


def _folder(state: Path) -> Path:
    return state / "connections"


def _encoded(text: str, before: bytes) -> bytes:
    """The text as bytes, with the byte order mark that the file had."""
    return (_BOM if before.startswith(_BOM) else b"") + text.encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
