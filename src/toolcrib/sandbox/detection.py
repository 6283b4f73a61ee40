"""Detection of this machine's sandbox: found once, tried before it is trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio import to_thread

from ..core.sandbox import Command, Outlet, Reach, Running, Sandbox
from . import bubblewrap
from .bubblewrap import Bounds, Line, Maker, Wires, line
from .comparison import Brought, check, compare, compared, tidy
from .container import find_container
from .egress import Handing
from .landlock import find_landlock
from .process import Group, Held, Process, Watched, start
from .protected_paths import Guarded, Repositories, guarded_in
from .seatbelt import find_seatbelt
from .seccomp import opened_filter

__all__ = ["Bubblewrap", "Unsandboxed", "find_sandbox"]

_SECONDS: Final = 10.0
"""For the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """Commands in bubblewrap."""

    maker: Maker = field(repr=False)
    network: bool | Reach = False
    """Network destinations that the operator permits to the model's commands."""
    outlet: Outlet | None = field(default=None, repr=False)
    """Serves commands that reach named hosts; without one they reach nothing."""
    repositories: Repositories = field(default_factory=Repositories, repr=False)
    is_written: Callable[[Path], bool] = field(default=lambda path: False, repr=False)
    """Whether a file tool wrote a file meanwhile."""
    brought: Brought | None = field(default=None, repr=False)
    """Whether git brought a file from a commit; without it every new file is the command's own."""
    kind: Literal["bubblewrap"] = "bubblewrap"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`."""
        check(command)
        began = time.time_ns()
        guarded = await to_thread.run_sync(
            partial(guarded_in, command.folders, self.repositories, trusted=command.trusted)
        )
        handing = None
        if isinstance(command.network, Reach) and command.network and self.outlet is not None:
            handing = Handing(self.outlet, command.network)
        status_end, status = os.pipe()
        group = Group(self.maker.bounds.processes)
        watched = Watched(status_end, self.maker.bounds, (command.cwd,), group)
        wires = Wires(status=status, filter=opened_filter(), control=handing.control if handing else -1)
        built = line(self.maker, command, guarded, wires, group.entrance)
        moved: list[str] = []
        held = Held(descriptors=tuple(wires), watched=watched, handing=handing, tidy=partial(tidy, guarded, moved))
        running: Process | None = None
        try:
            async with start(built, None, terminal=command.terminal, held=held) as running:
                running.comparison = partial(compared, self, guarded, began, running)
                yield running
        finally:
            watched.close()
            await group.close()
            if handing is not None:
                handing.close()
            with anyio.CancelScope(shield=True):
                await compare(self, guarded, began, moved, running)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsandboxed:
    """Commands without a sandbox, in a clean environment. Only where the operator allows it.

    What they leave behind is compared as in a sandbox. Nothing is read-only for them, the user's own repositories
    included: these are compared, too.
    """

    environ: Mapping[str, str] = field(repr=False)
    network: bool = True
    """Whether the network is open; always true without a sandbox."""
    repositories: Repositories = field(default_factory=Repositories, repr=False)
    is_written: Callable[[Path], bool] = field(default=lambda path: False, repr=False)
    """As for `Bubblewrap`."""
    brought: Brought | None = field(default=None, repr=False)
    """As for `Bubblewrap`."""
    kind: Literal["none"] = "none"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`."""
        check(command)
        home = Path(self.environ.get("HOME") or "/")
        programs = self.environ.get("PATH", os.defpath).split(os.pathsep)
        environment = {**bubblewrap.clean(self.environ, home, programs), **command.environment}
        built = Line(argv=command.argv, environment=environment)
        began = time.time_ns()
        guarded = await to_thread.run_sync(
            partial(guarded_in, command.folders, self.repositories, trusted=command.trusted, mounts=False)
        )
        running: Process | None = None
        try:
            async with start(built, command.cwd, terminal=command.terminal) as running:
                running.comparison = partial(compared, self, guarded, began, running)
                yield running
        finally:
            with anyio.CancelScope(shield=True):
                await compare(self, guarded, began, [], running)


def find_sandbox(
    environ: Mapping[str, str],
    *,
    unsandboxed: bool = False,
    landlock: bool = False,
    seatbelt: bool = False,
    container: str = "",
    network: bool | Reach = False,
    outlet: Outlet | None = None,
    bounds: Bounds | None = None,
    is_written: Callable[[Path], bool] = lambda path: False,
    brought: Brought | None = None,
) -> tuple[Sandbox | None, str]:
    """Return the sandbox of this machine, or None, and why it is neither bubblewrap nor the container that was named.

    Runs a command: call it in a thread. `landlock`, `seatbelt`: commands run under these where bubblewrap does not
    work;
    `unsandboxed`: the operator accepts commands without a sandbox, where none is found; `container`: the image in which
    commands run instead. `network`, `outlet`: the model's destinations, and the
    server of named hosts. `is_written`, `brought`: whether a file tool wrote a file, or git brought it. A trial of
    bubblewrap counts for the whole process.
    """
    bounds = bounds or Bounds()
    if container:
        return find_container(
            container, environ, network=network, bounds=bounds, is_written=is_written, brought=brought
        )
    program = shutil.which("bwrap", path=environ.get("PATH", os.defpath))
    why = "bubblewrap (bwrap) is not installed"
    if program is not None:
        for alone in (True, False):  # versions before 0.8, and some containers, cannot disable them
            maker = Maker(program=program, environ=environ, bounds=bounds, alone=alone)
            if not (problem := _tried(maker)):
                return (
                    Bubblewrap(maker=maker, network=network, outlet=outlet, is_written=is_written, brought=brought),
                    "",
                )
            why = f"bubblewrap does not work here: {problem}"
    for find in (*([find_landlock] if landlock else ()), *([find_seatbelt] if seatbelt else ())):
        found, problem = find(environ, network=network, bounds=bounds, is_written=is_written, brought=brought)
        if found is not None:
            return found, why
        why = f"{why}; {problem}"
    if not unsandboxed:
        return None, why
    return Unsandboxed(environ=environ, is_written=is_written, brought=brought), why


_trials: Final[dict[tuple[str, ...], str]] = {}


def _tried(maker: Maker) -> str:
    """Return why this machine cannot hold a command like that; empty when it can."""
    command = Command(argv=("/bin/true",), cwd=Path("/"), folders=())
    known = line(maker, command, Guarded(), Wires()).argv
    if known not in _trials:
        wires = Wires(filter=opened_filter())
        built = line(maker, command, Guarded(), wires)
        try:
            done = subprocess.run(
                built.argv,
                env=dict(built.environment),
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                pass_fds=tuple(wires),
            )
            problem = done.stderr.decode("utf-8", "replace").strip()[:500] or "it fails"
            _trials[known] = "" if done.returncode == 0 else problem
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        finally:
            for wire in wires:
                os.close(wire)
    return _trials[known]
