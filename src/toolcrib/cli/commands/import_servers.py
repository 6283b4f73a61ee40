"""`toolcrib import`: take over the servers that this user's clients are configured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...config import load
from ...config.clients.discovery import Discovery, discover
from ...config.directories import config_files
from ...config.loader import here
from ...config.own_file import add_servers, read_servers
from ...config.servers import specs_of
from ...telemetry.tokens import tokenizer
from ..clients.choice import Candidate, candidates, chosen_clients, known_names
from ..options import AsJson
from ..output import Column, counted, emit_json, note, out, table
from ..server_probe import Probe, described, probe

_COLUMNS: Final[tuple[Column, ...]] = (
    ("SERVER", "<"),
    ("FROM", "<"),
    ("TOOLS", ">"),
    ("TOKENS", ">"),
    ("STATE", "<"),
)


def import_(
    clients: Annotated[list[str] | None, typer.Argument(help="Only these clients.", metavar="CLIENT …")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be taken over, write nothing.")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Take servers of project files too: you know them.")] = False,
    accept: Annotated[bool, typer.Option(help="Take the tools' definitions as reviewed, as they are now.")] = True,
    as_json: AsJson = False,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the servers.", min=0)] = 20.0,
) -> None:
    """Find the servers in your clients' configuration and write them into Toolcrib's own.

    Connects to each to count its tools. Servers of a file that came with a project are not started before you
    confirm them with --trust. Nothing in the clients changes: `toolcrib connect` does that.
    """
    settings = load()
    places = here()
    found = discover(places, chosen_clients(clients))
    target = config_files(settings.directories, places.project)[0]
    known = read_servers(target)
    # What the user wrote goes first, so that a project's file takes no name away from it.
    rows = candidates(sorted(found.servers, key=lambda server: server.scope == "project"), known)
    usable = [row for row in rows if row.trusted or trust]
    specs, bad = specs_of([row.found.entry(row.name) for row in usable])
    probes = probe(settings, specs, wait=wait, accept=accept and not dry_run)
    reasons = {problem.source: problem.message for problem in bad}
    seen = {name: described(probed, wait) for name, probed in probes.items()}
    states = seen | {name: f"cannot start: {reason}" for name, reason in reasons.items()}
    lines = [_line(row, probes.get(row.name), states.get(row.name, "switched off"), trust=trust) for row in rows]
    fresh = {row.name: dict(row.found.value) for row in usable if not row.known}
    if fresh and not dry_run:
        add_servers(target, fresh)
    for name in [row.name for row in rows if row.name in fresh and row.found.works_in_its_folder]:
        note(f"{name} runs in your home folder here, not where its client starts it: write whole paths, or a `cwd`")
    _tell(lines, found, as_json=as_json)
    for row in usable:
        for name in _earlier(row, rows, known) if row.name in fresh and not clients else ():
            left = f"`toolcrib remove {name}` if it took its place"
            note(f"{row.name} is not the {name} that is here and no client has: {left}")
    reviewed = sum(probed.accepted for probed in probes.values())
    if reviewed:
        note(f"reviewed as they are now: {counted(reviewed, 'definition')}; a change is withheld until you accept it")
    _close(fresh, target, dry_run=dry_run, quiet=as_json)


def _earlier(row: Candidate, rows: Sequence[Candidate], known: Mapping[str, Any]) -> list[str]:
    """Return our entries under a name of this server, for the same folders, that no client has any more."""
    there, names = {one.name for one in rows}, known_names(row.found)
    folders = row.found.value.get("projects")
    return [name for name in names if name in known and name not in there and known[name].get("projects") == folders]


def _line(row: Candidate, probed: Probe | None, state: str, *, trust: bool) -> dict[str, Any]:
    if not row.trusted and not trust:
        state = "untrusted: it came with the project; --trust takes it"
    return {
        "server": row.name,
        "from": row.origin,
        "file": str(row.found.file),
        "tools": probed.tools if probed else 0,
        "tokens": probed.tokens if probed else 0,
        "state": state,
        "known": row.known,
    }


def _tell(lines: Sequence[Mapping[str, Any]], found: Discovery, *, as_json: bool) -> None:
    for problem in found.problems:
        note(f"{problem.source}: {problem.message}" + (f"; {problem.hint}" if problem.hint else ""))
    counter = tokenizer()
    if as_json:
        emit_json(lines)
        return
    rows = [
        (line["server"], line["from"], str(line["tools"]), counter.shown(line["tokens"]), line["state"])
        for line in lines
    ]
    if rows:
        table(_COLUMNS, rows)
        out("")
    tools, tokens = sum(line["tools"] for line in lines), sum(line["tokens"] for line in lines)
    read = f"{counted(len(lines), 'server')} in {counted(len(found.files), 'configuration file')}"
    out(f"{read}: {counted(tools, 'tool')}, {counter.shown(tokens)} definition tokens ({counter.name})")


def _close(fresh: Mapping[str, Any], target: Path, *, dry_run: bool, quiet: bool) -> None:
    if dry_run:
        note(f"dry run: {counted(len(fresh), 'server')} would be written to {target}")
    elif fresh:
        note(f"wrote {counted(len(fresh), 'server')} to {target} (it may hold secrets of your clients; mode 0600)")
        if not quiet:
            note("next: `toolcrib connect CLIENT` puts Toolcrib into a client, --replace instead of its servers")
    elif not quiet:
        note(f"nothing new for {target}")
