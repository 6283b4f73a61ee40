"""`toolcrib connect`: Toolcrib in a client's configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...claude_code.hook_messages import Unanswered
from ...config.clients.claude_files import connect_hook, hook_file
from ...config.clients.connections import NAME
from ...config.clients.permissions.modes import mode_of
from ...config.clients.table import Client
from ...config.directories import Places
from ...config.loader import here
from ...disclosure.profiles import load as load_profile
from ...errors import UsageError
from ...telemetry.tokens import Tokenizer, tokenizer
from ..clients.changes import ClientChange, change_client, take_back
from ..clients.choice import (
    CLAUDE,
    InProject,
    Names,
    chosen_files,
    client_file,
    for_each,
    is_shared,
)
from ..clients.costs import Cost, costs_of, is_longer
from ..clients.own_entry import Program, Way, command_line
from ..last_seen import remember
from ..options import AsJson
from ..output import counted, emit_json, note, out
from ..processes.daemon_start import start_daemons


def connect(
    clients: Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every client that has a configuration here.")] = False,
    project: InProject = False,
    move: Annotated[bool, typer.Option("--replace", help="Move the client's other servers behind Toolcrib.")] = False,
    profile: Annotated[str | None, typer.Option(help="Instead of the one that suits the client.")] = None,
    guard: Annotated[
        bool, typer.Option("--guard", help="As strict as `toolcrib serve`: writes ask, unreviewed tools wait.")
    ] = False,
    approvals: Annotated[
        bool, typer.Option("--approvals", help="claude: let Toolcrib decide what Claude Code's own tools may do.")
    ] = False,
    unanswered: Annotated[
        Unanswered, typer.Option(help="With --approvals: what no answer means; ask is Claude Code's own dialog.")
    ] = "deny",
    command: Annotated[
        str | None, typer.Option("--command", help="The program that the entry starts, instead of this Toolcrib.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where the client's first request gets longer by it.")
    ] = False,
    start: Annotated[
        bool,
        typer.Option("--start/--no-start", help="Start the local daemon now, for the first start of the client."),
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be changed, change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put Toolcrib into a client's configuration.

    Calls run as they ran before: the client goes on asking its user what it asks about a tool by its name, Toolcrib
    asks about what runs through `call_tool` and what your rules say. What the client's own settings allow, ask and deny
    of the servers that `--replace` moves is carried over, and gets its new names there. `--guard` makes Toolcrib ask as
    `toolcrib serve` does, and so does `--approvals`. A client whose first request
    would get longer than the same servers make it without Toolcrib stays as it was, unless you say `--anyway`. The rest
    of the file stays as it is; `toolcrib disconnect` puts back every byte. From a clone, or under `uvx`, the entry
    starts a copy of this environment in your data folder, which stays when this one goes; to connect again brings the
    copy up to date.
    """
    places = here()
    if profile is not None:
        load_profile(profile)
    changes: list[ClientChange] = []
    program = Program(places, command, dry_run=dry_run)

    def one(client: Client, file: Path) -> None:
        way = Way(
            replace=move,
            profile=profile or client.profile,
            guard=guard or approvals,
            desk=approvals,
            project=project,
            shared=project and is_shared(file),
        )
        changes.append(change_client(client, file, places, way, named_profile=profile, program=program))

    chosen = chosen_files(clients, all_, lambda client: client_file(client, places, project), "connect")
    if approvals and [client.name for client, _ in chosen] != [CLAUDE]:
        raise UsageError("--approvals is for Claude Code: `toolcrib connect claude --approvals`")
    better: list[ClientChange] = []
    worse: list[ClientChange] = []
    costs: Mapping[str, Cost] = {}
    try:
        for_each(chosen, one)
    finally:
        if dry_run:
            _preview(changes, program, places, as_json=as_json)
        else:
            costs, worse = costs_of([change for change in changes if change.is_new], places, anyway=anyway)
            better = [change for change in changes if change not in worse]
            take_back(worse, places)
            _report(better, worse, costs, places, as_json=as_json)
    if approvals and not dry_run:
        path = program.path
        _connect_desk(path, places, project=project, unanswered=unanswered, tell=note if as_json else out)
    if start and not dry_run:
        start_daemons(_entries(better, program), places.project, places.environ)
    _tell_refusals(worse, costs, of=len(chosen), is_enough=all_ and bool(better))


