"""`toolcrib lock`: what counts as reviewed, in a file that goes with the project; and whether that still holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ..catalog.pins import Lock, compare, read_lock, write_lock
from ..config import files as disk
from ..core.sanitize import escape
from ..errors import UsageError
from .open_crib import opened, report
from .options import AsJson, ConfigFiles, Wait, run, settings_of
from .output import emit_json, note, out

__all__ = ["lock"]

_NAME: Final = "toolcrib.lock"


def lock(
    sources: Annotated[list[str] | None, typer.Argument(metavar="[SOURCE …]", help="All, when none is named.")] = None,
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
    before = read_lock(disk.read(place), str(place)) if place.exists() else Lock()

    async def main() -> Lock:
        async with opened(settings.with_values(lock=None), wait=wait, fresh=True) as crib:
            report(crib)
            waiting = [
                state.source for state in crib.tools.sources if state.state in ("connecting", "failed", "needs_login")
            ]
            if missing := [name for name in waiting if not sources or name in sources]:
                raise UsageError(f"{', '.join(missing)} cannot be listed: nothing is locked; `toolcrib tools` says why")
            return await crib.tools.build_lock(place, sources, programs=programs)

    found = run(main)
    if sources:
        kept = {name: source for name, source in before.sources.items() if name not in sources}
        found = Lock(sources={**kept, **found.sources})
    changes = [escape(change, lines=True) for change in compare(before, found)]
    tools = sum(len(source.tools) for source in found.sources.values())
    if as_json:
        counts = {"tools": tools, "sources": len(found.sources), "written": not check}
        emit_json({"file": str(place), "changes": changes, **counts})
    for change in () if as_json else changes:
        out(change)
    if check:
        if changes:
            raise typer.Exit(1)
        note(f"everything is as {place} says")
        return
    disk.write(place, write_lock(found))
    note(f"{tools} tools of {len(found.sources)} sources are locked in {place}")
    if settings.sources.lock is None:
        note(f"it counts once the configuration says `lock: {place.name}`")
