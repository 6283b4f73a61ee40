"""Rendezvous of a client's shim and the local daemon: a private directory, a socket, a lock, and a greeting.

Standard library and configuration only, because the shim loads it and has to be relaying after a few milliseconds.
POSIX only.

The lock marks a living daemon. The starter of a daemon takes the lock first and passes the open file to it, and the
daemon keeps it until its process ends, in any way: the kernel then releases it. So many shims that start together give
one daemon, and a lock that can be taken means that no daemon runs. At its end a daemon removes its files, at its start
those that killed ones left (`sweep`).

Greeting: the shim sends `Hello` as one line of JSON, the daemon answers `Welcome`; after that both sides of the socket
carry MCP, one message a line.

Trust: the directory is the user's alone, and on Linux both ends ask the kernel which user is at the other one. Nothing
else is proven: every process of the user may join.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import struct
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from ..core.files import make_private_folder
from ..errors import UsageError

if TYPE_CHECKING:  # the shim, which a client waits for, reads no settings where the daemon does
    from ..config.directories import Directories
    from ..config.settings import Settings

GREETING_BYTES: Final = 64 * 1024
"""A greeting that is longer is not one."""

_PATH_BYTES: Final = 100
"""Maximum length of `sun_path` on Linux (108) and macOS (104), the closing zero included."""

QUEUE_SECONDS: Final = 5
"""Seconds of the wait for a place in the queue of a listener that accepts nothing: else it has no end."""
_QUEUE_TIME: Final = struct.pack("ll", QUEUE_SECONDS, 0)
"""The same as `struct timeval`."""
_PEERCRED: Final = struct.Struct("3i")
"""Linux `struct ucred`: pid, uid, gid."""


class FullQueue(UsageError):
    """A daemon has accepted no connection for so long that no other one is taken."""


class Hello(NamedTuple):
    """Options of one client for its connection to the daemon."""

    key: str
    """The whole digest that the daemon was started for; the socket's name holds only its beginning."""
    version: str
    profile: str
    mode: str
    cwd: str
    pid: int
    way: str = "mcp"
    """Protocol: `mcp`, `desk` (MCP, with the permission prompt tool for Claude Code), or `hook` (one hook event).

    `status`, `stop` and `command` are requests of the command line (`daemon.control`).
    """
    session: str = ""
    """Names the conversation, which outlives the daemon. With it, each line begins with the id of its call."""

    def encode(self) -> bytes:
        """Return one line of JSON."""
        return write_line(self._asdict())

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Read what `encode` wrote; raises `ValueError` for anything else."""
        value = read_object(line)
        texts = {name: _text(value, name) for name in ("key", "version", "profile", "mode", "cwd", "way")}
        return cls(**texts, pid=_whole(value, "pid"), session=_text({"session": "", **value}, "session"))


class Welcome(NamedTuple):
    """The daemon's answer. An `error` ends the connection."""

    pid: int
    serves: str = ""
    """Summary of the daemon's contents for a person: `7 servers, 52 tools`."""
    error: str = ""
    store: str = ""
    """Store of the daemon's records: another daemon recognises them by the same store alone."""

    def encode(self) -> bytes:
        """Return one line of JSON."""
        return write_line(self._asdict())

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Read what `encode` wrote; raises `ValueError` for anything else."""
        value = {"store": "", **read_object(line)}
        return cls(pid=_whole(value, "pid"), **{name: _text(value, name) for name in ("serves", "error", "store")})


class Order(NamedTuple):
    """Order to a new daemon, on its standard input: configuration, directory and idle time.

    The environment is not in it: the daemon inherits the shim's.
    """

    directory: str
    """Empty, as `key` and `log`, when the shim has not read the configuration: the daemon finds them, and its lock."""
    key: str
    files: tuple[str, ...]
    overrides: Mapping[str, Any]
    """JSON: the command-line options that change the served tools."""
    project: str
    """The directory that project files and relative paths start from."""
    idle_seconds: float | None
    """Seconds without a client after which the daemon ends; None: it then rests for `daemon.idle` of the settings."""
    log: str
    """The file that the daemon writes its log to; its directory exists."""
    log_level: str
    lock: int
    """File descriptor of the lock that the daemon keeps."""
    report: int
    """File descriptor on which the daemon writes `ready`, or the reason of its failure; to a shim without a key, its
    `DaemonPlace`, or nothing."""
    module: str = "toolcrib.daemon.daemon"
    """The module that the daemon's process runs."""

    def encode(self) -> bytes:
        """Return one line of JSON."""
        return write_line({**self._asdict(), "overrides": dict(self.overrides)})

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Read what `encode` wrote; raises `ValueError` or `TypeError` for anything else."""
        value = read_object(line)
        value["files"] = tuple(value["files"])
        return cls(**value)


class DaemonPlace(NamedTuple):
    """Part of the configuration that a shim needs to join its daemon."""

    directory: str
    key: str
    log: str
    version: str
    profile: str
    mode: str

    @classmethod
    def of(cls, settings: Settings, endpoint: DaemonEndpoint) -> Self:
        """Raises `UsageError` without a directory for the log that only this user can access."""
        from importlib.metadata import version  # the shim, which a client waits for, does not need it

        return cls(
            directory=str(endpoint.directory),
            key=endpoint.key,
            log=str(private_directory(settings.directories.state) / f"daemon-{endpoint.name}.log"),
            version=version("toolcrib"),
            profile=settings.disclosure.profile,
            mode=settings.policy.mode,
        )

    def encode(self) -> bytes:
        """Return one line of JSON."""
        return write_line(self._asdict())

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Read what `encode` wrote; raises `ValueError` for anything else."""
        value = read_object(line)
        return cls(**{name: _text(value, name) for name in cls._fields})


