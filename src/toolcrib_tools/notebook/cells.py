"""`notebook_execute`: one cell in a kernel that keeps its state, and its output in readable form."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any, Final

import anyio
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, ToolResult, as_mapping, tool

from .._pictures import Picture, read_picture
from .._python_program import Event, PythonProgram
from .._workspace.place import workspace_of
from ..shell.processes import MOST_SECONDS, CommandResult, OutputBuffer, notes_of, plain
from .inside import VARIABLES
from .kernels import Notebook, lacks_kernels, notebooks_of

_KEPT: Final = 1024 * 1024
"""Characters of text of one cell; the result is cut to what the session takes, and the rest stays readable."""
_MOST: Final = 8
"""Images of one cell."""
_MEDIA: Final = 6 * 1024 * 1024
"""Base64 characters of all images of one cell."""
_VALUES: Final = 200
"""Values that one cell may show."""
_PICTURES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_NOBODY: Final = "StdinNot"
"""Prefix of the exception that a kernel without stdin raises for input()."""

_SECONDS: Final = 120
"""Default time limit of a cell."""
_MARGIN: Final = 15.0
"""Seconds of the call's own time that are left to interrupt the cell, and to end a kernel that does not take that."""
_GRACE: Final = 10.0
"""Seconds that a cell has to end when it was interrupted."""
_LAST_CHARACTERS: Final = 4_000
"""Characters of the output that the message of a failure holds."""
_LONGEST: Final = 200_000


class Output(Struct, kw_only=True):
    """The output of one cell, as it comes in."""

    failed: str = ""
    """The name of the exception that ended it."""
    inspected: Any = None
    """The variables, where the kernel was asked for them."""
    _blocks: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    _text: OutputBuffer = field(default_factory=lambda: OutputBuffer(_KEPT))
    _stream: str = "stdout"
    _at_start: bool = True
    """True if the text ends with a line end."""
    _values: int = 0
    _pictures: list[int] = field(default_factory=list[int])
    """The base64 characters of each."""

    async def add(self, event: Mapping[str, Any]) -> str:
        """Add an event of the kernel; return its new text, for progress."""
        match event.get("event"):
            case "stream":
                return self._say(str(event.get("text", "")), "stderr" if event.get("name") == "stderr" else "stdout")
            case "data":
                return await self._value(event)
            case "error":
                self.failed = str(event.get("name", "")) or "an error"
                note = (
                    "\n[input() has no user here: write the value into the cell]"
                    if self.failed.startswith(_NOBODY)
                    else ""
                )
                return self._line(plain(str(event.get("text", ""))) + note)
            case _:
                return ""

    def content(self, notes: list[str]) -> list[Mapping[str, Any]]:
        """Return all of it as blocks of content, notes at the end; one text at least."""
        if not self._blocks and not self._text.is_waiting and not notes:
            notes = ["no output"]
        for note in notes:
            self._line(f"[{note}]")
        self._close()
        return self._blocks

    def last(self, most: int) -> str:
        """Return the end of the output, for a failure message; no event can be added after that."""
        self._close()
        return "\n".join(str(block["text"]) for block in self._blocks if block["type"] == "text")[-most:]

    def _say(self, text: str, stream: str = "stdout") -> str:
        head = ""
        if stream != self._stream:
            head = f"{'' if self._at_start else chr(10)}[{stream}]\n"
            self._stream = stream
        message = head + text
        self._text.add(message.encode("utf-8", "replace"))
        self._at_start = message.endswith("\n") if message else self._at_start
        return message

    def _line(self, text: str) -> str:
        """Add text on lines of its own."""
        self._stream = "stdout"
        return self._say(f"{'' if self._at_start else chr(10)}{text.rstrip(chr(10))}\n")

    async def _value(self, event: Mapping[str, Any]) -> str:
        self._values += 1
        if self._values > _VALUES + 1:
            return ""
        if self._values > _VALUES:
            return self._line(f"[more than {_VALUES} values: the rest is not shown]")
        given = as_mapping(event.get("data"))
        kind, value = next(iter(given.items()), ("text/plain", ""))
        if kind == VARIABLES:
            self.inspected = value
            return ""
        if kind in _PICTURES:
            return await self._image(kind, str(value))
        return self._line(plain(str(value)))

    async def _image(self, kind: str, data: str) -> str:
        if len(self._pictures) >= _MOST or sum(self._pictures) + len(data) > _MEDIA:
            return self._line(f"[an image ({kind}) left out: a cell shows {_MOST}, of {_MEDIA >> 20} MiB]")
        try:
            picture = await to_thread.run_sync(_read, data)
        except ToolFailure as failure:
            return self._line(f"[an image ({kind}) left out: {failure.message}]")
        self._pictures.append(len(data))
        line = self._line(f"[image {len(self._pictures)}: {picture.about}]")
        self._close()
        self._blocks.append(picture.block)
        return line

    def _close(self) -> None:
        """Make a block of the text so far."""
        if self._text.is_waiting:
            self._blocks.append({"type": "text", "text": plain(self._text.take()).rstrip("\n")})
            self._at_start, self._stream = True, "stdout"


