"""Checks around every command in any sandbox: of its words before it, of the files that it left behind after it.

    begin       guarded_in ──► `GuardedPaths`: what is there now
    tidy        beside the command, every 2 s: a `commondir`, which only an attacker creates, is renamed
    _compare    open_again ──► put_aside ──► left_in ──► put_back, at the end and for `Running.compare`
                                                │
                                                └── without files that start nothing, that a file tool wrote, or that
                                                    git brought from a commit

`Comparison` is for all commands of a sandbox, `Compared` for one of them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from ..core.awaited_files import AwaitedFiles
from ..core.sandbox import Command
from ..errors import ToolFailure
from .leftovers import is_harmless
from .process import Process
from .protected_paths import GuardedPaths, Repositories, guarded_in, left_in, open_again, put_aside, put_back

CommitCheck = Callable[[Path, Mapping[Path, Sequence[str]], int], Awaitable[bool]]
"""Answers for a file, the workspace's own repositories with their commits, and the time at which the command began."""

_MAX_ARGUMENT_BYTES: Final = 128 * 1024
"""Bytes with the NUL at their end that Linux takes in one argument (MAX_ARG_STRLEN)."""
_TIDY_SECONDS: Final = 2.0
"""Seconds between sweeps for names that a command may not create."""


def _never_written(path: Path) -> bool:
    """Answer that no file tool wrote a file."""
    return False


def _nothing() -> None:
    """End no trace."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Files that the commands of a sandbox may leave behind. One for all of its commands."""

    repositories: Repositories = field(default_factory=Repositories)
    """Repositories below the folders of commands."""
    is_written: Callable[[Path], bool] = _never_written
    """Whether a file tool wrote a file meanwhile. Called in a thread."""
    brought: CommitCheck | None = None
    """Whether git brought a file from a commit; without it every new file is the command's own."""
    awaited: AwaitedFiles | None = None
    """Missing files that servers of confirmed projects run."""

    async def begin(self, command: Command, *, mounts: bool = True) -> Compared:
        """Look at the folders of a command before it runs. `mounts`: guarded paths are read-only for it."""
        began = time.time_ns()
        look = partial(guarded_in, command.folders, self.repositories, trusted=command.trusted, mounts=mounts)
        guarded = await to_thread.run_sync(look)
        end_trace = _nothing
        if self.awaited is not None and not command.read_only and self.awaited.has_any:
            end_trace = await to_thread.run_sync(self.awaited.begin, command.folders)
        return Compared(comparison=self, guarded=guarded, began=began, end_trace=end_trace)


class Compared(Struct, kw_only=True):
    """The folders of one command: as they were before it, and what it has left in them.

    Made by `begin`; the sandbox calls `attach` once the process runs, and `finish` in any case.
    """

    comparison: Comparison
    guarded: GuardedPaths
    began: int
    """Time at which the command began, in nanoseconds."""
    end_trace: Callable[[], None]
    """Called when the command has ended."""
    _moved: list[str] = field(default_factory=list[str])
    _running: Process | None = None

    def attach(self, running: Process) -> None:
        """Report to `running` from now on what it has left behind."""
        self._running = running
        running.comparison = partial(self._so_far, running)

    async def tidy(self) -> None:
        """Rename, while the command runs, names that only an attacker creates.

        Other forbidden names wait until the command ends: the user may create a `.vscode` meanwhile, and its owner
        cannot be determined.
        """
        guarded = self.guarded
        absent = tuple(path for path in guarded.absent if path.name == "commondir")
        made = replace(guarded, absent=absent, placed={})
        while made.absent:
            await anyio.sleep(_TIDY_SECONDS)
            self._moved += await to_thread.run_sync(put_aside, made)

    async def finish(self) -> None:
        """Put aside what the command left behind, also where its caller was cancelled; report it to the process."""
        with anyio.CancelScope(shield=True):
            await self._compare(self._moved)
            self.end_trace()

    async def _so_far(self, running: Process) -> Sequence[str]:
        """Put aside what the command, which goes on, has left behind; return the new names.

        For a process that goes on, such as the kernel of a notebook. Each new name is reported once.
        """
        await self._compare([])
        found, running.aside = running.aside, ()
        return found

    async def _compare(self, moved: list[str]) -> None:
        guarded, comparison = self.guarded, self.comparison
        repositories = comparison.repositories
        await to_thread.run_sync(open_again, guarded)
        moved += await to_thread.run_sync(put_aside, guarded)
        left = await to_thread.run_sync(left_in, guarded, repositories)
        files = await to_thread.run_sync(self._unexplained, left.files)
        if comparison.brought is not None:
            brought = [
                path
                for path in files
                if not await to_thread.run_sync(repositories.kept.is_refused, path)
                and await comparison.brought(path, guarded.mounted, self.began)
            ]
            files = [path for path in files if path not in brought]
        moved += (*left.aside, *await to_thread.run_sync(put_back, guarded, repositories, files))
        if self._running is not None:
            self._running.aside, self._running.programs = tuple(sorted(moved)), left.programs
            self._running.unseen = left.unseen

    def _unexplained(self, files: Sequence[Path]) -> list[Path]:
        return [path for path in files if not is_harmless(path) and not self.comparison.is_written(path)]


def check(command: Command) -> None:
    """Raise `ToolFailure` for a command that no sandbox runs: outside of its folders, or with words that cannot be."""
    if not any(command.cwd.is_relative_to(folder) for folder in command.folders):
        raise ToolFailure("denied", f"{command.cwd} is outside the folders that commands may work in")
    if any("\0" in word for word in (*command.argv, *command.environment.values())):
        raise ToolFailure("invalid_arguments", "no program takes a NUL character: leave it out")
    if any(len(word.encode("utf-8", "replace")) >= _MAX_ARGUMENT_BYTES for word in command.argv):
        raise ToolFailure("too_large", "a program takes less than 128 KiB in one argument", hint="put it into a file")
