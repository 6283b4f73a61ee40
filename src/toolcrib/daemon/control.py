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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, get_args

from ..core.processes import is_alive
from ..errors import UsageError
from .rendezvous import (
    QUEUE_SECONDS,
    DaemonEndpoint,
    FullQueue,
    Hello,
    Welcome,
    process_of,
    read_line,
    read_object,
    write_line,
)

Way = Literal["status", "stop"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)
COMMAND: Final = "command"
"""The way of a request that is a whole command; its answer is the business of the command line."""

_ANSWER_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.5
"""For a daemon that this process has waited for in vain: enough for one that goes on by now."""
_hung: Final[set[DaemonEndpoint]] = set()
"""Daemons that did not take a command of this process in time."""
_ANSWER_BYTES: Final = 4 * 1024 * 1024
_RETRY_SECONDS: Final = 0.02
_CHUNK: Final = 64 * 1024


class SilentDaemon(UsageError):
    """A daemon listens and does not say what it serves. `pid` is 0 where the kernel does not tell it."""

    pid: int
    end_signal: ClassVar[signal.Signals]


class OtherVersion(SilentDaemon):
    """A daemon answers in another way than those of this version."""

    end_signal = signal.SIGTERM

    def __init__(self, endpoint: DaemonEndpoint, pid: int) -> None:
        process = f" (process {pid})" if pid else ""
        super().__init__(
            f"the daemon at {endpoint.socket}{process} is of another version: `toolcrib daemon stop` ends it; "
            "start its clients again then"
        )
        self.pid = pid


class HungDaemon(SilentDaemon):
    """A daemon listens and does not answer.

    `is_known`: this process has named it, since it did not take a command.
    """

    end_signal = signal.SIGKILL

    def __init__(self, endpoint: DaemonEndpoint, pid: int, seconds: float) -> None:
        process = f" (process {pid})" if pid else ""
        where, limit = f"the daemon at {endpoint.socket}{process}", f"{seconds:g} s"
        super().__init__(f"{where} does not answer within {limit}: `toolcrib daemon stop` ends it")
        self.pid = pid
        self.is_known = endpoint in _hung


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
                _hung.add(self._endpoint)
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

    Raises `HungDaemon` for one that does not answer, `OtherVersion` for one that answers otherwise.
    """
    return _ask(endpoint, "status", seconds)


def statuses(sockets: Iterable[Path]) -> Sequence[tuple[DaemonEndpoint, DaemonStatus | UsageError]]:
    """Return the status of each daemon that listens at `Directories.sockets`, or the error of `status_of`.

    All are asked before the first answer is awaited: several that hang take no longer than one.
    """
    found: list[tuple[DaemonEndpoint, DaemonStatus | UsageError]] = []
    with ExitStack() as links:
        asked: list[tuple[DaemonEndpoint, socket.socket]] = []
        for endpoint in endpoints(sockets):
            try:
                if (link := _send(endpoint, "status")) is not None:
                    asked.append((endpoint, links.enter_context(link)))
            except UsageError as error:
                found.append((endpoint, error))
        deadline = time.monotonic() + _ANSWER_SECONDS
        for endpoint, link in asked:
            left = 0.0 if endpoint in _hung else deadline - time.monotonic()
            try:
                status = _receive(endpoint, link, max(left, _AGAIN_SECONDS))
            except TimeoutError:
                status = HungDaemon(endpoint, process_of(link), _ANSWER_SECONDS)
            except UsageError as error:
                status = error
            found += [] if status is None else [(endpoint, status)]
    return found


def end(endpoint: DaemonEndpoint, seconds: float) -> DaemonStatus | None:
    """End the daemon and return what it served until then; None where no daemon listens.

    Running calls get a moment to end. Raises `UsageError` when the daemon still lives after `seconds`.
    """
    status = _ask(endpoint, "stop")
    if status is None:
        return None
    if not await_end(endpoint, status.pid, seconds):
        raise UsageError(
            f"the daemon (process {status.pid}) has not ended within {seconds:g} s; its log is {status.log}"
        )
    return status


def kill(endpoint: DaemonEndpoint, silent: SilentDaemon, seconds: float) -> None:
    """End a daemon by its process id; its servers end with it. Raises `UsageError` where that cannot be done."""
    if silent.pid:
        with suppress(ProcessLookupError):
            os.kill(silent.pid, silent.end_signal)
    if not silent.pid or not await_end(endpoint, silent.pid, seconds):
        raise UsageError(f"the daemon at {endpoint.socket} cannot be ended: kill its process by its id")


def await_end(endpoint: DaemonEndpoint, pid: int, seconds: float) -> bool:
    """Return whether the daemon ends within `seconds`. Its clients may have started the next one by then."""
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
    link = _send(endpoint, way)
    if link is None:
        return None
    with link:
        try:
            return _receive(endpoint, link, seconds)
        except TimeoutError:
            raise HungDaemon(endpoint, process_of(link), seconds) from None


def _send(endpoint: DaemonEndpoint, way: Way) -> socket.socket | None:
    """Send a request, and return the connection for its answer; None where no daemon listens. Raises `HungDaemon`."""
    try:
        link = endpoint.connect()
    except FullQueue:
        raise HungDaemon(endpoint, endpoint.holder(), QUEUE_SECONDS) from None
    if link is not None:
        with suppress(ConnectionError):  # it is on its way out: there is no answer either
            link.sendall(_hello(way).encode())
    return link


def _receive(endpoint: DaemonEndpoint, link: socket.socket, seconds: float) -> DaemonStatus | None:
    """Return the answer to `_send`; None from a daemon that was on its way out. Raises `TimeoutError`."""
    link.settimeout(seconds)
    answer = bytearray()
    try:
        while chunk := link.recv(_CHUNK):
            answer += chunk
            if len(answer) > _ANSWER_BYTES:
                return None  # it has no end
    except ConnectionError:
        return None
    if not answer:
        return None
    try:
        return DaemonStatus.decode(bytes(answer))
    except (ValueError, TypeError, KeyError):
        raise OtherVersion(endpoint, process_of(link) or _pid_in(bytes(answer))) from None


def _pid_in(answer: bytes) -> int:
    try:
        return Welcome.decode(answer).pid
    except ValueError:
        return 0