def _read(data: str) -> Picture:
    """Return the image of a kernel as it is sent. Raises `ToolFailure` for an invalid one."""
    try:
        return read_picture(base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise ToolFailure("tool_error", f"it is not base64: {error}") from None


@tool(
    lacks=lacks_kernels,
    op="x.notebook.execute",
    category="notebook",
    kind="destructive",
    idempotent=False,
    needs=["shell", "sockets", "workspace"],
    timeout=MOST_SECONDS,
    type="CODE",
    background_after=10,
    tags=[
        "python",
        "jupyter",
        "ipython",
        "repl",
        "cell",
        "kernel",
        "plot",
        "chart",
        "data analysis",
        "csv",
        "pandas",
        "code_execution",
        "dynamic_execution",
        "custom_logic",
    ],
    streaming=True,
    metadata={"result": "output"},
    examples=[
        {"code": "import statistics\nprices = [3, 5, 8]\nstatistics.mean(prices)"},
        {"code": "table.describe()", "notebook": "sales", "timeout": 300},
    ],
    policy={
        "do": ["Use it for analysis in steps: variables, imports and functions stay for the next cell."],
        "dont": ["Ask with input(): it gets no answer."],
        "edge_cases": [
            "The value of the last line is shown as in a notebook; images are shown as images.",
            "A cell that takes too long is interrupted, and the variables stay unless it refuses that.",
            "Only the workspace can be written; there is no network unless the operator gave commands one.",
            "!command and %%bash run in the same sandbox, and are asked for as commands are.",
        ],
    },
)
async def notebook_execute(
    ctx: Context,
    code: Annotated[str, Field(min_length=1, max_length=_LONGEST)],
    notebook: str = "",
    timeout: Annotated[float | None, Field(gt=0, le=MOST_SECONDS)] = None,
) -> ToolResult:
    """Run Python code in a notebook whose variables stay from cell to cell, in a sandbox. Returns what the cell shows.

    Args:
        code: The cell: Python, with IPython's %magics and !commands; another language in a notebook made for it.
        notebook: Which notebook; the current one when not given, which is there without being made.
        timeout: Seconds, 120 when not given; then the cell is interrupted.
    """
    if not code.strip():
        raise ToolFailure("invalid_arguments", "code: say what is to run")
    shelf = notebooks_of(ctx)
    kept = shelf.find(notebook)
    async with kept.turn:
        kernel = await shelf.kernel(ctx, kept)
        cell = Cell(kernel=kernel, seconds=max(0.1, min(timeout or _SECONDS, MOST_SECONDS, ctx.remaining - _MARGIN)))
        between_cells = kernel.between().rstrip("\n")
        output = await cell.run(ctx, {"do": "run", "code": code})
        kept.cells += 1
    notes = await _notes(ctx, kept, output)
    if between_cells:
        notes.append(f"output since the last cell:\n{between_cells}")
    return ToolResult(content=tuple(output.content(notes)))


class Cell(Struct, kw_only=True):
    """A running cell: its output, and its interruption on timeout or cancellation."""

    kernel: PythonProgram
    seconds: float
    output: Output = field(default_factory=Output)
    _is_done: bool = False

    async def run(self, ctx: Context, wanted: Event) -> Output:
        """Return its output. Raises `ToolFailure`: `timeout`, or `tool_error` when the kernel has ended."""
        started = anyio.current_time()
        async with self.kernel.run(wanted) as events:
            try:
                with anyio.move_on_after(self.seconds):
                    await self._listen(ctx, events)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop(events)
                raise
            if not self._is_done and not self.kernel.is_over:
                stays = await self._stop(events)
                raise self._late(anyio.current_time() - started, stays=stays)
        if not self._is_done:
            raise self._ended()
        return self.output

    async def _listen(self, ctx: Context | None, events: MemoryObjectReceiveStream[Event]) -> None:
        """Take events until the cell ends; return early where the kernel does."""
        async for event in events:
            if self.kernel.ends(event):
                self._is_done = True
                return
            if (text := await self.output.add(event)) and ctx is not None:
                await ctx.output(text)
        with anyio.move_on_after(_GRACE):
            await self.kernel.over()

    async def _stop(self, events: MemoryObjectReceiveStream[Event]) -> bool:
        """Interrupt it; return whether the kernel lives on. One that does not take the interruption is ended."""
        await self.kernel.interrupt()
        with anyio.move_on_after(_GRACE):
            await self._listen(None, events)
        if self._is_done:
            return True
        await self.kernel.aclose()
        return False

    def _late(self, seconds: float, *, stays: bool) -> ToolFailure:
        if stays:
            what = "it was interrupted, and the variables are as it left them"
        else:
            what = "it did not take the interruption, so the kernel was ended: its variables are gone"
        return ToolFailure(
            "timeout",
            f"the cell did not end within {seconds:.0f} s; {what}; {self._last()}",
            hint="give it a longer timeout",
        )

    def _ended(self) -> ToolFailure:
        why = self.kernel.ending()
        return ToolFailure(
            "tool_error",
            f"the kernel has ended while the cell ran, and its variables are gone: {why}; {self._last()}",
            hint="the next cell begins with a new kernel",
        )

    def _last(self) -> str:
        tail = self.output.last(_LAST_CHARACTERS)
        return f"the cell's last output:\n{tail}" if tail else "the cell printed no output"


async def _notes(ctx: Context, notebook: Notebook, output: Output) -> list[str]:
    """Return the notes beside the output."""
    notes = [f"the cell was ended by {output.failed}"] if output.failed else []
    if notebook.lost:
        notes.append(f"a new kernel, without the variables of before: {notebook.lost}")
        notebook.lost = ""
    if (kernel := notebook.kernel) is not None:
        left, kernel.left = tuple(kernel.left), []
        notices = CommandResult(stdout="", stderr="", finished=None, seconds=0, aside=left, refused=kernel.refused())
        notes += notes_of(notices)
    workspace = workspace_of(ctx)
    if workspace.diverts and await workspace.overlay():
        notes.append("changes that wait for review are not on the disk: the cell did not see them")
    return notes
