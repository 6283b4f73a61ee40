"""`toolcrib pending` and `shadow`: changes of files that wait for review, and worktrees in which tasks work."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from ...config import Settings
from ...config.directories import here
from ...core.json import fields_of
from ...core.session import LOCAL
from ...crib.storage import has_store, open_store
from ...crib.workspaces import FileChanges, PendingFile, Shadows, guard_of
from ...errors import ToolFailure, UsageError
from ...workspace.review import OnConflict
from ...workspace.tainted_files import FileMarks
from ..actions import action_group
from ..options import AsJson, ConfigFiles, run, settings_of
from ..output import Column, emit_json, escape, local_time, note, out, table

_COLUMNS: Final[tuple[Column, ...]] = (("OWNER", "<"), ("CHANGED", "<"), ("WHAT", "<"), ("BYTES", ">"), ("PATH", "<"))
_WHAT: Final = {"file": "file", "folder": "new folder", "gone": "removed"}

pending = action_group(
    "List the file changes that wait for review (modes `review` and `audit`), show them as a diff, accept them or "
    "reject them.",
    default="list",
)

_Paths = Annotated[list[str] | None, typer.Argument(metavar="PATH …", help="Files, or folders of them.")]
_All = Annotated[bool, typer.Option("--all", help="The whole batch.")]
_Task = Annotated[str, typer.Option("--task", help="Changes of this task.", metavar="ID")]
_Session = Annotated[str, typer.Option("--session", help="Changes of the session with this key.", metavar="KEY")]
_Principal = Annotated[str, typer.Option("--principal", help="The owner of the changes.")]

_Workspace = Annotated[
    Path | None, typer.Option("--workspace", help="Instead of the configured one, or of this folder.", metavar="FOLDER")
]


@pending.command("list")
def list_changes(
    task: _Task = "",
    session: _Session = "",
    principal: _Principal = LOCAL,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the changes that wait for review."""
    given = _Given(_owner_of(task, session), principal, settings_of(config))

    async def main() -> Sequence[PendingFile]:
        async with _changes(given) as changes:
            return await changes.list(owner=given.owner, principal=principal)

    files = run(main) if has_store(given.settings) else ()
    if as_json:
        emit_json([fields_of(one) for one in files])
    elif files:
        table(_COLUMNS, map(_cells, files))
    else:
        note("nothing waits for review")


