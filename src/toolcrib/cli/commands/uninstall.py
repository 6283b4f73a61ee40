"""`toolcrib uninstall`: disconnects every client, ends the daemons, and removes what Toolcrib keeps on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from ...config.clients.connections import NAME, connections, remove_empty
from ...config.clients.connections import disconnect as undo
from ...config.clients.table import CLIENTS, Client
from ...config.directories import Directories, Places, here
from ...config.secrets import remove_secret, secret_names
from ...core.json import fields_of
from ...crib.storage import FOLDER as LOGINS_FOLDER
from ...crib.storage import logins_in
from ...errors import ConfigError, ToolFailure, UsageError
from ..clients.choice import own_entries
from ..clients.own_environment import running_program
from ..options import AsJson
from ..output import confirm, counted, emit_json, escape, note, out
from .disconnect import disconnect

_END_SECONDS: Final = 15.0
"""Seconds that a daemon has for its running calls."""
_SOL_LOCAL, _LOCAL_PEERPID = 0, 2
"""macOS `sys/un.h`: option that gives the process id at the other end."""


def uninstall(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, remove nothing.")] = False,
    config: Annotated[
        bool, typer.Option("--config", help="Remove your configuration, too: servers, rules, profiles.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Disconnect every client and remove what Toolcrib keeps: data, cache, state, daemons.

    Shows what it removes and asks first. Files of clients become what they were before `toolcrib connect`; one that
    changed since loses only Toolcrib's entry, and gets back the servers that were moved. Your configuration stays
    unless you say --config, and folders of projects (`.toolcrib`) stay. The last line says what removes the program.
    """
    places = here()
    plan = _plan(places, config=config)
    program = _removal_of_program(places)  # what it reads may be gone afterwards
    if as_json and not (yes or dry_run):
        raise UsageError("--json asks nothing: say --yes or --dry-run as well")
    if not as_json:
        for line in plan.lines():
            out(escape(line))
    if dry_run:
        if as_json:
            emit_json({"removed": False, **plan.to_json(), "program": program})
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("no terminal for a confirmation: `toolcrib uninstall --yes` removes it")
        if not confirm("Remove all this?"):
            note("nothing was removed")
            raise typer.Exit(1)
    described = plan.to_json()
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        _carry_out(plan, places)
    if as_json:
        emit_json({"removed": True, **described, "program": program})
    else:
        out(f"removed; the program itself {program}" if plan.is_something else f"the program itself {program}")


def _carry_out(plan: _Plan, places: Places) -> None:
    """Remove what is planned. Raises `UsageError` where something is left."""
    _disconnect(plan)
    for socket_file in plan.daemons:
        _end(socket_file, is_hung=socket_file in plan.hung)
    _forget_secrets(places)
    failed = [problem for folder in plan.folders for problem in _remove(folder)]
    for folder in {*plan.folders} - {places.directories.runtime}:
        remove_empty(parent for parent in folder.parents if places.home in parent.parents)
    for problem in failed:
        note(problem)
    if failed:
        raise UsageError(f"not everything could be removed: {len(failed)} files or folders are left")


class _Plan(Struct, frozen=True, kw_only=True):
    """Files, folders and daemons to remove."""

    connected: tuple[tuple[str, Path], ...]
    """Files that `connect` changed, each with the client's name."""
    unrecorded: tuple[tuple[Client, Path], ...]
    """Files with an entry of ours that no record names: written by hand, or by a copy of the file."""
    daemons: tuple[Path, ...]
    """Their sockets."""
    hung: frozenset[Path]
    """Those of `daemons` that do not answer."""
    folders: tuple[Path, ...]
    kept: tuple[Path, ...]

    @property
    def is_something(self) -> bool:
        """Whether there is anything to remove."""
        return bool(self.connected or self.unrecorded or self.daemons or self.folders)

    def to_json(self) -> dict[str, Any]:
        """Return the plan for programs."""
        connected = [{"client": client, "file": str(file), "recorded": True} for client, file in self.connected]
        connected += [{"client": one.name, "file": str(file), "recorded": False} for one, file in self.unrecorded]
        return {
            "disconnect": connected,
            "daemons": [str(path) for path in self.daemons],
            "folders": [{"path": str(folder), **fields_of(_size(folder))} for folder in self.folders],
            "kept": [str(folder) for folder in self.kept],
        }

    def lines(self) -> Iterator[str]:
        """Yield the plan for people."""
        for client, file in self.connected:
            yield f"disconnect  {_title(client)}: {file}"
        for found, file in self.unrecorded:
            only = f"only the entry `{NAME}` is taken out: servers that were moved are in your configuration"
            yield f"disconnect  {found.title}: {file} ({only})"
        for path in self.daemons:
            yield f"end         daemon at {path}"
        for folder in self.folders:
            yield f"remove      {folder} ({_size(folder)})"
        for folder in self.kept:
            how = "remove it by hand" if self.unrecorded else "--config removes it"
            yield f"keep        {folder} (your configuration; {how})"
        if not self.is_something:
            yield "nothing to remove"


