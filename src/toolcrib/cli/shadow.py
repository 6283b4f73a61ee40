"""`toolcrib shadow`: the git worktrees in which tasks work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..config.loading import here
from ..crib.workspaces import Shadows, guard_of
from .actions import action_group
from .options import AsJson, ConfigFiles, run, settings_of
from .output import emit_json, escape, note, out

__all__ = ["diff", "discard", "list_shadows", "merge", "shadow"]

shadow = action_group(
    "List the shadows of tasks, show the changes of one, merge them into the main tree, or discard them.",
    default="list",
)

_Task = Annotated[str, typer.Argument(metavar="TASK", help="The id of a task.")]
_Workspace = Annotated[
    Path | None, typer.Option("--workspace", help="Instead of the configured one, or of this folder.", metavar="FOLDER")
]


@shadow.command("list")
def list_shadows(workspace: _Workspace = None, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """List the tasks that have a shadow."""
    tasks = _shadows(config).list(workspace=workspace)
    if as_json:
        emit_json(tasks)
    elif tasks:
        out("\n".join(map(escape, tasks)))
    else:
        note("no task has a shadow here")


@shadow.command("diff")
def diff(task: _Task, workspace: _Workspace = None, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Show the changes of a task as a diff."""
    text = run(lambda: _shadows(config).diff(task, workspace=workspace))
    if as_json:
        emit_json([text])
    else:
        out(escape(text.rstrip("\n"), lines=True) or "nothing was changed")


@shadow.command("merge")
def merge(task: _Task, workspace: _Workspace = None, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Merge the changes of a task into the main tree, as a whole or not at all.

    A merge commits nothing; the shadow stays until it is discarded.
    """
    paths = run(lambda: _shadows(config).merge(task, workspace=workspace))
    if as_json:
        emit_json(paths)
    else:
        out(escape(f"merged: {', '.join(paths) or 'nothing'}"))


@shadow.command("discard")
def discard(task: _Task, workspace: _Workspace = None, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Remove the shadow of a task with all its changes."""
    run(lambda: _shadows(config).discard(task, workspace=workspace))
    if as_json:
        emit_json([task])
    else:
        out(escape(f"discarded: {task}"))


def _shadows(config: list[Path] | None) -> Shadows:
    settings = settings_of(config)
    roots = settings.workspace.roots or (here().project,)
    return Shadows(roots, guard_of(settings), settings.environment.get("PATH", ""))
