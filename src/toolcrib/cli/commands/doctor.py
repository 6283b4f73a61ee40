"""`toolcrib doctor`: is everything here as it must be, and if not, what to do."""

from __future__ import annotations

import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from msgspec import Struct

from ...config import Settings, load
from ...config.directories import PROJECT_FOLDER, Places, config_files
from ...config.file_parts import read_part
from ...config.files import is_file
from ...config.loader import here
from ...config.trust import Trust
from ...core.json import fields_of
from ...core.session import LOCAL
from ...crib.problem_summaries import summaries
from ...crib.storage import open_store, place_of
from ...crib.workspaces import find
from ...errors import CODES, ConfigError, ToolcribError, UsageError
from ...mcp.client.spec import ServerSpec
from ...store.store import database_at
from ...store.vault import Vault
from ...telemetry.tokens import tokenizer
from ...workflows import Workflows
from ..clients.choice import broken_entries, own_entries
from ..clients.own_environment import outdated_program
from ..open_crib import opened
from ..options import AsJson, ConfigFiles, run, settings_of
from ..output import Column, counted, emit_json, table
from ..server_probe import Probe, described, probe_source

if TYPE_CHECKING:  # POSIX only
    from ...daemon.control import DaemonStatus
    from ...daemon.rendezvous import DaemonEndpoint

_COLUMNS: Final[tuple[Column, ...]] = (("CHECK", "<"), ("STATE", "<"), ("DETAIL", "<"))

_PROGRAMS: Final = {
    "node": "servers from npm need it: https://nodejs.org",
    "npx": "servers that are started with npx need it; it comes with Node",
    "uvx": "servers that are started with uvx need it: https://docs.astral.sh/uv",
}
"""Programs that servers are commonly started with, and what to do when one is missing."""

_CANCELLED: Final = {"job": "jobs", "schedule": "schedule"}
"""Commands that end what waits."""
_OF_SERVERS: Final = ("needs_login", "unavailable")
"""Codes of problems that a server's own line has: without them it would be there twice."""
_EARLIEST: Final = 1_767_225_600
"""2026-01-01: a clock before that is wrong, and certificates would not be valid."""

_SERVING: Final = ("ready", "failed", "stale", "needs_login")
"""States of a source in which a detail is a failure: one that is ready hangs."""
_DEFAULTS: Final = {"profile": "adaptive", "mode": "cautious"}
"""Takes the place of these keys while a file is read by itself: what they name may stand in another file."""


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    check: str
    state: Literal["ok", "missing", "failed"]
    """`missing` is not a failure: not everybody needs what is missing."""
    detail: str = ""
    status: int = 0
    """The exit status that this failure gives the command."""


def doctor(
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the servers.", min=0)] = 15.0,
) -> None:
    """Check configuration, clients' entries, servers, store and machine; say what to do about what is wrong.

    Ends with status 0 when all is well, else with that of the first failure: 2 configuration, 7 a server, 9 the store.
    """
    checks = [*_machine(), *_clients(), *_configuration(config)]
    if not any(check.check == "configuration" and check.status for check in checks):
        settings = settings_of(config)
        checks += [*_tools(settings, wait), _store(settings), *_collector(settings), _sandbox(settings)]
    checks += _daemons([check.detail for check in checks if check.state != "ok"])
    if as_json:
        emit_json([{key: value for key, value in fields_of(check).items() if key != "status"} for check in checks])
    else:
        table(_COLUMNS, ((check.check, check.state, check.detail) for check in checks))
    failed = next((check.status for check in checks if check.status), 0)
    if failed:
        raise typer.Exit(failed)


def _machine() -> Iterator[Check]:
    yield Check(check="toolcrib", state="ok", detail=f"{installed('toolcrib')}, Python {platform.python_version()}")
    right = time.time() > _EARLIEST
    now = time.strftime("%Y-%m-%d %H:%M:%S %z")
    yield Check(check="clock", state="ok" if right else "failed", detail=now, status=0 if right else 2)
    for program, why in _PROGRAMS.items():
        found = shutil.which(program, path=here().environ.get("PATH"))
        yield Check(check=program, state="ok" if found else "missing", detail=found or why)
    counter = tokenizer()
    detail = counter.name if counter.exact else f"{counter.name}; the extra `tokens` counts exactly"
    yield Check(check="tokenizer", state="ok" if counter.exact else "missing", detail=detail)


