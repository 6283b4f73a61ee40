"""Git and its helpers as processes: in the sandbox where there is one, with an environment that is made and not found.

What is run is ours, word by word, and runs nothing of the repository (`harmless_git`); the sandbox stands behind that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Final, Literal

import anyio
import anyio.abc

from toolcrib.plugin import Command, Context, ToolFailure

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
    network: bool = False
    seconds: float = _SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How it ended."""

    status: int
    stdout: bytes
    stderr: bytes

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
    streams: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    seconds = min(program.seconds, max(1.0, ctx.remaining - 1.0))
    try:
        with anyio.fail_after(seconds):
            async with _started(ctx, program, found, environment, given) as running:
                while piece := await running.read():
                    streams[piece[0]].append(piece[1])
                    if sum(map(len, streams[piece[0]])) > _MOST:
                        raise ToolFailure("too_large", f"{name} says more than {_MOST >> 20} MiB")
                status = await running.wait()
    except TimeoutError:
        raise ToolFailure("timeout", f"{name} {program.argv[1]} did not end within {seconds:.0f} s") from None
    return Done(status=status, stdout=b"".join(streams["stdout"]), stderr=b"".join(streams["stderr"]))


class _Plain:
    """A process without a sandbox, read like one in it."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._streams: dict[Literal["stdout", "stderr"], bytes] = {}

    async def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | None:
        """Return one whole stream after the other."""
        if not self._streams:
            self._streams = {"stdout": b"", "stderr": b""}
            async with anyio.create_task_group() as group:
                group.start_soon(self._drain, "stdout", self._process.stdout)
                group.start_soon(self._drain, "stderr", self._process.stderr)
        for name, content in self._streams.items():
            if content:
                self._streams[name] = b""
                return name, content
        return None

    async def wait(self) -> int:
        return await self._process.wait()

    async def _drain(self, name: Literal["stdout", "stderr"], source: anyio.abc.ByteReceiveStream | None) -> None:
        pieces: list[bytes] = []
        if source is not None:
            async for piece in source:
                pieces.append(piece)
        self._streams[name] = b"".join(pieces)
