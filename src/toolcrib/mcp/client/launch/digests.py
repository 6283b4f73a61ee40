"""Pins of single files, and of the program of a command."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .words import RUNNERS

MISSING: Final = "missing"
"""The pin of a program, a tree of packages or a build output that is not there."""
_PROJECT: Final = ".toolcrib"
COMMAND: Final = "command"
"""Name of the pin of the program."""


def project_root(here: Path) -> Path:
    """Return the folder of the project that `here` is in: the nearest one with a configuration of ours."""
    return next((folder for folder in (here, *here.parents) if (folder / _PROJECT).is_dir()), here)


def program_pin(file: Path, name: str, folders: Iterable[Path]) -> str:
    """Return the pin of a program: that of an interpreter outside of `folders` is its name."""
    program = file.resolve()
    is_outside = not any(program.is_relative_to(folder.resolve()) for folder in folders)
    if is_outside and RUNNERS.fullmatch(program.name):
        return f"runner {name}"
    return file_digest(program) or MISSING


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a regular file, links followed; empty if there is none."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return "unreadable"
