"""What is the same around every command, whatever holds it: its words before it, what it left behind after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio import to_thread

from ..core.sandbox import Command
from ..errors import ToolFailure
from .leftovers import is_harmless
from .process import Process
from .protected_paths import Guarded, Repositories, left_in, open_again, put_aside, put_back

__all__ = ["Brought", "Comparing", "check", "compare", "compared", "tidy"]

Brought = Callable[[Path, Mapping[Path, Sequence[str]], int], Awaitable[bool]]
"""Answers for a file, the workspace's own repositories with their commits, and the time at which the command began."""

_LONGEST: Final = 128 * 1024
"""Bytes with the NUL at their end that Linux takes in one argument (MAX_ARG_STRLEN)."""
_TIDY: Final = 2.0
"""Seconds between sweeps for names that a command may not create."""


class Comparing(Protocol):
    """What a sandbox knows of files that a command may leave behind."""

    @property
    def repositories(self) -> Repositories:
        """Repositories below the folders of commands."""
        ...

    @property
    def is_written(self) -> Callable[[Path], bool]:
        """Whether a file tool wrote a file meanwhile."""
        ...

    @property
    def brought(self) -> Brought | None:
        """Whether git brought a file from a commit; without it every new file is the command's own."""
        ...


async def compare(sandbox: Comparing, guarded: Guarded, began: int, moved: list[str], running: Process | None) -> None:
    """Put aside what the command left behind, and tell `running` of it and of the programs that it changed."""
    repositories = sandbox.repositories
    await to_thread.run_sync(open_again, guarded)
    moved += await to_thread.run_sync(put_aside, guarded)
    left = await to_thread.run_sync(left_in, guarded, repositories)
    files = [path for path in left.files if not is_harmless(path) and not sandbox.is_written(path)]
    if sandbox.brought is not None:
        brought = [
            path
            for path in files
            if not repositories.kept.is_refused(path) and await sandbox.brought(path, guarded.mounted, began)
        ]
        files = [path for path in files if path not in brought]
    moved += (*left.aside, *put_back(guarded, repositories, files))
    if running is not None:
        running.aside, running.programs, running.unseen = tuple(sorted(moved)), left.programs, left.unseen


async def compared(sandbox: Comparing, guarded: Guarded, began: int, running: Process) -> Sequence[str]:
    """Put aside what a command has left behind that goes on; return the new names."""
    await compare(sandbox, guarded, began, [], running)
    found, running.aside = running.aside, ()
    return found


async def tidy(guarded: Guarded, moved: list[str]) -> None:
    """Rename, while a command runs, names that only an attacker creates; the new names are added to `moved`.

    Other forbidden names wait until the command ends: the user may create a `.vscode` meanwhile, and its owner cannot
    be determined.
    """
    made = replace(guarded, absent=tuple(path for path in guarded.absent if path.name == "commondir"), placed={})
    while made.absent:
        await anyio.sleep(_TIDY)
        moved += await to_thread.run_sync(put_aside, made)


def check(command: Command) -> None:
    """Raise `ToolFailure` for a command that no sandbox runs: outside of its folders, or with words that cannot be."""
    if not any(command.cwd.is_relative_to(folder) for folder in command.folders):
        raise ToolFailure("denied", f"{command.cwd} is outside the folders that commands may work in")
    if any("\0" in word for word in (*command.argv, *command.environment.values())):
        raise ToolFailure("invalid_arguments", "no program takes a NUL character: leave it out")
    if any(len(word.encode("utf-8", "replace")) >= _LONGEST for word in command.argv):
        raise ToolFailure("too_large", "a program takes less than 128 KiB in one argument", hint="put it into a file")
