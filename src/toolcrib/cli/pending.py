"""`toolcrib pending`: the changes of files that wait for review."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from ..core.session import LOCAL
from ..crib.storage import open_store, place_of
from ..crib.workspaces import FileChanges, PendingFile, guard_of
from ..errors import ToolFailure, UsageError
from ..workspace.review import OnConflict
from .open_crib import AsJson, ConfigFiles, run, settings_of
from .output import Column, emit_json, escape, note, out, table

__all__ = ["pending"]

_ACTIONS: Final = ("list", "diff", "show", "accept", "reject")
_COLUMNS: Final[tuple[Column, ...]] = (("OWNER", "<"), ("CHANGED", "<"), ("WHAT", "<"), ("BYTES", ">"), ("PATH", "<"))
_WHAT: Final = {"file": "file", "folder": "new folder", "gone": "removed"}


def pending(
    action: Annotated[str, typer.Argument(help=f"{', '.join(_ACTIONS)}.")] = "list",
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH …]", help="Files, or folders of them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="accept, reject: the whole batch.")] = False,
    task: Annotated[str, typer.Option("--task", help="Of this task.", metavar="ID")] = "",
    session: Annotated[str, typer.Option("--session", help="Of the session with this key.", metavar="KEY")] = "",
    principal: Annotated[str, typer.Option("--principal", help="Whose changes.")] = LOCAL,
    merge: Annotated[bool, typer.Option("--merge", help="accept: put both together where the disk changed.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="accept: whatever the disk has.")] = False,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List what waits for review (modes `review` and `audit`), show it as a diff, accept it or reject it.

    What is accepted together takes place together or not at all. A file that changed on the disk meanwhile is a
    conflict; --merge and --overwrite settle it.
    """
    _check(action, is_named=bool(paths) != everything, settled=merge + overwrite)
    if task and session:
        raise UsageError("--task or --session, one of them")
    owner = f"task {task}" if task else f"session {session}" if session else ""
    settings = settings_of(config)
    on_conflict: OnConflict = "merge" if merge else "overwrite" if overwrite else "refuse"

    async def main() -> Sequence[PendingFile] | Sequence[str]:
        async with open_store(settings) as store:
            desk = FileChanges(store.pending, guard_of(settings))
            waiting = await desk.list(owner=owner, principal=principal)
            if action == "list":
                return waiting
            whose = owner or _owner(waiting)
            named = _named(paths or (), [one for one in waiting if one.owner == whose])
            if action == "accept":
                return await desk.accept(*named, owner=whose, principal=principal, on_conflict=on_conflict)
            if action == "reject":
                return await desk.reject(*named, owner=whose, principal=principal)
            return [await desk.diff(path, owner=whose, principal=principal) for path in named or ("",)]

    place = place_of(settings)
    if isinstance(place, Path) and not place.exists():  # looking makes no files
        main = _nothing
    try:
        found = run(main)
    except ToolFailure as failure:
        _explain(failure)
        raise
    _print(action, found, as_json=as_json)


def _check(action: str, *, is_named: bool, settled: int) -> None:
    if action not in _ACTIONS:
        raise UsageError(f"there is no {action!r}, only {', '.join(_ACTIONS)}")
    if action in ("accept", "reject") and not is_named:
        raise UsageError(f"which? toolcrib pending {action} PATH …, or --all")
    if settled and (action != "accept" or settled > 1):
        raise UsageError("--merge or --overwrite, one of them, is for accept")


async def _nothing() -> Sequence[PendingFile]:
    return []


def _print(action: str, found: Sequence[PendingFile] | Sequence[str], *, as_json: bool) -> None:
    files = [one for one in found if isinstance(one, PendingFile)]
    texts = [one for one in found if isinstance(one, str)]
    if as_json:
        emit_json([asdict(one) for one in files] if action == "list" else texts)
    elif action in ("diff", "show"):
        out(escape("".join(texts).rstrip("\n"), lines=True))
    elif files:
        table(_COLUMNS, map(_cells, files))
    elif texts:
        out(escape(f"{action}ed: {', '.join(texts)}"))
    else:
        note("nothing waits for review")


def _cells(file: PendingFile) -> tuple[str, ...]:
    changed = datetime.fromtimestamp(file.changed).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return (file.owner, changed, _WHAT[file.kind], str(file.size) if file.kind == "file" else "", file.path)


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
        here = Path(os.path.normpath(Path.cwd() / path))
        candidates = [here, *(Path(os.path.normpath(root / path)) for root in roots)]
        fitting = (one for one in candidates if any(file.is_relative_to(one) for file in known))
        named.append(str(next(fitting, here)))
    return named


def _owner(waiting: Sequence[PendingFile]) -> str:
    """Return the one owner that is meant: of the changes in a workspace around here, else of all."""
    here = [one for one in waiting if Path.cwd().is_relative_to(one.workspace)]
    owners = list(dict.fromkeys(one.owner for one in here or waiting))
    if not owners:
        raise ToolFailure("not_found", "nothing waits for review")
    if len(owners) > 1:
        raise UsageError(f"several have changes that wait: {', '.join(owners)}; say --task ID or --session KEY")
    return owners[0]
