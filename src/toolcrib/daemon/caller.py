"""The process that asked for a command which a daemon carries out: its terminal, its input and its end.

A command prints parts and asks for input. In a process of its own both happen there; in a daemon the parts go to the
caller, which prints them and sends its input back. A caller that goes away interrupts its command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # every command loads this module, and a crib only the daemon
    from .running_servers import RunningServers

Part = list[Any]
"""Something to print or to ask, as JSON: what it is (`cli.output.print_part`) and the arguments."""

_GONE: Final = "the process that asked is gone"

ASK: Final = "ask"
"""Part with a number, what is asked for and its arguments (`cli.processes.daemon_requests`); one line answers it,
with the number."""
END_DAEMONS: Final = "end_daemons"
"""Part that lets the process end the daemons that no client uses, when the command has ended."""
WITHDRAW: Final = "withdraw"
"""Part that ends the open question, for which no answer is needed any more."""

_STREAMS: Final = ("stdin", "stdout", "stderr")


class LeftToCaller(Exception):
    """Raised by a command, before it has any effect, that the process which asked is to carry out itself."""


class Caller:
    """The process that asked, as the thread of its command uses it. `answer` and `leave` come from another thread."""

    terminals: frozenset[str] = frozenset()
    """Names of its standard streams (`stdin`, `stdout`, `stderr`) that are terminals."""

    def __init__(self, send: Callable[[bytes], None], servers: RunningServers | None = None) -> None:
        """`send` sends a line; raises `ConnectionError` when the process is gone. `servers` run in the daemon."""
        self._send = send
        self.servers = servers
        self._questions: dict[int, SimpleQueue[Any]] = {}
        self._numbers = count()
        self._lock = Lock()
        self._interrupts: list[Callable[[], None]] = []
        self._is_gone = False

    def put(self, part: Part) -> None:
        """Send a part to be printed. Raises `ConnectionAbortedError` when the process is gone."""
        from ..core.json import dumps  # `toolcrib --help` loads this module, and needs no JSON

        try:
            self._send(dumps(part))
        except ConnectionError as error:  # a `BrokenPipeError` would look like the end of this process's own output
            raise ConnectionAbortedError(_GONE) from error

    def ask(self, *question: Any) -> Any:
        """Send a question and wait for the answer; None when it was withdrawn. Raises as `put`."""
        number, answers = next(self._numbers), SimpleQueue[Any]()
        self._questions[number] = answers
        try:
            self.put([ASK, number, *question])
            answer = None if self._is_gone else answers.get()
        finally:
            del self._questions[number]
        if self._is_gone:
            raise ConnectionAbortedError(_GONE)
        return answer

    def withdraw(self) -> None:
        """End the question that is open."""
        self.put([WITHDRAW])

    def answer(self, number: int, value: Any) -> None:
        """Take the answer of the process to a question; None for one that was withdrawn."""
        if (answers := self._questions.get(number)) is not None:
            answers.put(value)

    def leave(self) -> None:
        """Interrupt the command: the process is gone."""
        with self._lock:
            self._is_gone = True
            for interrupt in self._interrupts:
                interrupt()
        for answers in tuple(self._questions.values()):
            answers.put(None)

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Generator[None]:
        """Call `interrupt`, mostly in another thread, when the process goes away in this block or is gone already."""
        with self._lock:
            self._interrupts.append(interrupt)
            is_gone = self._is_gone
        try:
            if is_gone:
                interrupt()
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


@contextmanager
def calling(caller: Caller) -> Generator[None]:
    """Let the command of this context print and ask at `caller`."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def current_caller() -> Caller | None:
    """Return the process for which a daemon carries out the command of this context; None for this process."""
    return _caller.get()


def terminals() -> frozenset[str]:
    """Return the streams that are terminals, of the caller or of this process."""
    if (caller := _caller.get()) is not None:
        return caller.terminals
    return frozenset(name for name in _STREAMS if (stream := getattr(sys, name)) is not None and stream.isatty())


def is_interactive(shown: str = "stderr") -> bool:
    """Return whether a person can be asked on the stream `shown`, and answer on standard input."""
    return terminals() >= {"stdin", shown}
