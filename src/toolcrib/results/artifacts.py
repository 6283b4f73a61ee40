"""Artifacts: large outputs kept whole on disk, read in pages by whoever they belong to.

An id is 128 bits of a keyed hash over owner, type, trust and content: the same output of the same principal is kept
once, and without the key of the folder nobody can tell from a content which id it has. An artifact belongs to one
principal; for everybody else it does not exist. A file is at most 256 MiB, the folder at most 2 GiB: what would pass
that is refused, nothing is dropped before its time. Files that nobody put for seven days are swept away at the first
artifact of a process, now and then after it, and before anything is refused. All three are settings.

Layout: `ID.data` holds the bytes, `ID.json` what is known of them, `.key` the key; all 0600, the folder 0700. A file
without its description was never finished and is swept with the rest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import anyio.to_thread

from ..core.json import canonical
from ..core.result import Trust
from ..errors import ToolFailure
from .pages import Artifact, Found, Page, found_in, page_of

__all__ = ["Artifacts", "Keeping"]

_ID: Final = re.compile(r"[0-9a-f]{32}")
_PAGE_BYTES: Final = 12_000
_LONGEST_PAGE: Final = 256 * 1024
_RESCAN_SECONDS: Final = 30.0
"""Another process may use the same folder: its size is looked up again when the last look is older than this."""
_KEY: Final = ".key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How large results may be that pass whole, how much of longer ones is kept, and for how long."""

    pass_whole: int = 1024 * 1024
    """Bytes of text, and as many of structured content, up to which an MCP client gets a result as it is."""
    keep: float = 7 * 24 * 3600.0
    """Seconds since an output was last put."""
    quota: int = 2 * 1024 * 1024 * 1024
    """Bytes of all together."""
    each: int = 256 * 1024 * 1024
    """Bytes of one."""


