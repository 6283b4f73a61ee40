"""Servers that move from a client's file behind Toolcrib, and those that stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ...config import files as disk
from ...config import load
from ...config.clients.connections import connections
from ...config.clients.discovery import FoundServer, discover, servers_elsewhere
from ...config.clients.entries import RULES
from ...config.clients.permissions.claude_code import switched_off
from ...config.clients.permissions.settings import client_files
from ...config.clients.table import Client
from ...config.confirmation import confirm
from ...config.directories import Places, config_files
from ...config.own_file import add_servers, let_inherit, read_servers
from ...config.servers import specs_of
from ..output import note
from ..server_probe import described, probe
from .choice import CLAUDE, Candidate, candidates, identity, portable_value
from .own_entry import Program, Way

LIST_SECONDS: Final = 20.0
"""Seconds for servers that are moved behind us to list their tools."""

_OFF: Final = "it is switched off"
_NEEDS_LOGIN: Final = "needs_login"


class MovedServers(Struct, frozen=True, kw_only=True):
    """Servers of a client that are behind us."""

    names: Mapping[str, str]
    """Our names, by their names there."""
    added: tuple[str, ...] = ()
    """Our names of those that were new here."""
    kept: tuple[str, ...] = ()
    """Names there of those that stayed, for they list nothing; a note gave the reason."""


def kept_names(
    client: Client, file: Path, places: Places, way: Way, *, stay: Iterable[FoundServer], off: Collection[str]
) -> set[str]:
    """Return the names of the client's servers that are not behind us: those that `stay`, and those of other folders.

    `off` are servers of this project's `.mcp.json` that are switched off, as they are behind us.
    """
    elsewhere = servers_elsewhere(client, file, places)
    others = [folder for folder in elsewhere if folder != places.project]
    if way.replace and others:
        note(f"{client.title} keeps the servers of {', '.join(map(str, others))}: connect it again in that folder")
    here = {*elsewhere.get(places.project, ())} - {*off}
    return {server.name for server in stay}.union(here, *(elsewhere[folder] for folder in others))


def movable_servers(found: Sequence[FoundServer], client: Client, *, after_another: bool) -> list[FoundServer]:
    """Return the servers to move: with `after_another` connection those of this project that were not there then.

    A project's server that has the name of one of everywhere stays, for rules of the client are about both.
    """
    everywhere = {server.name for server in found if server.scope != "local"}
    movable = [] if after_another else [server for server in found if server.scope != "local"]
    for server in [one for one in movable if one.works_in_its_folder]:
        movable.remove(server)
        reason = "it works in the folder that the client starts it in"
        note(f"{client.title} keeps {server.name}: {reason}. To do: write whole paths, or a `cwd`, into its entry")
    for server in found:
        if server.scope == "local" and server.name in everywhere:
            note(f"{client.title} keeps {server.name} of this project: another server has this name. To do: rename one")
        elif server.scope == "local":
            movable.append(server)
    return movable


def found_servers(client: Client, file: Path, places: Places, way: Way) -> list[FoundServer]:
    """Return the servers in the client's `file`, and report what of them has no effect here."""
    discovery = discover(places, [client])
    for problem in discovery.problems:
        if way.replace and problem.hint == RULES:  # it is carried over
            continue
        stays = way.replace and problem.code == "bad_config" and problem.source != client.name
        subject = f"{client.title} keeps {problem.source}" if stays else problem.source
        note(f"{subject}: {problem.message}" + (f"; {problem.hint}" if problem.hint else ""))
    found = [server for server in discovery.servers if server.file == file]
    if not way.shared:
        return found
    values = [{key: one for key, one in server.value.items() if key != "projects"} for server in found]
    return [
        replace(server, value=portable_value(value, str(places.project)))
        for server, value in zip(found, values, strict=True)
    ]


def servers_behind_us(client: Client, places: Places) -> tuple[Mapping[str, str], set[str]]:
    """Return our names of the servers of the project's `.mcp.json` that are behind Toolcrib, too, and what is off.

    Those are the names that personal settings switch off already. A note names the servers that are neither.
    """
    file = client.project_file(places) if client.name == CLAUDE else None
    if file is None or not file.is_file():
        return {}, set()
    found = [server for server in discover(places, [client]).servers if server.file == file]
    own = read_servers(config_files(places.directories, places.project)[0])
    ours = {_started(value): name for name, value in own.items()}
    off = {
        name
        for settings in client_files(client, places, project=False)
        for name in switched_off(text_of(settings), str(settings))
    }
    others = [server.name for server in found if _started(server.value) not in ours and server.name not in off]
    if others:
        again = f"`toolcrib import {client.name} --trust && toolcrib connect {client.name} --replace`"
        note(f"{client.title} keeps {', '.join(others)} of {file}, which came with the project. To do: {again}")
    return {server.name: ours[_started(server.value)] for server in found if _started(server.value) in ours}, off


