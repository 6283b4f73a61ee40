"""Python programs of ours in the sandbox of a session: each takes requests and reports events as lines of JSON.

Notebooks run their kernels in one, the browser is driven by one. `{"event": "ready"}` is the first line, and
`{"event": "done", "id": …}` ends a request.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Struct

from toolcrib.plugin import Command, Context, Finished, Running, ToolFailure

from .shell.processes import OutputBuffer, follow, plain, sandbox_of, status_of

Event = Mapping[str, Any]

_AHEAD: Final = 64
"""Size of the queue of events for the reader of a request; when it is full, the program's side waits."""
_LONGEST: Final = 8 * 1024 * 1024
"""Bytes of one line; our programs send less, what took its place might not."""
_WORDS: Final = 8_000
"""Characters of its stderr that are kept."""
_BETWEEN: Final = 64 * 1024
"""Characters that threads of a request print after its end."""
_START: Final = 120.0
"""Seconds for it to begin: a kernel takes one on an idle machine."""
_SEND: Final = 10.0
"""Seconds for the other side to take a line."""


class Interpreter(Struct, frozen=True, kw_only=True):
    """A Python with the libraries of a program."""

    program: Path
    readable: tuple[Path, ...]
    """Folders of its installation."""


def interpreter_with(library: str, extra: str, shown: Sequence[Path] = (), *, hint: str) -> Interpreter:
    """Return this Python, for a program that imports `library` in a sandbox that shows the folders `shown`.

    Raises `ToolFailure("unavailable")` without the library, and with `hint` where it would show a person's home.
    """
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:
        install = f"the operator can install the extra `{extra}`"
        raise ToolFailure("unavailable", f"this needs {library}, which is not installed here", hint=install)
    place = Path(found.origin).parent.parent
    places = [Path(sys.prefix)] if place.is_relative_to(sys.prefix) else [Path(sys.prefix), place]
    return Interpreter(program=Path(sys.executable), readable=beside(shown, places, hint))


