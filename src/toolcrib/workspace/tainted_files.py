"""Untrusted content in files: what a tainted session writes stays untrusted for every session that reads it.

A tool of a tainted session, or a command that it runs, marks the files that it writes (`core.taint`); what a
person approved is not marked. A call that reads a file with marked content has an untrusted result. The mark is of the
content: a copy or a renamed file in the same workspace keeps it, and it ends where a person or a clean session changes
the content.

File tools see the marks by `marked_workspace`, commands by `marked_sandbox`. Names, empty files and words without
blanks are not marked.

    tainted session writes    put ──► mark: root, path, digest      before the content is there
    tainted command writes    begin_writing … put_changed           files changed since, by their times
    any session reads         of_read ──► mark ──► the result is untrusted, and the session tainted

A mark is found by the digest of the content, so that it follows copies and renames; `_sizes` spares the hash for files
of another size. In memory for all marks of the store; `refresh` reads them again when another process changed them.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from ..core.awaited_files import AwaitedFiles
from ..core.taint import TaintedFile, TaintedFileStore, fold, top_of
from ..core.workspace import OpenFile
from ..errors import ToolFailure
from .batch import MAX_BYTES
from .disk import SKIPPED
from .nodes import digest_of_content, digest_of_file

_MAX_WORD_BYTES: Final = 64
"""Bytes without blanks between them that are a name or a number, and no sentence."""
_PROSE_SUFFIX: Final = ".md"
"""Suffix of files of which one word counts, too: instructions for agents, which prompts contain."""
_MAX_INLINE_BYTES: Final = 1 << 20
"""Bytes that are hashed on the event loop, in about 1 ms; more in a thread."""
_MAX_FILES_OF_COMMAND: Final = 2_000
"""Files of one command that are marked one by one; of more than that, the folders with most of them."""
_MAX_HASHED_BYTES: Final = 256 << 20
"""Bytes of a command's files that are hashed, in about 0.5 s."""
_MAX_FOLDERS: Final = 1_000
"""Folders below a marked one in which reads of commands are noticed."""
_MAX_CAUSE_LENGTH: Final = 300
"""Characters of a cause: one that names a file that names a session grows with each session."""
_COARSE_CLOCK: Final = 5
"""CLOCK_REALTIME_COARSE of Linux, from which files get their times: it lies some milliseconds behind the exact one."""
_logger = logging.getLogger(__name__)


class _Writer(Struct):
    """A command that may write untrusted content, while it runs."""

    folders: Sequence[Path]
    began: int
    source: Callable[[], str]
    session: str