def _started(value: Mapping[str, Any]) -> bytes:
    """Return the identity of a server, the same in every folder."""
    return identity({key: one for key, one in value.items() if key != "projects"})


def brought(added: Iterable[str], names: Mapping[str, str], own: Path, state: Path) -> list[str]:
    """Return the servers of `names` that our file `own` has for connections alone: those `added` now, and earlier."""
    earlier = {name for done in connections(state) if done.own == str(own) for name in done.added}
    return [*added, *(name for name in names.values() if name in earlier)]


def text_of(file: Path) -> str:
    """Return the text of a client's file, empty for one that does not exist."""
    content = disk.read(file, limit=disk.FOREIGN_MAX_BYTES) if file.is_file() else b""
    return disk.decode(content, str(file))


def move(client: Client, found: Sequence[FoundServer], target: Path, places: Places, program: Program) -> MovedServers:
    """Make sure that the servers `found` are in our file `target`, reviewed as they are now; not in a dry run.

    A new one that does not answer, or has a tool that we cannot offer, stays in the client, where it works or fails as
    before, and a note says what there is to do. A dry run expects answers.
    """
    rows = candidates(found, {**read_servers(target), **program.planned})
    if program.dry_run:
        program.planned |= {row.name: row.found.value for row in rows}
        return MovedServers(names={place.name: row.name for row in rows for place in row.places})
    new = [row for row in rows if not row.known]
    _inherit_as_here(target, (row for row in rows if row.known))
    specs, problems = specs_of([row.found.entry(row.name) for row in new if row.identity not in program.silent])
    probes = probe(load(), specs, wait=LIST_SECONDS, accept=True)
    ready = [row for row in new if row.name in probes and probes[row.name].state == "ready"]
    answering = [row for row in ready if not probes[row.name].lost]
    if answering:
        written = add_servers(target, {row.name: row.found.value for row in answering})
        if target != config_files(places.directories, places.project)[0]:
            confirm(places.directories, [(target, written)], places.environ)
    reasons = {problem.source: problem.message for problem in problems}
    kept = [row for row in new if row not in answering]
    for row in kept:
        state = program.silent.get(row.identity) or reasons.get(row.name, _OFF)
        code = ""
        if row in ready:
            code, state = probes[row.name].lost[0]
        elif row.name in probes:
            state = program.silent[row.identity] = described(probes[row.name], LIST_SECONDS)
        names = ", ".join(place.name for place in row.places)
        why = "it needs a login" if state.startswith(_NEEDS_LOGIN) else state
        note(f"{client.title} keeps {names}: {why}. To do: {_to_do(client, row.name, state, code)}")
    return MovedServers(
        names={place.name: row.name for row in rows if row.known or row in answering for place in row.places},
        added=tuple(row.name for row in answering),
        kept=tuple(place.name for row in kept for place in row.places),
    )


def _inherit_as_here(target: Path, rows: Iterable[Candidate]) -> None:
    """Let servers that came behind us from a client that passes on less inherit what this one lets them inherit."""
    own = read_servers(target)
    fewer = [
        row.name for row in rows if row.name in own and "inherit_env" in row.found.value.keys() - own[row.name].keys()
    ]
    if fewer:
        let_inherit(target, fewer)


def _to_do(client: Client, server: str, state: str, code: str) -> str:
    """Return the one command line after which a server that stayed in the client can be moved, or has been.

    `code` is that of the problem of a tool, for a server that answers.
    """
    again = f"toolcrib disconnect {client.name} && toolcrib connect {client.name} --replace"
    if state.startswith(_NEEDS_LOGIN):  # without the last two it would be in the client and behind us
        return f"`toolcrib import {client.name} && toolcrib login {server} && {again}`"
    if code == "collision":
        return f"give it another name there, then `{again}`"
    if code:
        return f"`toolcrib import {client.name} && {again}` does without that tool"
    return f"once it {'is on' if state == _OFF else 'answers'} there, `{again}`"
