"""Git and its helpers as processes: in the sandbox where there is one, with an environment that is made and not found.

What is run is ours, word by word, and runs nothing of the repository (`harmless_git`); the sandbox stands behind that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from toolcrib.plugin import Command, Context, Reach, Running, ToolFailure

__all__ = ["Done", "Program", "run"]

_MOST: Final = 16 * 1024 * 1024
"""Bytes of output; more is an error."""
_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program with its arguments."""

    argv: Sequence[str]
    cwd: Path
    folders: tuple[Path, ...]
    """What it may write in."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    readable: tuple[Path, ...] = ()
    network: bool | Reach = False
    trusted: bool = True
    """It runs nothing of the workspace."""
    seconds: float = _SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How it ended."""

    status: int
    stdout: bytes
    stderr: bytes
    refused: tuple[str, ...] = ()
    """What it wanted to reach and may not, each with the reason."""

    @property
    def text(self) -> str:
        """Its output, without the last line end."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")

    @property
    def said(self) -> str:
        """What it said, for a message: the end of its errors, else of its output."""
        return (self.stderr or self.stdout).decode("utf-8", "replace").strip()[-1500:]


async def run(ctx: Context, program: Program, given: bytes = b"") -> Done:
    """Run a program to its end, with `given` as its input.

    Raises `ToolFailure`: `unavailable` when it is not installed, `timeout`, `too_large`.
    """
    name = program.argv[0]
    found = shutil.which(name)
    if found is None:
        raise ToolFailure("unavailable", f"{name} is not installed")
    places = dict.fromkeys([str(Path(found).parent), *os.defpath.split(os.pathsep)])
    environment = {"PATH": os.pathsep.join(places), **program.environment}
    argv = (found, *program.argv[1:])
    seconds = min(program.seconds, max(1.0, ctx.remaining - 1.0))
    try:
        with anyio.fail_after(seconds):
            if ctx.sandbox is None:
                done = await anyio.run_process(argv, input=given, cwd=program.cwd, env=environment, check=False)
                return Done(status=done.returncode, stdout=done.stdout, stderr=done.stderr)
            command = Command(
                argv=argv,
                cwd=program.cwd,
                folders=program.folders,
                environment=environment,
                readable=program.readable,
                network=program.network,
                trusted=program.trusted,
            )
            async with ctx.sandbox.open(command) as running:
                return await _finished(running, given)
    except TimeoutError:
        raise ToolFailure("timeout", f"{name} {program.argv[1]} did not end within {seconds:.0f} s") from None


async def _finished(running: Running, given: bytes) -> Done:
    streams: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    size = 0

    async def feed() -> None:
        with suppress(ToolFailure):  # it has ended before it had read everything
            if given:
                await running.write(given)
            await running.close_input()

    async with anyio.create_task_group() as group:
        group.start_soon(feed)
        while size <= _MOST and (piece := await running.read()):
            streams[piece[0]].append(piece[1])
            size += len(piece[1])
        group.cancel_scope.cancel()
    if size > _MOST:
        raise ToolFailure(
            "too_large", f"it says more than {_MOST >> 20} MiB", hint="ask for less: one file, fewer commits"
        )
    finished = await running.wait()
    return Done(
        status=finished.status,
        stdout=b"".join(streams["stdout"]),
        stderr=b"".join(streams["stderr"]),
        refused=tuple(running.refused),
    )
