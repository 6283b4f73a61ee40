"""Sandbox interface: how tools run commands, independent of the implementation.

Behind it is bubblewrap, or nothing where the operator said so. A command sees the workspace, the programs of this
machine and nothing else: no home, no credentials, no network unless it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from anyio.abc import SocketListener

__all__ = ["Command", "Finished", "Outlet", "Reach", "Running", "Sandbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Which hosts a command reaches, through a proxy of ours and in no other way."""

    hosts: tuple[str, ...] = ()
    """`name` (its ports 80 and 443), `name:port`, `*.name` (what is below it), `*`: all of them at public addresses."""
    private: tuple[str, ...] = ()
    """`host:port` that are reached wherever they are, this machine included."""

    def __bool__(self) -> bool:
        """Whether it reaches anything."""
        return bool(self.hosts or self.private)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is to run."""

    argv: tuple[str, ...]
    """The program and its arguments; no shell reads them, unless the program is one."""
    cwd: Path
    """Inside `folders`."""
    folders: tuple[Path, ...]
    """What it may write in; what is guarded there (`.git/hooks`, `.git/config`) stays read-only."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Beside the harmless part of ours, which is all that it gets otherwise."""
    readable: tuple[Path, ...] = ()
    """What it may read beside the programs of the machine."""
    read_only: bool = False
    """It only reads in `folders`."""
    network: bool | Reach = False
    """What it may reach; True is the whole network, with the services of this machine."""
    trusted: bool = False
    """It is a program of this machine that runs nothing of the workspace, so that what is guarded is not for it."""
    terminal: tuple[int, int] | None = None
    """Rows and columns of a terminal of its own (a pty); None gives it pipes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a process ended."""

    status: int
    """Its exit status; -N where signal N ended it."""
    stopped: str = ""
    """Which limit ended it, in words; empty where none did."""


class Running(Protocol):
    """One process and its children. All of them end with the context that it was opened in."""

    @property
    def pid(self) -> int:
        """The process id, on this machine, of the process that holds the command."""
        ...

    @property
    def aside(self) -> Sequence[str]:
        """What it made and commands may not make, under the names that it was given then; once the context is left."""
        ...

    @property
    def refused(self) -> Sequence[str]:
        """What it wanted to reach and may not, each with the reason; in the order of the attempts."""
        ...

    async def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | None:
        """Return the next output, as soon as there is some; None when there will be none. A terminal has stdout."""
        ...

    async def write(self, data: bytes) -> None:
        """Send input. Raises `ToolFailure("tool_error")` when it takes none any more."""
        ...

    async def close_input(self) -> None:
        """Say that no more input comes. A terminal gets its end-of-file character."""
        ...

    async def wait(self) -> Finished:
        """Return once it ended."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the command and everything that it started; nothing happens when it has ended."""
        ...


class Sandbox(Protocol):
    """Runs commands apart from everything else."""

    @property
    def kind(self) -> Literal["bubblewrap", "none"]:
        """What holds a command; `none`: it runs as we do, and every one has to be asked for."""
        ...

    @property
    def network(self) -> bool | Reach:
        """What the operator lets commands of the model reach: `Command.network` of theirs."""
        ...

    def open(self, command: Command) -> AbstractAsyncContextManager[Running]:
        """Run a command until the context is left; processes that remain then are killed.

        Raises `ToolFailure`: `tool_error` for a missing program, `unavailable` when the sandbox fails.
        """
        ...


class Outlet(Protocol):
    """Stands between commands and the network."""

    async def serve(self, listener: SocketListener, reach: Reach, refused: Callable[[str], None]) -> None:
        """Serve what connects to `listener`, a socket inside of a sandbox, until it is cancelled.

        Only destinations in `reach` can be connected to; each refusal is reported, in words for the model.
        """
        ...
