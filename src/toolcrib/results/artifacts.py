"""Artifacts: large outputs kept whole, read in pages, and referred to in arguments of later calls.

    FOLDER/ID.data     the bytes            FOLDER/ID.json   what is known of them
    FOLDER/.key        the key of the ids

An id is a keyed hash: 8 digits for the owner, 24 for owner, type, trust and content. The same content of one owner is
stored once; the ids of an owner cannot be guessed by another one, and `find` compares the owner all the same.
"""

from __future__ import annotations

import base64
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
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import asdict

from ..core.files import make_private_folder
from ..core.json import canonical
from ..core.patterns import regex
from ..core.result import Trust
from ..errors import ToolFailure
from .artifact_space import KEY_FILE, OWNER_LENGTH, ArtifactSpace
from .settings import RetentionSettings

URI_PREFIX: Final = "toolcrib://artifact/"
"""An artifact's URI is this and its id."""

_CONTEXT_BYTES: Final = 120
"""Bytes of context before and after a match that a hit shows of a long line."""
_CHUNK_BYTES: Final = 1 << 20

_ID_LENGTH: Final = 32
_ID: Final = regex(rf"[0-9a-f]{{{_ID_LENGTH}}}")
_PAGE_BYTES: Final = 12_000
_MAX_PAGE_BYTES: Final = 256 * 1024


class Artifact(Struct, frozen=True, kw_only=True):
    """A stored output. `size` is in bytes, `created` in seconds since 1970."""

    id: str
    owner: str
    mime_type: str
    size: int
    created: float
    sha256: str = ""
    """Hexadecimal, over the bytes."""
    source: str = ""
    """The source of the tool that gave it."""
    trust: Trust = "local"

    @property
    def uri(self) -> str:
        """The name that MCP `resources/read` and `resource_link` use."""
        return URI_PREFIX + self.id

    def link(self, description: str) -> dict[str, Any]:
        """Return the MCP block that refers to it."""
        return {
            "type": "resource_link",
            "uri": self.uri,
            "name": f"artifact-{self.id[:8]}",
            "description": description,
            "mimeType": self.mime_type,
            "size": self.size,
        }

    @property
    def is_text(self) -> bool:
        """Whether a page is plain text; other pages are base64."""
        return self.mime_type.startswith("text/") or self.mime_type in ("application/json", "application/xml")


class Page(Struct, frozen=True, kw_only=True):
    """Part of an artifact. Offsets are bytes of the artifact; text is cut between characters."""

    id: str
    mime_type: str
    size: int
    offset: int
    next_offset: int | None
    """Start of the next page; None after the last."""
    text: str
    """The text itself, or base64 when the artifact is binary."""


class Hit(Struct, frozen=True, kw_only=True):
    """One place where a text was found."""

    line: int
    """Its number, from 1."""
    offset: int
    """Byte of the artifact at which `text` begins."""
    text: str
    """The line, or the surroundings of the match in a long line."""


class SearchResult(Struct, frozen=True, kw_only=True):
    """Result of a search: the first hits, and their total number."""

    hits: tuple[Hit, ...]
    total: int
    """Lines, or pieces of long lines, that hold the text."""


def _search_data(pattern: re.Pattern[bytes], data: mmap.mmap, limit: int) -> SearchResult:
    """Return the first `limit` places where `pattern` matches, one for each line or piece of a long line."""
    hits: list[Hit] = []
    total, line, counted, place = 0, 1, 0, 0
    while (match := pattern.search(data, place)) is not None:
        total += 1
        begin = max(data.rfind(b"\n", 0, match.start()) + 1, match.start() - _CONTEXT_BYTES)
        end = data.find(b"\n", match.end(), match.end() + _CONTEXT_BYTES)
        end = end if end >= 0 else min(len(data), match.end() + _CONTEXT_BYTES)
        if len(hits) < limit:
            line += _count_lines(data, counted, match.start())
            counted = match.start()
            begin += _skip_continuation(data[begin : begin + 4])
            hits.append(Hit(line=line, offset=begin, text=data[begin:end].decode("utf-8", "ignore").rstrip("\r")))
        place = end
    return SearchResult(hits=tuple(hits), total=total)


def _count_lines(data: mmap.mmap, start: int, end: int) -> int:
    return sum(data[place : min(end, place + _CHUNK_BYTES)].count(b"\n") for place in range(start, end, _CHUNK_BYTES))