def _clients() -> Iterator[Check]:
    """The entries of ours that clients have, and folders that are gone."""
    for client, detail in broken_entries(here()):
        yield Check(check=f"entry of {client.title}", state="failed", detail=detail, status=2)
    for name, detail in _moved_folders(here()):
        yield Check(check=name, state="missing", detail=detail)
    if own_entries(here()) and (program := outdated_program(here())):
        detail = (
            f"{program}, which clients start, is older than the program that runs: `toolcrib connect CLIENT` renews it"
        )
        yield Check(check="program of clients", state="missing", detail=detail)


def _configuration(files: Sequence[Path] | None) -> Iterator[Check]:
    """Each file by itself, so that one that is broken is named and the others are still looked at; then all together.

    A file may use a profile or a mode of another one: alone it is broken only where all together are.
    """
    places = here()
    looked_for = list(files or config_files(places.directories, places.project))
    settings, problem = _together(files)
    named = False
    for path in looked_for:
        try:
            if not files and not is_file(path):
                yield Check(check="configuration", state="missing", detail=f"{path} (not needed)")
                continue
            if not files and settings is not None and path not in settings.files:
                continue  # it is not confirmed, which is among the problems
            detail = f"{path}: {counted(len(load([path], _DEFAULTS).sources.servers), 'server')}"
        except ToolcribError as error:
            if problem:
                named = True
                for one in error.each if isinstance(error, ConfigError) else (error,):
                    yield Check(check="configuration", state="failed", detail=str(one), status=2)
                continue
            detail = str(path)
        yield Check(check="configuration", state="ok", detail=detail)
    if problem and not named:
        yield Check(check="configuration", state="failed", detail=problem, status=2)
    if settings is not None and any(path.is_file() for path in looked_for):
        yield from _problems(settings)


def _together(files: Sequence[Path] | None) -> tuple[Settings | None, str]:
    """The settings of all files, or why there are none."""
    try:
        return settings_of(list(files) if files else None), ""
    except ToolcribError as error:
        return None, str(error)


def _problems(settings: Settings) -> Iterator[Check]:
    for problem in settings.problems:
        detail = problem.message + (f"; {problem.hint}" if problem.hint else "")
        broken = problem.code == "bad_config"
        yield Check(
            check=f"configuration of {problem.source}",
            state="failed" if broken else "ok" if problem.code == "notice" else "missing",
            detail=detail,
            status=2 if broken else 0,
        )


def _tools(settings: Settings, wait: float) -> Iterator[Check]:
    """Open all sources as a session has them: the state of each server, and each problem of the catalog.

    Without the store no session has them; the servers are looked at all the same, beside an empty store.
    """
    try:
        found, problems = _looked_at(settings, wait)
    except ConfigError as error:
        yield Check(check="tools", state="failed", detail=str(error), status=2)
        return
    except ToolcribError as error:
        detail = f"no call can run: {error}; the servers are looked at without the store"
        yield Check(check="tools", state="failed", detail=detail, status=CODES["storage"].exit)
        try:
            with tempfile.TemporaryDirectory(prefix="toolcrib-") as folder:
                apart = {"path": str(Path(folder) / "toolcrib.db")}
                found, problems = _looked_at(settings.with_values(store=apart, accept=True), wait)
        except (ToolcribError, OSError):
            return  # the store was not the cause
    yield from _servers(settings, found, wait)
    yield from problems


def _looked_at(settings: Settings, wait: float) -> tuple[dict[str, Probe], list[Check]]:
    """Return the servers by name, and what is wrong with tools, and with the names of tools in rules."""
    names = [spec.name for spec in (*settings.sources.servers, *settings.sources.openapi)]

    async def main() -> tuple[dict[str, Probe], list[Check]]:
        async with opened(settings.with_values(problems=()), wait=wait, fresh=True) as crib:
            problems = [
                Check(check=f"tools of {problem.source}", state="missing", detail=text)
                for problem, text in summaries(crib.problems, crib.settings.file_options)
                if problem.code not in _OF_SERVERS or problem.tool or problem.source not in names
            ]
            sessions = [crib.session(principal=name) for name in dict.fromkeys((LOCAL, *settings.policy.identities))]
            misspelt = dict.fromkeys(text for one in sessions for text in crib.views.misspelt(one.state))
            problems += [Check(check="names of tools", state="missing", detail=text) for text in misspelt]
            problems += [
                Check(check=f"workflow {name}", state="missing", detail="; ".join(defects))
                for name, defects in crib.slice(Workflows).defects().items()
            ]
            return {name: await probe_source(crib, name) for name in names}, problems

    return run(main)


