"""Detection of this machine's sandbox: found once, tried before it is trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from ..core.sandbox import Command, Outlet, Reach, Running, Sandbox
from . import bubblewrap
from .bubblewrap import CommandLimits, CommandLine, CommandLineMaker, InheritedDescriptors, line, opened_users
from .comparison import Comparison, check
from .egress import SocketTransfer
from .process import ControlGroup, HeldResources, ProcessMonitor, start, unsent
from .protected_paths import GuardedPaths
from .seccomp import opened_filter

_TRIAL_SECONDS: Final = 10.0
"""For the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """Commands in bubblewrap.

    Frozen and shared by all commands of a crib, which may run concurrently.
    """

    maker: CommandLineMaker = field(repr=False)
    network: bool | Reach = False
    """Network destinations that the operator permits to the model's commands."""
    outlet: Outlet | None = field(default=None, repr=False)
    """Serves commands that reach named hosts; without one they reach nothing."""
    comparison: Comparison = field(default_factory=Comparison, repr=False)
    kind: Literal["bubblewrap"] = "bubblewrap"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`."""
        check(command)
        async with AsyncExitStack() as stack:
            compared = await self.comparison.begin(command)
            stack.push_async_callback(compared.finish)
            with unsent() as send:
                handing = None
                if isinstance(command.network, Reach) and command.network and self.outlet is not None:
                    handing = SocketTransfer(self.outlet, command.network)
                    stack.callback(handing.close)
                group = ControlGroup(self.maker.bounds.processes)
                stack.push_async_callback(group.close)
                control = send(handing.control if handing else -1)
                status_end, status = os.pipe()
                watched = ProcessMonitor(status_end, self.maker.bounds, (command.cwd,), group)
                stack.callback(watched.close)
                wires = InheritedDescriptors(
                    status=send(status),
                    filter=send(opened_filter()),
                    control=control,
                    users=send(opened_users(Path(self.maker.environ.get("HOME") or "/nonexistent"))),
                )
                built = line(self.maker, command, compared.guarded, wires, group.entrance)
            held = HeldResources(descriptors=tuple(wires), watched=watched, handing=handing, tidy=compared.tidy)
            running = await stack.enter_async_context(start(built, None, terminal=command.terminal, held=held))
            compared.attach(running)
            yield running


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsandboxed:
    """Commands without a sandbox, in a clean environment. Only where the operator allows it.

    What they leave behind is compared as in a sandbox. Nothing is read-only for them, the user's own repositories
    included: these are compared, too.

    Memory, files and processes have no bounds there but those of the user.
    """

    environ: Mapping[str, str] = field(repr=False)
    network: bool = True
    """Whether the network is open; always true without a sandbox."""
    comparison: Comparison = field(default_factory=Comparison, repr=False)
    kind: Literal["none"] = "none"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`."""
        check(command)
        home = Path(self.environ.get("HOME") or "/")
        programs = self.environ.get("PATH", os.defpath).split(os.pathsep)
        environment = {**bubblewrap.clean(self.environ, home, programs), **command.environment}
        built = CommandLine(argv=command.argv, environment=environment)
        compared = await self.comparison.begin(command, mounts=False)
        try:
            async with start(built, command.cwd, terminal=command.terminal) as running:
                compared.attach(running)
                yield running
        finally:
            await compared.finish()


def find_sandbox(
    environ: Mapping[str, str],
    *,
    unsandboxed: bool = False,
    landlock: bool = False,
    seatbelt: bool = False,
    container: str = "",
    network: bool | Reach = False,
    outlet: Outlet | None = None,
    bounds: CommandLimits | None = None,
    comparison: Comparison | None = None,
) -> tuple[Sandbox | None, str]:
    """Return the sandbox of this machine, or None, and why it is neither bubblewrap nor the container that was named.

    Runs a command: call it in a thread. `landlock`, `seatbelt`: commands run under these where bubblewrap does not
    work; `unsandboxed`: the operator accepts commands without a sandbox, where none is found; `container`: the image in
    which commands run instead. `network`, `outlet`: the model's destinations, and the server of named hosts.
    `comparison`: who else writes files than commands. A trial of bubblewrap or Landlock counts for the whole process.
    """
    bounds, comparison = bounds or CommandLimits(), comparison or Comparison()
    if container:
        from .container import find_container  # as the others below: most machines have bubblewrap

        return find_container(container, environ, network=network, bounds=bounds, comparison=comparison)
    program = shutil.which("bwrap", path=environ.get("PATH", os.defpath))
    why = "bubblewrap (bwrap) is not installed"
    if program is not None:
        for alone in (True, False):  # versions before 0.8, and some containers, cannot disable them
            maker = CommandLineMaker(program=program, environ=environ, bounds=bounds, alone=alone)
            if not (problem := _run_trial(maker)):
                return (
                    Bubblewrap(maker=maker, network=network, outlet=outlet, comparison=comparison),
                    "",
                )
            why = f"bubblewrap does not work here: {problem}"
    from .landlock import find_landlock
    from .seatbelt import find_seatbelt

    for find in (*([find_landlock] if landlock else ()), *([find_seatbelt] if seatbelt else ())):
        found, problem = find(environ, network=network, bounds=bounds, comparison=comparison)
        if found is not None:
            return found, why
        why = f"{why}; {problem}"
    if not unsandboxed:
        return None, why
    return Unsandboxed(environ=environ, comparison=comparison), why


_trials: Final[dict[tuple[str, ...], str]] = {}


def _run_trial(maker: CommandLineMaker) -> str:
    """Return why this machine cannot hold a command like that; empty when it can.

    A trial that could not be made (no time, no program) is not remembered, the outcome of any other one is.
    """
    command = Command(argv=("/bin/true",), cwd=Path("/"), folders=())
    known = line(maker, command, GuardedPaths(), InheritedDescriptors()).argv
    if known not in _trials:
        wires = InheritedDescriptors(filter=opened_filter())
        built = line(maker, command, GuardedPaths(), wires)
        try:
            done = subprocess.run(
                built.argv,
                env=dict(built.environment),
                capture_output=True,
                timeout=_TRIAL_SECONDS,
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
