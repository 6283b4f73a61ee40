"""The sandbox of this machine: found once, tried before it is trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from ..core.sandbox import Command, Running, Sandbox
from ..errors import ToolFailure
from . import visible
from .bubblewrap import Bounds, Line, Maker, line
from .guarding import Guarded, guarded_in, put_aside
from .running import Process, start
from .watching import Watched

__all__ = ["Bubblewrap", "Unsandboxed", "find_sandbox"]

_SECONDS: Final = 10.0
"""For the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """Commands in bubblewrap."""

    maker: Maker = field(repr=False)
    network: bool = False
    """Whether the operator lets commands of the model reach the network."""
    kind: Literal["bubblewrap"] = "bubblewrap"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`."""
        _check(command)
        guarded = guarded_in(command.folders, trusted=command.trusted)
        told, tell = os.pipe()
        watched = Watched(told, self.maker.bounds, command.cwd)
        built = line(self.maker, command, guarded, tell)
        running: Process | None = None
        try:
            async with start(built, None, terminal=command.terminal, told=(tell,), watched=watched) as running:
                yield running
        finally:
            watched.close()
            aside = put_aside(guarded)
            if running is not None:
                running.aside = aside


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsandboxed:
    """Commands as we run ourselves, with a clean environment. Only where the operator said so."""

    environ: Mapping[str, str] = field(repr=False)
    network: bool = True
    """Nothing keeps them from it."""
    kind: Literal["none"] = "none"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`."""
        _check(command)
        home = Path(self.environ.get("HOME") or "/")
        programs = self.environ.get("PATH", os.defpath).split(os.pathsep)
        environment = {**visible.clean(self.environ, home, programs), **command.environment}
        built = Line(argv=command.argv, environment=environment)
        async with start(built, command.cwd, terminal=command.terminal) as running:
            yield running


def find_sandbox(
    environ: Mapping[str, str], *, unsandboxed: bool = False, network: bool = False, bounds: Bounds | None = None
) -> tuple[Sandbox | None, str]:
    """Return the sandbox of this machine, or None, and why it is not bubblewrap. Runs a command: for a thread.

    `unsandboxed`: the operator accepts commands without one, where there is none. A trial counts for the whole process.
    """
    program = shutil.which("bwrap", path=environ.get("PATH", os.defpath))
    why = "bubblewrap (bwrap) is not installed"
    if program is not None:
        for alone in (True, False):  # what is older than 0.8, or runs in some containers, cannot switch them off
            maker = Maker(program=program, environ=environ, bounds=bounds or Bounds(), alone=alone)
            if not (said := _tried(maker)):
                return Bubblewrap(maker=maker, network=network), ""
            why = f"bubblewrap does not work here: {said}"
    return (Unsandboxed(environ=environ), why) if unsandboxed else (None, why)


def _check(command: Command) -> None:
    if not any(command.cwd.is_relative_to(folder) for folder in command.folders):
        raise ToolFailure("denied", f"{command.cwd} is outside the folders that commands may work in")


_trials: Final[dict[tuple[str, ...], str]] = {}


def _tried(maker: Maker) -> str:
    """Return why this machine cannot hold a command like that; empty when it can."""
    root = Path("/")
    built = line(maker, Command(argv=("/bin/true",), cwd=root, folders=()), Guarded())
    if built.argv not in _trials:
        try:
            done = subprocess.run(
                built.argv, env=dict(built.environment), capture_output=True, timeout=_SECONDS, check=False
            )
            said = done.stderr.decode("utf-8", "replace").strip()[:500] or "it fails"
            _trials[built.argv] = "" if done.returncode == 0 else said
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return _trials[built.argv]
