"""File contents under their digests, stored once for all waypoints. Blocking: used in threads."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from toolcrib.plugin import ToolFailure

__all__ = ["Blobs", "Manifest"]

Manifest = Mapping[str, tuple[str, int]]
"""Path → digest and bytes of what was there."""

_MANIFEST: Final = TypeAdapter[dict[str, tuple[str, int]]](dict[str, tuple[str, int]])
_YOUNG: Final = 3600.0
"""Seconds that a content is left alone after it was wanted last: a waypoint that is being saved may need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blobs:
    """Contents and manifests of the waypoints of one owner and workspace. Holds no open files."""

    folder: Path

    def put(self, content: bytes) -> str:
        """Keep a content; return its digest."""
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        if path.exists():
            os.utime(path)
        else:
            _write(path, zlib.compress(content, 3))
        return digest

    def get(self, digest: str) -> bytes:
        """Return a content. Raises `ToolFailure("storage")` for one that is gone or is not what it was."""
        try:
            content = zlib.decompress(self._path(digest).read_bytes())
        except (OSError, zlib.error) as error:
            raise _broken(digest) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise _broken(digest)
        return content

    def write_list(self, number: int, manifest: Manifest) -> None:
        """Keep what a waypoint holds."""
        _write(self._list(number), zlib.compress(_MANIFEST.dump_json(dict(manifest)), 3))

    def read_list(self, number: int) -> Manifest:
        """Return what a waypoint holds. Raises `ToolFailure("storage")` where that is gone."""
        try:
            return _MANIFEST.validate_json(zlib.decompress(self._list(number).read_bytes()))
        except (OSError, zlib.error, ValidationError) as error:
            raise _broken("the list of its files") from error

    def sweep(self, numbers: Collection[int]) -> None:
        """Delete contents that no waypoint refers to and that were not used for an hour.

        Nothing goes where one of their lists cannot be read: it is not known then what that one holds.
        """
        try:
            wanted = {digest for number in numbers for digest, _ in self.read_list(number).values()}
        except ToolFailure:
            return
        lists = {self._list(number).name for number in numbers}
        oldest = time.time() - _YOUNG
        for path in self.folder.glob("*/*"):
            keep = path.name in lists if path.parent.name == "lists" else path.name in wanted
            with suppress(FileNotFoundError):  # another process sweeps, too
                if not keep and path.stat().st_mtime < oldest:
                    path.unlink()

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def _list(self, number: int) -> Path:
        return self.folder / "lists" / str(number)


def _write(path: Path, content: bytes) -> None:
    """Put a file there, at once or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with begun.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        begun.replace(path)
    except OSError as error:
        begun.unlink(missing_ok=True)
        raise ToolFailure("storage", f"the waypoint cannot be kept: {error.strerror or error}") from error


def _broken(what: Any) -> ToolFailure:
    return ToolFailure("storage", f"this waypoint cannot be read any more: {what} is damaged or gone")
