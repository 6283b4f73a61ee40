"""Commands under Landlock and a seccomp filter: where bubblewrap does not work, for it needs user namespaces.

A command shares the namespaces of the machine. It opens the programs of the machine, its folders and a folder of its
own for home and temporary files, and nothing else; it has no sockets (with the network: none to services of this
machine's own kind), signals, traces and slows down no other process, and changes modes, owners, times and attributes of
no file elsewhere. Weaker than bubblewrap: it sees whether files elsewhere exist, and their sizes; guarded files in its
folders are writable, and put back when it has ended; `.env` files in them are readable; `/tmp`, `/dev/shm` and what
`/proc` has of processes are closed.

    sh -c limits ──► confine.py (first process) ──► supervisor ──► the command
                        │ status: its id                │ makes the calls of `answer.py`
                        └ alive: open while any of them lives; `_end_of` waits for its end, at most 5 s
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio import to_thread

from ..core.sandbox import Command, Reach, Running
from ..errors import ToolFailure
from .bubblewrap import ETC, LINKS, SYSTEM, CommandLimits, CommandLine, clean, programs_in, toolchains, within_bounds
from .comparison import Comparison, check
from .egress import python
from .own_folder import FOLDER_PREFIX, made_folder, remove_folder
from .process import ControlGroup, HeldResources, ProcessMonitor, start, unsent
from .protected_paths import GuardedPaths
from .seccomp import Shared, asked_calls, is_known, opened_filter

_LAUNCHER: Final = Path(__file__).parent / "inside" / "confine.py"
_TRIAL_SECONDS: Final = 10.0
_REMOVAL_SECONDS: Final = 5.0
"""For the supervisor to kill what a command started."""
_PROC_FILES: Final = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version")
"""Parts of `/proc` about the machine, not about a process."""
_ETC_FILES: Final = (
    "alpine-release", "debian_version", "fedora-release", "host.conf", "lsb-release", "os-release", "redhat-release",
    "system-release",
)  # fmt: skip
"""Parts of `/etc` that programs do without where they are missing, and not where they may not read them: pip ends."""
_TOOLCHAIN_VARIABLES: Final = {
    ".asdf": "ASDF_DATA_DIR", ".goenv": "GOENV_ROOT", ".jenv": "JENV_ROOT", ".local/share/mise": "MISE_DATA_DIR",
    ".nodenv": "NODENV_ROOT", ".nvm": "NVM_DIR", ".pyenv": "PYENV_ROOT", ".rbenv": "RBENV_ROOT",
    ".rustup": "RUSTUP_HOME", ".sdkman": "SDKMAN_DIR", ".volta": "VOLTA_HOME",
}  # fmt: skip
"""Folders of programs below a home, with the variables by which these find them from another home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landlock:
    """Commands that Landlock restricts (Linux 6.12 or newer)."""

    environ: Mapping[str, str] = field(repr=False)
    """Environment of this process."""
    bounds: CommandLimits = field(default_factory=CommandLimits)
    network: bool | Reach = False
    """Network that the operator permits to the model's commands; named hosts cannot be reached."""
    comparison: Comparison = field(default_factory=Comparison, repr=False)
    kind: Literal["landlock"] = "landlock"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`.

        Raises `ToolFailure("unavailable")` for one that is to reach named hosts, unless it is a trusted program.
        """
        check(command)
        if isinstance(command.network, Reach) and command.network and not command.trusted:
            message = "a command under Landlock reaches the whole network or none, no named hosts"
            raise ToolFailure("unavailable", message, hint="install bubblewrap")
        async with AsyncExitStack() as stack:
            own = await to_thread.run_sync(made_folder)
            stack.push_async_callback(_remove, own)
            compared = await self.comparison.begin(command, mounts=False)
            stack.push_async_callback(compared.finish)
            group = ControlGroup(self.bounds.processes)
            stack.push_async_callback(group.close)
            with unsent() as send:
                alive_end, alive = os.pipe()
                stack.push_async_callback(_end_of, alive_end)
                send(alive)
                status_end, status = os.pipe()
                watched = ProcessMonitor(status_end, self.bounds, (command.cwd, own), group)
                stack.callback(watched.close)
                wires = (send(status), alive, send(opened_filter(Shared(network=bool(command.network)))))
                line = self.line(command, compared.guarded, own, wires, group.entrance)
            held = HeldResources(descriptors=wires, watched=watched, tidy=compared.tidy)
            running = await stack.enter_async_context(start(line, None, terminal=command.terminal, held=held))
            compared.attach(running)
            yield running

    def line(
        self, command: Command, guarded: GuardedPaths, own: Path, wires: tuple[int, int, int], group: str
    ) -> CommandLine:
        """Return the line for a command. `own` is its home; `wires` are the descriptors that the launcher closes."""
        home = Path(self.environ.get("HOME") or "/nonexistent")
        chains = toolchains(home)
        programs = programs_in(self.environ, (*chains, *command.folders))
        environment = {
            **clean(self.environ, own, programs),
            **{variable: str(home / name) for name, variable in _TOOLCHAIN_VARIABLES.items() if home / name in chains},
            "TMPDIR": str(own),
            "GIT_CONFIG_NOSYSTEM": "1",  # git complains of a file that it may not read
            **command.environment,
        }
        words = [f"{name}={wire}" for name, wire in zip(("status", "alive", "filter"), wires, strict=True)]
        words += [f"asked={number}:{name}" for number, name in asked_calls().items()]
        words += [f"network={'yes' if command.network else 'no'}", f"cwd={command.cwd}"]
        words += [f"read={path}" for path in (*_system(), *chains, *command.readable, *guarded.shown)]
        rights = "read" if command.read_only else "write"
        words += [f"{rights}={path.resolve()}" for path in (*command.folders, *guarded.fixed)]
        launcher = (*python(), str(_LAUNCHER), *words, f"write={own}", "--", *command.argv)
        return CommandLine(argv=(*within_bounds(self.bounds, group), *launcher), environment=environment)


async def _end_of(alive: int) -> None:
    """Wait until nothing of a command holds the other end, and close this one."""
    try:
        with anyio.move_on_after(_REMOVAL_SECONDS, shield=True):
            await anyio.wait_readable(alive)
    finally:
        with suppress(OSError):
            os.close(alive)


async def _remove(own: Path) -> None:
    with anyio.CancelScope(shield=True):
        await to_thread.run_sync(remove_folder, own)


def _system() -> Iterator[str]:
    """Yield what every command reads: the programs of the machine and what they need."""
    for place in (*SYSTEM, *LINKS):
        yield os.path.realpath(place)
    for name in (*ETC, *_ETC_FILES):
        yield os.path.realpath(f"/etc/{name}")
    for name in _PROC_FILES:
        yield f"/proc/{name}"


def find_landlock(
    environ: Mapping[str, str],
    *,
    network: bool | Reach,
    bounds: CommandLimits,
    comparison: Comparison,
) -> tuple[Landlock | None, str]:
    """Return the Landlock sandbox, or None and the reason. Runs a command: for a thread."""
    if isinstance(network, Reach) and network:
        return None, "commands under Landlock reach the whole network or none (`shell.network` is true or false)"
    if not is_known():
        return None, f"the calls of a {platform.machine()} are not known"
    landlock = Landlock(environ=environ, bounds=bounds, network=network, comparison=comparison)
    if not _trials:  # one trial counts for the whole process
        _trials[""] = _run_trial(landlock)
    problem = _trials[""]
    return (None, f"Landlock does not work here: {problem}") if problem else (landlock, "")


_trials: Final[dict[str, str]] = {}


def _run_trial(landlock: Landlock) -> str:
    command = Command(argv=("/bin/true",), cwd=Path("/"), folders=())
    reading, status = os.pipe()
    alive_end, alive = os.pipe()
    wires = (status, alive, opened_filter(Shared(network=False)))
    try:
        with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as own:
            line = landlock.line(command, GuardedPaths(), Path(own).resolve(), wires, "")
            done = subprocess.run(
                line.argv,
                env=dict(line.environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TRIAL_SECONDS,
                check=False,
                pass_fds=wires,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        for wire in (reading, alive_end, *wires):
            os.close(wire)
    problem = done.stderr.decode("utf-8", "replace").strip()[:500] or f"status {done.returncode}"
    return problem if done.returncode else ""