def _servers(settings: Settings, found: Mapping[str, Probe], wait: float) -> Iterator[Check]:
    for spec in (*settings.sources.servers, *settings.sources.openapi):
        seen = found[spec.name]
        good = seen.state == "ready"
        state = described(seen, wait).removeprefix("failed: ").removeprefix("needs_login: ")
        detail = f"{seen.tools} tools" if good else state
        command = spec.command if isinstance(spec, ServerSpec) else ""
        missing = command and shutil.which(command, path=settings.environment.get("PATH")) is None
        if not good and missing and "not found" not in detail:
            detail = f"{detail}; there is no program {command!r} on the PATH"
        yield Check(
            check=f"{'server' if isinstance(spec, ServerSpec) else 'API'} {spec.name}",
            state="ok" if good else "failed",
            detail=detail,
            status=0 if good else CODES["unavailable"].exit,
        )


def _store(settings: Settings) -> Check:
    """Open the store as a call would, and check its chain and whether its disk takes more."""
    place = str(place_of(settings)) if not settings.store.url else "PostgreSQL"

    async def main() -> tuple[str, str, str]:
        async with open_store(settings) as store:
            if problem := await store.check():  # with the address, which failures of single reads keep to themselves
                return store.place, problem, ""
            checked = await store.calls.verify()
            key = store.vault.check() or _key_problem(await store.unreadable(), store.vault)
            state = f"writable, schema {await store.schema()}, {checked.rows} calls, the chain is whole"
            return store.place, checked.problem or key, state

    try:
        place, problem, state = run(main)
    except ToolcribError as error:
        problem, state = str(error), ""
    if problem:
        reason = _disk_problem(place_of(settings))
        detail = f"{place}: {problem}{f' ({reason})' if reason else ''}"
        return Check(check="store", state="failed", detail=detail, status=CODES["storage"].exit)
    return Check(check="store", state="ok", detail=f"{place}: {state}")


def _key_problem(unreadable: Mapping[str, int], vault: Vault) -> str:
    """Return the problem of a missing key, and its remedy; empty for none."""
    if not unreadable:
        return ""
    waiting = " and ".join(counted(count, f"waiting {kind}") for kind, count in unreadable.items())
    then = "put the key that was beside the store then (a backup has it) back in its place, and restart Toolcrib"
    commands = " and ".join(
        f"`toolcrib {command} cancel`" for kind, command in _CANCELLED.items() if kind in unreadable
    )
    give_up = f"; or give up by {commands}" if commands else ""
    return f"{waiting} cannot go on: {vault.problem}; {then}{give_up}"


def _disk_problem(place: Path | str) -> str:
    """Return why the disk of a store takes no more: SQLite says "disk I/O error" for a full one. Empty for none."""
    try:
        if isinstance(place, Path) and place.parent.is_dir():
            database_at(place).check()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _collector(settings: Settings) -> Iterator[Check]:
    """Send the collector of the telemetry a request without spans; a broken configuration is among the tools."""
    options = settings.telemetry
    if not options.otlp:
        return
    from ...telemetry.sdk import collector_refusal  # few send telemetry

    where = options.otlp if isinstance(options.otlp, str) else "OTEL_EXPORTER_OTLP_ENDPOINT"
    try:
        reason = collector_refusal(options)
    except ConfigError:
        return
    status = CODES["unavailable"].exit if reason else 0
    yield Check(
        check="telemetry",
        state="failed" if reason else "ok",
        detail=f"{where}: {reason}" if reason else where,
        status=status,
    )


