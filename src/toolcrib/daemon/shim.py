"""Shim: `toolcrib serve` over stdio, as a client starts it; joins or starts the local daemon, and relays messages.

A client starts one shim for each of its sessions, so the shim loads the standard library only. The session outlives a
daemon: where one ends, the shim joins or starts another as soon as the client needs it, opens the session there as the
client had opened it, and sends the requests without an answer again (`SessionRecord`). The daemon knows which of them
it may run. POSIX only.

    client's output ──► listener thread ──┐        ┌──► daemon
                         (`_listen`)      ├ _gate ─┤
    client's input  ◄── main thread ──────┘        └─── daemon
                         (`_copy_out`)

    the daemon ends      `_copy_out` returns; the main thread takes the gate, so that the listener holds its next
                         message back (`_unsent`)
    `_status`            waits until the client needs a daemon: it waits for an answer or for changes, sends a message,
                         or ends its input
    `_go_on`             joins or starts a daemon, opens the session there and notifies the client of what differs
    `_send_again`        sends the requests without an answer, marked `again`, and gives the gate back
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, NoReturn

from ..errors import CODES, ToolcribError, UsageError
from ..server.pipes import LISTENER, read_lines, wait_for_end, write_all
from .control import HungDaemon, kill, status_of
from .rendezvous import (
    DaemonEndpoint,
    DaemonPlace,
    FullQueue,
    Hello,
    Order,
    Welcome,
    open_log,
    read_object,
    receive_line,
)
from .session_record import SessionRecord

_JOIN_SECONDS: Final = 20.0
"""Maximum seconds from a daemon's start to its first greeting; several on a busy machine."""

_CHUNK: Final = 64 * 1024
_RETRY_SECONDS: Final = 0.02
_SILENCE_SECONDS: Final = 2.0
"""Without an answer to a greeting for so long, the daemon is asked whether it answers at all."""
_LOOK_SECONDS: Final = 30
"""The same during a session, while a request waits."""
_PATIENCE: Final = 20.0
"""Seconds in which a daemon that has clients answers then: its end is the end of what it does for all of them."""
_END_SECONDS: Final = 5.0
_PAUSES: Final = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0)
_LOST: Final = CODES["unavailable"].exit


class Shim(NamedTuple):
    """The way to the daemon of one configuration. `order` starts one if none runs; its descriptors are set here."""

    endpoint: DaemonEndpoint
    hello: Hello
    order: Order
    say: Callable[[str], None]
    """Writes one line for the person."""

    def join(self) -> tuple[socket.socket, Welcome]:
        """Return a connection on which greetings were exchanged. Raises `UsageError` when no daemon can be had.

        A daemon that does not answer anything is killed: its other clients go on with the next one, as this does.
        """
        deadline = time.monotonic() + _JOIN_SECONDS
        while time.monotonic() < deadline:
            try:
                link = self.endpoint.connect()
            except FullQueue:
                link = None
                _end_hung(self.endpoint, self.say)
            welcome = self._greet(link, deadline) if link else None
            if link and welcome:
                return link, welcome
            lock = self.endpoint.lock()
            if lock is None:
                time.sleep(_RETRY_SECONDS)
                continue
            try:
                answer = _spawn(self.order._replace(lock=lock))
                if answer != b"ready":
                    reason = answer.decode(errors="replace").strip() or f"it ended at once; look into {self.order.log}"
                    raise UsageError(f"the local daemon cannot serve: {reason}")
            finally:
                os.close(lock)
        raise UsageError(
            f"the local daemon did not answer within {_JOIN_SECONDS:.0f} s: look into {self.order.log}, "
            "end it (`toolcrib daemon stop`), or serve without it (--no-daemon)"
        )

    def _greet(self, link: socket.socket, deadline: float) -> Welcome | None:
        """Exchange greetings; None when the daemon was on its way out, or hung."""
        try:
            link.sendall(self.hello.encode())
            if not select.select([link], [], [], _SILENCE_SECONDS)[0]:  # it hangs, or opens its servers
                _end_hung(self.endpoint, self.say)
            link.settimeout(max(0.1, deadline - time.monotonic()))
            line = receive_line(link)
        except (TimeoutError, ConnectionError):
            line = b""
        if not line:
            link.close()
            return None
        link.settimeout(None)
        welcome = Welcome.decode(line)
        if welcome.error:
            link.close()
            raise UsageError(f"the local daemon (process {welcome.pid}) refused: {welcome.error}")
        return welcome


