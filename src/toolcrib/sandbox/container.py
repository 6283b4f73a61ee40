"""Commands in a container of an image that the operator has named: `shell: {container: IMAGE}`.

A command sees the programs of the image, not those of this machine, and of the disk the workspace alone, at the same
path. The file system of the image is read-only, `/tmp` is in memory. Docker and Podman take the same words. The image
has to be on this machine: nothing is fetched.

    docker run --rm --name toolcrib-PID-RANDOM … IMAGE WORDS

The process that we start is the client of the engine; killing it leaves the container, so `_remove` ends that by name.
`_sweep` removes those of dead processes when a sandbox is looked for.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import anyio

from ..core.processes import is_alive
from ..core.sandbox import Command, Reach, Running
from ..errors import ToolFailure
from .bubblewrap import CommandLimits, CommandLine
from .comparison import Comparison, check
from .process import HeldResources, start
from .protected_paths import GuardedPaths

ENGINES: Final = ("docker", "podman")
"""Programs that run containers, in the order in which they are looked for."""
_NAME_PREFIX: Final = "toolcrib"
_TRIAL_SECONDS: Final = 60.0
_REMOVAL_SECONDS: Final = 20.0
_MAX_USER_PROCESSES: Final = 4096
"""Processes of the user, whose others count, too. Engines set more than some machines let them."""
_PASSED_VARIABLES: Final = ("LANG", "LANGUAGE", "LC_ALL", "TERM", "TZ")
"""Variables of this process that a command gets."""
_ISOLATION_OPTIONS: Final = (
    "--rm", "--interactive", "--read-only", "--pull", "never", "--cap-drop", "ALL",
    "--security-opt", "no-new-privileges", "--ulimit", "core=0:0", "--entrypoint", "", "--stop-timeout", "0",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Commands in containers of one image."""

    engine: str
    """Path of the program that runs containers."""
    image: str
    environ: Mapping[str, str] = field(repr=False)
    """Environment of the engine: where its service listens."""
    bounds: CommandLimits = field(default_factory=CommandLimits)
    network: bool | Reach = False
    """Network that the operator permits to the model's commands; named hosts cannot be reached."""
    comparison: Comparison = field(default_factory=Comparison, repr=False)
    kind: Literal["container"] = "container"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`.

        Raises `ToolFailure("unavailable")` for one that is to reach named hosts.
        """
        check(command)
        if isinstance(command.network, Reach) and command.network:
            message = "a command in a container reaches the whole network or none, no named hosts"
            raise ToolFailure("unavailable", message)
        compared = await self.comparison.begin(command)
        name = f"{_NAME_PREFIX}-{os.getpid()}-{secrets.token_hex(6)}"
        language = {name: self.environ[name] for name in _PASSED_VARIABLES if name in self.environ}
        with _variables({**language, "HOME": "/tmp", **command.environment}) as variables:
            options = (*variables, *self.options(command, compared.guarded))
            argv = (self.engine, "run", "--name", name, *options, *_words(command))
            line = CommandLine(argv=argv, environment=dict(self.environ))
            try:
                held = HeldResources(tidy=compared.tidy)
                async with start(line, None, terminal=command.terminal, held=held) as running:
                    compared.attach(running)
                    yield running
            finally:
                with anyio.CancelScope(shield=True):
                    await self._remove(name)
                    await compared.finish()

    def options(self, command: Command, guarded: GuardedPaths) -> Iterator[str]:
        """Yield the options of a run, and the image."""
        bounds = self.bounds
        yield from _ISOLATION_OPTIONS
        yield from ("--user", f"{os.getuid()}:{os.getgid()}", "--workdir", str(command.cwd))
        yield from ("--network", "none") if not command.network else ()
        yield from ("--memory", str(bounds.memory), "--pids-limit", str(bounds.processes))
        yield from ("--ulimit", f"fsize={bounds.file}:{bounds.file}")
        yield from ("--ulimit", f"nofile={bounds.open_files}:{bounds.open_files}")
        yield from ("--ulimit", f"nproc={_MAX_USER_PROCESSES}:{_MAX_USER_PROCESSES}")
        yield from ("--tmpfs", f"/tmp:rw,exec,nosuid,nodev,size={bounds.memory},mode=1777")
        yield from ("--tty",) if command.terminal else ()
        for path in (*command.readable, *guarded.shown):
            yield from _mount(path, read_only=True) if path.exists() else ()
        for folder in (*command.folders, *guarded.fixed):
            yield from _mount(folder, read_only=command.read_only)
        for path in guarded.kept:
            yield from _mount(path, read_only=True)
        for path in guarded.hidden:
            yield from _mount(path, read_only=True, source=Path(os.devnull))
        yield self.image

    async def _remove(self, name: str) -> None:
        """End a container that outlived its command; one that ended is gone already."""
        with suppress(OSError), anyio.move_on_after(_REMOVAL_SECONDS):
            await anyio.run_process([self.engine, "rm", "--force", name], env=dict(self.environ), check=False)


def find_container(
    image: str,
    environ: Mapping[str, str],
    *,
    network: bool | Reach,
    bounds: CommandLimits,
    comparison: Comparison,
) -> tuple[Container | None, str]:
    """Return the sandbox in containers of an image, or None and the reason. Runs a container: for a thread."""
    if isinstance(network, Reach) and network:
        return None, "commands in a container reach the whole network or none: `shell.network` is true or false there"
    path = environ.get("PATH", os.defpath)
    problems: list[str] = []
    for engine in (found for name in ENGINES if (found := shutil.which(name, path=path))):
        container = Container(
            engine=engine,
            image=image,
            environ=environ,
            bounds=bounds,
            network=network,
            comparison=comparison,
        )
        problem = _problem(container)
        if not problem:
            return container, ""
        problems.append(f"{Path(engine).name} cannot run {image}: {problem}")
    return None, "; ".join(problems) or f"`shell.container` needs {' or '.join(ENGINES)}, and neither is installed"


def _problem(container: Container) -> str:
    """Return why containers of this image do not run here, empty where they do; removes what killed processes left."""
    _sweep(container)
    command = Command(argv=("/bin/bash", "-c", ":"), cwd=Path("/"), folders=())  # what `run_command` starts
    argv = (container.engine, "run", *container.options(command, GuardedPaths()), *command.argv)
    try:
        done = _run(container, argv, _TRIAL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {done.returncode}"]
    return lines[0][:500] if done.returncode else ""


def _sweep(container: Container) -> None:
    """Remove containers of processes of ours that were killed."""
    with suppress(OSError, subprocess.TimeoutExpired):
        argv = (container.engine, "ps", "--all", "--filter", f"name={_NAME_PREFIX}-", "--format", "{{.Names}}")
        for name in _run(container, argv, _REMOVAL_SECONDS).stdout.decode("utf-8", "replace").split():
            ours, _, rest = name.partition("-")
            owner = rest.partition("-")[0]
            if ours == _NAME_PREFIX and owner.isdecimal() and not is_alive(int(owner)):
                _run(container, (container.engine, "rm", "--force", name), _REMOVAL_SECONDS)


def _run(container: Container, argv: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        argv, env=dict(container.environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
    )


def _words(command: Command) -> tuple[str, ...]:
    """Return the words of a command; a program of this machine is the one of its name in the image."""
    program = Path(command.argv[0])
    is_shown = any(program.is_relative_to(folder) for folder in (*command.folders, *command.readable))
    return command.argv if is_shown else (program.name, *command.argv[1:])


@contextmanager
def _variables(given: Mapping[str, str]) -> Generator[tuple[str, ...]]:
    """Give the options with the variables of a command: in a file, for every user reads the words of a process.

    A value of several lines has no place in such a file.
    """
    lines = [f"{name}={value}\n" for name, value in given.items() if "\n" not in value]
    rest = [word for name, value in given.items() if "\n" in value for word in ("--env", f"{name}={value}")]
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"{_NAME_PREFIX}-", suffix=".env", encoding="utf-8"
    ) as file:  # mode 0600
        file.writelines(lines)
        file.flush()
        yield ("--env-file", file.name, *rest)


def _mount(path: Path, *, read_only: bool, source: Path | None = None) -> tuple[str, str]:
    """Return the option that shows a path at the same place."""
    text = io.StringIO()
    words = ["type=bind", f"source={source or path}", f"target={path}", *(["readonly"] if read_only else [])]
    csv.writer(text, lineterminator="").writerow(words)
    return "--mount", text.getvalue()