class FileMarks:
    """The marks of a crib's store, held in memory. Belongs to its event loop.

    Methods that look at the disk do so in threads; the marks are changed on the event loop alone.
    """

    def __init__(self, store: TaintedFileStore, *, awaited: AwaitedFiles | None = None) -> None:
        """Read nothing yet. `awaited` are missing files that servers of confirmed projects run."""
        self.awaited = awaited
        self._store = store
        self._state: object = None
        self._is_read = False
        self._by_digest: dict[str, dict[tuple[str, str], TaintedFile]] = {}
        self._sizes: set[int] = set()
        self._folders: dict[tuple[str, str], TaintedFile] = {}
        self._sought: set[tuple[str, str, str]] = set()
        self._writers: dict[object, _Writer] = {}

    @property
    def has_any(self) -> bool:
        """Whether there is a mark, as far as was read."""
        return bool(self._by_digest or self._folders) or any(one.source() for one in self._writers.values())

    async def refresh(self) -> None:
        """Read the marks again if another process has changed them; while they cannot be read, the known ones hold."""
        if self._is_read and self._store.is_private:
            return
        try:
            state = await self._store.state()
            if state != self._state:
                self._hold(await self._store.all())
        except ToolFailure as failure:
            _logger.warning("the marks of files with untrusted content cannot be read: %s", failure)
            return
        self._state, self._is_read = state, True

    async def all(self) -> Sequence[TaintedFile]:
        """Return all marks. Raises `ToolFailure("storage")`."""
        return await self._store.all()

    async def of_read(self, path: Path, content: bytes) -> TaintedFile | None:
        """Return the mark of content that was read just now, with the marks of other processes; None without one.

        Content first, marks second: the other order could miss a mark that is stored in between.
        """
        await self.refresh()  # after the read: a mark is stored before its content is there
        return await self.of(path, content) if self.has_any else None

    async def of(self, path: Path, content: bytes) -> TaintedFile | None:
        """Return the mark of a file with that content; None without one."""
        if len(content) not in self._sizes:
            return self._of_folder(path)
        return self._of(path, await _digest(content))

    async def of_open(self, path: Path, file: OpenFile) -> TaintedFile | None:
        """Return the mark of an open file; None without one."""
        if file.size not in self._sizes:
            return self._of_folder(path)
        return self._of(path, await to_thread.run_sync(digest_of_file, file))

    def _of(self, path: Path, digest: str) -> TaintedFile | None:
        mark = next((mark for mark in self._with(digest) if path.is_relative_to(mark.root)), None)
        return mark or self._of_folder(path)

    def _with(self, digest: str) -> Sequence[TaintedFile]:
        return tuple(self._by_digest.get(digest, {}).values())

    def _of_folder(self, path: Path) -> TaintedFile | None:
        for mark in self._folders.values():
            if path.is_relative_to(mark.path):
                try:
                    changed = os.lstat(path).st_ctime_ns
                except OSError:
                    continue
                if changed <= mark.noted * 1e9:
                    return mark
        return self._of_writer(path) if self._writers else None

    def _of_writer(self, path: Path) -> TaintedFile | None:
        """Return a mark for a file that was changed since the beginning of a tainted command that still runs.

        A file of a command that still runs has no mark yet; its time tells that it was changed since.
        """
        for writer in self._writers.values():
            source = writer.source()
            if source and _is_in(path, writer.folders):
                with suppress(OSError):
                    if os.lstat(path).st_ctime_ns >= writer.began:
                        root = _root_of(path, writer.folders)
                        return TaintedFile(root=root, path=str(path), source=source, session=writer.session)
        return None

    def begin_writing(self, folders: Sequence[Path], source: Callable[[], str], session: str) -> Callable[[], None]:
        """Count what is changed below `folders` from now on as marked while `source` returns one; return the end."""
        token = object()
        self._writers[token] = _Writer(folders, file_time(), source, session)
        return lambda: self._writers.pop(token, None) and None

    async def follow(self, folders: Sequence[Path]) -> None:
        """Bring the marks below `folders` up to date: of running commands, and of content that was renamed by others.

        What is missing from its place is looked for once, by size and digest.

        Called before a command runs, which may read files by any name.
        """
        for writer in list(self._writers.values()):
            if (source := writer.source()) and any(one in writer.folders for one in folders):
                await self.put_changed(writer.folders, writer.began, source, writer.session)
        gone = await to_thread.run_sync(self._gone_from, folders)
        if gone:
            found = await to_thread.run_sync(_places_of, gone, folders)
            await self._put([replace(mark, noted=time.time()) for mark in found])

    def _gone_from(self, folders: Sequence[Path]) -> list[TaintedFile]:
        found: list[TaintedFile] = []
        for path, mark in self._files_in(folders):
            key = (mark.root, mark.path, mark.digest)
            if key not in self._sought and _size_at(path) != mark.size:
                self._sought.add(key)
                found.append(mark)
        return found

    def _files_in(self, folders: Sequence[Path]) -> Iterator[tuple[Path, TaintedFile]]:
        """Yield the marks of files below `folders`, with their paths. From a thread: others may change the marks."""
        for marks in list(self._by_digest.values()):
            for mark in list(marks.values()):
                if _is_in(path := Path(mark.path), folders):
                    yield path, mark

    def places_in(self, folders: Sequence[Path]) -> dict[Path, TaintedFile]:
        """Return the marks of files below `folders` that are there with the size of their content, by path.

        Of the mark of a folder, that folder and those in it. Looks at the disk: for a thread.
        """
        found = {path: mark for path, mark in self._files_in(folders) if _size_at(path) == mark.size}
        for mark in list(self._folders.values()):
            if _is_in(Path(mark.path), folders):
                tops = itertools.islice(os.walk(mark.path), _MAX_FOLDERS)
                found |= {Path(top): mark for top, _, _ in tops}
        return found

    async def put(self, contents: Mapping[Path, bytes], roots: Sequence[Path], source: str, session: str) -> None:
        """Mark contents that files are about to get. Without a `source` those keep their marks that have one elsewhere.

        Raises `ToolFailure("storage")`.
        """
        found: list[TaintedFile] = []
        for path, content in contents.items():
            if not source and len(content) not in self._sizes:
                continue
            if not _says_something(content) and path.suffix != _PROSE_SUFFIX:
                continue
            digest, root = await _digest(content), _root_of(path, roots)
            if source:
                mark = TaintedFile(root=root, path=str(path), digest=digest, source=source[:_MAX_CAUSE_LENGTH])
                found.append(replace(mark, size=len(content), session=session, noted=time.time()))
            elif known := self._with(digest):
                found.append(replace(known[0], root=root, path=str(path), noted=time.time()))
        await self._put(found)

    async def put_changed(self, roots: Sequence[Path], since: int, source: str, session: str) -> None:
        """Mark the files below `roots` that were changed since, in nanoseconds since 1970."""
        made = TaintedFile(root="", path="", source=source[:_MAX_CAUSE_LENGTH], session=session)
        found = await to_thread.run_sync(_changed, roots, since, made)
        now = time.time()
        await self._put([replace(mark, noted=now) for mark in found])

    async def copy(self, places: Mapping[Path, Path], contents: Mapping[Path, bytes], roots: Sequence[Path]) -> None:
        """Mark the contents that files are about to get from marked ones; `places` maps these to those.

        A content may differ from the marked one: it is merged with another. Raises `ToolFailure("storage")`.
        """
        await self.refresh()
        if not self.has_any:
            return
        found: list[TaintedFile] = []
        for source, target in places.items():
            digest = await to_thread.run_sync(digest_at, source)
            mark = self._of(source, digest) if digest else None
            if mark is not None and _says_something(content := contents[target]):
                made = replace(mark, root=_root_of(target, roots), path=str(target), digest=await _digest(content))
                found.append(replace(made, size=len(content), noted=time.time()))
        await self._put(found)

    async def keep_moved(self, source: Path, target: Path, roots: Sequence[Path]) -> None:
        """Let what was moved keep its marks: those of a folder, and those that do not hold in its new root."""
        covering = self._of_folder(target) or next(
            (mark for mark in self._folders.values() if source.is_relative_to(mark.path)), None
        )
        if covering is not None:
            mark = replace(covering, root=_root_of(target, roots), path=str(target), noted=time.time())
            await self._put([mark])
        if self._by_digest and _root_of(source, roots) != _root_of(target, roots):
            found = await to_thread.run_sync(_files_of, target)
            digests = {path: await to_thread.run_sync(digest_at, path) for path, _ in found}
            await self._put(
                [
                    replace(known[0], root=_root_of(path, roots), path=str(path), noted=time.time())
                    for path, digest in digests.items()
                    if (known := self._with(digest))
                ]
            )

    async def forget(self, marks: Sequence[TaintedFile]) -> None:
        """Remove marks: a person has looked at their content. Raises `ToolFailure("storage")`."""
        if marks:
            await self._store.remove(marks)
            await self._reread()

    async def forget_digests(self, digests: Iterable[str]) -> None:
        """Remove the marks of these contents, wherever they lie."""
        await self.refresh()
        await self.forget([mark for digest in digests for mark in self._with(digest)])

    async def _put(self, marks: Sequence[TaintedFile]) -> None:
        """Store marks; in memory they are added where no other process was in between, else all are read again."""
        if not marks:
            return
        before, after = await self._store.put(marks)
        if after is None or before != self._state or not self._is_read:
            await self._reread()
            return
        for mark in marks:
            self._add(mark)
        self._state = after

    async def _reread(self) -> None:
        state = await self._store.state()
        self._hold(await self._store.all())
        self._state, self._is_read = state, True

    def _hold(self, marks: Iterable[TaintedFile]) -> None:
        self._by_digest, self._sizes, self._folders = {}, set(), {}
        for mark in marks:
            self._add(mark)
        held = ((mark.root, mark.path, mark.digest) for known in self._by_digest.values() for mark in known.values())
        self._sought &= set(held)

    def _add(self, mark: TaintedFile) -> None:
        if mark.digest:
            self._by_digest.setdefault(mark.digest, {})[mark.root, mark.path] = mark
            self._sizes.add(mark.size)
        else:
            self._folders[mark.root, mark.path] = mark