def _sandbox(settings: Settings) -> Check:
    """Try the sandbox as a crib does."""
    sandbox, why = find(settings)
    is_there = shutil.which("bwrap", path=settings.environment.get("PATH")) is not None
    if sandbox is not None and sandbox.kind != "none":
        if sandbox.kind in ("landlock", "seatbelt"):
            weaker = f"commands run under {sandbox.kind.title()}, without sockets of their own, notebooks and browsers"
            brings = "" if is_there else "; `apt install bubblewrap` brings these"
            return Check(check="sandbox", state="ok", detail=f"{why}: {weaker}{brings}")
        what = f"a container of {settings.shell.container}" if sandbox.kind == "container" else "bubblewrap"
        return Check(check="sandbox", state="ok", detail=f"commands run in {what}")
    if settings.shell.container:
        return Check(check="sandbox", state="failed", detail=f"{why}; the shell tools are off")
    asks = "each command asks, in sessions with a person to ask; others have no shell tools"
    then = "the shell tools are off" if sandbox is None else "each command asks" if settings.shell.unsandboxed else asks
    brings = "" if is_there else "; `apt install bubblewrap` or your system's own package brings it"
    detail = f"{why}; {then}{brings}"
    return Check(check="sandbox", state="missing", detail=detail)


def _daemons(known: Sequence[str]) -> Iterator[Check]:
    """Daemons that listen now, and what is wrong with them; none is fine, the next client starts one.

    `known` is what other checks have found: it is not reported twice.
    """
    sockets = here().directories.sockets
    found: Sequence[tuple[DaemonEndpoint, DaemonStatus | UsageError]] = ()
    if sockets:
        from ...daemon.control import statuses  # POSIX only: it needs `fcntl`

        found = statuses(sockets)
    alive = ", ".join(endpoint.socket.name for endpoint, _ in found)
    detail = f"{len(found)} running ({alive})" if found else "not running; a stdio client starts it"
    yield Check(check="daemon", state="ok" if found else "missing", detail=detail)
    for _, status in found:
        if isinstance(status, UsageError):
            yield Check(check="daemon", state="failed", detail=str(status), status=CODES["unavailable"].exit)
        else:
            yield from _problems_of(status, known)


def _problems_of(status: DaemonStatus, known: Sequence[str]) -> Iterator[Check]:
    """Yield what only the running daemon has: servers that hang or are away there, and what it could not read."""
    check, away = f"daemon {status.pid}", [one for one in status.servers if one.detail and one.state in _SERVING]
    for server in away:
        if not any(server.detail in detail for detail in known):
            where = "" if server.state == "ready" else ", in the environment of the client that started this daemon"
            then = f"`toolcrib daemon stop {status.pid}` ends it, and its clients start another"
            detail = f"{server.name}: {server.detail}{where}; {then}"
            yield Check(check=check, state="failed", detail=detail, status=CODES["unavailable"].exit)
    if status.store:
        yield Check(check=check, state="failed", detail=f"store: {status.store}", status=CODES["storage"].exit)
    known = [*known, *(server.detail for server in away)]
    for problem in status.problems:
        if not any(detail and (problem in detail or detail in problem) for detail in known):
            yield Check(check=check, state="missing", detail=problem)


def _moved_folders(places: Places) -> Iterator[tuple[str, str]]:
    """Yield what names a folder that is gone, and what to do about it."""
    own, *_ = config_files(places.directories, places.project)
    with suppress(ConfigError):  # the check of the file says why
        for entry in read_part(own, str(own.parent), places.environ, None).entries if is_file(own) else ():
            for folder in entry.folders:
                if not folder.is_dir():
                    now = next(filter(Path.is_dir, _below(places.home, folder)), None)
                    maybe = f"; it may be {now} now" if now else ""
                    then = f"write the right one into `projects`, or `toolcrib remove {entry.name}`"
                    yield f"server {entry.name}", f"{entry.file}: {folder} does not exist{maybe}: {then}"
    trust = Trust(places.directories)
    for gone in trust.gone():
        if gone.parent.name == PROJECT_FOLDER:
            for now in filter(Path.is_file, _below(places.home, gone)):
                content, project = now.read_bytes(), now.parent.parent
                if trust.covers(gone, content) and not trust.covers(now, content):
                    then = f"{now} says the same: `toolcrib trust` in {project} confirms it there"
                    yield f"project {project}", f"{gone}, which was confirmed, does not exist; {then}"


def _below(home: Path, path: Path) -> Iterator[Path]:
    """Yield where `path` would be below `home`, with as much of it as there can be first."""
    for place in range(1, len(path.parts)):
        yield home.joinpath(*path.parts[place:])
