"""`toolcrib disconnect`: a client's configuration as it was before `connect`.

Loads no settings: the record of the connection has what is needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ...config import files as disk
from ...config.clients.claude_files import has_hook
from ...config.clients.connections import ClientConnection, Outcome, connection_of, connections, remove_empty
from ...config.clients.connections import disconnect as undo
from ...config.clients.permissions.modes import mode_of, remove_mode
from ...config.clients.permissions.settings import client_files, disconnect_settings, is_settings_file, original_names
from ...config.clients.table import CLIENTS, Client
from ...config.directories import Places, config_files, here
from ...config.trust import Trust
from ...errors import ConfigError
from ..clients.choice import CLAUDE, InProject, Names, chosen_files, client_file, for_each, own_entries
from ..options import AsJson
from ..output import emit_json, note, out
from ..processes.daemon_start import end_unused_daemons


def disconnect(
    clients: Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every client that is connected.")] = False,
    project: InProject = False,
    as_json: AsJson = False,
) -> None:
    """Put a client's configuration back as it was, byte for byte.

    Of a file that changed since, Toolcrib's entry is taken out, the servers are put back, and the changes stay. With
    the last connected client, local daemons end that no client uses.
    """
    places = here()
    state = places.directories.state

    rows: list[dict[str, str]] = []

    def one(client: Client, file: Path) -> None:
        outcome = put_back(client, file, places)
        rows.append({"client": client.name, "file": str(file), "outcome": outcome})
        text = {
            "restored": "is as it was",
            "deleted": "is gone again",
            "removed": "no longer has Toolcrib; what else changed since is kept",
        }[outcome]
        if not as_json:
            out(f"{client.title}: {file} {text}")

    if all_ and not clients:
        chosen = [(CLIENTS[done.client], Path(done.file)) for done in connections(state) if done.client in CLIENTS]
        chosen += [one for one in own_entries(places) if one not in chosen]  # their record is lost: each says so
    else:
        chosen = chosen_files(clients, all_, lambda client: client_file(client, places, project), "disconnect")
        for client in dict.fromkeys(client for client, _ in chosen):
            beside = client_files(client, places, project=project)
            beside += [] if project else [file for file in settings_elsewhere(client, places) if file not in beside]
            chosen += [
                (client, file)
                for file in beside
                if connection_of(state, file) is not None or (client.name == CLAUDE and has_hook(file))
            ]
    try:
        for_each(chosen, one)
    finally:
        if as_json:
            emit_json(rows)
    if not any(connections(state)):
        end_unused_daemons(places.directories)


def put_back(client: Client, file: Path, places: Places) -> Outcome:
    """Put one file of a client back, and take its mode out of our configuration; return what was done."""
    state = places.directories.state
    if is_settings_file(client.name, file):
        return disconnect_settings(file, state=state, client=client.name)

    def also(text: str, done: ClientConnection) -> str:
        return original_names(client, text, done, str(file))

    done = connection_of(state, file)
    outcome = undo(client, file, state=state, also=also)
    is_project = file == client.project_file(places)
    try:
        for own in config_files(places.directories, places.project):
            _remove_mode(own, mode_of(client, project=is_project), places)
        if done is not None and done.own:
            remove_servers(Path(done.own), done.added, places)
    except ConfigError as error:  # the client works without it: what is left there has no effect on it
        note(f"{error}; what `connect` wrote there for {client.title} stays in that file")
    return outcome


def take_back_failed(client: Client, file: Path, places: Places, *, own: Path) -> None:
    """Put a file back that a `connect` could not finish, and take its mode out of our file `own`."""
    if connection_of(places.directories.state, file) is not None:
        put_back(client, file, places)
    else:
        _remove_mode(own, mode_of(client, project=file == client.project_file(places)), places)


def settings_elsewhere(client: Client, places: Places) -> list[Path]:
    """Return the settings of projects that changed with the client's own file, not by a `connect --project`."""
    state, found = places.directories.state, list[Path]()
    for file in (Path(done.file) for done in connections(state) if done.client == client.name):
        if is_settings_file(client.name, file):
            shared = client.project_file(places._replace(project=file.parent.parent))
            found += [file] if shared is None or connection_of(state, shared) is None else []
    return found


def _remove_mode(own: Path, mode: str, places: Places) -> None:
    """Take the mode out of one of our files."""
    with _confirmed_as_before(own, places):
        remove_mode(own, mode)


def remove_servers(own: Path, added: Iterable[str], places: Places) -> None:
    """Take servers that came with a connection alone out of our file, and a file away that holds nothing then."""
    from ...config.own_file import read_servers, remove_server  # slow to load: few connections moved servers

    needed = {name for other in connections(places.directories.state) if other.own == str(own) for name in other.names}
    gone = [name for name in added if name in read_servers(own) and name not in needed]
    with _confirmed_as_before(own, places):
        for name in gone:
            remove_server(own, name)
    content = disk.read(own) if gone else b""
    if gone and b"#" not in content and not any(disk.parse(content, str(own)).plain().values()):
        own.unlink()
        remove_empty([own.parent])


@contextmanager
def _confirmed_as_before(own: Path, places: Places) -> Generator[None]:
    """Let one of our files change; one that was confirmed stays so."""
    before = disk.read(own) if own.is_file() else b""
    yield
    if before and Trust(places.directories).covers(own, before) and (after := disk.read(own)) != before:
        from ...config.confirmation import confirm

        confirm(places.directories, [(own, after)], places.environ)
