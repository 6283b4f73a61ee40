"""Running a program with arguments that no shell reads: a group of its own, an end that is certain, bounded output."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Final, cast

import anyio
import anyio.abc

from ...core.context import Context
from ...core.json import dumps, read_json
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...results.normalize import to_result
from ...system.child_processes import clean_environment, shared_reaper
from ...telemetry.otel import trace_variables
from .fields import Template, as_text
from .implementation import Command

_GRACE: Final = 0.25
"""Seconds between SIGTERM and SIGKILL."""
_STDERR: Final = 64 << 10
"""Bytes of the error stream that are kept: its end."""
_REASON_CHARACTERS: Final = 2_000
"""Characters of a stream that a failure quotes: its end."""
_CHUNK: Final = 64 << 10
_LAST_WORDS: Final = 2.0
"""Seconds for the rest of the output once the process has ended, if something outside its group holds the pipe."""

_INTERPRETERS: Final[Mapping[str, str]] = {".py": sys.executable, ".sh": "sh", ".js": "node", ".mjs": "node"}
"""Interpreters of scripts that are not executable themselves."""


class CommandRunner:
    """One program or script of a catalog."""

    def __init__(self, command: Command, folder: Path, environment: Mapping[str, str]) -> None:
        """`folder` is the catalog's: base of a relative `cwd` and of scripts. `environment` is that of this process."""
        self._command = command
        self._folder = folder
        self._environment = clean_environment(environment, command.env)
        self._cwd = str(folder / os.path.expanduser(command.cwd))

    async def __call__(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run it to its end. Raises `ToolFailure`; when cancelled, its whole process group ends first."""
        command = self._command
        argv = self._argv(tool, arguments)
        captured = _ProcessOutput(limit=command.max_output)
        stdin = PIPE if command.stdin == "json" else DEVNULL
        status: int | None = None
        with anyio.CancelScope(shield=True) as scope:
            # Shielded: a start that is cancelled kills the program, and leaves what that has started already.
            process = await _start(argv, self._cwd, {**trace_variables(), **self._environment}, stdin=stdin)
            shared_reaper().watch(process.pid)
            try:
                scope.shield = False
                await captured.listen(process, dumps(arguments))
            finally:
                scope.shield = True
                await _end(process)
                shared_reaper().forget(process.pid)
            status = process.returncode
        return _result(tool, command, status, captured)

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the program and its arguments as a shell line. Raises `ToolFailure` if it cannot be run."""
        return shlex.join(self._argv(tool, arguments))

    def _argv(self, tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
        command = self._command
        return [*self._program(tool), *arguments_of(command, arguments, skip=0 if command.script else 1)]

    def _program(self, tool: Tool) -> list[str]:
        if not self._command.script:
            return [self._command.argv[0][0].pieces[0]]
        script = (self._folder / self._command.script).resolve()
        if not script.is_relative_to(self._folder.resolve()) or not script.is_file():
            raise ToolFailure("unavailable", f"{tool.name} is not there: no file {self._command.script} in the catalog")
        interpreter = _INTERPRETERS.get(script.suffix)
        return [interpreter, str(script)] if interpreter and not os.access(script, os.X_OK) else [str(script)]


async def _start(argv: list[str], cwd: str, environment: Mapping[str, str], *, stdin: int) -> anyio.abc.Process:
    try:
        return await anyio.open_process(argv, stdin=stdin, cwd=cwd, env=environment, start_new_session=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ToolFailure("unavailable", f"{argv[0]} cannot be started: {reason}") from error


class _ProcessOutput:
    """Output of a process, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.output = bytearray()
        self.errors = bytearray()
        self.is_whole = True

    async def listen(self, process: anyio.abc.Process, given: bytes) -> None:
        """Return when the process has ended and its output is complete, or exceeds the limit."""
        async with anyio.create_task_group() as group:
            group.start_soon(_write, process, given)
            group.start_soon(self._hear_errors, process)
            group.start_soon(self._hear, process, group.cancel_scope)
            await process.wait()
            _signal(process, signal.SIGKILL)  # processes left in its group would hold our ends of the pipes
            group.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS

    async def _hear(self, process: anyio.abc.Process, scope: anyio.CancelScope) -> None:
        async for chunk in _chunks(process.stdout):
            self.output += chunk
            if len(self.output) > self._limit:
                self.is_whole = False
                scope.cancel()

    async def _hear_errors(self, process: anyio.abc.Process) -> None:
        async for chunk in _chunks(process.stderr):
            self.errors += chunk
            del self.errors[:-_STDERR]


async def _chunks(stream: anyio.abc.ByteReceiveStream | None) -> AsyncGenerator[bytes]:
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while stream is not None:
            yield await stream.receive(_CHUNK)


async def _write(process: anyio.abc.Process, given: bytes) -> None:
    if process.stdin is not None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await process.stdin.send(given)
            await process.stdin.aclose()


async def _end(process: anyio.abc.Process) -> None:
    """SIGTERM to the group, a moment, then SIGKILL; take its status and close its pipes.

    Also when the program itself has gone: a cancellation at that moment must not leave processes that it started.
    """
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(_GRACE):
            await process.wait()
    _signal(process, signal.SIGKILL)
    await process.aclose()


def _signal(process: anyio.abc.Process, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)


def arguments_of(command: Command, arguments: Mapping[str, Any], *, skip: int) -> list[str]:
    """Return the arguments of the program, each exactly one, with any content.

    A group with a missing argument is left out. Raises `ToolFailure` for a value that a program would take for an
    option.
    """
    words: list[str] = []
    for group in command.argv[skip:]:
        filled = [word for template in group for word in _filled(template, arguments, is_operand="--" in words)]
        given = [template for template in group if all(arguments.get(name) is not None for name in template.names)]
        if len(given) == len(group):
            words += filled
    return words


def _filled(template: Template, arguments: Mapping[str, Any], *, is_operand: bool) -> list[str]:
    """Return the words for `template`: one word, or one for each item of a list that is the whole template."""
    value = arguments.get(template.only) if template.only else None
    if isinstance(value, list):
        words = [as_text(item) for item in cast("list[Any]", value)]
    else:
        word = template.fill(arguments, as_text)
        words = [] if word is None else [word]
    for word in words:
        if "\0" in word:
            raise ToolFailure("invalid_arguments", "a program's argument cannot hold the character NUL")
        if template.names and not template.pieces[0] and word.startswith("-") and not is_operand:
            raise ToolFailure(
                "invalid_arguments",
                f"{template.names[0]}: {word[:80]!r} would be taken for an option",
                hint="A file of that name is written ./-name; anything else must not begin with a hyphen.",
            )
    return words


def _result(tool: Tool, command: Command, status: int | None, captured: _ProcessOutput) -> ToolResult:
    text = captured.output.decode("utf-8", "replace")
    if not captured.is_whole:
        raise ToolFailure(
            "too_large",
            f"the output of {tool.name} has more than {command.max_output:,} bytes; it was ended",
            hint="Ask for less of it.",
            details={"output": text[:_REASON_CHARACTERS]},
        )
    if status != 0:
        why = (captured.errors.decode("utf-8", "replace").strip() or text.strip())[-_REASON_CHARACTERS:]
        ended = f"ended with status {status}" if (status or 0) >= 0 else f"was ended by signal {-(status or 0)}"
        details = {"exit_status": status, "output": text[-_REASON_CHARACTERS:]}
        raise ToolFailure("tool_error", ": ".join(filter(None, (f"{tool.name} {ended}", why))), details=details)
    if command.output == "text":
        return ToolResult.of_text(text)
    try:
        value = read_json(bytes(captured.output), limit=command.max_output)
    except ValueError as error:
        message = f"{tool.name} printed no JSON: {error}"
        raise ToolFailure("tool_error", message, details={"output": text[-_REASON_CHARACTERS:]}) from None
    return to_result(value)
