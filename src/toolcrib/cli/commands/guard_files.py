"""`toolcrib guard files` and `guard accept`: the marks of files with untrusted content (`core.taint`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ...config import Settings
from ...config.loader import here
from ...core.json import fields_of
from ...core.taint import TaintedFile
from ...crib.storage import has_store, open_store
from ...errors import ToolFailure, UsageError
from ...workspace.tainted_files import FileMarks, digest_at
from ..options import AsJson, ConfigFiles, run, settings_of
from ..output import Column, emit_json, escape, local_time, note, out, table

_MARK_COLUMNS: Final[tuple[Column, ...]] = (
    ("PATH", "<"),
    ("STATE", "<"),
    ("WRITTEN", "<"),
    ("SESSION", "<"),
    ("AFTER IT HAD READ", "<"),
)

_Paths = Annotated[list[str] | None, typer.Argument(metavar="PATH …", help="Files, or folders of them.")]
_All = Annotated[bool, typer.Option("--all", help="Every mark.")]


def list_files(config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """List the files with untrusted content: a tainted session wrote them unasked."""
    _show_marks(settings_of(config), as_json=as_json)


def accept_files(
    paths: _Paths = None, everything: _All = False, config: ConfigFiles = None, as_json: AsJson = False
) -> None:
    """Take the marks away from files that you have read, and from their copies: their content counts as yours."""
    if bool(paths) == everything:
        raise UsageError("which files? toolcrib guard accept PATH …, or --all")
    _accept_marks(settings_of(config), paths or (), as_json=as_json)


def _show_marks(settings: Settings, *, as_json: bool) -> None:
    """Print the marks, the oldest first."""
    marks = _marks(settings)
    if as_json:
        emit_json([{**fields_of(mark), "state": _state(mark)} for mark in marks])
    elif marks:
        table(
            _MARK_COLUMNS,
            [(mark.path, _state(mark), local_time(mark.noted), mark.session, mark.source) for mark in marks],
        )
        note(
            "a session that reads one of these is tainted; `toolcrib guard accept PATH` ends that for a file"
            " that you have read, `toolcrib pending accept` for changes that wait for review"
        )
    else:
        note("no file has content that a tainted session wrote unasked")


def _accept_marks(settings: Settings, paths: Sequence[str], *, as_json: bool) -> None:
    """Remove the marks at and below `paths`, or all. Raises `ToolFailure("not_found")` for a path without one."""
    marks = _marks(settings)
    meant = marks if not paths else [mark for path in paths for mark in _at(path, marks)]

    async def main() -> None:
        async with open_store(settings) as store:
            await FileMarks(store.tainted_files).forget(meant)

    if meant:
        run(main)
    accepted = list(dict.fromkeys(mark.path for mark in meant))
    if as_json:
        emit_json(accepted)
    elif accepted:
        out(escape(f"accepted: {', '.join(accepted)}"))
    else:
        note("no file has content that a tainted session wrote unasked")


def _marks(settings: Settings) -> Sequence[TaintedFile]:
    async def main() -> Sequence[TaintedFile]:
        async with open_store(settings) as store:
            return await FileMarks(store.tainted_files).all()

    return run(main) if has_store(settings) else ()


def _at(path: str, marks: Sequence[TaintedFile]) -> list[TaintedFile]:
    """Return the marks of a file, of what a folder holds, and of the same content elsewhere."""
    place = Path(os.path.normpath(here().project / path))
    digest = digest_at(place)
    found = [mark for mark in marks if Path(mark.path).is_relative_to(place) or (digest and mark.digest == digest)]
    if not found:
        folder = next((mark for mark in marks if not mark.digest and place.is_relative_to(mark.path)), None)
        hint = (
            f"its folder is marked as a whole: accept {folder.path}" if folder else "`toolcrib guard files` lists them"
        )
        raise ToolFailure("not_found", f"{place} has no mark of its own", hint=hint)
    return found


def _state(mark: TaintedFile) -> str:
    place = Path(mark.path)
    if not mark.digest:
        return "folder"
    if not place.exists():
        return "gone"
    return "as written" if digest_at(place) == mark.digest else "changed"
