"""The folder of a command for its home and temporary files, where the sandbox has none of its own."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from .leftovers import reopen

FOLDER_PREFIX: Final = "toolcrib-command-"
"""Begins the names of these folders."""


def made_folder() -> Path:
    """Make the folder of a command."""
    return Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)).resolve()


def remove_folder(folder: Path) -> None:
    """Remove the folder of a command, with folders in it without access, or that are thousands deep.

    Each folder is moved up first, so that no path grows long.

    Blocks, and raises nothing: what cannot be removed stays in the folder for temporary files.
    """
    waiting = [str(folder)]
    while waiting:
        place = waiting.pop()
        reopen(place)
        with suppress(OSError), os.scandir(place) as entries:
            for entry in list(entries):
                with suppress(OSError):
                    waiting += _remove(entry, folder)
            if place != str(folder):
                os.rmdir(place)
    with suppress(OSError):
        os.rmdir(folder)


def _remove(entry: os.DirEntry[str], folder: Path) -> list[str]:
    """Remove an entry that is not a folder; move one that is directly into `folder`, and return its path there."""
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.path)
        return []
    reopen(entry.path)
    moved = f"{folder}/{secrets.token_hex()}"
    os.rename(entry.path, moved)
    return [moved]
