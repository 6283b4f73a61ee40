"""Calls that a command under Landlock may not make itself, which its supervisor makes in its place.

They name a file without opening it, and Landlock does not restrict them: modes, owners, times, watches. The supervisor
opens the file itself and acts on what it opened, inside the writable folders alone: what the command changes meanwhile
has no effect. An owner can only stay what it is.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
"""SECCOMP_IOCTL_NOTIF_RECV, _SEND and _ID_VALID."""
_SET_FLAGS, _IN_TURN = 0x40082104, 1
"""SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: caller and supervisor take turns on one core."""
_HERE, _EMPTY, _UNFOLLOWED, _IN_UNFOLLOWED = -100, 0x1000, 0x100, 0x02000000
"""AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, IN_DONT_FOLLOW."""
_GET_DESCRIPTOR, _OF_THREAD = 438, os.O_EXCL
"""pidfd_getfd; PIDFD_THREAD."""
_MAX_PATH_BYTES = 4096
_PAGE_BYTES = 4096
_MAX_ATTEMPTS = 32
_UNCHANGED = 0xFFFFFFFF
_NONE = -1
_ARGUMENT_POSITIONS = {
    "chmod": (_NONE, 0, _NONE, 1),
    "fchmod": (0, _NONE, _NONE, 1),
    "fchmodat": (0, 1, _NONE, 2),
    "fchmodat2": (0, 1, 3, 2),
    "chown": (_NONE, 0, _NONE, 1),
    "lchown": (_NONE, 0, _NONE, 1),
    "fchown": (0, _NONE, _NONE, 1),
    "fchownat": (0, 1, 4, 2),
    "utimensat": (0, 1, 3, 2),
    "inotify_add_watch": (_NONE, 1, _NONE, 2),
}
"""The places of their arguments: descriptor of a folder or file, path, flags, and what is to be set."""


class Answers:
    """Answers the calls that come over a listener, for files in some folders."""

    def __init__(self, listener: int, calls: dict[int, str], folders: list[str]) -> None:
        """`calls` are the names by number."""
        self._listener = listener
        self._calls = calls
        if listener >= 0:
            fcntl.ioctl(listener, _SET_FLAGS, _IN_TURN)
        self._folders = [(folder, f"{folder.rstrip('/')}/") for folder in folders]

    def answer(self) -> None:
        """Make one call, and answer it.

        A call that fails gets the error as if the kernel had refused it.
        """
        asked = bytearray(80)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, asked)
        except OSError:  # its process has ended
            return
        key, process, _, number, _, _, *words = struct.unpack("=QIIiIQ6Q", asked)
        value, error = 0, 0
        try:
            value = self._made(self._calls[number], key, process, words)
        except OSError as failure:
            error = failure.errno or errno.EPERM
        except Exception:  # noqa: BLE001 - the supervisor goes on with any arguments of the command
            error = errno.EINVAL
        try:
            fcntl.ioctl(self._listener, _SEND, struct.pack("=QqiI", key, value, -error, 0))
        except OSError:  # its process has ended
            return

    def _made(self, name: str, key: int, process: int, words: list[int]) -> int:
        """Make a call; return its value.

        In this order: arguments are read from the memory of the caller, the call is checked to be still waiting, the
        file is opened, its real path compared with the folders, and the change made on what was opened. No step looks
        at a name again.
        """
        folder, path, flags, given = _ARGUMENT_POSITIONS[name]
        bits = words[flags] if flags != _NONE else 0
        if name == "lchown" or (name == "inotify_add_watch" and words[given] & _IN_UNFOLLOWED):
            bits = _UNFOLLOWED
        is_named = path != _NONE and not (name == "utimensat" and not words[path])
        text = _text(process, words[path]) if is_named else b""
        if is_named and not text and not bits & _EMPTY:
            raise OSError(errno.ENOENT, "no path")
        place = ctypes.c_int32(words[folder] & 0xFFFFFFFF).value if folder != _NONE else _HERE
        times = _memory(process, words[given], _MAX_ATTEMPTS) if name == "utimensat" and words[given] else None
        base = _base(process, place, text)
        try:
            fcntl.ioctl(
                self._listener, _IS_VALID, struct.pack("=Q", key)
            )  # else these may be of another process by now
            follow = os.O_NOFOLLOW if bits & _UNFOLLOWED else 0
            file = os.open(text, os.O_PATH | os.O_CLOEXEC | follow, dir_fd=base) if text else os.dup(base)
        finally:
            os.close(base)
        try:
            link = f"/proc/self/fd/{file}"
            real = os.readlink(link)
            if not any(real == folder or real.startswith(below) for folder, below in self._folders):
                raise OSError(errno.EPERM, "outside of the writable folders")
            if name == "utimensat":
                return _checked(_LIBC.utimensat(_HERE, link.encode(), times, 0))
            if name == "inotify_add_watch":
                return self._watched(key, process, words, link)
            if "chown" in name:
                return _kept(link, words[given], words[given + 1])
            os.chmod(link, words[given] & 0o7777)
            return 0
        finally:
            os.close(file)

    def _watched(self, key: int, process: int, words: list[int], link: str) -> int:
        """Add a watch to a descriptor of the command; return its number."""
        handle = os.pidfd_open(process, _OF_THREAD)
        try:
            fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", key))
            theirs = _checked(_LIBC.syscall(_GET_DESCRIPTOR, handle, words[0] & 0x7FFFFFFF, 0))
        finally:
            os.close(handle)
        try:
            mask = ctypes.c_uint32(words[2] & 0xFFFFFFFF & ~_IN_UNFOLLOWED)
            return _checked(_LIBC.inotify_add_watch(theirs, link.encode(), mask))
        finally:
            os.close(theirs)


def _base(process: int, place: int, text: bytes) -> int:
    """Return a descriptor of the folder that a path of a process begins in, of the file itself without a path."""
    if text.startswith(b"/"):
        return os.open("/", os.O_PATH | os.O_CLOEXEC)
    if place == _HERE:
        return os.open(f"/proc/{process}/cwd", os.O_PATH | os.O_CLOEXEC)
    try:
        return os.open(f"/proc/{process}/fd/{place}", os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OSError(errno.EBADF, "no such descriptor") from None


def _kept(link: str, user: int, group: int) -> int:
    """Return 0 where a file has this owner and group already."""
    found = os.stat(link)
    wanted = (user & _UNCHANGED, group & _UNCHANGED)
    if all(one in (_UNCHANGED, has) for one, has in zip(wanted, (found.st_uid, found.st_gid), strict=True)):
        return 0
    raise OSError(errno.EPERM, "another owner")


def _text(process: int, address: int) -> bytes:
    """Return a path in the memory of a process; one about the process itself without `self`, which would be us."""
    text = b""
    while b"\0" not in text:
        if len(text) > _MAX_PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, "the path is too long")
        text += _memory(process, address + len(text), _PAGE_BYTES - (address + len(text)) % _PAGE_BYTES)
    text = text.partition(b"\0")[0]
    for own in (b"/proc/self/", b"/proc/thread-self/"):
        if text.startswith(own):
            return b"/proc/%d/" % process + text.removeprefix(own)
    return b"/proc/%d/fd/" % process + text.removeprefix(b"/dev/fd/") if text.startswith(b"/dev/fd/") else text


def _memory(process: int, address: int, size: int) -> bytes:
    """Return a part of the memory of a process."""
    memory = os.open(f"/proc/{process}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.pread(memory, size, address)
    except (OSError, OverflowError):
        found = b""
    finally:
        os.close(memory)
    if not found:  # nothing is there, or the process has just ended
        raise OSError(errno.EFAULT, "no memory")
    return found


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
