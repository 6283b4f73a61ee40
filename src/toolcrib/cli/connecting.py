"""`toolcrib connect` and `disconnect`: Toolcrib in a client's configuration, and out again."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from ..config import files as disk
from ..config import load
from ..config.claude_hooks import connect_hook, disconnect_hook, hook_file, is_connected
from ..config.clients import CLIENTS, Client, Places
from ..config.discovery import discover, is_ours
from ..config.loading import config_files, here, specs_of
from ..config.own import add_servers, read_servers
from ..config.rewriting import (
    NAME,
    connection_of,
    connections,
    entries,
)
from ..config.rewriting import (
    connect as write_connection,
)
from ..config.rewriting import (
    disconnect as undo,
)
from ..disclosure.profiles import load as load_profile
from ..errors import ConfigError, ToolcribError, UsageError
from ..server.hook_lines import Unanswered
from .clients import candidates, chosen_clients
from .output import note, out
from .probing import probe

__all__ = ["command_line", "connect", "disconnect"]

_CLAUDE: Final = "claude-code"
_ALSO: Final[Mapping[str, str]] = {"claude": _CLAUDE}
"""Short names."""
_WAIT: Final = 20.0
"""Seconds for servers that are moved behind us to list their tools."""

_Names = Annotated[list[str] | None, typer.Argument(metavar="CLIENT …", help=f"Any of {', '.join(CLIENTS)}.")]
_InProject = Annotated[bool, typer.Option("--project", help="The client's file of this project, not the user's.")]


def connect(
    clients: _Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every client that has a configuration here.")] = False,
    project: _InProject = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move the client's other servers behind Toolcrib.")
    ] = False,
    profile: Annotated[str | None, typer.Option(help="Instead of the one that suits the client.")] = None,
    approvals: Annotated[
        bool, typer.Option("--approvals", help="claude: let Toolcrib decide what Claude Code's own tools may do.")
    ] = False,
    unanswered: Annotated[
        Unanswered, typer.Option(help="With --approvals: what no answer means; ask is Claude Code's own dialog.")
    ] = "deny",
) -> None:
    """Put Toolcrib into a client's configuration.

    Clients that hold definitions back themselves get the profile `flat`, the others `adaptive`. The rest of the file
    stays as it is; `toolcrib disconnect` puts back every byte.
    """
    places = here()
    if profile is not None:
        load_profile(profile)

    def one(client: Client, file: Path) -> None:
        _connect(client, file, places, replace=replace, profile=profile, desk=approvals)
        if approvals:
            _connect_desk(places, project=project, unanswered=unanswered)

    chosen = _chosen(clients, all_, lambda client: _file(client, places, project), "connect")
    if approvals and [client.name for client, _ in chosen] != [_CLAUDE]:
        raise UsageError("--approvals is for Claude Code: `toolcrib connect claude --approvals`")
    _each(chosen, one)


def disconnect(
    clients: _Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every client that is connected.")] = False,
    project: _InProject = False,
    keep_changes: Annotated[
        bool, typer.Option("--keep-changes", help="Of a file that changed since, take out only Toolcrib's entry.")
    ] = False,
) -> None:
    """Put a client's configuration back as it was, byte for byte."""
    places = here()
    state = places.directories.state

    def one(client: Client, file: Path) -> None:
        if client.name == _CLAUDE and file.name == hook_file(places, project=project).name:
            outcome = disconnect_hook(file, state=state, keep_changes=keep_changes)
        else:
            outcome = undo(client, file, state=state, keep_changes=keep_changes)
        text = {"restored": "is as it was", "deleted": "is gone again", "removed": "no longer has Toolcrib"}[outcome]
        out(f"{client.title}: {file} {text}")

    if all_ and not clients:
        chosen = [(CLIENTS[done.client], Path(done.file)) for done in connections(state) if done.client in CLIENTS]
    else:
        chosen = _chosen(clients, all_, lambda client: _file(client, places, project), "disconnect")
        hooks = hook_file(places, project=project)
        if any(client.name == _CLAUDE for client, _ in chosen) and is_connected(hooks, state):
            chosen.append((CLIENTS[_CLAUDE], hooks))
    _each(chosen, one)


def command_line(profile: str, *, desk: bool = False) -> tuple[str, list[str]]:
    """Return the command and arguments that start us: by absolute path, for desktop programs have another PATH."""
    return _program(), ["serve", "--profile", profile, *(["--desk"] if desk else [])]


def _program() -> str:
    beside = Path(sys.executable).with_name("toolcrib.exe" if os.name == "nt" else "toolcrib")
    found = str(beside) if beside.exists() else shutil.which("toolcrib")
    return found or "toolcrib"