def page_of(artifact: Artifact, start: int, raw: bytes, length: int) -> Page:
    """Return the page at byte `start` of at most `length` bytes; `raw` holds them and up to four more.

    A page of text begins and ends between characters, so that pages can be joined; `offset` is where it really begins.
    """
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


class Artifacts:
    """The outputs that were too large to show. Lives as long as the crib; safe to use from several threads.

    What reads or searches contents is `async`, and uses threads of the pool; the other methods touch the disk in the
    thread that calls them.
    """

    def __init__(
        self,
        folder: Path | None,
        keeping: RetentionSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use `folder`, made at the first artifact; None is a temporary folder that `close` removes.

        `clock` gives seconds since 1970.
        """
        self._folder = folder
        self._temporary = folder is None
        self._space = ArtifactSpace(keeping or RetentionSettings(), clock)
        self._clock = clock
        self._key = b""
        self._lock = threading.Lock()

    def put(self, data: bytes, owner: str, mime_type: str, *, source: str = "", trust: Trust = "local") -> Artifact:
        """Store `data` for `owner`. Raises `ToolFailure`: `too_large`, or `storage` when the disk refuses."""
        return self.put_stream(lambda target: target.write(data), owner, mime_type, source=source, trust=trust)

    def put_stream(
        self,
        write: Callable[[BinaryIO], object],
        owner: str,
        mime_type: str,
        *,
        source: str,
        trust: Trust,
    ) -> Artifact:
        """Store what `write` writes to its file. Raises as `put` does, and any exception of `write`.

        Content that is stored already is stored once, and kept for longer.
        """
        new = None
        try:
            folder = self._open_folder()
            new = folder / f"{secrets.token_hex(16)}.new"
            with _ReservingFile(
                _new_file(new), partial(self._space.reserve, folder, self._owner_prefix(folder, owner))
            ) as target:
                write(cast("BinaryIO", target))
            sha256 = target.digest()
            artifact = Artifact(
                id=self._make_id(folder, owner, mime_type, trust, sha256),
                owner=owner,
                mime_type=mime_type,
                size=new.stat().st_size,
                created=self._clock(),
                sha256=sha256,
                source=source,
                trust=trust,
            )
            self._move_into_place(folder, new, artifact)
        except BaseException as error:
            if new is not None:
                self._space.remove(new)
            if isinstance(error, OSError):
                raise ToolFailure("storage", f"the output could not be kept: {error.strerror or error}") from error
            raise
        return artifact

    def find(self, name: str, owner: str) -> Artifact:
        """Return the record of an artifact. Raises `ToolFailure("not_found")`, also for another owner's."""
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
        return Artifact(**{name: value for name, value in described.items() if name in Artifact.__struct_fields__})

    async def recent(self, owner: str, limit: int = 20) -> list[Artifact]:
        """Return the artifacts of `owner`, newest first."""
        return await anyio.to_thread.run_sync(self._recent, owner, limit)

    async def remove(self, name: str, owner: str) -> Artifact:
        """Remove and return an artifact. Raises `ToolFailure("not_found")`."""
        artifact = self.find(name, owner)
        for suffix in ("json", "data"):
            self._space.remove(self._open_folder() / f"{name}.{suffix}")
        return artifact

    async def read(self, name: str, owner: str, offset: int = 0, limit: int = _PAGE_BYTES) -> Page:
        """Return the page of at most `limit` bytes that begins at byte `offset`.

        A negative `offset` counts from the end. Raises `ToolFailure`: `not_found`, or `invalid_arguments` for an
        offset beyond the end.
        """
        return await anyio.to_thread.run_sync(self._read, name, owner, offset, limit)

    async def search(self, name: str, owner: str, text: str, limit: int = 20) -> SearchResult:
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
        return artifact, await anyio.to_thread.run_sync(lambda: self._read_whole(artifact))

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
            return (self._open_folder() / f"{artifact.id}.data").open("rb")
        except OSError as error:
            raise ToolFailure("storage", f"the artifact cannot be read: {error.strerror or error}") from error

    def sweep(self) -> int:
        """Remove expired artifacts; return the number of files removed."""
        return self._space.sweep(self._folder) if self._folder is not None else 0

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
        length = max(1, min(limit, _MAX_PAGE_BYTES))
        with self.open(artifact) as source:
            source.seek(start)
            raw = source.read(length + 4)
        return page_of(artifact, start, raw, length)

    def _read_whole(self, artifact: Artifact) -> bytes:
        with self.open(artifact) as source:
            return source.read()

    def _search(self, name: str, owner: str, text: str, limit: int) -> SearchResult:
        artifact = self.find(name, owner)
        if not text:
            raise ToolFailure("invalid_arguments", "the search text is empty")
        if not artifact.size:
            return SearchResult(hits=(), total=0)
        pattern = re.compile(re.escape(text.encode("utf-8", "replace")), re.IGNORECASE)
        with self.open(artifact) as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _search_data(pattern, data, limit)

    def _make_id(self, folder: Path, owner: str, mime_type: str, trust: Trust, sha256: str) -> str:
        """Return the id of a content, which begins with what stands for the owner."""
        content = self._keyed_digest(folder, owner, mime_type, trust, sha256)
        return f"{self._owner_prefix(folder, owner)}{content[: _ID_LENGTH - OWNER_LENGTH]}"

    def _owner_prefix(self, folder: Path, owner: str) -> str:
        """Return the prefix of an owner's ids."""
        return self._keyed_digest(folder, owner)[:OWNER_LENGTH]

    def _keyed_digest(self, folder: Path, *message: str) -> str:
        """Return a digest in hexadecimal, by the key of the folder."""
        with self._lock:
            if not self._key:
                self._key = _key_of(folder / KEY_FILE)
        return hmac.digest(self._key, canonical(message), "sha256").hex()

    def _move_into_place(self, folder: Path, new: Path, artifact: Artifact) -> None:
        """Give the new file its name; where the same is there already, keep that one from now on.

        A file under its final name is complete: it is renamed, never written in place.
        """
        data = folder / f"{artifact.id}.data"
        is_new = not data.exists()
        if not is_new and data.stat().st_size == artifact.size:
            self._space.remove(new)
        else:
            new.replace(data)
        self._describe(folder, artifact)
        for kept in (data, data.with_suffix(".json")):
            os.utime(kept, (artifact.created, artifact.created))
        self._space.written(artifact.created, is_new=is_new)

    def _open_folder(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="toolcrib-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            elif not self._folder.exists():
                make_private_folder(self._folder)
            return self._folder

    def _recent(self, owner: str, limit: int) -> list[Artifact]:
        if self._folder is None or not self._folder.exists():
            return []
        begin = self._owner_prefix(self._folder, owner)
        files: list[tuple[float, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.startswith(begin) and entry.name.endswith(".json"):
                    with suppress(OSError):
                        files.append((entry.stat().st_mtime, entry.name.removesuffix(".json")))
        kept: list[Artifact] = []
        for _, name in sorted(files, reverse=True):
            if len(kept) == limit:
                break
            with suppress(OSError, ValueError, ToolFailure):
                kept.append(self.find(name, owner))
        return kept

    def _describe(self, folder: Path, artifact: Artifact) -> None:
        part = folder / f"{artifact.id}.{secrets.token_hex(4)}.part"
        with _new_file(part) as target:
            target.write(json.dumps(asdict(artifact)).encode())
        part.replace(folder / f"{artifact.id}.json")


def _new_file(path: Path) -> BinaryIO:
    """Create a file of this user alone. Raises `OSError`."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb", buffering=1 << 20)


class _ReservingFile(RawIOBase):
    """A file that reserves space before it grows.

    Space is reserved before each write, so that an output without an end stops at its limit.
    """

    def __init__(self, file: BinaryIO, reserve: Callable[[int, int], None]) -> None:
        self._file = file
        self._reserve = reserve
        self._size = 0
        self._hash = hashlib.sha256()

    def digest(self) -> str:
        """Return the hexadecimal hash of the written bytes."""
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
    """Return the key of a folder, created by its first user. Raises `OSError`."""
    if not path.exists():
        new = path.with_name(f"{secrets.token_hex(8)}.part")
        with _new_file(new) as target:
            target.write(secrets.token_bytes(32))
        with suppress(FileExistsError):
            os.link(new, path)  # whole or not at all, and never over that of another process
        new.unlink()
    return path.read_bytes()