def _plan(places: Places, *, config: bool) -> _Plan:
    directories = places.directories
    listening = [path for path in directories.sockets if _listener(path) is not None]
    daemons, hung = _daemons(listening, directories)
    folders = [directories.data, directories.cache, directories.state]
    folders += [directories.runtime] if daemons == listening else []  # another home of this user may share it
    recorded = connections(directories.state)
    files = {done.file for done in recorded}
    unrecorded = tuple((client, file) for client, file in own_entries(places) if str(file) not in files)
    removes_config = config and not unrecorded  # it may have the only copy of their servers
    folders += [directories.config] if removes_config else []
    return _Plan(
        connected=tuple((done.client, Path(done.file)) for done in recorded),
        unrecorded=unrecorded,
        daemons=tuple(daemons),
        hung=hung,
        folders=tuple(folder for folder in folders if os.path.lexists(folder)),
        kept=(directories.config,) if not removes_config and directories.config.is_dir() else (),
    )


def _title(client: str) -> str:
    return CLIENTS[client].title if client in CLIENTS else client


def _disconnect(plan: _Plan) -> None:
    """Take Toolcrib out of every client. Raises `UsageError` before anything is removed that would be missed then."""
    state = here().directories.state
    for client, file in plan.unrecorded:
        undo(client, file, state=state, unrecorded=True)
        out(f"{client.title}: {escape(str(file))} no longer has Toolcrib")
    if plan.connected:
        disconnect(all_=True)


def _listener(path: Path) -> int | None:
    """Return the process that listens at a socket; None when none of this user's does, or it is unknown."""
    from ...daemon.rendezvous import DaemonEndpoint, FullQueue, process_of  # POSIX only: it needs `fcntl`

    endpoint = DaemonEndpoint(directory=path.parent, key=path.stem)
    try:
        link = endpoint.connect()
    except FullQueue:
        return endpoint.holder() or None
    except UsageError:
        return None
    if link is None:
        return None
    with link:
        if sys.platform == "darwin":
            return struct.unpack("i", link.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4))[0]
        return process_of(link) or None


def _daemons(listening: Sequence[Path], directories: Directories) -> tuple[list[Path], frozenset[Path]]:
    """Return those of `listening` that serve this home, and those that hang.

    One that does not say whom it serves, which hangs or is of another version, counts.
    """
    if not listening:
        return [], frozenset()
    from ...daemon.control import HungDaemon, statuses  # POSIX only: it needs `fcntl`

    answers = {endpoint.socket: status for endpoint, status in statuses(listening)}
    others = {
        path
        for path, status in answers.items()
        if not isinstance(status, UsageError) and Path(status.log).parent != directories.state
    }
    hung = frozenset(path for path, status in answers.items() if isinstance(status, HungDaemon))
    return [path for path in listening if path not in others], hung


def _end(path: Path, *, is_hung: bool) -> None:
    """End the daemon that listens at `path`, of any version, and wait for it. Raises `UsageError`."""
    pid = _listener(path)
    if pid is None:
        return
    from ...daemon.control import await_end, endpoints  # POSIX only: it needs `fcntl`

    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL if is_hung else signal.SIGTERM)
    (endpoint,) = endpoints([path])
    if not await_end(endpoint, pid, _END_SECONDS):
        late = f"the daemon (process {pid}) has not ended within {_END_SECONDS:g} s"
        raise UsageError(f"{late}: the clients are disconnected, nothing is removed yet; end it and try again")
    out(f"ended the daemon (process {pid})")


def _forget_secrets(places: Places) -> None:
    """Remove secrets and logins one by one: those in the system's keyring would stay there otherwise."""
    logins = logins_in(places.directories)
    files = sorted((places.directories.data / LOGINS_FOLDER).glob("*.json"))
    removals = [partial(remove_secret, name, places.environ) for name in secret_names(places.environ)]
    for remove in (*removals, *(partial(logins.remove, file.stem) for file in files)):
        try:
            remove()
        except (ConfigError, ToolFailure) as error:
            note(str(error))


def _remove(folder: Path) -> Sequence[str]:
    """Remove a folder and return what could not be removed. A link is removed, not what it names."""
    try:
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        else:
            shutil.rmtree(folder)
    except FileNotFoundError:
        return []  # another process removed it first
    except OSError as error:
        return [f"{error.filename or folder}: {error.strerror}"]
    return []


class _Size(Struct, frozen=True):
    files: int
    bytes: int

    def __str__(self) -> str:
        amount = f"{self.bytes / 1e6:,.1f} MB" if self.bytes >= 1e5 else f"{self.bytes / 1e3:,.1f} kB"
        return f"{counted(self.files, 'file')}, {amount}"


def _size(folder: Path) -> _Size:
    paths = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    total = 0
    for path in paths:
        with suppress(OSError):
            total += path.lstat().st_size
    return _Size(len(paths), total)


def _removal_of_program(places: Places) -> str:
    """Return the command that removes the program that runs."""
    prefix = Path(sys.prefix)
    program = running_program(places)
    if program.kind == "own":
        return "was removed with the data folder"
    if program.kind == "temporary":
        return "is not installed: this environment is a cache"
    if program.kind == "clone":
        return f"is in a clone: delete the folder of the clone, or {prefix}"
    if (prefix / "uv-receipt.toml").is_file():
        return "is removed by `uv tool uninstall toolcrib`"
    if (prefix / "pipx_metadata.json").is_file():
        return "is removed by `pipx uninstall toolcrib`"
    return f"is removed by `{sys.executable} -m pip uninstall toolcrib`"
