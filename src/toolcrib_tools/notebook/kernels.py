"""Kernels of a session's notebooks: started in the sandbox, one for each notebook, ended with the session."""

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
from msgspec import Struct, field

from toolcrib.plugin import Command, Context, Finished, Running, ToolFailure, as_mapping, did_you_mean

from .._extras import lacks_library, lacks_unless_set
from .._workspace.place import workspace_of
from ..shell.processes import OutputBuffer, follow, plain, sandbox_of, status_of

__all__ = [
    "MAIN",
    "NEEDED",
    "Event",
    "Interpreter",
    "Kernel",
    "Notebook",
    "NotebookRegistry",
    "command_of",
    "interpreter_of",
    "interpreter_with",
    "lacks_kernels",
    "notebooks_of",
]

_HERE: Final = Path(__file__).parent
_LIBRARY: Final = "ipykernel"
lacks_kernels: Final = lacks_unless_set("notebook", "python", lacks_library(_LIBRARY, "notebook"))
_KERNELS_KEY: Final = "tools.notebook.python"
NEEDED: Final = "the operator can install the extra `notebook`"
_NO_GPU: Final = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}

Event = Mapping[str, Any]

_AHEAD: Final = 64
"""Size of the queue of events for the reader of a cell; when it is full, the kernel's side waits."""
_LONGEST: Final = 8 * 1024 * 1024
"""Bytes of one line; our program sends less, what took its place might not."""
_WORDS: Final = 8_000
"""Characters of a kernel's stderr that are kept."""
_BETWEEN: Final = 64 * 1024
"""Characters that threads of a cell say after its end."""
_START: Final = 120.0
"""Seconds for a kernel to begin: one second on an idle machine."""
_SEND: Final = 10.0
"""Seconds for the other side to take a line."""

MAIN: Final = "main"
"""The notebook that is there without being made."""
_MOST: Final = 4
"""Kernels at a time in one session: each takes some 80 MB."""
_NAMED: Final = 32
_KEY: Final = "notebook.kernels"


class Interpreter(Struct, frozen=True, kw_only=True):
    """A Python with ipykernel."""

    program: Path
    readable: tuple[Path, ...]
    """Folders of its installation."""


def interpreter_of(ctx: Context) -> Interpreter:
    """Return the Python for notebooks. Raises `ToolFailure("unavailable")` naming what is to be installed or set."""
    named = as_mapping(ctx.lent.setting("notebook")).get("python")
    if named is not None:
        return _configured_interpreter(ctx, named)
    return interpreter_with(_LIBRARY, "notebook", workspace_of(ctx).roots)


def interpreter_with(library: str, extra: str, shown: Sequence[Path] = ()) -> Interpreter:
    """Return this Python, for a program that imports `library` in a sandbox that shows the folders `shown`.

    Raises `ToolFailure("unavailable")` without the library.
    """
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:
        hint = f"the operator can install the extra `{extra}`"
        raise ToolFailure("unavailable", f"this needs {library}, which is not installed here", hint=hint)
    place = Path(found.origin).parent.parent
    places = [Path(sys.prefix)] if place.is_relative_to(sys.prefix) else [Path(sys.prefix), place]
    return Interpreter(program=Path(sys.executable), readable=_beside(shown, places))


def command_of(ctx: Context, interpreter: Interpreter, *words: str, gpu: bool = False) -> Command:
    """Return the command of the program that starts kernels; without `gpu` it sees no graphics card."""
    workspace, sandbox = workspace_of(ctx), sandbox_of(ctx)
    own = "/tmp" if sandbox.kind != "none" else str(ctx.lent.folder("notebook"))
    return Command(
        argv=(str(interpreter.program), str(_HERE / "inside.py"), *words),
        cwd=workspace.root,
        folders=workspace.roots,
        readable=(_HERE, *interpreter.readable),
        environment={
            "IPYTHONDIR": f"{own}/ipython",
            "JUPYTER_CONFIG_DIR": f"{own}/config",
            "JUPYTER_RUNTIME_DIR": f"{own}/runtime",
            "MPLCONFIGDIR": f"{own}/matplotlib",
            "PAGER": "cat",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **({} if gpu else _NO_GPU),
        },
        network=sandbox.network,
    )