class Artifacts:
    """The outputs that were too large to show. Lives as long as the crib; safe to use from several threads."""

    def __init__(
        self,
        folder: Path | None,
        keeping: Keeping | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use `folder`, made at the first artifact; None is a temporary folder that `close` removes.

        `clock` gives seconds since 1970.
        """
        self._folder = folder
        self._temporary = folder is None
        self._keeping = keeping or Keeping()
        self._clock = clock
        self._key = b""
        self._lock = threading.Lock()
        self._used = 0
        self._scanned = float("-inf")

    def put(self, data: bytes, owner: str, mime_type: str, *, source: str = "", trust: Trust = "local") -> Artifact:
        """Store `data` for `owner`. Raises `ToolFailure`: `too_large`, or `storage` when the disk refuses."""
        return self.put_stream(lambda target: target.write(data), owner, mime_type, source=source, trust=trust)

    def put_stream(
        self,
        write: Callable[[BinaryIO], object],
        owner: str,
        mime_type: str,
        *,
        source: str = "",
        trust: Trust = "local",
    ) -> Artifact:
        """Store what `write` writes to the file it is given. Raises as `put` does, and whatever `write` raises.

        What is kept already is kept once, and for longer.
        """
        new = None
        try:
            folder = self._open_folder()
            new = folder / f"{secrets.token_hex(16)}.new"
            with _Capped(new, self._reserve) as target:
                write(cast("BinaryIO", target))
            sha256 = target.digest()
            artifact = Artifact(
                id=self._name(folder, owner, mime_type, trust, sha256),
                owner=owner,
                mime_type=mime_type,
                size=new.stat().st_size,
                created=self._clock(),
                sha256=sha256,
                source=source,
                trust=trust,
            )
            self._settle(folder, new, artifact)
        except BaseException as error:
            if new is not None:
                self._forget(new)
            if isinstance(error, OSError):
                raise ToolFailure("storage", f"the output could not be kept: {error.strerror or error}") from error
            raise
        return artifact

    def find(self, name: str, owner: str) -> Artifact:
        """Return what is known of an artifact. Raises `ToolFailure("not_found")`, also for somebody else's."""
        described: dict[str, Any] = {}
        if self._folder is not None and _ID.fullmatch(name):
            with suppress(OSError, ValueError):
                described = json.loads((self._folder / f"{name}.json").read_text(encoding="utf-8"))
        if described.get("owner") != owner:
            raise ToolFailure(
                "not_found",
                "no such artifact",
                hint="Ids are shown with the output they belong to; artifacts are kept for some days.",
            )
        return Artifact(**{name: value for name, value in described.items() if name in Artifact.__slots__})

    async def recent(self, owner: str, limit: int = 20) -> list[Artifact]:
        """Return what is kept for `owner`, the newest first."""
        return await anyio.to_thread.run_sync(self._recent, owner, limit)

    async def remove(self, name: str, owner: str) -> Artifact:
        """Remove an artifact, and return what it was. Raises `ToolFailure("not_found")`."""
        artifact = self.find(name, owner)
        for suffix in ("json", "data"):
            self._forget(self._open_folder() / f"{name}.{suffix}")
        return artifact

    async def read(self, name: str, owner: str, offset: int = 0, limit: int = _PAGE_BYTES) -> Page:
        """Return the page of at most `limit` bytes that begins at byte `offset`.

        A negative `offset` counts from the end. Raises `ToolFailure`: `not_found`, or `invalid_arguments` for an
        offset beyond the end.
        """
        return await anyio.to_thread.run_sync(self._read, name, owner, offset, limit)

    async def search(self, name: str, owner: str, text: str, limit: int = 20) -> Found:
        """Find `text`, small and capital letters of ASCII alike: the first `limit` places.

        Raises `ToolFailure`: `not_found`, or `invalid_arguments` for an empty text.
        """
        return await anyio.to_thread.run_sync(self._search, name, owner, text, limit)

    async def value(self, name: str, owner: str, most: int) -> tuple[Artifact, bytes]:
        """Return an artifact and all its bytes. Raises `ToolFailure`: `not_found`, `too_large` above `most` bytes."""
        artifact = self.find(name, owner)
        if artifact.size > most:
            raise ToolFailure(
                "too_large",
                f"artifact {name} has {artifact.size:,} bytes, and arguments may have {most:,}",
                hint='Take part of it: {"$artifact": …, "offset": 0, "limit": 100000}, or a JSON pointer as "path".',
            )
        return artifact, await anyio.to_thread.run_sync(lambda: self._whole(artifact))

    async def piece(self, name: str, owner: str, offset: int, limit: int) -> tuple[Artifact, bytes]:
        """Return an artifact and at most `limit` bytes of it from `offset` on. Raises `ToolFailure("not_found")`."""
        artifact = self.find(name, owner)

        def read() -> bytes:
            with self.open(artifact) as source:
                source.seek(offset)
                return source.read(limit)

        return artifact, await anyio.to_thread.run_sync(read)

    def open(self, artifact: Artifact) -> BinaryIO:
        """Open the bytes of an artifact for reading. Raises `ToolFailure("storage")`."""
        try:
            return self._data(artifact).open("rb")
        except OSError as error:
            raise ToolFailure("storage", f"the artifact cannot be read: {error.strerror or error}") from error

    def sweep(self) -> int:
        """Remove what is older than the artifacts are kept; return the number of files removed."""
        if self._folder is None or not self._folder.exists():
            return 0
        limit = self._clock() - self._keeping.keep
        removed = 0
        for entry in os.scandir(self._folder):
            with suppress(OSError):
                if entry.name != _KEY and entry.stat().st_mtime < limit:
                    os.unlink(entry.path)
                    removed += 1
        return removed

    def close(self) -> None:
        """Remove the folder if it is a temporary one."""
        if self._temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _read(self, name: str, owner: str, offset: int, limit: int) -> Page:
        artifact = self.find(name, owner)
        start = max(0, artifact.size + offset) if offset < 0 else offset
        if start > artifact.size:
            raise ToolFailure(
                "invalid_arguments",
                f"offset {offset} is beyond the end: the artifact has {artifact.size} bytes",
                hint="A negative offset counts from the end.",
            )
        length = max(1, min(limit, _LONGEST_PAGE))
        with self.open(artifact) as source:
            source.seek(start)
            raw = source.read(length + 4)
        return page_of(artifact, start, raw, length)

    def _whole(self, artifact: Artifact) -> bytes:
        with self.open(artifact) as source:
            return source.read()

    def _search(self, name: str, owner: str, text: str, limit: int) -> Found:
        artifact = self.find(name, owner)
        if not text:
            raise ToolFailure("invalid_arguments", "there is nothing to find: the text is empty")
        if not artifact.size:
            return Found(hits=(), total=0)
        pattern = re.compile(re.escape(text.encode("utf-8", "replace")), re.IGNORECASE)
        with self.open(artifact) as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return found_in(pattern, data, limit)

    def _name(self, folder: Path, owner: str, mime_type: str, trust: Trust, sha256: str) -> str:
        """Return the id of a content: nothing that can be computed without the folder's key."""
        with self._lock:
            if not self._key:
                self._key = _key_of(folder / _KEY)
        message = canonical([owner, mime_type, trust, sha256])
        return hmac.digest(self._key, message, "sha256").hex()[:32]

    def _settle(self, folder: Path, new: Path, artifact: Artifact) -> None:
        """Give the new file its name; where the same is there already, keep that one from now on."""
        data = folder / f"{artifact.id}.data"
        if data.exists() and data.stat().st_size == artifact.size:
            self._forget(new)
        else:
            new.replace(data)
        self._describe(folder, artifact)
        for kept in (data, data.with_suffix(".json")):
            os.utime(kept, (artifact.created, artifact.created))

    def _data(self, artifact: Artifact) -> Path:
        return self._open_folder() / f"{artifact.id}.data"

    def _open_folder(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="toolcrib-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            elif not self._folder.exists():
                self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            return self._folder

    def _reserve(self, size: int, more: int) -> None:
        """Take room for `more` bytes of a file that has `size` bytes now."""
        if size + more > self._keeping.each:
            raise ToolFailure(
                "too_large",
                f"the output has more than {self._keeping.each} bytes: only its beginning and its end are kept",
                hint="Ask for less at a time: a filter, a range, a page.",
            )
        with self._lock:
            if time.monotonic() - self._scanned > _RESCAN_SECONDS:
                self.sweep()
                self._scan()
            if self._used + more > self._keeping.quota:
                self.sweep()
                self._scan()
            if self._used + more > self._keeping.quota:
                raise ToolFailure(
                    "too_large",
                    f"the artifacts have {self._used} of {self._keeping.quota} bytes: no room for this output",
                    hint="Ask for less at a time; old artifacts are removed after some days.",
                )
            self._used += more

    def _scan(self) -> None:
        used = 0
        if self._folder is not None and self._folder.exists():
            for entry in os.scandir(self._folder):
                with suppress(OSError):
                    used += entry.stat().st_size
        self._used = used
        self._scanned = time.monotonic()

    def _recent(self, owner: str, limit: int) -> list[Artifact]:
        if self._folder is None or not self._folder.exists():
            return []
        kept: list[Artifact] = []
        for file in self._folder.glob("*.json"):
            with suppress(OSError, ValueError, ToolFailure):
                kept.append(self.find(file.stem, owner))
        return sorted(kept, key=lambda artifact: -artifact.created)[:limit]

    def _describe(self, folder: Path, artifact: Artifact) -> None:
        fields = {name: getattr(artifact, name) for name in Artifact.__slots__}
        part = folder / f"{artifact.id}.{secrets.token_hex(4)}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            json.dump(fields, target)
        part.replace(folder / f"{artifact.id}.json")

    def _forget(self, data: Path) -> None:
        with suppress(OSError):
            size = data.stat().st_size
            data.unlink()
            with self._lock:
                self._used -= size


class _Capped(RawIOBase):
    """A new private file that asks for room before it grows."""

    def __init__(self, path: Path, reserve: Callable[[int, int], None]) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)
        self._reserve = reserve
        self._size = 0
        self._hash = hashlib.sha256()

    def digest(self) -> str:
        """Return the hexadecimal hash of what was written."""
        return self._hash.hexdigest()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        more = len(data)
        self._reserve(self._size, more)
        self._size += more
        self._hash.update(data)
        return self._file.write(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _key_of(path: Path) -> bytes:
    """Return the key of a folder, made by whoever asks first. Raises `OSError`."""
    if not path.exists():
        new = path.with_name(f"{secrets.token_hex(8)}.part")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            target.write(secrets.token_bytes(32))
        with suppress(FileExistsError):
            os.link(new, path)  # whole or not at all, and never over that of another process
        new.unlink()
    return path.read_bytes()
