"""Lock file of a project: what of each source was reviewed, and the programs and files behind it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import anyio
import anyio.to_thread

from ..catalog.pins import Lock, LockedSource, read_lock, seen_of
from ..core.events import Problem
from ..core.tool import Tool
from ..errors import ConfigError

_PROGRAM: Final = "program:"


@runtime_checkable
class WithFiles(Protocol):
    """A source that can say which files decide what it runs."""

    def files(self) -> Iterable[str]:
        """Return paths, and `program:WORD` for a program that is looked for as a shell would."""
        ...


class EnforcedLock:
    """Entries of the lock. Read once, when the crib opens."""

    def __init__(
        self, file: Path | None, environ: Mapping[str, str], *, digest: str = "", enforced: bool = True
    ) -> None:
        """`file` None means no lock; one that is not `enforced` is only written. `digest` is that of its content.

        Raises `ConfigError` for an enforced one that is not there, cannot be read, or has another digest than `digest`.
        """
        self.file = file
        self._environ = environ
        self._lock = _read(file, digest) if file is not None and enforced else None

    def to_be_written(self, file: Path) -> EnforcedLock:
        """Return a lock that is written to `file` and not enforced."""
        return EnforcedLock(file, self._environ, enforced=False)

    @property
    def is_on(self) -> bool:
        """Whether there is a lock."""
        return self._lock is not None

    def pins(self, source: str) -> dict[str, bytes] | None:
        """Return the reviewed digests of `source`, empty if the lock lacks it; None without a lock."""
        if self._lock is None:
            return None
        locked = self._lock.sources.get(source)
        return locked.pins if locked else {}

    def reviewed(self, source: str) -> Mapping[str, Mapping[str, object]]:
        """Return the definitions of `source` as they were locked."""
        locked = self._lock.sources.get(source) if self._lock else None
        return locked.tools if locked else {}

    async def refuses(self, source: object, name: str) -> Problem | None:
        """Return why `source` must not start: a file or program behind it is not what was locked."""
        if self._lock is None or not isinstance(source, WithFiles):
            return None
        locked = self._lock.sources.get(name, LockedSource())
        known = {path: digest for path, digest in locked.files.items() if path.startswith(_PROGRAM)}
        now = await self.digests((*locked.files, *source.files()), programs=bool(known))
        wrong = sorted(path for path in {*locked.files, *now} if locked.files.get(path) != now.get(path))
        if not wrong:
            return None
        what = ", ".join(wrong[:5])
        return Problem(
            source=name,
            code="definition_changed",
            message=f"{name} is not started: {what} is not what the lock {self.file} says",
            hint="look at what changed, then `toolcrib lock` takes it as reviewed",
        )

    async def locked(self, source: object, tools: Iterable[Tool], *, programs: bool) -> LockedSource:
        """Return the entry of the lock for `source`, which lists `tools` now."""
        files = source.files() if isinstance(source, WithFiles) else ()
        seen = {tool.local_name: seen_of(tool) for tool in tools}
        return LockedSource(tools=seen, files=await self.digests(files, programs=programs))

    async def digests(self, paths: Iterable[str], *, programs: bool = True) -> dict[str, str]:
        """Return the SHA-256 of each file that there is, by the path as the lock has it."""
        named = dict.fromkeys(self._named(path) for path in paths)
        wanted = [path for path in named if programs or not path.startswith(_PROGRAM)]
        return await anyio.to_thread.run_sync(lambda: dict(_hashed(wanted, self._find)))

    def _named(self, path: str) -> str:
        """Return the path from the folder of the lock where it is below it: a lock goes with its project."""
        if path.startswith(_PROGRAM) or self.file is None or not Path(path).is_absolute():
            return path
        folder = _folder_of(self.file)
        return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path

    def _find(self, path: str) -> Path | None:
        if path.startswith(_PROGRAM):
            found = shutil.which(path.removeprefix(_PROGRAM), path=self._environ.get("PATH"))
            return Path(found) if found else None
        return (_folder_of(self.file) if self.file else Path()) / path


def _folder_of(file: Path) -> Path:
    """Return the folder of the lock without `..`, which `lock: ../toolcrib.lock` in `.toolcrib/` brings."""
    return Path(os.path.abspath(file)).parent


def _read(file: Path, digest: str) -> Lock:
    try:
        content = file.read_bytes()
    except OSError as error:
        message = f"the lock cannot be read ({error.strerror or error}); `toolcrib lock` writes it"
        raise ConfigError(message, file=str(file), key="lock") from None
    if digest and hashlib.sha256(content).hexdigest() != digest:
        message = "the lock changed while it was read, and you have not confirmed it"
        raise ConfigError(f"{message}; look at it, then run `toolcrib trust`", file=str(file), key="lock")
    return read_lock(content, str(file))


def _hashed(paths: Iterable[str], find: Callable[[str], Path | None]) -> Iterable[tuple[str, str]]:
    for path in paths:
        place = find(path)
        if place is not None and place.is_file():
            with place.open("rb") as stream:
                yield path, hashlib.file_digest(stream, "sha256").hexdigest()
