"""File system nodes at one place: looked at, read, listed. Blocking; nothing is followed, nothing odd is opened.

Places are opened from the root on for each operation, so that nothing stays open between two calls, and what is checked
is what is opened.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Generator, Iterator
from io import FileIO
from pathlib import Path
from typing import Final, Literal

from ..core.workspace import OpenFile
from ..errors import ToolFailure
from .paths import Place, is_text
from .safe_paths import open_beneath, opened

Kind = Literal["file", "folder", "link", "other"]
_READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK
_PIECE_BYTES: Final = 1 << 20
_MESSAGE_BY_ERRNO: Final = {
    errno.ENOENT: ("not_found", "there is no {}"),
    errno.ENOTDIR: ("denied", "something on the way to {} is a link, or no folder"),
    errno.EISDIR: ("tool_error", "{} is a folder"),
    errno.EEXIST: ("tool_error", "{} is there already"),
    errno.ENOTEMPTY: ("tool_error", "{} is not empty"),
    errno.ELOOP: ("denied", "a link on the way to {} is not followed"),
    errno.EXDEV: ("denied", "{} leads outside of the workspace, or to another file system"),
    errno.EACCES: ("tool_error", "the system does not let us at {}"),
    errno.EPERM: ("tool_error", "the system does not let us at {}"),
    errno.ENAMETOOLONG: ("invalid_arguments", "the name {} is too long"),
}


@contextlib.contextmanager
def translated_errors(place: Place) -> Generator[None]:
    """Translate errors of the system into errors for the model."""
    try:
        yield
    except OSError as error:
        code, text = _MESSAGE_BY_ERRNO.get(error.errno or 0, ("tool_error", ""))
        message = text.format(place.shown) if text else f"{place.shown}: {error.strerror or type(error).__name__}"
        raise ToolFailure(code, message) from error


@contextlib.contextmanager
def opened_root(root: Path) -> Generator[int]:
    """Yield a descriptor of a root, which is declared and trusted. Raises `OSError`."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def folder_at(root: Path, steps: tuple[str, ...]) -> Generator[int]:
    """Give a descriptor of a folder below `root`. Raises `OSError`."""
    with opened_root(root) as top:
        if not steps:
            yield top
            return
        with opened(top, steps) as folder:
            yield folder


@contextlib.contextmanager
def parent_of(place: Place) -> Generator[int]:
    """Yield a descriptor of the parent folder of `place`, which must not be a root. Raises `OSError`."""
    with folder_at(place.root, place.steps[:-1]) as folder:
        yield folder