def _end_hung(endpoint: DaemonEndpoint, say: Callable[[str], None], seconds: float = _END_SECONDS) -> None:
    """Kill the daemon if it does not answer within `seconds`. Raises `UsageError` where that cannot be done."""
    try:
        status_of(endpoint, seconds)
    except HungDaemon as hung:
        kill(endpoint, hung, _END_SECONDS)
        say(f"killed the local daemon (process {hung.pid}), which did not answer")
    except UsageError:  # it answers, as another version does
        pass


def relay_session(
    first: Shim, find: Callable[[], Shim], source: int, sink: int, pauses: Sequence[float] = _PAUSES
) -> int:
    """Relay between the client's pipe and the daemon until the client leaves; return the exit status.

    `find` returns the way to the daemon of the configuration as it is by then. `source` and `sink` are descriptors of
    the client's pipe; `pauses` are the seconds before each attempt to have another daemon. Raises `UsageError`, before
    anything is read, when no daemon can be had.
    """
    return _Relay(first, find, source, sink, pauses).run()


class _Relay:
    """The relay of one session: this thread copies to the client, and its listener from the client."""

    def __init__(self, first: Shim, find: Callable[[], Shim], source: int, sink: int, pauses: Sequence[float]) -> None:
        self._record = SessionRecord()
        self._shim, self._find, self._source, self._sink, self._pauses = first, find, source, sink, pauses
        self._link, welcome = self._join()
        self._say_joined(welcome)
        self._store = welcome.store
        self._gate = threading.Lock()
        """Held while a message is sent, and by this thread from the end of one daemon until the session goes on."""
        self._wanted = threading.Event()
        """Set while a message, or the end, of the client waits for a daemon."""
        self._has_left = False
        self._unsent: bytes | None = None
        """The message of the client that waits for a daemon."""

    def run(self) -> int:
        threading.Thread(target=self._listen, name=LISTENER, daemon=True).start()
        status: int | None = None
        try:
            while status is None:
                self._copy_out()
                with contextlib.suppress(OSError):
                    self._link.shutdown(socket.SHUT_RDWR)  # else the listener waits for a daemon that stopped reading
                self._gate.acquire()  # the listener sends nothing more until `_send_again` has sent the old messages
                self._link.close()
                status = self._status()
        except BrokenPipeError:  # of the client, which no longer reads
            return 0
        self._gate.release()
        return status

    def _status(self) -> int | None:
        """Go on at another daemon once the client needs one; return the exit status where the session ends."""
        self._tell(self._record.withdraw_questions())
        if not self._record.needs_daemon:
            self._wanted.wait()
        if self._has_left:
            return _LOST if self._record.is_unanswered else 0
        if reason := self._go_on():
            if self._unsent is not None:
                self._record.note_sent(self._record.take(self._unsent), attempts=0)
            self._tell(self._record.refuse(reason))
            self._shim.say(f"{reason}: this session ends")
            return _LOST
        return None

    def _join(self) -> tuple[socket.socket, Welcome]:
        """Return a connection for messages as `SentLine` encodes them."""
        link, welcome = self._shim._replace(hello=self._shim.hello._replace(session=self._record.key)).join()
        # Receiving gives up now and then, without making the descriptor non-blocking, to look whether the daemon hangs.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _LOOK_SECONDS, 0))
        self._rest = b""
        return link, welcome

    def _say_joined(self, welcome: Welcome) -> None:
        self._shim.say(f"joined the local daemon (process {welcome.pid}): {welcome.serves}")

    def _listen(self) -> None:
        """Copy the client's messages; its end is passed on, so that pending requests are still answered."""
        with contextlib.suppress(OSError):
            for line in read_lines(self._source):
                if not self._gate.acquire(blocking=False):
                    self._unsent = line
                    self._wanted.set()
                    self._gate.acquire()
                    self._wanted.clear()
                    self._unsent = None
                try:
                    sent = self._record.take(line)
                    with contextlib.suppress(OSError):  # the daemon has ended: the next one gets it
                        self._link.sendall(sent.encode())
                    self._record.note_sent(sent)
                finally:
                    self._gate.release()
        self._has_left = True
        self._wanted.set()
        with self._gate, contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        wait_for_end(self._link, self._sink)

    def _copy_out(self) -> None:
        """Copy the daemon's messages until it ends."""
        while whole := self._receive():
            start = 0
            while end := whole.find(b"\n", start) + 1:
                self._record.note_received(whole[start:end])  # one alone is not copied
                start = end
            write_all(self._sink, whole)

    def _receive(self, *, is_awaited: bool = False) -> bytes:
        """Return the next messages with their line ends; empty when the daemon has ended, also within a message."""
        parts = [self._rest]
        while True:
            try:
                chunk = self._link.recv(_CHUNK)
            except BlockingIOError:
                if is_awaited or self._record.is_unanswered:
                    with contextlib.suppress(UsageError):  # it cannot be killed; it may come back
                        _end_hung(self._shim.endpoint, self._shim.say, _PATIENCE)
                continue
            except ConnectionError:
                return b""
            if not chunk:
                return b""
            end = chunk.rfind(b"\n") + 1
            parts.append(chunk[:end] if end else chunk)
            if end:
                self._rest = chunk[end:]
                return b"".join(parts)

    def _go_on(self) -> str:
        """Open the session at another daemon and let the listener go on; return the reason where none can be had."""
        reason = ""
        for pause in self._pauses:
            time.sleep(pause)
            try:
                self._shim = self._find()
                self._link, welcome = self._join()
                news = self._record.news(self._open())
            except (ToolcribError, OSError, ValueError) as error:
                self._link.close()
                reason = str(error) or type(error).__name__
                continue
            self._say_joined(welcome)
            refused: list[bytes] = []
            if welcome.store != self._store:
                refused = self._record.refuse_calls("the local daemon ended while it worked on this call")
                self._store = welcome.store
            again, given_up = self._record.send_again()
            self._tell([*refused, *given_up, *news])
            # In a thread: the daemon may answer the first while it does not read the last yet.
            threading.Thread(target=self._send_again, args=([one.encode(is_again=True) for one in again],)).start()
            return ""
        return f"no local daemon can be had ({reason})"

    def _open(self) -> dict[str, bytes]:
        """Send the messages that opened the session; return the answers. Raises `OSError` or `ValueError`."""
        opening = self._record.opening()
        for _, line in opening:
            self._link.sendall(b"again opening %b\n" % line)
        answers: dict[str, bytes] = {}
        ids = {id for id, _ in opening if id}
        while ids - answers.keys():
            lines = self._receive(is_awaited=True).splitlines()
            if not lines:
                raise ConnectionError("it ended while the session was opened again")
            for line in lines:
                id = read_object(line).get("id", "")
                if id in ids:
                    answers[id] = line
                else:
                    self._tell([line])
        return answers

    def _send_again(self, lines: Iterable[bytes]) -> None:
        try:
            with contextlib.suppress(OSError):
                for line in lines:
                    self._link.sendall(line)
        finally:
            self._gate.release()

    def _tell(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            write_all(self._sink, line + b"\n")


def start_unread(order: Order) -> DaemonPlace | None:
    """Start a daemon that reads the configuration itself; return what it found there.

    An `order` without a key. The daemon listens when this returns, or leaves its place to another one that does. None
    when it cannot serve: the configuration is broken, or there is no place for a daemon.
    """
    try:
        return DaemonPlace.decode(_spawn(order))
    except ValueError:
        return None


def _spawn(order: Order) -> bytes:
    """Start a daemon's process with its order; return its report."""
    report, reporter = os.pipe()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become_daemon(order, reader, (reporter, *([order.lock] if order.lock >= 0 else ())))
    os.close(reporter)
    os.close(reader)
    try:
        os.waitpid(child, 0)
        with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as pipe:
            pipe.write(order._replace(report=reporter).encode())
        return _read_all(report, _JOIN_SECONDS)
    finally:
        os.close(report)


def _read_all(source: int, seconds: float) -> bytes:
    """Read until the writer closes or the time is over."""
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    while select.select([source], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(source, _CHUNK)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _become_daemon(order: Order, source: int, keep: tuple[int, ...]) -> NoReturn:
    """Run the daemon's program in this child, out of the client's session and its tree of processes.

    A client that ends kills the group or the tree of its children, and the daemon serves others too.
    """
    try:
        os.setsid()
        if os.fork():  # a second time: the daemon is init's child, so that no shim has to wait for its end
            os._exit(0)
        output = open_log(order.log) if order.log else os.open(os.devnull, os.O_WRONLY)
        os.dup2(source, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for descriptor in keep:
            os.set_inheritable(descriptor, True)
        os.execv(sys.executable, [sys.executable, "-P", "-m", order.module])
    except OSError as error:  # the log or the program is another user's, or an upgrade removed it
        os.write(keep[0], f"{error.filename or sys.executable}: {error.strerror}".encode(errors="replace"))
    finally:
        os._exit(70)  # a copy of the shim must not go on with the client's session