class DaemonEndpoint(NamedTuple):
    """The place of one configuration's daemon. Two processes with the same directory and key meet there."""

    directory: Path
    key: str
    """Hexadecimal digest of every setting that changes the served tools."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the rendezvous for `settings`; its directory is made if missing.

        Profile and mode are not part of the key: every client chooses its own when it joins. Raises `UsageError`
        without a directory that only this user can access.
        """
        key = settings.with_values(profile="", mode="").digest()
        return cls(directory=private_directory(settings.directories.runtime), key=key)

    @property
    def name(self) -> str:
        """The beginning of the key (64 bits): a socket's path has little room (104 bytes on macOS)."""
        return self.key[:16]

    @property
    def socket(self) -> Path:
        """Socket of the daemon."""
        return self.directory / f"{self.name}.sock"

    def connect(self) -> socket.socket | None:
        """Return a connection to the daemon, None if no daemon listens.

        Raises `UsageError` when it is not ours or cannot be reached.
        """
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _QUEUE_TIME)
        try:
            with self.address() as address:
                link.connect(address)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bytes(len(_QUEUE_TIME)))
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
            link.close()
            return None
        except BlockingIOError:
            link.close()
            raise FullQueue(
                f"the daemon at {self.socket} takes no connection: `toolcrib daemon stop` ends it"
            ) from None
        except OSError as error:
            link.close()
            raise UsageError(f"{self.socket} cannot be used: {error.strerror}") from None
        if not is_same_user(link):
            link.close()
            raise UsageError(f"{self.socket} belongs to another user's process: remove it and start again")
        return link

    def lock(self) -> int | None:
        """Return a descriptor that holds the lock, None when a daemon lives or starts.

        Closing it lets go and leaves the file; `release` removes it. Raises `UsageError` where there can be none.
        """
        while True:
            try:
                lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise UsageError(f"{self._lock_file} cannot be used: {error.strerror}") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return None
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)  # its owner removed it in between: the lock is another file now

    def release(self, lock: int) -> None:
        """Remove the lock's file and let go: no daemon is left here that it marks."""
        self._lock_file.unlink(missing_ok=True)
        os.close(lock)

    def holder(self) -> int:
        """Return the process that has the lock's file open, as a daemon does; 0 where that cannot be seen."""
        for opened in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if opened.readlink() == self._lock_file:
                    return int(opened.parts[2])
        return 0

    @property
    def _lock_file(self) -> Path:
        return self.directory / f"{self.name}.lock"

    @contextlib.contextmanager
    def address(self) -> Generator[str]:
        """Give the socket's path in a form that fits a socket address.

        A long one is named by a descriptor of its directory. Outside of Linux the process changes its directory for
        that moment, which its threads see.
        """
        if len(os.fsencode(self.socket)) <= _PATH_BYTES:
            yield str(self.socket)
        elif sys.platform == "linux":
            folder = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield f"/proc/self/fd/{folder}/{self.socket.name}"
            finally:
                os.close(folder)
        else:
            with contextlib.chdir(self.directory):
                yield self.socket.name


