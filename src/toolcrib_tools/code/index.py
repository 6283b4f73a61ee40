"""The project index: brought up to date with the files before every question, by when they were changed and how large.

What is on the disk is kept; what waits for review is put in front of it for one question and taken out again. Every
file is read through the workspace.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from anyio import to_thread

from toolcrib.plugin import Context, ToolFailure

from .._workspace.finding import Base, Wanted, base_at, files_below
from .._workspace.place import workspace_of
from .analysis import is_read, symbols_of
from .rows import Rows, opened

__all__ = ["FILE_BYTES", "INDEXING_SECONDS", "Project", "project_at"]

T = TypeVar("T")

FILE_BYTES: Final = 1024 * 1024
"""Larger files are data, or were made by programs."""
INDEXING_SECONDS: Final = 600
"""What a tool takes as its time limit: the first question about a large project reads it all."""
_BATCH: Final = 200
"""Files that are read and kept in one go: what was done is not lost when a call is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """An index that is up to date, and the question's part of it."""

    prefix: str
    """Where the question was asked, for paths of the index; empty is everywhere."""
    is_whole: bool
    """False: the folder has more files than one walk goes through."""
    _base: Base
    _file: Path
    _names: frozenset[str]
    _waiting: Mapping[str, bytes]

    def shown(self, name: str) -> str:
        """Return the path that tools give a file of the index."""
        return self._base.shown(name)

    async def ask(self, work: Callable[[Rows], T]) -> T:
        """Return what `work` finds, which a thread does. Raises `ToolFailure` when the index cannot be used."""
        return await to_thread.run_sync(self._asked, work)

    def has(self, name: str) -> bool:
        """Whether a file of the index is one that this session sees."""
        return name in self._names

    def _asked(self, work: Callable[[Rows], T]) -> T:
        try:
            with opened(self._file) as rows, rows.change(keep=False) if self._waiting else nullcontext():
                for name, content in self._waiting.items():
                    rows.put(name, (0, 0), symbols_of(name, content) if content else ())
                return work(rows)
        except sqlite3.Error as error:
            raise _broken(error) from error


async def project_at(ctx: Context, path: str) -> Project:
    """Return the index of the root that the folder `path` is in, up to date.

    Raises `ToolFailure`: for what is no folder, `timeout` when there is too much to read in the time of a call; what
    was read is kept, and the next call goes on from there.
    """
    workspace = workspace_of(ctx)
    near = await base_at(workspace, path)
    base = Base(root=near.root, inner="", begin=near.begin)
    found = await files_below(workspace, base, Wanted())
    names = await to_thread.run_sync(_named, base, found.paths)
    overlay = await workspace.overlay(base.shown(""))
    changes = {name: content for shown, content in overlay.items() if (name := base.name(shown)) is not None}
    there = set(names)
    waiting = {name: content if content and name in there else b"" for name, content in changes.items()}
    digest = hashlib.blake2b(str(base.root).encode(), digest_size=16).hexdigest()
    file = ctx.lent.folder("code") / f"{digest}.sqlite"
    await _refreshed(ctx, base, file, [name for name in names if name not in waiting], frozenset(waiting))
    return Project(
        prefix=near.inner,
        is_whole=found.is_whole,
        _base=base,
        _file=file,
        _names=frozenset(names),
        _waiting=waiting,
    )


def _named(base: Base, paths: Sequence[str]) -> list[str]:
    """Return where in the root the files lie that are read."""
    root = f"{base.root.as_posix().rstrip('/')}/"
    inside = base.begin.is_relative_to(base.root)
    begin = f"{base.begin.relative_to(base.root).as_posix()}/".removeprefix("./") if inside else ""
    whole = (shown.removeprefix(root) if shown.startswith("/") else f"{begin}{shown}" for shown in paths)
    return [name for name in whole if is_read(name)]


async def _refreshed(ctx: Context, base: Base, file: Path, names: Sequence[str], waiting: frozenset[str]) -> None:
    """Read what has changed since it was last read, and forget what is gone."""
    workspace = workspace_of(ctx)
    stale = await to_thread.run_sync(_stale, base, file, names, waiting)
    for at in range(0, len(stale), _BATCH):
        if ctx.signal.aborted:
            raise ToolFailure(
                "timeout",
                f"the project has {len(stale)} new or changed files, and the time was up after {at}",
                hint="ask again: what was read is kept",
            )
        some = stale[at : at + _BATCH]
        contents = await workspace.read_many([base.shown(name) for name, _ in some], limit=FILE_BYTES)
        await to_thread.run_sync(_kept, file, some, contents)
        if len(stale) > _BATCH:
            await ctx.report(at + len(some), len(stale), "reading the project")


def _stale(base: Base, file: Path, names: Sequence[str], waiting: frozenset[str]) -> list[tuple[str, tuple[int, int]]]:
    """Return the files that are not known as they are now. What the disk says of them is only when to look again."""
    try:
        with opened(file) as rows:
            known = rows.stamps()
            stale: list[tuple[str, tuple[int, int]]] = []
            for name in names:
                stamp = _stamp(f"{base.root}/{name}")
                if stamp is not None and known.get(name) != stamp:
                    stale.append((name, stamp))
            gone = known.keys() - set(names) - waiting
            if gone:
                with rows.change(keep=True):
                    rows.remove(gone)
            return stale
    except sqlite3.Error as error:
        raise _broken(error) from error


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _kept(file: Path, stale: Sequence[tuple[str, tuple[int, int]]], contents: Sequence[bytes | ToolFailure]) -> None:
    try:
        with opened(file) as rows, rows.change(keep=True):
            for (name, stamp), content in zip(stale, contents, strict=True):
                if not isinstance(content, ToolFailure):
                    rows.put(name, stamp, symbols_of(name, content))
                elif content.code == "too_large":
                    rows.put(name, stamp, ())
                # what may not be read is asked for again: another session may
    except sqlite3.Error as error:
        raise _broken(error) from error


def _broken(error: sqlite3.Error) -> ToolFailure:
    return ToolFailure("unavailable", f"the project index cannot be used: {error}", hint="grep finds words without it")
