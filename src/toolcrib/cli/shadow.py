"""`toolcrib shadow`: the git worktrees in which tasks work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ..config.loading import here
from ..crib.workspaces import Shadows, guard_of
from ..errors import UsageError
from .open_crib import AsJson, ConfigFiles, run, settings_of
from .output import emit_json, escape, note, out

__all__ = ["shadow"]

_ACTIONS: Final = ("list", "diff", "merge", "discard")


def shadow(
    action: Annotated[str, typer.Argument(help=f"{', '.join(_ACTIONS)}.")] = "list",
    task: Annotated[str, typer.Argument(metavar="[TASK]", help="Which one.")] = "",
    workspace: Annotated[
        Path | None, typer.Option("--workspace", help="Instead of the configured one, or of this folder.")
    ] = None,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the shadows of tasks, show what one changed, merge that into the main tree, or discard it.

    A merge takes place as a whole or not at all, and commits nothing; the shadow stays until it is discarded.
    """
    if action not in _ACTIONS:
        raise UsageError(f"there is no {action!r}, only {', '.join(_ACTIONS)}")
    if action != "list" and not task:
        raise UsageError(f"which one? toolcrib shadow {action} TASK; `toolcrib shadow` lists them")
    settings = settings_of(config)
    roots = settings.workspace.roots or (here().project,)
    shadows = Shadows(roots, guard_of(settings), settings.environment.get("PATH", ""))

    async def main() -> list[str]:
        if action == "list":
            return list(shadows.list(workspace=workspace))
        if action == "diff":
            return [await shadows.diff(task, workspace=workspace)]
        if action == "merge":
            return list(await shadows.merge(task, workspace=workspace))
        await shadows.discard(task, workspace=workspace)
        return [task]

    done = run(main)
    if as_json:
        emit_json(done)
    else:
        _print(action, done)


def _print(action: str, done: Sequence[str]) -> None:
    if action == "list" and not done:
        note("no task has a shadow here")
    elif action == "list":
        out("\n".join(map(escape, done)))
    elif action == "diff":
        out(escape(done[0].rstrip("\n"), lines=True) or "nothing was changed")
    else:
        out(escape(f"{action}{'d' if action == 'merge' else 'ed'}: {', '.join(done) or 'nothing'}"))
