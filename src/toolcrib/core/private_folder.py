"""Folders that only their user may enter, under any umask."""

from __future__ import annotations

from pathlib import Path

__all__ = ["make_private_folder"]


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, each with mode 0700; what exists stays as it is. Raises `OSError`.

    `Path.mkdir` gives its mode to the last folder alone: with a umask of 0 anyone could write to the parents.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