def _configured_interpreter(ctx: Context, named: object) -> Interpreter:
    program = Path(named).expanduser() if isinstance(named, str) else Path()
    if not program.is_absolute() or not program.is_file():
        raise ToolFailure("unavailable", f"the setting {_KERNELS_KEY} names no program by its whole path: {named!r}")
    if any(program.is_relative_to(root) for root in workspace_of(ctx).roots):
        return Interpreter(program=program, readable=())  # it may lead anywhere: commands can change it
    real, own = program.resolve(), program.parent.parent
    places = [real.parent.parent, *([own] if (own / "pyvenv.cfg").is_file() else [])]
    return Interpreter(program=program, readable=_beside(workspace_of(ctx).roots, places))


def _beside(shown: Sequence[Path], places: list[Path]) -> tuple[Path, ...]:
    """Return those that the sandbox does not show anyway. Raises `ToolFailure` for one that holds a person's home."""
    folders = (Path("/usr"), *shown)
    beside = [place for place in places if not any(place.is_relative_to(folder) for folder in folders)]
    if broad := next((place for place in beside if Path.home().is_relative_to(place)), None):
        hint = f"name one of a virtual environment in the setting {_KERNELS_KEY}"
        raise ToolFailure("unavailable", f"this Python would show commands all of {broad}", hint=hint)
    return tuple(beside)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Kernel:
    """A kernel, from its start to its end. It belongs to one session, and one cell runs at a time.

        begin ──> a task of the crib's holds the process (`inside.py`), and reads its JSON lines: `_take`, `_event`
        run   ──> a cell: events go into a stream of 64; when its reader is slow, that task waits, then the kernel
        else  ──> what threads of an earlier cell print is kept for the next one (`between`)

    Callers wait on `_ready` and `_over`, so that a cancelled call leaves the kernel as it is.
    """

    command: Command
    what: str = "kernel"
    """Name in messages; the program beside it decides what runs."""
    hint: str = "notebook_backends names the kernels that there are"
    """Next step if it does not start."""
    started: float = 0.0
    language: str = ""
    version: str = ""
    finished: Finished | None = None
    aside: tuple[str, ...] = ()
    """Files that commands may not create, moved aside under new names; set once it has ended."""
    left: list[str] = dataclasses.field(default_factory=list[str])
    """Files of its cells that were put aside, by their new names, until an answer has named them."""
    died: int | None = None
    """The status of a kernel that ended by itself."""
    _failure: ToolFailure | None = None
    _running: Running | None = None
    _scope: anyio.CancelScope = dataclasses.field(default_factory=anyio.CancelScope, repr=False)
    _ready: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    _over: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    _cell: MemoryObjectSendStream[Event] | None = None
    _count: int = 0
    _told_refused: int = 0
    _line: bytearray = dataclasses.field(default_factory=bytearray, repr=False)
    _words: OutputBuffer = dataclasses.field(default_factory=lambda: OutputBuffer(_WORDS), repr=False)
    _between: OutputBuffer = dataclasses.field(default_factory=lambda: OutputBuffer(_BETWEEN), repr=False)

    @property
    def is_over(self) -> bool:
        """True if the kernel has ended, with all processes that it started."""
        return self._over.is_set()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return anyio.current_time() - self.started

    async def begin(self, ctx: Context) -> None:
        """Start it; return once it takes code. Raises `ToolFailure` with the reason when it does not."""
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
                if self._cell is not None:
                    self._cell.close()

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
        """Send a cell; give what comes back, until the stream ends because the kernel has, or it is left."""
        send, receive = anyio.create_memory_object_stream[Event](_AHEAD)
        self._cell = send
        self._count += 1
        try:
            await self._tell({**wanted, "id": self._count})
            if self.is_over:
                send.close()
            yield receive
        finally:
            self._cell = None
            send.close()
            receive.close()
            if (running := self._running) is not None and not self.command.trusted:
                with anyio.CancelScope(shield=True):
                    self.left += await running.compare()

    def ends(self, event: Event) -> bool:
        """True if this event ends the running cell."""
        return event.get("event") == "done" and event.get("id") == self._count

    async def interrupt(self) -> None:
        """Interrupt what runs, as ctrl-c would; everything that the cell has started, too."""
        await self._tell({"do": "interrupt"})

    def between(self) -> str:
        """Return output since the last cell, and clear it."""
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
        if self._cell is not None:
            try:
                return await self._cell.send(event)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
        if event.get("event") == "stream":
            self._between.add(str(event.get("text", "")).encode("utf-8", "replace"))


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Notebook:
    """A notebook: what it is called and runs with, and its kernel while there is one."""

    name: str
    backend: str = "python3"
    """Jupyter's name of the kernel."""
    gpu: bool = False
    kernel: Kernel | None = None
    cells: int = 0
    """Number of cells since the last start."""
    lost: str = ""
    """Reason why earlier variables are lost; a note of the next cell."""
    turn: anyio.Lock = dataclasses.field(default_factory=anyio.Lock, repr=False)

    @property
    def is_alive(self) -> bool:
        """True if its kernel runs."""
        return self.kernel is not None and not self.kernel.is_over

    async def close(self) -> tuple[str, ...]:
        """End the kernel; return what it made and may not make, by its new names."""
        kernel, self.kernel, self.cells, self.lost = self.kernel, None, 0, ""
        if kernel is None:
            return ()
        await kernel.aclose()
        return kernel.aside


