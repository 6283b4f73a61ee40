"""`toolcrib accept` and `trust`: what the user has looked at and agrees to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..config import files as disk
from ..config.catalogs import confirmable_in
from ..config.loading import config_files, here
from ..config.profiles import profile_files
from ..config.trust import Trust
from ..errors import UsageError
from .output import emit_json, escape, out
from .running import AsJson, ConfigFiles, Wait, opened, run, settings_of

__all__ = ["accept", "trust"]


def accept(
    servers: Annotated[list[str] | None, typer.Argument(metavar="[SERVER …]", help="All, when none is named.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what changed since it was reviewed.")] = False,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 20.0,
) -> None:
    """Accept the definitions of servers as they are now, after showing what changed since they were reviewed.

    Tools that nobody has reviewed, or whose definition has changed since, are withheld until then; `toolcrib show`
    shows a definition.
    """

    async def main() -> tuple[dict[str, list[str]], dict[str, dict[str, str]]]:
        async with opened(settings_of(config), wait=wait) as crib:
            known = {spec.name for spec in (*crib.settings.servers, *crib.settings.openapi)}
            missing = [name for name in servers or () if name not in known]
            if missing:
                raise UsageError(f"there is no server {missing[0]!r}; there are {', '.join(sorted(known)) or 'none'}")
            named = servers or [name for name in known if crib.listed(name)]
            changes = {name: await crib.changes(name) for name in sorted(named)}
            return {} if show else {name: await crib.accept(name) for name in sorted(named)}, changes

    accepted, changes = run(main)
    if as_json:
        emit_json(changes if show else accepted)
        return
    for server, diffs in changes.items():
        for tool, diff in diffs.items():
            out(f"# {escape(server)}/{escape(tool)}\n{diff}")
    if show:
        if not any(changes.values()):
            out("nothing has changed since it was reviewed")
        return
    for server, tools in accepted.items():
        out(escape(f"{server}: {', '.join(tools) if tools else 'nothing was withheld'}"))
    if not accepted:
        out("no server has listed anything")


def trust(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Catalogs and folders of skills; without any, .toolcrib/ itself.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what the files say.")] = False,
) -> None:
    """Confirm .toolcrib/ of this project, or the catalogs and skills named, exactly as they are now.

    Such a file can start programs, so it is not read before you have confirmed it, and again after every change.
    """
    places = here()
    if paths:
        found = [item for path in paths for item in confirmable_in(path.absolute())]
    else:
        _, *project = config_files(places.directories, places.project)
        profiles = profile_files(project[0].parent) if project else []
        found = [(path, disk.read(path)) for path in (*project, *profiles) if path.is_file()]
    if not found:
        raise UsageError("there is no .toolcrib/config.yaml, local.yaml or profiles/ here or in a folder above")
    for path, content in found:
        out(f"# {escape(str(path))}")
        said = disk.read(path)
        out(escape(disk.decode(said, str(path)).rstrip(), lines=True))
        if said != content:  # of a skill, whose every file is confirmed
            out(f"# its files: {escape(content.decode())}")
    if not show:
        Trust(places.directories).confirm(found)
        out(f"confirmed: {', '.join(escape(_short(path)) for path, _ in found)}")


def _short(path: Path) -> str:
    return str(Path(*path.parts[-2:]))
