"""Manifest of a skill: its files, each with size and SHA-256, to which a user agrees and which a client verifies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from ...core.json import canonical
from ...workspace.safe_paths import files_beneath, read_beneath

__all__ = ["MAX_BYTES", "MAX_FILES", "FileStamp", "Manifest", "manifest_of"]

MAX_FILES: Final = 512
MAX_BYTES: Final = 16 << 20
"""Of one skill, all files together; with `MAX_FILES` the limits of the MCP skills extension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStamp:
    """State of one file at the time of the scan."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Every file of one skill by its path with `/`. Immutable."""

    files: Mapping[str, FileStamp]

    @cached_property
    def content(self) -> bytes:
        """The bytes that a confirmation is about: they change when any file is changed, added or removed."""
        return canonical({name: stamp.sha256 for name, stamp in self.files.items()})

    def holds(self, name: str, content: bytes) -> bool:
        """Whether `name` is unchanged."""
        stamp = self.files.get(name)
        return stamp is not None and stamp.sha256 == hashlib.sha256(content).hexdigest()


def manifest_of(folder: Path) -> Manifest:
    """Read every file of the skill in `folder`. Raises `ValueError` when there are too many, or too much of them."""
    files: dict[str, FileStamp] = {}
    total = 0
    for name in files_beneath(folder, limit=MAX_FILES + 1):
        content = read_beneath(folder, name, MAX_BYTES)
        total += len(content)
        if len(files) == MAX_FILES or total > MAX_BYTES:
            raise ValueError(f"has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
        files[name] = FileStamp(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    return Manifest(files=files)