def beside(shown: Sequence[Path], places: Sequence[Path], hint: str) -> tuple[Path, ...]:
    """Return the places that the sandbox does not show anyway.

    Raises `ToolFailure`, with `hint`, for one that holds a person's home.
    """
    folders = (Path("/usr"), *shown)
    others = [place for place in places if not any(place.is_relative_to(folder) for folder in folders)]
    if broad := next((place for place in others if Path.home().is_relative_to(place)), None):
        raise ToolFailure("unavailable", f"this Python would show commands all of {broad}", hint=hint)
    return tuple(others)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class PythonProgram:
    """A program, from its start to its end. It belongs to one session, and works on one request at a time.

        begin ──> a task of the crib's holds the process, and reads its JSON lines: `_take`, `_event`
        run   ──> a request: events go into a stream of 64; when its reader is slow, that task waits, then the program
        else  ──> what threads of an earlier request print is kept for the next one (`between`)

    Callers wait on `_ready` and `_over`, so that a cancelled call leaves the program as it is.
    """

    command: Command
    what: str
    """Name in messages."""
    hint: str
    """Next step if it does not start."""
    started: float = 0.0
    language: str = ""
    version: str = ""
    finished: Finished | None = None
    aside: tuple[str, ...] = ()
    """Files that commands may not create, moved aside under new names; set once it has ended."""
    left: list[str] = dataclasses.field(default_factory=list[str])
    """Files of its requests that were put aside, by their new names, until an answer has named them."""
    died: int | None = None
    """The status of a program that ended by itself."""
    _failure: ToolFailure | None = None
    _running: Running | None = None
    _scope: anyio.CancelScope = dataclasses.field(default_factory=anyio.CancelScope, repr=False)
    _ready: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    _over: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    _request: MemoryObjectSendStream[Event] | None = None
    _count: int = 0
    _told_refused: int = 0
    _line: bytearray = dataclasses.field(default_factory=bytearray, repr=False)
    _words: OutputBuffer = dataclasses.field(default_factory=lambda: OutputBuffer(_WORDS), repr=False)
    _between: OutputBuffer = dataclasses.field(default_factory=lambda: OutputBuffer(_BETWEEN), repr=False)

    @property
    def is_over(self) -> bool:
        """True if the program has ended, with all processes that it started."""
        return self._over.is_set()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return anyio.current_time() - self.started

    async def begin(self, ctx: Context) -> None:
        """Start it; return once it takes requests. Raises `ToolFailure` with the reason when it does not."""
        self.started = anyio.current_time()
        sandbox = sandbox_of(ctx)

        async def live() -> None:
            running: Running | None = None
            try:
                with self._scope:
                    async with sandbox.open(self.command) as running:
                        self._running = running
                        self.finished = await follow(running, self._take)
            except ToolFailure as failure:
                self._failure = failure
            finally:
                self._running = None
                self.aside = tuple(running.aside) if running is not None else ()
                self._ready.set()
                self._over.set()
                if self._request is not None:
                    self._request.close()

        await ctx.lent.spawn(live)
        try:
            with anyio.move_on_after(min(_START, ctx.remaining)):
                await self._ready.wait()
        except BaseException:
            self._scope.cancel()
            raise
        if self.language:
            return
        if not self._ready.is_set():
            await self.aclose()
        raise self._failure or self._unavailable(self.ending())

    @asynccontextmanager
    async def run(self, wanted: Event) -> AsyncGenerator[MemoryObjectReceiveStream[Event]]:
        """Send a request; give what comes back, until the stream ends because the program has, or it is left."""
        send, receive = anyio.create_memory_object_stream[Event](_AHEAD)
        self._request = send
        self._count += 1
        try:
            await self._tell({**wanted, "id": self._count})
            if self.is_over:
                send.close()
            yield receive
        finally:
            self._request = None
            send.close()
            receive.close()
            if (running := self._running) is not None and not self.command.trusted:
                with anyio.CancelScope(shield=True):
                    self.left += await running.compare()

    def ends(self, event: Event) -> bool:
        """True if this event ends the request that runs."""
        return event.get("event") == "done" and event.get("id") == self._count

    async def interrupt(self) -> None:
        """Interrupt what runs, as ctrl-c would; everything that it has started, too."""
        await self._tell({"do": "interrupt"})

    def between(self) -> str:
        """Return output since the last request, and clear it."""
        return plain(self._between.take())

    def refused(self) -> tuple[str, ...]:
        """Return the hosts that it was refused since the last time."""
        known = tuple(self._running.refused) if self._running is not None else ()
        news, self._told_refused = known[self._told_refused :], len(known)
        return news

    def ending(self) -> str:
        """Say how it ended, with its last words."""
        if self.finished is not None and self.finished.stopped:
            how = self.finished.stopped
        elif self.died is not None:
            how = status_of(Finished(status=self.died))
        elif self.finished is not None:
            how = status_of(self.finished)
        else:
            how = "it was ended"
        how += f"; put aside, for commands may not make it: {', '.join(self.aside)}" if self.aside else ""
        words = plain(self._words.take()).strip()
        return f"{how}; its last output:\n{words}" if words else how

    async def over(self) -> None:
        """Return when it has ended."""
        await self._over.wait()

    async def aclose(self) -> None:
        """End it, with everything that it has started."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._over.wait()

    def _unavailable(self, why: str) -> ToolFailure:
        return ToolFailure("unavailable", f"the {self.what} did not start: {why}", hint=self.hint)

    async def _tell(self, wanted: Event) -> None:
        running = self._running
        if running is None:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(_SEND) as scope:  # half a line would be no line
            try:
                await running.write(json.dumps(wanted).encode() + b"\n")
            except ToolFailure:
                return  # it has just ended, and the waiting request gets the failure
        if scope.cancelled_caught:
            self._scope.cancel()

    async def _take(self, name: Literal["stdout", "stderr"], piece: bytes) -> None:
        if name == "stderr":
            self._words.add(piece)
            return
        *lines, rest = piece.split(b"\n")
        for line in lines:
            whole = bytes(self._line) + line
            self._line.clear()
            await self._event(whole)
        self._line += rest
        if len(self._line) > _LONGEST:
            self._words.add(b"it sent a line that is too long")
            self._scope.cancel()

    async def _event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        answer = cast("Event", event)
        match answer.get("event"):
            case "ready":
                self.language, self.version = str(answer.get("language") or "?"), str(answer.get("version", ""))
                self._ready.set()
            case "failed" if self._ready.is_set():
                self._words.add(str(answer.get("why")).encode("utf-8", "replace"))
            case "failed":
                self._failure = self._unavailable(str(answer.get("why")))
            case "dead":
                status = answer.get("status")
                self.died = status if isinstance(status, int) else 1
            case _:
                await self._hand_on(answer)

    async def _hand_on(self, event: Event) -> None:
        if self._request is not None:
            try:
                return await self._request.send(event)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
        if event.get("event") == "stream":
            self._between.add(str(event.get("text", "")).encode("utf-8", "replace"))