def look(place: Place) -> os.stat_result | None:
    """Return the status of `place`, of a link itself; None if missing. Raises `ToolFailure`."""
    with translated_errors(place):
        try:
            if not place.steps:
                with opened_root(place.root) as folder:
                    return os.fstat(folder)
            with parent_of(place) as folder:
                return os.stat(place.steps[-1], dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None


def kind_of(found: os.stat_result) -> Kind:
    """Return the common name of the kind."""
    if stat.S_ISREG(found.st_mode):
        return "file"
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    return "link" if stat.S_ISLNK(found.st_mode) else "other"


class NodeFile:
    """A regular file that was opened safely, read by offset. The owner closes it. Blocking; used from any thread.

    `read_at` gives no more than the file had when it was opened.
    """

    def __init__(self, place: Place, file: FileIO, found: os.stat_result) -> None:
        """Take the file over; `found` is its state."""
        self.size = found.st_size
        self.mode = stat.S_IMODE(found.st_mode) & 0o777
        self._place = place
        self._file = file

    def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on; nothing beyond the size that the file had when opened."""
        size = min(size, self.size - offset)
        pieces: list[bytes] = []
        with translated_errors(self._place):
            while size > 0 and (piece := os.pread(self._file.fileno(), size, offset)):
                pieces.append(piece)
                offset, size = offset + len(piece), size - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_all(self, limit: int) -> bytes:
        """Return the whole file; raises `ToolFailure("too_large")` if it has grown beyond `limit`."""
        with translated_errors(self._place):
            pieces: list[bytes] = []
            size = 0
            while piece := self._file.read(_PIECE_BYTES):
                size += len(piece)
                if size > limit:
                    raise _too_large(self._place, size, limit)
                pieces.append(piece)
            return b"".join(pieces)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def digest_of_content(content: bytes) -> str:
    """Return the SHA-256 of a content, in hexadecimal digits: the state of a file that holds it."""
    return hashlib.sha256(content).hexdigest()


def digest_of_file(file: OpenFile) -> str:
    """Return the SHA-256 of the content, piece by piece, in hexadecimal digits."""
    digest = hashlib.sha256()
    for offset in range(0, file.size, _PIECE_BYTES):
        digest.update(file.read_at(offset, _PIECE_BYTES))
    return digest.hexdigest()


def open_file(place: Place, limit: int, *, many_names: bool) -> NodeFile:
    """Open a regular file to read it.

    `many_names` permits a file with a second name (a hard link). Raises `ToolFailure`: `tool_error` for a missing path
    or a folder, `denied` for a link or a special file, `too_large` beyond `limit` bytes.

    Looked at twice: before, so that opening a pipe or a device has no effect, and after, on the descriptor itself.
    """
    with translated_errors(place):
        if not place.steps:
            raise IsADirectoryError(errno.EISDIR, "")
        with parent_of(place) as folder:
            name = place.steps[-1]
            _must_be_file(place, os.stat(name, dir_fd=folder, follow_symlinks=False), many_names=many_names)
            file = FileIO(open_beneath(folder, (name,), _READ_FLAGS))
        try:
            found = os.fstat(file.fileno())  # the opened file, even if its name now belongs to another
            _must_be_file(place, found, many_names=many_names)
            if found.st_size > limit:
                raise _too_large(place, found.st_size, limit)
        except BaseException:
            file.close()
            raise
        return NodeFile(place, file, found)


def read_file(place: Place, limit: int, *, many_names: bool = False) -> tuple[bytes, int]:
    """Return the content and the mode of a regular file. Raises `ToolFailure` as `open_file` does."""
    with contextlib.closing(open_file(place, limit, many_names=many_names)) as file:
        return file.read_all(limit), file.mode


def digest_at(place: Place, limit: int) -> str:
    """Return the SHA-256 of a regular file, with any number of names. Raises `ToolFailure` as `open_file` does."""
    with contextlib.closing(open_file(place, limit, many_names=True)) as file:
        return digest_of_file(file)


def scan(root: Path, steps: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield name and status of each entry of a folder, by name, without names that a path cannot express.

    Raises `OSError`.
    """
    with folder_at(root, steps) as folder, os.scandir(folder) as entries:
        for entry in sorted((entry for entry in entries if is_text(entry.name)), key=lambda entry: entry.name):
            with contextlib.suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False)


def _must_be_file(place: Place, found: os.stat_result, *, many_names: bool) -> None:
    kind = kind_of(found)
    if kind == "folder":
        raise IsADirectoryError(errno.EISDIR, "")
    if kind == "link":
        raise ToolFailure("denied", f"{place.shown} is a link, and links are not followed", hint="name its target")
    if kind == "other":
        raise ToolFailure("denied", f"{place.shown} is not a regular file but a device, a pipe or a socket")
    if found.st_nlink > 1 and not many_names:
        raise ToolFailure(
            "denied",
            f"{place.shown} has {found.st_nlink} names (hard links): one of them may lie outside of the workspace",
            hint="copy it, or ask the user to name its folder in the setting workspace.hard_links",
        )


def _too_large(place: Place, size: int, limit: int) -> ToolFailure:
    return ToolFailure(
        "too_large", f"{place.shown} has {size:,} bytes or more, {limit:,} may be read", hint="read a part of it"
    )
