"""Commands and marked files (`tainted_files`): the content that a command reads, and the files that it changes.

A command that opens a marked file, by any name or program, has read it; when it prints anything afterwards, its
session is tainted, and the files that it changes are marked. Reads are seen by inotify on Linux, which does not tell
who opens a file: another session that reads it meanwhile counts as the command. Git commands that print no content do
not count, nor do programs that only read for an index (language servers).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

from anyio import CancelScope, to_thread

from ..core.patterns import regex
from ..core.sandbox import Command, Finished, Reach, Running, Sandbox
from ..core.taint import StoredTaint, TaintedFile
from .opened_files import OpenedFiles
from .tainted_files import FileMarks, file_time

_NAMES_ONLY_COMMAND: Final = regex(
    r"\s*git(?:\s+--no-pager)?\s+(?:add|ls-files|rm|status)"
    r"(?:[ \t]+(?:-[Abcfmnoqrsuz]+|-uall|-uno|--(?:all|branch|cached|exclude-standard|force|modified|others|quiet|short"
    r"|update)|--porcelain(?:=v[12])?|--untracked-files=(?:all|no|normal)|--|[\w./:@+,=*?~][\w./:@+,=*?~-]*))*\s*"
)
"""A command whose output has names of files and none of their content: no option that shows changes (`-v`, `-p`)."""
_NO_CONTENT_OPTIONS: Final = frozenset({"--cached", "--name-only", "--name-status", "--quiet", "--stat"})
"""Options of `git diff` for less than the content."""


class MarkedSandbox:
    """The protocol `Sandbox` for one call, which notes the marks of files that a command reads, and marks its own.

    Made for each call that asks for a sandbox.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        marks: FileMarks,
        taint: StoredTaint,
        session: str,
        mark_tainted: Callable[[str], None],
        is_read_before: Callable[[Path], bool],
    ) -> None:
        """`taint` is that of the call, `session` the key of its session; `mark_tainted` taints that after the call.

        `is_read_before`: whether the sandbox itself reads a file before a command, to be able to restore it.
        """
        self.kind: Final = sandbox.kind
        self._sandbox = sandbox
        self._marks = marks
        self._taint = taint
        self._session = session
        self._mark_tainted = mark_tainted
        self._is_read_before = is_read_before

    @property
    def network(self) -> bool | Reach:
        """Network access that the operator permits to the model's commands."""
        return self._sandbox.network

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left; then its files are marked, also where its caller was cancelled."""
        reads = await self._reads(command)
        began = file_time()
        end_writing = None if command.read_only else self._begin_writing(command, reads)
        try:
            async with self._sandbox.open(command) as running:
                if reads is not None:
                    reads.begin()
                yield _MarkedCommand(running, reads, self._note) if reads is not None else running
        finally:
            with CancelScope(shield=True):
                read = reads.find() if reads is not None else None
                source = self._taint.mark or (read.source if read else "")
                if source and not command.read_only:
                    await self._marks.put_changed(command.folders, began, source, self._session)
                if end_writing is not None:
                    end_writing()
                if reads is not None:
                    if read and _keeps_variables(command):
                        self._note(read)
                    await to_thread.run_sync(reads.close)

    def _begin_writing(self, command: Command, reads: _MarkedReads | None) -> Callable[[], None]:
        def source() -> str:
            read = reads.find() if reads is not None and not self._taint.mark else None
            return self._taint.mark or (read.source if read else "")

        return self._marks.begin_writing(command.folders, source, self._session)

    async def _reads(self, command: Command) -> _MarkedReads | None:
        if not _shows_content(command):
            return None
        await self._marks.refresh()
        if not self._marks.has_any:
            return None
        await self._marks.follow(command.folders)
        marked = await to_thread.run_sync(self._marks.places_in, command.folders)
        return _MarkedReads(marked, self._is_read_before) if marked else None

    def _note(self, mark: TaintedFile) -> None:
        if self._taint.is_over:
            self._mark_tainted(f"a command: {mark.reason}")
        else:
            self._taint.note_file(mark.source, mark.reason)


def _shows_content(command: Command) -> bool:
    if command.trusted:  # the tools for git
        return "diff" in command.argv and _NO_CONTENT_OPTIONS.isdisjoint(command.argv)
    # Not in a kept shell, where `git` may be a function; of other programs, no argument stands for the command.
    is_script = command.argv[1:-1] == ("-c",)
    return not command.read_only and not (is_script and _NAMES_ONLY_COMMAND.fullmatch(command.argv[2]))


def _keeps_variables(command: Command) -> bool:
    """Whether a later command gets variables of this one, which may hold what it read: that of a kept shell does."""
    return len(command.argv) > 3 and command.argv[1] == "-c"


class _MarkedReads:
    """The marked files that a command may read, and the first one that it did."""

    def __init__(self, marked: dict[Path, TaintedFile], is_read_before: Callable[[Path], bool]) -> None:
        """`marked` has files with their marks, and the folders of marks of folders."""
        self._marked = marked
        self._is_read_before = is_read_before
        self._opened = OpenedFiles(marked)
        self._waiting: set[Path] = set()
        self._found: TaintedFile | None = None

    def begin(self) -> None:
        """Forget what the sandbox has read itself: its processes have begun, and the command in them has not yet."""
        self._waiting = {path for path in self._opened.read() if not self._is_read_before(path)}

    def find(self) -> TaintedFile | None:
        """Return the mark of the first marked file that was opened, None so far without one."""
        if self._found is None:
            marks = (self._mark_of(path) for path in self._waiting | self._opened.read())
            self._waiting = set()
            self._found = next(filter(None, marks), None)
        return self._found

    def _mark_of(self, path: Path) -> TaintedFile | None:
        mark = self._marked.get(path)
        if mark is not None:
            return mark
        mark = self._marked.get(path.parent)
        try:
            is_later = mark is not None and os.lstat(path).st_ctime_ns > mark.noted * 1e9
        except OSError:  # the command has removed it: it was marked, as far as is known
            is_later = False
        return None if is_later else mark

    def close(self) -> None:
        """End the watch."""
        self._opened.close()


class _MarkedCommand:
    """The protocol `Running`, whose output is untrusted as soon as its command has opened a marked file."""

    def __init__(self, running: Running, reads: _MarkedReads, note: Callable[[TaintedFile], None]) -> None:
        self._running = running
        self._reads = reads
        self._note = note

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running.pid

    @property
    def aside(self) -> Sequence[str]:
        """Forbidden files that it created."""
        return self._running.aside

    @property
    def programs(self) -> Sequence[str]:
        """Folders of programs that it changed."""
        return self._running.programs

    @property
    def unseen(self) -> Sequence[str]:
        """Folders with more in them than is compared."""
        return self._running.unseen

    @property
    def refused(self) -> Sequence[str]:
        """Refused destinations."""
        return self._running.refused

    async def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | None:
        """Return the next output; it may show what was read before."""
        piece = await self._running.read()
        if piece is not None and (mark := self._reads.find()) is not None:
            self._note(mark)
        return piece

    async def write(self, data: bytes) -> None:
        """Send input."""
        await self._running.write(data)

    async def close_input(self) -> None:
        """Close the standard input."""
        await self._running.close_input()

    async def wait(self) -> Finished:
        """Return once it ended."""
        return await self._running.wait()

    async def compare(self) -> Sequence[str]:
        """Put aside what the command has left behind so far."""
        return await self._running.compare()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._running.signal(number)
