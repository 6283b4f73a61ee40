"""`toolcrib accept`, `trust` and `lock`: what counts as reviewed, also in a file that goes with a project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ...catalog.pins import Lock, compare, read_lock, write_lock
from ...config import Settings
from ...config import files as disk
from ...config.confirmation import confirm, confirmable_of
from ...config.loader import here
from ...config.sources import confirmable_in
from ...crib import Toolcrib
from ...errors import ToolFailure, UsageError
from ...registration import Registration, Registrations
from ..open_crib import opened, report
from ..options import AsJson, ConfigFiles, Wait, run, settings_of
from ..output import counted, emit_json, escape, note, out

_Reviewed = tuple[dict[str, list[str]], dict[str, dict[str, str]]]
"""By source: the names that were accepted, and by name what there was to look at."""

_NAME: Final = "toolcrib.lock"


def accept(
    servers: Annotated[list[str] | None, typer.Argument(metavar="SERVER …", help="All, when none is named.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what changed since it was reviewed.")] = False,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 20.0,
) -> None:
    """Accept the definitions of servers as they are now, after showing what changed since they were reviewed.

    Tools with an unreviewed or changed definition are withheld until then; `toolcrib show`
    shows a definition. What an instance registered waits too, and is accepted where its source is named: rest@INSTANCE.
    """

    async def main() -> _Reviewed:
        async with opened(_with_only(servers or (), settings_of(config)), wait=wait) as crib:
            return await _review(crib, servers or (), accept=not show)

    accepted, changes = run(main)
    if as_json:
        emit_json({"accepted": accepted, "changes": {name: diffs for name, diffs in changes.items() if diffs}})
        return
    for server, diffs in changes.items():
        for tool, diff in diffs.items():
            out(f"# {escape(server)}/{escape(tool)}\n{diff}", verbatim=True)
    if show:
        if not any(changes.values()):
            out("nothing has changed since it was reviewed")
        return
    for server, tools in accepted.items():
        out(escape(f"{server}: {', '.join(tools) if tools else 'nothing was withheld'}"))
    if not accepted:
        out("no server has listed anything")


def _with_only(names: Sequence[str], settings: Settings) -> Settings:
    """Return the settings without the sources that a review of `names` does not need; all for another kind of name."""
    servers = tuple(spec for spec in settings.sources.servers if spec.name in names)
    apis = tuple(spec for spec in settings.sources.openapi if spec.name in names)
    if not names or {spec.name for spec in (*servers, *apis)} != {*names}:
        return settings
    return settings.with_values(servers=servers, openapi=apis, builtins=False)


async def _review(crib: Toolcrib, servers: Sequence[str], *, accept: bool) -> _Reviewed:
    """Return the accepted and the reviewed definitions, by source. Raises `UsageError` for an unknown source."""
    known = {spec.name for spec in (*crib.settings.sources.servers, *crib.settings.sources.openapi)}
    waiting = _waiting(crib)
    if missing := [name for name in servers if name not in known and name not in waiting]:
        files = ", ".join(map(str, crib.settings.files)) or "the configuration"
        there = ", ".join(sorted((*known, *waiting))) or "none"
        raise UsageError(
            f"there is no server {missing[0]!r} in {files}, which has {there}; `--config FILE` names another file"
        )
    for name in (name for name in waiting if waiting[name] and not servers):
        note(f"{name} has registrations that are not accepted: `toolcrib accept {name}` after a review")
    for state in crib.tools.sources:
        if state.source in (servers or known) and state.state != "ready" and not crib.tools.listed(state.source):
            reason = f"{state.source} has listed no tools that could be accepted: {state.detail or state.state}"
            if servers:
                raise ToolFailure("unavailable", reason, hint="`toolcrib doctor` examines it.")
            note(reason)
    named = sorted(servers or (name for name in known if crib.tools.listed(name)))
    changes = {
        name: {one.name: _as_text(one) for one in waiting[name]} if name in waiting else await crib.tools.changes(name)
        for name in named
    }
    return {name: await _accepted(crib, name, waiting.get(name)) for name in named if accept}, changes


def _waiting(crib: Toolcrib) -> dict[str, list[Registration]]:
    """Return by its source what each instance registered that is kept and waits."""
    registrations = crib.slice(Registrations)
    kept = [one for instance in registrations.instances for one in registrations.of(instance)]
    return {source.source: [one for one in kept if one.source == source.source and not one.accepted] for source in kept}


def _as_text(one: Registration) -> str:
    """Return the text of a review: the address, and the definition that models get, without credentials."""
    details = {**one.tool.definition, "leads to": one.definition.target, "registered by": one.by, "waits": one.reason}
    return escape(json.dumps(details, indent=2, ensure_ascii=False), lines=True)


async def _accepted(crib: Toolcrib, source: str, waiting: Iterable[Registration] | None) -> list[str]:
    if waiting is None:
        return await crib.tools.accept(source)
    accept = crib.slice(Registrations).accept
    taken = [await accept(one.instance, one.name, hash=one.definition.hash) for one in waiting]
    if taken:
        note("a running server applies this at its next start; over REST it applies at once")
    return [one.name for one in taken]


def trust(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Catalogs and folders of skills; without any, .toolcrib/ itself.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what the files say.")] = False,
    as_json: AsJson = False,
) -> None:
    """Confirm .toolcrib/ of this project, or the catalogs and skills named, exactly as they are now.

    Such a file can start programs, so it is not read before you have confirmed it, and again after every change.
    """
    places = here()
    if paths:
        found = [item for path in paths for item in confirmable_in(places.project / path)]
    else:
        found = confirmable_of(places.directories, places.project)
    if not found:
        raise UsageError("there is no .toolcrib/config.yaml, local.yaml or profiles/ here or in a folder above")
    texts = {one.path: disk.decode(one.text, str(one.path)) for one in found}
    # Of a skill every file is confirmed, by its digest; of any other file, what it says.
    digests = {one.path: one.content.decode() for one in found if paths and one.content != one.text}
    if not show:
        confirm(places.directories, [(one.path, one.content) for one in found], places.environ, anew=True)
    if as_json:
        shown = [{"path": str(path), "text": texts[path], "files": digests.get(path, "")} for path in texts]
        emit_json({"confirmed": not show, "files": shown})
        return
    for path in texts:
        out(f"# {escape(str(path))}")
        out(escape(texts[path].rstrip(), lines=True), verbatim=True)
        if path in digests:
            out(f"# its files: {escape(digests[path])}")
    if not show:
        out(f"confirmed: {', '.join(escape(str(Path(*path.parts[-2:]))) for path in texts)}")


def lock(
    sources: Annotated[list[str] | None, typer.Argument(metavar="SOURCE …", help="All, when none is named.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where something differs.")] = False,
    file: Annotated[Path | None, typer.Option(help=f"The lock; by default what `lock:` says, else {_NAME}.")] = None,
    programs: Annotated[bool, typer.Option(help="Lock the programs that run servers too.")] = True,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 20.0,
) -> None:
    """Lock the definitions of all sources, and the files and programs behind them, as they are now.

    Where the configuration says `lock: toolcrib.lock`, only what the file says counts as reviewed: anything else is
    withheld, and what runs a changed program is not started.
    """
    settings = settings_of(config)
    place = file or settings.sources.lock or Path(_NAME)
    path = here().project / place
    before = read_lock(disk.read(path, limit=disk.LOCK_MAX_BYTES), str(place)) if path.exists() else Lock()
    found = run(lambda: _locked(settings, place, sources, programs=programs, wait=wait))
    if not (found.sources or path.exists()):
        raise UsageError(
            "there is nothing to lock: the configuration has no server, API, catalog or skills; `toolcrib add` and"
            " `toolcrib import` add servers, `--config FILE` names another file"
        )
    if sources:
        kept = {name: source for name, source in before.sources.items() if name not in sources}
        found = Lock(sources={**kept, **found.sources})
    changes = [escape(change, lines=True) for change in compare(before, found)]
    tools = sum(len(source.tools) for source in found.sources.values())
    if as_json:
        counts = {"tools": tools, "sources": len(found.sources), "written": not check}
        emit_json({"file": str(place), "changes": changes, **counts})
    for change in () if as_json else changes:
        out(change, verbatim=True)
    if check:
        if changes:
            raise typer.Exit(1)
        note(f"everything is as {place} says")
        return
    _save(found, path, confirmed=not config)
    note(f"locked in {place}: {counted(tools, 'tool')} of {counted(len(found.sources), 'source')}")
    if settings.sources.lock is None:
        note(f"it counts once the configuration says `lock: {place.name}`")


async def _locked(settings: Settings, place: Path, sources: list[str] | None, *, programs: bool, wait: float) -> Lock:
    """Return the lock of what sources list now. Raises `UsageError` where one of them cannot be listed."""
    async with opened(settings.with_values(lock=None), wait=wait, fresh=True) as crib:
        report(crib)
        unlisted = ("connecting", "failed", "needs_login")
        waiting = [state.source for state in crib.tools.sources if state.state in unlisted]
        if missing := [name for name in waiting if not sources or name in sources]:
            raise UsageError(f"{', '.join(missing)} cannot be listed: nothing is locked; `toolcrib tools` says why")
        return await crib.tools.build_lock(place, sources, programs=programs)


def _save(lock: Lock, path: Path, *, confirmed: bool) -> None:
    """Write the lock; `confirmed` where its configuration counts only as the user confirmed it."""
    written = write_lock(lock)
    disk.write(path, written)
    if confirmed:
        confirm(here().directories, [(path, written)], here().environ)
