"""The sandbox of this machine: found once, tried before it is trusted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from anyio import to_thread

from ..core.sandbox import Command, Running, Sandbox
from ..errors import ToolFailure
from . import visible
from .bubblewrap import Bounds, line
from .running import start

__all__ = ["Bubblewrap", "Unsandboxed", "find_sandbox"]

_SECONDS: Final = 10.0
"""For the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """Commands in bubblewrap."""

    program: str
    environ: Mapping[str, str] = field(repr=False)
    bounds: Bounds = field(default_factory=Bounds)
    kind: Literal["bubblewrap"] = "bubblewrap"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`."""
        _check(command)
        built = line(self.program, command, self.environ, self.bounds)
        async with start(built.argv, built.environment, None, terminal=command.terminal) as running:
            yield running

    def works(self) -> str:
        """Return why it cannot be used on this machine; empty when it can. Runs a command: for a thread."""
        root = Path("/")
        built = line(self.program, Command(argv=("/bin/true",), cwd=root, folders=()), self.environ, self.bounds)
        try:
            done = subprocess.run(
                built.argv, env=dict(built.environment), capture_output=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip()[:500] or "it fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsandboxed:
    """Commands as we run ourselves, with a clean environment. Only where the operator said so."""

    environ: Mapping[str, str] = field(repr=False)
    kind: Literal["none"] = "none"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`."""
        _check(command)
        home = Path(self.environ.get("HOME") or "/")
        programs = self.environ.get("PATH", "/usr/bin:/bin").split(":")
        environment = {**visible.clean(self.environ, home, programs), **command.environment}
        async with start(command.argv, environment, command.cwd, terminal=command.terminal) as running:
            yield running


async def find_sandbox(environ: Mapping[str, str], *, unsandboxed: bool, bounds: Bounds) -> tuple[Sandbox | None, str]:
    """Return the sandbox of this machine, or None and why there is none.

    `unsandboxed`: the operator accepts commands without one, where there is none.
    """
    program = shutil.which("bwrap", path=environ.get("PATH"))
    why = "bubblewrap (bwrap) is not installed"
    if program is not None:
        sandbox = Bubblewrap(program=program, environ=environ, bounds=bounds)
        why = await to_thread.run_sync(sandbox.works)
        if not why:
            return sandbox, ""
        why = f"bubblewrap does not work here: {why}"
    return (Unsandboxed(environ=environ), why) if unsandboxed else (None, why)


def _check(command: Command) -> None:
    if not any(command.cwd.is_relative_to(folder) for folder in command.folders):
        raise ToolFailure("denied", f"{command.cwd} is outside the folders that commands may work in")