def _tell_refusals(refused: Sequence[ClientChange], costs: Mapping[str, Cost], *, of: int, is_enough: bool) -> None:
    """Say why clients stay as they were. Raises `UsageError` unless it `is_enough` that the others are connected."""
    refusals = [_refusal(change, costs[change.client.name]) for change in refused]
    if of == 1 and refusals:
        raise UsageError(refusals[0])
    for refusal in refusals:
        note(refusal)
    if refusals and not is_enough:
        raise UsageError(f"{len(refusals)} of {of} clients stay as they were")


def _entries(changes: Sequence[ClientChange], program: Program) -> Iterable[Sequence[str]]:
    """Return one command line for each daemon of the new entries; one that all share names no path of this machine."""
    ways = [change.way for change in changes if change.is_new and not change.way.shared]
    by_daemon = {(way.guard, way.desk): way for way in ways}  # clients choose profile and mode when they join
    for way in by_daemon.values():
        command, arguments = command_line(program.path, way.profile, guard=way.guard, desk=way.desk)
        yield [command, *arguments]


def _preview(changes: Sequence[ClientChange], program: Program, places: Places, *, as_json: bool) -> None:
    """Print what `connect` would do; no server is started and no file is written."""
    new = [change for change in changes if change.is_new]
    copied = bool(new) and not program.entry.is_lasting
    if as_json:
        rows = [
            {
                "client": change.client.name,
                "file": str(change.file),
                "connected": change.is_new,
                "profile": change.way.profile,
                "guard": "on" if change.way.guard else "off",
                "moved": change.moved,
                "kept": [server.name for server in change.before if server.name not in change.moved],
                "command": NAME if change.way.shared else program.path,
                "copies_environment": copied,
                **change.carried_to_json(),
            }
            for change in changes
        ]
        emit_json(rows)
        return
    for change in changes:
        if not change.is_new:
            out(f"{change.client.title}: {change.file} has Toolcrib already")
            continue
        instead = f", instead of {', '.join(change.moved)}" if change.moved else ""
        guard = "on" if change.way.guard else "off"
        out(
            f"{change.client.title}: would put Toolcrib into {change.file}, profile {change.way.profile}, "
            f"guard {guard}{instead}"
        )
        _tell_rest(change, change.way.own_file(places))
    if any(change.moved for change in new):
        out("a server that does not answer then stays in its client")
    own_entries = [change for change in new if not change.way.shared]
    if own_entries:
        out(f"the entry would start {program.path}")
    if len(own_entries) < len(new):
        out(f"the entry in a file that git tracks would start `{NAME}`, which has to be on the path")
    if copied and own_entries:
        why = "is a cache" if program.entry.kind == "temporary" else "belongs to a clone, which may move"
        out(f"this environment ({sys.prefix}) {why}: it would be copied there")


def _refusal(change: ClientChange, cost: Cost) -> str:
    """Return why a client was left as it was, and what helps."""
    counter = tokenizer()
    figures = f"{counter.shown(cost.after)} tokens instead of {counter.shown(cost.direct)} ({counter.name})"
    again = f"`toolcrib connect {change.client.name}{' --project' if change.way.project else ''}"
    move = "" if change.way.replace or not change.before else f"{again} --replace` moves its servers behind Toolcrib, "
    replaced = " --replace" if change.way.replace else ""
    longer = f"{change.client.title} is as it was: the definitions of its first request would be {figures}"
    if cost.others and not is_longer(cost.after, cost.direct + cost.others):
        return f"{longer}, with the servers of other clients; {again}{replaced}` connects it to them"
    same = ", with the servers of other clients" if cost.others else " for the same servers"
    return f"{longer}{same}; {move}{again}{replaced} --anyway` connects all the same"


def _tell_rest(change: ClientChange, own: Path) -> None:
    """Print what `connect` would change beside the entry: rules and servers in our file, the client's other files."""
    title = change.client.title
    if change.moved:
        out(f"{title}: {own} would have its servers")
    rules = [f"{effect} {text}" for effect, texts in change.rules.items() for text in texts]
    if rules:
        out(f"{title}: {own} would have its rules, in mode {mode_of(change.client, project=change.way.project)}:")
    for rule in rules:
        out(f"  {rule}")
    for file in change.rewritten:
        out(f"{title}: would change {file} as well")
    for line in change.notes:
        note(f"{title}: {line}")


