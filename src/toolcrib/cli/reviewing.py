"""`toolcrib accept` and `trust`: what the user has looked at and agrees to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..config import files as disk
from ..config.loading import config_files, here
from ..config.trust import Trust
from ..errors import UsageError
from .output import emit_json, escape, out
from .running import AsJson, ConfigFiles, Wait, opened, run, settings_of

__all__ = ["accept", "trust"]


def accept(
    servers: Annotated[list[str] | None, typer.Argument(metavar="[SERVER …]", help="All, when none is named.")] = None,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 20.0,
) -> None:
    """Accept the definitions of servers as they are now.

    Tools that nobody has reviewed, or whose definition has changed since, are withheld until then; `toolcrib show`
    shows a definition.
    """

    async def main() -> dict[str, list[str]]:
        async with opened(settings_of(config), wait=wait) as crib:
            known = {spec.name for spec in (*crib.settings.servers, *crib.settings.openapi)}
            missing = [name for name in servers or () if name not in known]
            if missing:
                raise UsageError(f"there is no server {missing[0]!r}; there are {', '.join(sorted(known)) or 'none'}")
            named = servers or [name for name in known if crib.listed(name)]
            return {name: await crib.accept(name) for name in sorted(named)}

    accepted = run(main)
    if as_json:
        emit_json(accepted)
        return
    for server, tools in accepted.items():
        out(escape(f"{server}: {', '.join(tools) if tools else 'nothing was withheld'}"))
    if not accepted:
        out("no server has listed anything")


def trust(
    show: Annotated[bool, typer.Option("--show", help="Only show what the files say.")] = False,
) -> None:
    """Confirm the configuration in .toolcrib/ of this project, exactly as it is now.

    Such a file can start programs, so it is not read before you have confirmed it, and again after every change.
    """
    places = here()
    _, *project = config_files(places.directories, places.project)
    found = [(path, disk.read(path)) for path in project if path.is_file()]
    if not found:
        raise UsageError("there is no .toolcrib/config.yaml or .toolcrib/local.yaml here or in a folder above")
    for path, content in found:
        out(f"# {escape(str(path))}")
        out(escape(disk.decode(content, str(path)).rstrip(), lines=True))
    if not show:
        Trust(places.directories).confirm(found)
        out(f"confirmed: {', '.join(escape(_short(path)) for path, _ in found)}")


def _short(path: Path) -> str:
    return str(Path(*path.parts[-2:]))
