"""Requests of the command line to running daemons, of any configuration and version: status, end, a whole command.

A request is a `Hello`. With the `way` `status` or `stop` one JSON object comes back. With `command` a line of JSON
follows, what was typed and where, and lines of JSON come back as the command prints them; where one asks for input, a
line of JSON answers it (`CommandLink`). POSIX only.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from ..core.processes import is_alive
from ..errors import UsageError
from .rendezvous import DaemonEndpoint, Hello, Welcome, process_of, read_line, read_object, write_line

__all__ = [
    "COMMAND",
    "WAYS",
    "CommandLink",
    "DaemonClient",
    "DaemonServer",
    "DaemonStatus",
    "HungDaemon",
    "Way",
    "command_link",
    "end",
    "endpoints",
    "kill",
    "status_of",
]

Way = Literal["status", "stop"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)
COMMAND: Final = "command"
"""The way of a request that is a whole command; its answer is the business of the command line."""

_ANSWER_SECONDS: Final = 5.0
_ANSWER_BYTES: Final = 4 * 1024 * 1024
_RETRY_SECONDS: Final = 0.02
_CHUNK: Final = 64 * 1024


class HungDaemon(UsageError):
    """A daemon listens and does not answer. `pid` is 0 where the kernel does not tell it."""

    def __init__(self, endpoint: DaemonEndpoint, pid: int, seconds: float) -> None:
        process = f" (process {pid})" if pid else ""
        where, limit = f"the daemon at {endpoint.socket}{process}", f"{seconds:g} s"
        super().__init__(f"{where} does not answer within {limit}: `toolcrib daemon stop` ends it")
        self.pid = pid


class DaemonClient(NamedTuple):
    """One connected process. `since` is in seconds since 1970."""

    pid: int
    since: float
    cwd: str
    profile: str
    mode: str
    way: str
    """See `Hello.way`."""


class DaemonServer(NamedTuple):
    """One source of tools and its state (`core.events.SourceState`)."""

    name: str
    kind: str
    state: str
    tools: int
    detail: str


class DaemonStatus(NamedTuple):
    """Report of one daemon: its servers and its clients."""

    pid: int
    since: float
    version: str
    key: str
    """Digest of the configuration; the socket's name is its beginning."""
    configuration: tuple[str, ...]
    """Files of the configuration, lowest precedence first."""
    options: Mapping[str, Any]
    """Options of the command line that change what is served."""
    project: str
    log: str
    idle_seconds: float
    """Seconds without a client after which its servers end."""
    rest_seconds: float
    """Seconds after that in which it stays loaded without servers; 0 where it ends with them."""
    rests: bool
    """Whether its servers have ended."""
    works: bool
    """Whether background jobs keep it alive without a client."""
    clients: tuple[DaemonClient, ...]
    servers: tuple[DaemonServer, ...]
    is_current: bool = True
    """Whether its configuration and program are as it read them: a client that starts now comes to it."""
    problems: tuple[str, ...] = ()
    """Problems of its clients, beside servers that are down: a line each, with its remedy."""
    store: str = ""
    """Reason why its store takes no records; empty while it does."""

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        parts = {"clients": [one._asdict() for one in self.clients], "servers": [one._asdict() for one in self.servers]}
        return {**self._asdict(), **parts, "options": dict(self.options)}

    def encode(self) -> bytes:
        """Return one line of JSON."""
        return write_line(self.fields())

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Read what `encode` wrote; raises `ValueError`, `TypeError` or `KeyError` for anything else."""
        value = read_object(line)
        value["configuration"], value["problems"] = tuple(value["configuration"]), tuple(value.get("problems", ()))
        value["clients"] = tuple(DaemonClient(**client) for client in value["clients"])
        value["servers"] = tuple(DaemonServer(**server) for server in value["servers"])
        return cls(**value)


def endpoints(sockets: Iterable[Path]) -> Sequence[DaemonEndpoint]:
    """Return the places of `Directories.sockets`."""
    return [DaemonEndpoint(directory=path.parent, key=path.stem) for path in sockets]


class CommandLink:
    """Connection to a daemon that was asked for a command. Iteration yields its lines, and ends where the daemon does.

    Closed when its context ends; the daemon interrupts a command whose link is closed.
    """

    hung: HungDaemon | None = None
    """Set where the daemon has not answered in time."""

    def __init__(self, endpoint: DaemonEndpoint, link: socket.socket, request: bytes, seconds: float) -> None:
        """Send the line `request` at the first step of the iteration; the daemon has `seconds` to take it."""
        self.socket = link
        self._endpoint = endpoint
        self._request = request
        self._seconds = seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def __iter__(self) -> Generator[Any]:
        with self.socket.makefile("rb") as lines:
            self.socket.settimeout(self._seconds)  # for the first line: the daemon takes the command, or not
            try:
                self.socket.sendall(_hello(COMMAND).encode() + self._request)
                for line in lines:
                    self.socket.settimeout(None)
                    yield read_line(line)
            except TimeoutError:
                self.hung = HungDaemon(self._endpoint, process_of(self.socket), self._seconds)
            except ConnectionError:
                pass

    def answer(self, number: int, value: Any) -> None:
        """Answer a question; a daemon that has ended does not get the answer."""
        with suppress(ConnectionError):
            self.socket.sendall(write_line([number, value]))


def command_link(endpoint: DaemonEndpoint, request: bytes, seconds: float) -> CommandLink | None:
    """Return a connection for the line of a request, which the daemon has `seconds` to take.

    None where no daemon listens.
    """
    link = endpoint.connect()
    return None if link is None else CommandLink(endpoint, link, request, seconds)


def _hello(way: str) -> Hello:
    return Hello(key="", version="", profile="", mode="", cwd="", pid=os.getpid(), way=way)


def status_of(endpoint: DaemonEndpoint, seconds: float = _ANSWER_SECONDS) -> DaemonStatus | None:
    """Return the status of the daemon, which has `seconds` for it; None where no daemon listens.

    Raises `HungDaemon` for one that does not answer, `UsageError` for one that answers otherwise: of another version.
    """
    return _ask(endpoint, "status", seconds)


def end(endpoint: DaemonEndpoint, seconds: float) -> DaemonStatus | None:
    """End the daemon and return what it served until then; None where no daemon listens.

    Running calls get a moment to end. Raises `UsageError` when the daemon still lives after `seconds`.
    """
    status = _ask(endpoint, "stop")
    if status is None:
        return None
    if not _await_end(endpoint, status.pid, seconds):
        raise UsageError(
            f"the daemon (process {status.pid}) has not ended within {seconds:g} s; its log is {status.log}"
        )
    return status


def kill(endpoint: DaemonEndpoint, hung: HungDaemon, seconds: float) -> None:
    """Kill a daemon that does not answer; its servers end with it. Raises `UsageError` where that cannot be done."""
    if hung.pid:
        with suppress(ProcessLookupError):
            os.kill(hung.pid, signal.SIGKILL)
    if not hung.pid or not _await_end(endpoint, hung.pid, seconds):
        raise UsageError(f"the daemon at {endpoint.socket} cannot be ended: kill its process by its id")


def _await_end(endpoint: DaemonEndpoint, pid: int, seconds: float) -> bool:
    """Whether the daemon ends in time. Its clients may have started the next one by the time of a look."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lock = endpoint.lock()
        if lock is not None:
            endpoint.release(lock)
            return True
        if not is_alive(pid):
            return True
        time.sleep(_RETRY_SECONDS)
    return False


def _ask(endpoint: DaemonEndpoint, way: Way, seconds: float = _ANSWER_SECONDS) -> DaemonStatus | None:
    link = endpoint.connect()
    if link is None:
        return None
    with link:
        link.settimeout(seconds)
        try:
            link.sendall(_hello(way).encode())
            received = bytearray()
            while chunk := link.recv(_CHUNK):
                received += chunk
                if len(received) > _ANSWER_BYTES:
                    raise ConnectionError("the answer has no end")
            answer = bytes(received)
        except TimeoutError:
            raise HungDaemon(endpoint, process_of(link), seconds) from None
        except ConnectionError:
            answer = b""
    if not answer:
        return None  # it was on its way out
    try:
        return DaemonStatus.decode(answer)
    except (ValueError, TypeError, KeyError):
        raise UsageError(
            f"the daemon at {endpoint.socket}{_process(answer)} is of another version: end it by its id, "
            "and start its clients again"
        ) from None


def _process(answer: bytes) -> str:
    try:
        return f" (process {Welcome.decode(answer).pid})"
    except ValueError:
        return ""
