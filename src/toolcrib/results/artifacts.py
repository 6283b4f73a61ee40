"""Artifacts: large outputs kept whole on disk, read in pages by whoever they belong to.

An id is 128 random bits and belongs to one principal; for everybody else it does not exist. A file is at most 256 MiB,
the folder at most 2 GiB: what would pass that is refused, nothing is dropped before its time. Files older than seven
days are swept away at the first artifact of a process, now and then after it, and before anything is refused.

Layout: `ID.data` holds the bytes, `ID.json` the owner, type and size; both 0600, the folder 0700. A file without its
description was never finished and is swept with the rest.
"""

from __future__ import annotations

import base64
import json
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

from ..errors import ToolFailure

__all__ = ["URI_PREFIX", "Artifact", "Artifacts", "Page"]

URI_PREFIX: Final = "toolcrib://artifact/"
"""An artifact's URI is this and its id."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
_PAGE_BYTES: Final = 12_000
_LONGEST_PAGE: Final = 256 * 1024
_RESCAN_SECONDS: Final = 30.0
"""Another process may use the same folder: its size is looked up again when the last look is older than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A stored output. `size` is in bytes, `created` in seconds since 1970."""

    id: str
    owner: str
    mime_type: str
    size: int
    created: float

    @property
    def uri(self) -> str:
        """The name that MCP `resources/read` and `resource_link` use."""
        return URI_PREFIX + self.id

    @property
    def is_text(self) -> bool:
        """Whether a page is text as it is; other pages are base64."""
        return self.mime_type.startswith("text/") or self.mime_type in ("application/json", "application/xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Part of an artifact. Offsets are bytes of the artifact; text is cut between characters."""

    id: str
    mime_type: str
    size: int
    offset: int
    next_offset: int | None
    """Where the next page begins; None after the last."""
    text: str
    """The text itself, or base64 when the artifact is no text."""


class Artifacts:
    """The outputs that were too large to show. Lives as long as the crib; safe to use from several threads."""

    def __init__(
        self,
        folder: Path | None,
        *,
        each: int = 256 * 1024 * 1024,
        total: int = 2 * 1024 * 1024 * 1024,
        keep: float = 7 * 24 * 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use `folder`, made at the first artifact; None is a temporary folder that `close` removes.

        `each` and `total` are bytes, `keep` seconds; `clock` gives seconds since 1970.
        """
        self._folder = folder
        self._temporary = folder is None
        self._each = each
        self._total = total
        self._keep = keep
        self._clock = clock
        self._lock = threading.Lock()
        self._used = 0
        self._scanned = float("-inf")

    def put(self, data: bytes, owner: str, mime_type: str) -> Artifact:
        """Store `data` for `owner`. Raises `ToolFailure`: `too_large`, or `storage` when the disk refuses."""
        return self.put_stream(lambda target: target.write(data), owner, mime_type)

    def put_stream(self, write: Callable[[BinaryIO], object], owner: str, mime_type: str) -> Artifact:
        """Store what `write` writes to the file it is given. Raises as `put` does, and whatever `write` raises."""
        name = secrets.token_hex(16)
        data = None
        try:
            folder = self._open_folder()
            data = folder / f"{name}.data"
            with _Capped(data, self._reserve) as target:
                write(cast("BinaryIO", target))
            size = data.stat().st_size
            artifact = Artifact(id=name, owner=owner, mime_type=mime_type, size=size, created=self._clock())
            self._describe(folder, artifact)
        except BaseException as error:
            if data is not None:
                self._forget(data)
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
        return Artifact(**described)

    async def recent(self, owner: str, limit: int = 20) -> list[Artifact]:
        """Return what is kept for `owner`, the newest first."""
        return await anyio.to_thread.run_sync(self._recent, owner, limit)

    async def read(self, name: str, owner: str, offset: int = 0, limit: int = _PAGE_BYTES) -> Page:
        """Return the page of at most `limit` bytes that begins at byte `offset`.

        A negative `offset` counts from the end. Raises `ToolFailure`: `not_found`, or `invalid_arguments` for an
        offset beyond the end.
        """
        return await anyio.to_thread.run_sync(self._read, name, owner, offset, limit)

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
        limit = self._clock() - self._keep
        removed = 0
        for entry in os.scandir(self._folder):
            with suppress(OSError):
                if entry.stat().st_mtime < limit:
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
        return _page(artifact, start, raw, length)

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
        if size + more > self._each:
            raise ToolFailure(
                "too_large",
                f"the output has more than {self._each} bytes: only its beginning and its end are kept",
                hint="Ask for less at a time: a filter, a range, a page.",
            )
        with self._lock:
            if time.monotonic() - self._scanned > _RESCAN_SECONDS:
                self.sweep()
                self._scan()
            if self._used + more > self._total:
                self.sweep()
                self._scan()
            if self._used + more > self._total:
                raise ToolFailure(
                    "too_large",
                    f"the artifacts have {self._used} of {self._total} bytes: no room for this output",
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
        fields = {name: getattr(artifact, name) for name in ("id", "owner", "mime_type", "size", "created")}
        part = folder / f"{artifact.id}.part"
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

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        more = len(data)
        self._reserve(self._size, more)
        self._size += more
        return self._file.write(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _page(artifact: Artifact, start: int, raw: bytes, length: int) -> Page:
    piece = raw[:length]
    if artifact.is_text:
        begin = _skip_continuation(raw) if start else 0
        piece = raw[begin : _character_border(raw, max(length, begin + 1))]
        start += begin
        text = piece.decode("utf-8", "replace")
    else:
        text = base64.b64encode(piece).decode()
    after = start + len(piece)
    return Page(
        id=artifact.id,
        mime_type=artifact.mime_type,
        size=artifact.size,
        offset=start,
        next_offset=after if after < artifact.size and piece else None,
        text=text,
    )


def _skip_continuation(raw: bytes) -> int:
    """Bytes of a character that began before `raw`: at most three."""
    begin = 0
    while begin < min(3, len(raw)) and raw[begin] & 0xC0 == 0x80:
        begin += 1
    return begin


def _character_border(raw: bytes, end: int) -> int:
    """`end` moved back to the beginning of a character, or forward where that leaves nothing."""
    if end >= len(raw):
        return len(raw)
    back = end
    while back > 0 and raw[back] & 0xC0 == 0x80 and end - back < 4:
        back -= 1
    if back > 0:
        return back
    while end < len(raw) and raw[end] & 0xC0 == 0x80:
        end += 1
    return end