def sweep(directory: Path) -> None:
    """Remove the sockets and locks that killed daemons left in `directory`."""
    for path in directory.glob("*.lock"):
        left = DaemonEndpoint(directory=directory, key=path.stem)
        with contextlib.suppress(OSError, UsageError):  # a file of another user, or nothing that we make
            lock = left.lock()
            if lock is not None:
                left.socket.unlink(missing_ok=True)
                left.release(lock)


def open_log(path: str) -> int:
    """Return a descriptor for the end of a log."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


def private_directory(path: Path) -> Path:
    """Make sure that `path` is a directory that only this user may enter; raises `UsageError` when it cannot be."""
    try:
        make_private_folder(path)
        found = path.lstat()
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path} is not a directory: remove it, or set XDG_RUNTIME_DIR to a directory of yours")
    if found.st_uid != os.getuid():
        raise UsageError(f"{path} belongs to another user: set XDG_RUNTIME_DIR to a directory of yours")
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return path


def check_places(directories: Directories) -> None:
    """Raise `UsageError` where this user cannot have a daemon: there is no place for its socket, or for its log."""
    private_directory(directories.runtime)
    private_directory(directories.state)


def is_same_user(link: socket.socket) -> bool:
    """Return whether the process at the other end runs as this user.

    Where the kernel does not know, the directory decides.
    """
    if not sys.platform.startswith("linux"):
        return True
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    return bool(_PEERCRED.unpack(credentials)[1] == os.getuid())


def process_of(link: socket.socket) -> int:
    """Return the id of the process that listens at the other end; 0 where the kernel does not tell."""
    if not sys.platform.startswith("linux"):
        return 0
    return int(_PEERCRED.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size))[0])


def receive_line(link: socket.socket) -> bytes:
    """Return the first line from `link`, byte by byte so that nothing behind it is taken; empty when it was closed."""
    line = bytearray()
    while len(line) < GREETING_BYTES:
        part = link.recv(1)
        if part in (b"", b"\n"):
            return bytes(line) if part else b""
        line += part
    raise ValueError("the greeting has no end")


def write_line(value: Any, *, is_utf8: bool = False) -> bytes:
    """Return `value` as one line of JSON: paths that are not UTF-8 come back from `read_line` as they are.

    With `is_utf8`, for readers that take none, they raise `UnicodeEncodeError`.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=not is_utf8).encode() + b"\n"


def read_line(line: bytes) -> Any:
    """Return the JSON value of a line; raises `ValueError` for anything else."""
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("the line is nested too deeply") from None


def read_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; raises `ValueError` for anything else."""
    value = read_line(line)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return cast("dict[str, Any]", value)


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise ValueError(f"the greeting has no {name}")
    return text


def _whole(value: Mapping[str, Any], name: str) -> int:
    number = value.get(name)
    if not isinstance(number, int):
        raise ValueError(f"the greeting has no {name}")
    return number