def _chosen(
    names: Sequence[str] | None, every: bool, file: Callable[[Client], Path | None], verb: str
) -> list[tuple[Client, Path]]:
    if every and names:
        raise UsageError(f"--all is every client: leave out {', '.join(names)}, or --all")
    if every:
        return [(client, path) for client in CLIENTS.values() if (path := file(client)) and path.is_file()]
    if not names:
        raise UsageError(f"which client? `toolcrib {verb} CLIENT` with one of {', '.join(CLIENTS)}, or --all")
    chosen = [(client, file(client)) for client in chosen_clients([_ALSO.get(name, name) for name in names])]
    for client, path in chosen:
        if path is None:
            raise UsageError(f"{client.title} has no configuration file of a project")
    return [(client, path) for client, path in chosen if path]


def _file(client: Client, places: Places, project: bool) -> Path | None:
    return client.project_file(places) if project else client.user_file(places)


def _each(chosen: Sequence[tuple[Client, Path]], one: Callable[[Client, Path], None]) -> None:
    """Do all, also after one failed; then raise the first failure."""
    failed: list[ToolcribError] = []
    for client, file in chosen:
        try:
            one(client, file)
        except ToolcribError as error:
            failed.append(error)
            if len(chosen) > 1:
                note(f"{client.title}: {error}")
    if not chosen:
        note("nothing to do")
    if failed:
        raise failed[0] if len(chosen) == 1 else UsageError(f"{len(failed)} of {len(chosen)} clients failed")


def _connect(client: Client, file: Path, places: Places, *, replace: bool, profile: str | None, desk: bool) -> None:
    state = places.directories.state
    content = disk.read(file, limit=disk.FOREIGN_MAX_BYTES) if file.exists() else b""
    there = entries(client, content, str(file))
    if NAME in there:
        if connection_of(state, file) is None and not is_ours(there[NAME]):
            raise ConfigError(f"has another server of the name {NAME}: rename or remove it first", file=str(file))
        words = _words(there[NAME])
        if (replace and len(there) > 1) or (profile and profile not in words) or (desk and "--desk" not in words):
            again = f"`toolcrib disconnect {client.name}` first, then connect it again"
            raise UsageError(f"{file} has Toolcrib already, connected in another way: {again}")
        out(f"{client.title}: {file} has Toolcrib already")
        return
    moved = _move(client, file, places) if replace else ()
    profile = profile or client.profile
    command, args = command_line(profile, desk=desk)
    write_connection(client, file, client.entry(command, args), moved=moved, state=state)
    out(
        f"{client.title}: Toolcrib is in {file}, profile {profile}"
        + (f", instead of {', '.join(moved)}" if moved else "")
    )


def _connect_desk(places: Places, *, project: bool, unanswered: Unanswered) -> None:
    """Put our hook into Claude Code's settings and say what else there is to do."""
    file = hook_file(places, project=project)
    options = ["--unanswered", unanswered] if unanswered != "deny" else []
    done = connect_hook(file, _program(), options, state=places.directories.state)
    out(f"Claude Code: Toolcrib's hook is in {file}{'' if done else ' already'}")
    out("Questions wait in `toolcrib approvals watch`; the rules stand in your configuration (`toolcrib policy`).")
    out("Without settings: claude -p … --permission-prompt-tool mcp__toolcrib__approve")


def _words(entry: Mapping[str, Any]) -> list[Any]:
    """What an entry starts: clients keep arguments in `args`, some with the program in `command`."""
    given: list[Any] = [entry.get("args"), entry.get("command")]
    return [word for part in given if isinstance(part, list) for word in cast("list[Any]", part)]


def _move(client: Client, file: Path, places: Places) -> tuple[str, ...]:
    """Make sure that the servers of `file` are in our configuration, reviewed as they are now; return their names."""
    discovery = discover(places, [client])
    for problem in discovery.problems:
        note(f"{problem.source}: {problem.message}" + (f"; {problem.hint}" if problem.hint else ""))
    found = [server for server in discovery.servers if server.file == file and server.scope != "local"]
    target = config_files(places.directories, places.project)[0]
    rows = [row for row in candidates(found, read_servers(target)) if not row.known]
    if rows:
        add_servers(target, {row.name: row.found.value for row in rows})
        specs, _ = specs_of([row.found.entry(row.name) for row in rows])
        probes = probe(load(), specs, wait=_WAIT, accept=True)
        ready = sum(1 for probed in probes.values() if probed.state == "ready")
        note(f"{len(rows)} servers of {client.title} are in {target} now, {ready} of them answer")
    return tuple(server.name for server in found)
