"""Batches of file changes: each change is atomic, several take place together or not at all.

  stage    every new content is written beside its target and synced to the disk
  check    the files are still in the states that the changes were made for
  commit   renames only; when one fails, earlier ones are undone
  clean    replaced files are removed

A killed process leaves each single file in its old or its new state. Of a batch it may leave a part: a caller that
needs more writes a plan first and repeats it (`workspace.pending`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from msgspec import Struct

from ..core.bounded_mapping import BoundedMapping
from ..errors import ToolFailure
from .nodes import digest_at, digest_of_content, folder_at, kind_of, look, parent_of, read_file, scan, translated_errors
from .paths import TEMPORARY, Place
from .safe_paths import exchange, open_beneath

MAX_BYTES: Final = 100 << 20
"""Of one file, read or written."""
NOTHING: Final = ""
"""The state of a place where nothing is."""
_MAX_COMPARED_FILES: Final = 20_000
"""Maximum files of a folder whose state is compared."""
_logger = logging.getLogger(__name__)
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL

_EXECUTABLE: Final = 0o111
_MAX_REMEMBERED_FILES: Final = 4_096


class Change(Struct, frozen=True, kw_only=True):
    """Target state of a place: a file (`content`), an empty folder, or nothing."""

    place: Place
    content: bytes | None = None
    folder: bool = False
    mode: int | None = None
    """Of a file, as `chmod` takes it; None keeps that of the file that is replaced."""
    expected: str | None = None
    """The state (see `state_of`) for which the change was made; None is any."""
    replaces: bool = False
    """Whether a file or folder replaces an entry of another kind, or a folder with its content."""


class Conflict(Exception):
    """Some places are no longer in the state that the changes were made for. Nothing was changed."""

    def __init__(self, changes: Sequence[Change]) -> None:
        super().__init__(", ".join(change.place.shown for change in changes))
        self.changes = tuple(changes)


def state_of(place: Place) -> str:
    """Return the state of a place as a short text: equal texts are equal contents, of a folder with its whole tree.

    The content of a link is where it leads.

    Raises `ToolFailure`.

    Modes and times make no difference.
    """
    found = look(place)
    if found is None:
        return NOTHING
    kind = kind_of(found)
    if kind == "file":
        return digest_at(place, MAX_BYTES)
    lines: list[str] = []
    with translated_errors(place):
        if kind != "folder":
            return _node(place, found)
        _gather(place, lines)
    listed = "\n".join(lines).encode()
    return f"folder {digest_of_content(listed)}"


def apply(changes: Sequence[Change]) -> None:
    """Make all changes or none. Raises `Conflict`, or `ToolFailure` for an impossible one; nothing is changed then.

    Blocking. States are compared after everything is staged, so that the time between check and renames is short;
    another program that writes in it loses.
    """
    work = _Batch(keeps_way_back=len(changes) > 1)
    try:
        for change in changes:
            if change.content is not None:
                work.stage(change, changes)
        conflicts = [
            change for change in changes if change.expected is not None and state_of(change.place) != change.expected
        ]
        if conflicts:
            raise Conflict(conflicts)
        for change in sorted(changes, key=_order):
            with translated_errors(change.place):
                work.commit(change)
    except BaseException:
        work.take_back()
        raise
    work.clean()
    _remember(changes, work.executable)


class _Written(Struct, frozen=True):
    """A file as a tool wrote it."""

    place: Place
    stamp: tuple[int, int, int]
    digest: str


_written: Final = BoundedMapping[str, _Written](_MAX_REMEMBERED_FILES)
"""Files that tools of this process wrote last; under `_lock`."""
_lock: Final = Lock()


def _remember(changes: Sequence[Change], executable: Mapping[Place, int]) -> None:
    with _lock:
        for change in changes:
            path, place = str(change.place.path), change.place
            if change.content is not None and (stamp := _stamp(path)) is not None:
                stamp = (*stamp[:2], executable[place])  # a command that runs meanwhile may have changed it by now
                _written[path] = _Written(place, stamp, digest_of_content(change.content))


def is_written(path: Path) -> bool:
    """Whether a tool of this process wrote the file, and nothing changed it since.

    Inode and change time alone do not say so: the file was there for others before they were noted, and the time of a
    change may have ticks of milliseconds.

    Asked after a command has run: what a tool wrote meanwhile is not a leftover of the command (`sandbox.comparison`).
    """
    with _lock:
        written = _written.get(str(path))
    if written is None or _stamp(str(path)) != written.stamp:
        return False
    try:
        return digest_at(written.place, MAX_BYTES) == written.digest
    except ToolFailure:
        return False


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Return inode, change time, and who may execute it."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_mode & _EXECUTABLE


class _Batch:
    """One batch under way.

    `_undo` has the way back of each committed step, last first; `_left` what is removed once all is done.
    """

    def __init__(self, *, keeps_way_back: bool) -> None:
        self._keeps_way_back = keeps_way_back
        self._staged: dict[Place, Place] = {}
        self._undo: list[Callable[[], None]] = []
        self._left: list[Place] = []
        self._touched: dict[tuple[object, ...], Place] = {}
        self.executable: dict[Place, int] = {}
        """By whom the files that are written may be executed."""

    def stage(self, change: Change, all_changes: Sequence[Change]) -> None:
        """Write the content into a temporary file, in the nearest existing folder that stays."""
        place = change.place
        replaced = {other.place.steps for other in all_changes if other.replaces or other.content is None}
        steps = place.steps[:-1]
        with translated_errors(place):
            while True:
                try:
                    if any(steps[:count] in replaced for count in range(1, len(steps) + 1)):
                        raise FileNotFoundError
                    with folder_at(place.root, steps) as folder:
                        temporary = Place(place.root, (*steps, _temporary()), place.shown)
                        self._staged[place] = temporary
                        self.executable[place] = _write(folder, temporary.steps[-1], change)
                    return
                except (FileNotFoundError, NotADirectoryError):
                    if not steps:
                        raise
                    steps = steps[:-1]

    def commit(self, change: Change) -> None:
        """Let one change take place. Raises `OSError`."""
        place = change.place
        if change.content is None and not change.folder:
            self._put_away(place)
            return
        for count in range(1, len(place.steps)):
            self._make_folder(Place(place.root, place.steps[:count], place.shown))
        if change.replaces:
            self._put_away(place)
        if change.folder:
            self._make_folder(place)
            return
        staged = self._staged[place]
        with parent_of(staged) as source, parent_of(place) as target:
            self._put(change, staged, source, target)
        self._touched[place.root, *place.steps[:-1]] = place

    def take_back(self) -> None:
        """Undo committed renames, last first, and remove staged files."""
        for undo in reversed(self._undo):
            try:
                undo()
            except (OSError, ToolFailure):
                _logger.exception("a change could not be taken back")
        for staged in self._staged.values():
            _discard(staged)

    def clean(self) -> None:
        """Sync the folders, and remove the replaced files."""
        for place in self._touched.values():
            with contextlib.suppress(OSError), parent_of(place) as folder:
                os.fsync(folder)
        for place in self._left:
            _discard(place)

    def _put(self, change: Change, staged: Place, source: int, target: int) -> None:
        """Rename the staged file to its place; the replaced file stays until the batch is done."""
        place, name, new = change.place, change.place.steps[-1], staged.steps[-1]
        there = _mode_at(name, target)
        if there is not None and not stat.S_ISREG(there):
            raise ToolFailure("tool_error", f"{place.shown} is no longer a file")
        if there is None or not self._keeps_way_back:
            os.rename(new, name, src_dir_fd=source, dst_dir_fd=target)
            if there is None:
                self._undo.append(lambda: _unlink(place))
            return
        if exchange(new, source, name, target):
            self._left.append(staged)
            self._undo.append(lambda: _move(staged, place))
            return
        kept = Place(place.root, (*place.steps[:-1], _temporary()), place.shown)
        content, mode = read_file(place, MAX_BYTES, many_names=True)
        _write(target, kept.steps[-1], Change(place=kept, content=content, mode=mode))
        self._left.append(kept)
        os.rename(new, name, src_dir_fd=source, dst_dir_fd=target)
        self._undo.append(lambda: _move(kept, place))

    def _put_away(self, place: Place) -> None:
        """Rename the present entry, a folder with its whole tree, to a temporary name; a missing one is ignored."""
        aside = Place(place.root, (*place.steps[:-1], _temporary()), place.shown)
        with contextlib.suppress(FileNotFoundError), parent_of(place) as folder:
            os.rename(place.steps[-1], aside.steps[-1], src_dir_fd=folder, dst_dir_fd=folder)
            self._left.append(aside)
            self._undo.append(lambda: _move(aside, place))
            self._touched[place.root, *place.steps[:-1]] = place

    def _make_folder(self, place: Place) -> None:
        with parent_of(place) as folder:
            try:
                os.mkdir(place.steps[-1], dir_fd=folder)
            except FileExistsError:
                with folder_at(place.root, place.steps):  # raises for anything but a folder
                    return
        self._undo.append(lambda: _rmdir(place))
        self._touched[place.root, *place.steps[:-1]] = place


def sweep(changes: Sequence[Change]) -> None:
    """Remove what a killed process left of these changes: staged and replaced files."""
    folders = {
        (change.place.root, change.place.steps[:count])
        for change in changes
        for count in range(len(change.place.steps))
    }
    for root, steps in folders:
        with contextlib.suppress(OSError):
            names = [name for name, _ in scan(root, steps) if name.startswith(TEMPORARY)]
            for name in names:
                _discard(Place(root, (*steps, name), name))


def _order(change: Change) -> tuple[int, int]:
    """Removals first, then folders, then files; parents before children."""
    rank = 2 if change.content is not None else 1 if change.folder else 0
    return (0 if change.replaces and rank else rank, len(change.place.steps))


def _write(folder: int, name: str, change: Change) -> int:
    """Write a new file, sync it, and return who may execute it.

    One that replaces another stays private until it has that file's mode.
    """
    content = change.content or b""
    mode = _kept_mode(change)
    descriptor = open_beneath(folder, (name,), _CREATE_FLAGS, 0o666 if mode is None else 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    return (mode or 0) & _EXECUTABLE


def _kept_mode(change: Change) -> int | None:
    if change.mode is not None:
        return change.mode & 0o777
    found = look(change.place)
    return stat.S_IMODE(found.st_mode) & 0o777 if found is not None and kind_of(found) == "file" else None


def _mode_at(name: str, folder: int) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _temporary() -> str:
    return f"{TEMPORARY}{secrets.token_hex(8)}"


def _move(source: Place, target: Place) -> None:
    with parent_of(source) as old, parent_of(target) as new:
        os.rename(source.steps[-1], target.steps[-1], src_dir_fd=old, dst_dir_fd=new)


def _unlink(place: Place) -> None:
    with parent_of(place) as folder:
        os.unlink(place.steps[-1], dir_fd=folder)


def _rmdir(place: Place) -> None:
    with parent_of(place) as folder:
        os.rmdir(place.steps[-1], dir_fd=folder)


def _discard(place: Place) -> None:
    """Remove a temporary file or folder, if it exists; one that cannot be removed is left."""
    with contextlib.suppress(OSError), parent_of(place) as folder:
        mode = _mode_at(place.steps[-1], folder)
        if mode is not None and stat.S_ISDIR(mode):
            shutil.rmtree(place.steps[-1], ignore_errors=True, dir_fd=folder)
        elif mode is not None:
            os.unlink(place.steps[-1], dir_fd=folder)


def _node(place: Place, found: os.stat_result) -> str:
    """Return the state of a link or a special file. Raises `OSError`."""
    kind = kind_of(found)
    if kind != "link":
        return f"{kind} {found.st_ino}"
    with parent_of(place) as folder:
        return f"{kind} {os.readlink(place.steps[-1], dir_fd=folder)!r}"


def _gather(place: Place, lines: list[str]) -> None:
    for name, found in scan(place.root, place.steps):
        inner = Place(place.root, (*place.steps, name), f"{place.shown}/{name}")
        kind = kind_of(found)
        if kind == "folder":
            lines.append(f"{inner.steps} folder")
            _gather(inner, lines)
        elif kind == "file":
            lines.append(f"{inner.steps} {digest_at(inner, MAX_BYTES)}")
        else:
            lines.append(f"{inner.steps} {_node(inner, found)}")
        if len(lines) > _MAX_COMPARED_FILES:
            raise ToolFailure("too_large", f"{place.shown} holds more than {_MAX_COMPARED_FILES:,} files")