def _says_something(content: bytes) -> bool:
    return len(content) > _MAX_WORD_BYTES or len(content.split(None, 1)) > 1


def file_time() -> int:
    """Return the time, in nanoseconds, that a file would get if it were changed now."""
    return time.clock_gettime_ns(_COARSE_CLOCK) if sys.platform == "linux" else time.time_ns()


def _root_of(path: Path, roots: Sequence[Path]) -> str:
    return str(next((root for root in roots if path.is_relative_to(root)), path.parent))


async def _digest(content: bytes) -> str:
    if len(content) > _MAX_INLINE_BYTES:
        return await to_thread.run_sync(digest_of_content, content)
    return digest_of_content(content)


def digest_at(path: Path) -> str:
    """Return the digest of a regular file; empty for one that is gone, or that says nothing."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            content = file.read(_MAX_WORD_BYTES + 1)
            if not content or not (_says_something(content) or path.suffix == _PROSE_SUFFIX):
                return ""
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _changed(roots: Sequence[Path], since: int, made: TaintedFile) -> list[TaintedFile]:
    """Return a mark for each file that was changed since; of too many, one for each folder with most of them."""
    found = [
        (replace(made, root=str(root), path=str(path), size=status.st_size))
        for root in roots
        for path, status in _files_of(root)
        if status.st_ctime_ns >= since and status.st_size <= MAX_BYTES
    ]
    most = _MAX_FILES_OF_COMMAND if sum(mark.size for mark in found) <= _MAX_HASHED_BYTES else 1
    folders = set(fold(((mark.root, mark.path) for mark in found), most))
    single = [mark for mark in found if top_of(mark.root, mark.path) not in folders]
    if len(single) > _MAX_FILES_OF_COMMAND:
        folders, single = {str(root) for root in roots}, []
    marks = [replace(made, root=_root_of(Path(top), roots), path=top) for top in sorted(folders)]
    return [*marks, *(replace(mark, digest=digest) for mark in single if (digest := digest_at(Path(mark.path))))]


def _is_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _size_at(path: Path) -> int:
    """Return the size of a file, -1 for one that is not there."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return -1


def _places_of(marks: Iterable[TaintedFile], roots: Sequence[Path]) -> list[TaintedFile]:
    """Return the marks at the places where their contents are now."""
    wanted = {mark.digest: mark for mark in marks}
    sizes = {mark.size for mark in wanted.values()}
    places = ((root, path) for root in roots for path, status in _files_of(root) if status.st_size in sizes)
    return [
        replace(wanted[digest], root=str(root), path=str(path))
        for root, path in places
        if (digest := digest_at(path)) in wanted
    ]


def _files_of(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files at and below a path, without those of version control and our own."""
    if top.is_file():
        yield top, os.lstat(top)
    for folder, inner, names in os.walk(top):
        inner[:] = [name for name in inner if name not in SKIPPED]
        for path in (Path(folder, name) for name in names):
            with suppress(OSError):  # it is gone meanwhile
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    yield path, status