def _report(
    changes: Sequence[ClientChange],
    refused: Sequence[ClientChange],
    costs: Mapping[str, Cost],
    places: Places,
    *,
    as_json: bool,
) -> None:
    """Print what was done to each client, and what the definitions of its first request cost before and after."""
    counter = tokenizer()
    paid: dict[str, dict[str, Any]] = {
        str(change.file): {"tokens": costs[change.client.name].after, "exact": counter.exact}
        for change in changes
        if change.client.name in costs
    }
    for change in refused:
        cost = costs[change.client.name]
        paid[str(change.file)] = {"refused": cost.after, "unanswered": len(cost.silent)}
    remember(places.directories.cache, clients=paid)
    _tell_added(changes, places)
    for change in changes:
        cost = costs.get(change.client.name)
        if not as_json:
            _tell(change, cost, counter)
        if cost is not None and cost.silent:
            is_explained = {*cost.silent} <= {*change.kept}
            why = "" if is_explained else f" (`toolcrib import {change.client.name} --dry-run` says why)"
            note(f"{change.client.title}: not counted, as they stay there: {', '.join(cost.silent)}{why}")
    if as_json:
        rows = [_to_json(change, costs.get(change.client.name), counter) for change in changes]
        emit_json([*rows, *(_refused_to_json(change, costs[change.client.name]) for change in refused)])


def _to_json(change: ClientChange, cost: Cost | None, counter: Tokenizer) -> dict[str, Any]:
    row: dict[str, Any] = {"client": change.client.name, "file": str(change.file), "connected": change.is_new}
    if cost is None:
        return row
    way = {"profile": change.way.profile, "guard": "on" if change.way.guard else "off", "moved": change.moved}
    tokens = {"before": cost.before, "after": cost.after, "tokenizer": counter.name, "unanswered": cost.silent}
    return {**row, **way, "tokens": tokens, **change.carried_to_json()}


def _tell(change: ClientChange, cost: Cost | None, counter: Tokenizer) -> None:
    """Print what was done to one client; it has no cost when it had Toolcrib before."""
    client, way = change.client, change.way
    if cost is None:
        out(f"{client.title}: {change.file} has Toolcrib already")
        _tell_rewritten(change)
        return
    instead = f", instead of {', '.join(change.moved)}" if change.moved else ""
    figures = f"{counter.shown(cost.before)} tokens before, {counter.shown(cost.after)} after ({counter.name})"
    out(
        f"{client.title}: Toolcrib is in {change.file}, profile {way.profile}, guard {'on' if way.guard else 'off'}"
        f"{instead}; definitions of the first request: {figures}"
    )
    if number := sum(map(len, change.rules.values())):
        mode = mode_of(client, project=way.project)
        out(f"{client.title}: {counted(number, 'rule')} of its own settings carried over (mode {mode})")
    _tell_rewritten(change)
    for line in change.notes:
        note(f"{client.title}: {line}")


def _tell_rewritten(change: ClientChange) -> None:
    """Print which other settings of a client were changed."""
    if change.rewritten:
        out(f"{change.client.title}: changed as well: {', '.join(map(str, change.rewritten))}")


def _tell_added(changes: Sequence[ClientChange], places: Places) -> None:
    """Print how many servers of each client came into our configuration."""
    for change in changes:
        if number := len(change.added):
            have = "is" if number == 1 else "are"
            note(f"{counted(number, 'server')} of {change.client.title} {have} in {change.way.own_file(places)} now")


def _refused_to_json(change: ClientChange, cost: Cost) -> dict[str, Any]:
    tokens = {"before": cost.direct, "after": cost.after, "tokenizer": tokenizer().name, "unanswered": cost.silent}
    reason = _refusal(change, cost)
    return {
        "client": change.client.name,
        "file": str(change.file),
        "connected": False,
        "tokens": tokens,
        "refused": reason,
    }


def _connect_desk(
    program: str, places: Places, *, project: bool, unanswered: Unanswered, tell: Callable[[str], None]
) -> None:
    """Put our hook into Claude Code's settings and say what else there is to do."""
    file = hook_file(places, project=project)
    file = file.with_name("settings.local.json") if project and is_shared(file) else file
    options = ["--unanswered", unanswered] if unanswered != "deny" else []
    done = connect_hook(file, program, options, state=places.directories.state)
    tell(f"Claude Code: Toolcrib's hook is in {file}{'' if done else ' already'}")
    tell("Questions wait in `toolcrib approvals watch`; the rules stand in your configuration (`toolcrib policy`).")
    tell("Without settings: claude -p … --permission-prompt-tool mcp__toolcrib__approve")
