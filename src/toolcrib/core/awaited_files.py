"""Files and folders that the servers of a confirmed project run, and that were missing when the user confirmed it.

Installed packages and build outputs come later. What the user installs is taken as it is at the first start of a
server, or at the first command of an agent, that finds it; what came while a command of an agent ran is not, for it
would leave the sandbox with the server. Each path has a folder in the user's state, shared by all of the user's
processes: its name, its pin once it has one, and a trace for each command that began while nothing was there. A trace
goes with its command, unless something is there then: a process that was killed leaves it.

    FOLDER/HASH OF THE PATH/path          the path, since the confirmation
                           /pin           digest of what was taken
                           /PID-RANDOM    trace of a command that began while nothing was there
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from ..errors import ToolFailure
from .files import make_private_folder
from .patterns import regex
from .processes import is_alive

AWAITED: Final = "awaited"
"""Name of the folder in the user's state."""
_PATH: Final = "path"
_PIN: Final = "pin"
_OLD: Final = 90 * 24 * 3600.0
_TRACE: Final = regex(r"(\d+)-[0-9a-f]+")


class AwaitedFiles:
    """The record in one folder. Used in any thread and process; every method looks at the disk."""

    def __init__(self, folder: Path, pin_of: Callable[[Path], str]) -> None:
        """`pin_of` returns what a file or a folder is now, to be compared later. Blocks."""
        self._folder = folder
        self._pin_of = pin_of
        self._names: dict[str, Path] = {}

    @property
    def has_any(self) -> bool:
        """Whether a path was ever awaited."""
        return bool(_names_in(self._folder))

    def expect(self, paths: Iterable[Path]) -> None:
        """Await paths that are missing now. Raises `OSError`.

        Forgets old ones whose project is gone.
        """
        for name in _names_in(self._folder):
            known, entry = self._path_of(name), self._folder / name
            is_old = _changed(entry / _PATH) < (time.time() - _OLD) * 1e9
            if is_old and (known is None or not known.parent.is_dir()):
                shutil.rmtree(entry, ignore_errors=True)
        for path in paths:
            entry = self._entry(path)
            make_private_folder(entry)
            (entry / _PATH).write_text(str(path), "utf-8", "surrogateescape")

    def forget(self, paths: Iterable[Path]) -> None:
        """Forget what came of paths: the user has looked at them. Commands that still run go on counting."""
        for path in paths:
            entry = self._entry(path)
            if not any(_is_running(name) for name in _names_in(entry)):
                shutil.rmtree(entry, ignore_errors=True)
                continue
            for name in _names_in(entry):
                if name != _PATH and not _is_running(name):
                    (entry / name).unlink(missing_ok=True)

    def begin(self, folders: Sequence[Path]) -> Callable[[], None]:
        """Leave traces before an agent changes something in `folders`; return what ends them.

        What is there already, made by no other command, gets its pin. Raises `ToolFailure("storage")`.
        """
        traces: list[tuple[Path, Path]] = []
        reals = [Path(os.path.realpath(folder)) for folder in folders]
        for name in _names_in(self._folder):
            entry = self._folder / name
            path = self._path_of(name)
            if path is None or not _overlaps(path, reals) or (entry / _PIN).exists():
                continue
            if os.path.lexists(path):
                self.taken(path)
                continue
            trace = entry / f"{os.getpid()}-{secrets.token_hex(8)}"
            try:
                trace.touch(mode=0o600, exist_ok=False)
            except FileNotFoundError:
                continue  # confirmed meanwhile
            except OSError as error:
                raise ToolFailure("storage", f"{trace} cannot be written: {error.strerror}") from error
            traces.append((path, trace))

        def end() -> None:
            for path, trace in traces:
                if not os.path.lexists(path):
                    with contextlib.suppress(OSError):
                        trace.unlink()

        return end

    def pin(self, path: Path) -> str:
        """Return the digest of `path` when it was taken; empty before that."""
        try:
            return (self._entry(path) / _PIN).read_text("utf-8")
        except OSError:
            return ""

    def taken(self, path: Path, pin: str = "") -> str:
        """Return the digest of `path` when it was taken, now at the latest; empty if an agent may have made it.

        `pin` is what it is now, if known.
        """
        entry = self._entry(path)
        if known := self.pin(path):
            return known
        if not entry.is_dir() or self.is_traced(path):
            return ""
        fresh = entry / f".{secrets.token_hex(8)}"
        try:
            fresh.write_text(pin or self._pin_of(path), "utf-8")
            os.link(fresh, entry / _PIN)  # unless a command that began meanwhile has taken it before
        except OSError:
            pass
        finally:
            fresh.unlink(missing_ok=True)
        return self.pin(path)

    def is_traced(self, path: Path) -> bool:
        """Whether a command of an agent runs that began before `path` was there, or ended after it came."""
        return any(_TRACE.fullmatch(name) for name in _names_in(self._entry(path)))

    def confirmed(self, path: Path) -> int:
        """Return when the user confirmed the project, as file times count; 0 where `path` is not awaited."""
        return _changed(self._entry(path) / _PATH)

    def taken_at(self, path: Path) -> int:
        """Return when `path` was taken, as file times count; 0 before that."""
        return _changed(self._entry(path) / _PIN)

    def _entry(self, path: Path) -> Path:
        return self._folder / hashlib.sha256(os.fsencode(path)).hexdigest()[:32]

    def _path_of(self, name: str) -> Path | None:
        known = self._names.get(name)
        if known is None:
            try:
                text = (self._folder / name / _PATH).read_text("utf-8", "surrogateescape")
            except OSError:
                return None
            known = self._names[name] = Path(text)
        return known


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_running(name: str) -> bool:
    """Whether the process that left a trace, which is its name, runs."""
    found = _TRACE.fullmatch(name)
    return found is not None and is_alive(int(found[1]))


def _overlaps(path: Path, folders: Iterable[Path]) -> bool:
    real = Path(os.path.realpath(path.parent), path.name)
    return any(real.is_relative_to(folder) or folder.is_relative_to(real) for folder in folders)


def _changed(file: Path) -> int:
    try:
        return os.lstat(file).st_ctime_ns
    except OSError:
        return 0
