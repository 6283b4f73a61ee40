"""shell: one shell for a session, which keeps its folder and variables, and commands in the background."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from subprocess import DEVNULL, STDOUT

import anyio
from anyio.abc import Process

from toolcrib import ToolFailure
from toolcrib.core.context import Context
from toolcrib.sources.yaml.run_code import ToolContext

__all__ = ["Shell", "run_command", "run_tests"]

_MARK = "__sidecar_done__"


class Shell:
    """A `sh` that lives as long as its session; one command at a time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.ended = False
        self._turn = anyio.Lock()
        self._pending = b""

    @classmethod
    async def of(cls, context: Context) -> Shell:
        """Return the session's shell, started when there is none or when the last one has ended."""
        known = context.runtime.get("shell")
        if known is None or known.ended or known.process.returncode is not None:
            known = context.runtime["shell"] = cls(
                await anyio.open_process(["sh"], cwd=context.cwd, stderr=STDOUT, start_new_session=True)
            )
        return known

    async def run(self, command: str, context: Context) -> str:
        """Run `command`, telling each line as it comes; cancelled, the shell ends with all that it runs."""
        async with self._turn:
            assert self.process.stdin is not None
            try:
                await self.process.stdin.send(f"{command}\nprintf '\\n{_MARK}%s\\n' $?\n".encode())
                return await self._answer(context)
            except anyio.get_cancelled_exc_class():
                self.close()
                raise

    async def _answer(self, context: Context) -> str:
        lines: list[str] = []
        while True:
            line = await self._line()
            if line.startswith(_MARK):
                code = line.removeprefix(_MARK).strip()
                text = "".join(lines).rstrip("\n")
                return text if code == "0" else f"{text}\n(exit code {code})".lstrip("\n")
            lines.append(line)
            await context.output(line)

    async def _line(self) -> str:
        assert self.process.stdout is not None
        while b"\n" not in self._pending:
            try:
                self._pending += await self.process.stdout.receive()
            except anyio.EndOfStream:
                raise ToolFailure("tool_error", "the shell has ended") from None
        line, _, self._pending = self._pending.partition(b"\n")
        return f"{line.decode(errors='replace')}\n"

    def close(self) -> None:
        """End the shell and everything that it has started; whoever asks next gets another one."""
        self.ended = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        """End it, and wait until it is gone."""
        self.close()
        await self.process.wait()


class _Command:
    """A command in the background; what it says is in a file."""

    def __init__(self, process: Process, log: str) -> None:
        self.process = process
        self.log = log

    async def aclose(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()


async def run_command(
    context: ToolContext, command: str = "", command_id: str = "", timeout: float = 60, background: bool = False
) -> str:
    call = context.call
    if command_id:
        return await _look(call, command_id)
    if not command.strip():
        raise ToolFailure("tool_error", "a command or a command_id is needed")
    if background:
        return await _begin(call, command)
    shell = await Shell.of(call)
    try:
        with anyio.fail_after(timeout):
            return await shell.run(command, call)
    except TimeoutError:
        raise ToolFailure("timeout", f"the command did not end within {timeout:g} s and was stopped") from None


async def run_tests(context: ToolContext, command: str = "", file: str = "") -> str:
    shell = await Shell.of(context.call)
    return await shell.run(f"{command or f'{sys.executable} -m pytest -q -p no:cacheprovider'} {file}", context.call)


async def _begin(call: Context, command: str) -> str:
    number = sum(name.startswith("cmd_") for name in call.runtime) + 1
    name = f"cmd_{number}"
    log = f".{name}.log"
    words = ["sh", "-c", f"( {command}\n) > {log} 2>&1"]
    process = await anyio.open_process(
        words, cwd=call.cwd, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )
    call.runtime[name] = _Command(process, log)
    return f"Started in the background as {name}."


async def _look(call: Context, name: str) -> str:
    known = call.runtime.get(name)
    if not isinstance(known, _Command):
        raise ToolFailure("tool_error", f"there is no command {name}")
    state = "running" if known.process.returncode is None else f"exit code {known.process.returncode}"
    log = anyio.Path(call.path(known.log))
    text = await log.read_text("utf-8") if await log.exists() else ""
    return f"({state})\n{text}".rstrip()