@pending.command("diff")
def show_diff(
    paths: _Paths = None,
    task: _Task = "",
    session: _Session = "",
    principal: _Principal = LOCAL,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Show what the changes, or those at and below the paths, do to the files as they are now."""

    async def diff(changes: FileChanges, given: _Given, named: Sequence[str]) -> Sequence[str]:
        return [await changes.diff(path, owner=given.owner, principal=given.principal) for path in named or ("",)]

    texts = _act(diff, _Given(_owner_of(task, session), principal, settings_of(config)), paths)
    if as_json:
        emit_json(texts)
    else:
        out(escape("".join(texts).rstrip("\n"), lines=True), verbatim=True)


@pending.command("accept")
def accept_changes(
    paths: _Paths = None,
    everything: _All = False,
    merge: Annotated[bool, typer.Option("--merge", help="Merge with what changed on the disk meanwhile.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what changed on the disk meanwhile.")] = False,
    task: _Task = "",
    session: _Session = "",
    principal: _Principal = LOCAL,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Write changes to the disk, all that are named or none.

    A file that changed on the disk meanwhile is a conflict; --merge or --overwrite settles it.
    """
    _check_selection("accept", paths, everything=everything)
    if merge and overwrite:
        raise UsageError("--merge and --overwrite exclude each other")
    on_conflict: OnConflict = "merge" if merge else "overwrite" if overwrite else "refuse"

    async def accept(changes: FileChanges, given: _Given, named: Sequence[str]) -> Sequence[str]:
        return await changes.accept(*named, owner=given.owner, principal=given.principal, on_conflict=on_conflict)

    done = _act(accept, _Given(_owner_of(task, session), principal, settings_of(config)), paths)
    _print("accepted", done, as_json=as_json)


@pending.command("reject")
def reject_changes(
    paths: _Paths = None,
    everything: _All = False,
    task: _Task = "",
    session: _Session = "",
    principal: _Principal = LOCAL,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Discard changes; the files stay as they are on the disk."""
    _check_selection("reject", paths, everything=everything)

    async def reject(changes: FileChanges, given: _Given, named: Sequence[str]) -> Sequence[str]:
        return await changes.reject(*named, owner=given.owner, principal=given.principal)

    done = _act(reject, _Given(_owner_of(task, session), principal, settings_of(config)), paths)
    _print("rejected", done, as_json=as_json)


class _Given(NamedTuple):
    """Options that all actions share."""

    owner: str
    """Empty for the only owner that there is."""
    principal: str
    settings: Settings


_Act = Callable[[FileChanges, _Given, Sequence[str]], Awaitable[Sequence[str]]]


def _act(act: _Act, given: _Given, paths: Sequence[str] | None) -> Sequence[str]:
    """Run `act` with the owner and the absolute paths that are meant; explain conflicts."""

    async def main() -> Sequence[str]:
        async with _changes(given) as changes:
            waiting = await changes.list(owner=given.owner, principal=given.principal)
            meant = given._replace(owner=given.owner or _owner(waiting))
            return await act(changes, meant, _named(paths or (), [one for one in waiting if one.owner == meant.owner]))

    if not has_store(given.settings):
        return ()
    try:
        return run(main)
    except ToolFailure as failure:
        _explain(failure)
        raise


@asynccontextmanager
async def _changes(given: _Given) -> AsyncGenerator[FileChanges]:
    async with open_store(given.settings) as store:
        yield FileChanges(store.pending, guard_of(given.settings), FileMarks(store.tainted_files))


def _owner_of(task: str, session: str) -> str:
    if task and session:
        raise UsageError("--task and --session exclude each other")
    return f"task {task}" if task else f"session {session}" if session else ""


def _check_selection(action: str, paths: Sequence[str] | None, *, everything: bool) -> None:
    if bool(paths) == everything:
        raise UsageError(f"which changes? toolcrib pending {action} PATH …, or --all")


def _print(done: str, paths: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        emit_json(paths)
    elif paths:
        out(escape(f"{done}: {', '.join(paths)}"))
    else:
        note("nothing waits for review")


def _cells(file: PendingFile) -> tuple[str, ...]:
    return (
        file.owner,
        local_time(file.changed),
        _WHAT[file.kind],
        str(file.size) if file.kind == "file" else "",
        file.path,
    )


def _explain(failure: ToolFailure) -> None:
    """Show what both sides did to the files of a conflict."""
    for conflict in failure.details.get("conflicts", ()):
        for side, name in (("disk", "the disk"), ("pending", "what waits")):
            if conflict.get(side):
                note(f"# {conflict['path']}: the changes of {name}\n{conflict[side]}")
        if "can_merge" in conflict:
            hint = "--merge puts both together" if conflict["can_merge"] else "both changed the same lines"
            note(f"# {conflict['path']}: {hint}; --overwrite takes what waits")


def _named(paths: Sequence[str], waiting: Sequence[PendingFile]) -> list[str]:
    """Return absolute paths: from here, as a shell means them, else from the workspace, as `list` shows them."""
    known = [Path(one.workspace, one.path) for one in waiting]
    roots = dict.fromkeys(Path(one.workspace) for one in waiting)
    named: list[str] = []
    for path in paths:
        named_here = Path(os.path.normpath(here().project / path))
        candidates = [named_here, *(Path(os.path.normpath(root / path)) for root in roots)]
        fitting = (one for one in candidates if any(file.is_relative_to(one) for file in known))
        named.append(str(next(fitting, named_here)))
    return named


def _owner(waiting: Sequence[PendingFile]) -> str:
    """Return the one owner that is meant: of the changes in a workspace around here, else of all."""
    around = [one for one in waiting if here().project.is_relative_to(one.workspace)]
    owners = list(dict.fromkeys(one.owner for one in around or waiting))
    if not owners:
        raise ToolFailure("not_found", "nothing waits for review")
    if len(owners) > 1:
        raise UsageError(f"several have changes that wait: {', '.join(owners)}; say --task ID or --session KEY")
    return owners[0]


shadow = action_group(
    "List the shadows of tasks, show the changes of one, merge them into the main tree, or discard them.",
    default="list",
)

_shadow_Task = Annotated[str, typer.Argument(metavar="TASK", help="The id of a task.")]


@shadow.command("list")
def list_shadows(workspace: _Workspace = None, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """List the tasks that have a shadow."""
    tasks = _shadows(config).list(workspace=_placed(workspace))
    if as_json:
        emit_json(tasks)
    elif tasks:
        out("\n".join(map(escape, tasks)))
    else:
        note("no task has a shadow here")


@shadow.command("diff")
def diff(task: _shadow_Task, workspace: _Workspace = None, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Show the changes of a task as a diff."""
    text = run(lambda: _shadows(config).diff(task, workspace=_placed(workspace)))
    if as_json:
        emit_json([text])
    else:
        out(escape(text.rstrip("\n"), lines=True) or "nothing was changed", verbatim=True)


@shadow.command("merge")
def merge(
    task: _shadow_Task, workspace: _Workspace = None, config: ConfigFiles = None, as_json: AsJson = False
) -> None:
    """Merge the changes of a task into the main tree, as a whole or not at all.

    A merge commits nothing; the shadow stays until it is discarded.
    """
    settings = settings_of(config)

    async def main() -> Sequence[str]:
        if not has_store(settings):
            return await _shadows_of(settings, None).merge(task, workspace=_placed(workspace))
        async with open_store(settings) as store:
            shadows = _shadows_of(settings, FileMarks(store.tainted_files))
            return await shadows.merge(task, workspace=_placed(workspace))

    paths = run(main)
    if as_json:
        emit_json(paths)
    else:
        out(escape(f"merged: {', '.join(paths) or 'nothing'}"))


@shadow.command("discard")
def discard(
    task: _shadow_Task, workspace: _Workspace = None, config: ConfigFiles = None, as_json: AsJson = False
) -> None:
    """Remove the shadow of a task with all its changes."""
    run(lambda: _shadows(config).discard(task, workspace=_placed(workspace)))
    if as_json:
        emit_json([task])
    else:
        out(escape(f"discarded: {task}"))


def _placed(workspace: Path | None) -> Path | None:
    """Return the folder that the command names, from where it was typed."""
    return workspace and here().project / workspace


def _shadows(config: list[Path] | None) -> Shadows:
    return _shadows_of(settings_of(config), None)


def _shadows_of(settings: Settings, marks: FileMarks | None) -> Shadows:
    roots = settings.workspace.roots or (here().project,)
    return Shadows(roots, guard_of(settings), settings.environment.get("PATH", ""), marks)