class NotebookRegistry(Struct, eq=False):
    """The notebooks of one session."""

    current: str = MAIN
    """The one that is meant when none is named: the one made last."""
    _notebooks: dict[str, Notebook] = field(default_factory=lambda: {MAIN: Notebook(name=MAIN)})

    def find(self, name: str) -> Notebook:
        """Return a notebook, the current one without a name. Raises `ToolFailure("not_found")` naming the others."""
        if (name or self.current) in self._notebooks:
            return self._notebooks[name or self.current]
        raise ToolFailure(
            "not_found",
            f"there is no notebook {name!r}{did_you_mean(name, self._notebooks)}",
            hint=f"there are {', '.join(self._notebooks)}; notebook_create makes one",
        )

    def all(self) -> list[Notebook]:
        """Return all notebooks, in the order in which they were made."""
        return list(self._notebooks.values())

    async def create(self, ctx: Context, notebook: Notebook) -> Kernel:
        """Take a new notebook up, start its kernel and make it the current one.

        Raises `ToolFailure`: `conflict` for a name that is taken, `overloaded`, and those of `kernel`.
        """
        before = self._notebooks.get(notebook.name)
        if before is not None and (before.cells or before.is_alive):
            hint = "use it as it is, empty it with notebook_reset, or take another name"
            raise ToolFailure("conflict", f"there is a notebook {notebook.name!r} already", hint=hint)
        if before is None and len(self._notebooks) >= _NAMED:
            raise ToolFailure(
                "overloaded", f"this session has {_NAMED} notebooks already: {', '.join(self._notebooks)}"
            )
        self._notebooks[notebook.name] = notebook
        try:
            kernel = await self.kernel(ctx, notebook)
        except BaseException:
            if self._notebooks.get(notebook.name) is notebook:
                if before is None:
                    del self._notebooks[notebook.name]
                else:
                    self._notebooks[notebook.name] = before
            raise
        self.current = notebook.name
        return kernel

    async def kernel(self, ctx: Context, notebook: Notebook) -> Kernel:
        """Return the kernel of a notebook, started on first use.

        Raises `ToolFailure`: `overloaded` when there are too many, `unavailable` for one that does not start.
        """
        if notebook.kernel is not None and not notebook.kernel.is_over:
            return notebook.kernel
        if notebook.kernel is not None:
            notebook.lost, notebook.cells = notebook.kernel.ending(), 0
        alive = [other.name for other in self._notebooks.values() if other.is_alive]
        if len(alive) >= _MOST:
            raise ToolFailure(
                "overloaded",
                f"this session runs {_MOST} kernels already: {', '.join(alive)}",
                hint="notebook_reset ends one",
            )
        command = command_of(ctx, interpreter_of(ctx), notebook.backend, gpu=notebook.gpu)
        kernel = notebook.kernel = Kernel(command=command)
        try:
            await kernel.begin(ctx)
        except BaseException:
            notebook.kernel = None
            raise
        return kernel

    async def aclose(self) -> None:
        """End all kernels: the session is over."""
        async with anyio.create_task_group() as group:
            for notebook in self.all():
                group.start_soon(notebook.close)


def notebooks_of(ctx: Context) -> NotebookRegistry:
    """Return the notebooks of the session that makes this call."""
    found = ctx.runtime.get(_KEY)
    if not isinstance(found, NotebookRegistry):
        found = ctx.runtime[_KEY] = NotebookRegistry()
    return found
