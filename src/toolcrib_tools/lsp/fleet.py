"""Language servers of one session, and the choice of servers for a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio

from toolcrib.plugin import Context, ToolFailure

from .running_server import RunningServer
from .server import Server
from .settings import HINT, KEY, read_settings

__all__ = ["SECONDS", "Fleet", "first_of", "fleet_of", "is_configured"]

SECONDS: Final = 180.0
"""Time limit of the tools: a server may read a large project first."""

T = TypeVar("T")


async def first_of(
    ctx: Context,
    servers: Sequence[Server],
    method: str,
    work: Callable[[RunningServer], Awaitable[T]],
    notes: list[str],
) -> T | None:
    """Return the first non-empty answer; None if all are empty.

    A failing server is reported in `notes` if another one answers. Raises `ToolFailure` if all fail.
    """
    failures: list[ToolFailure] = []
    answers: list[T] = []

    async def ask(live: RunningServer) -> bool:
        if live.can(method):
            answers.append(await work(live))
            return True
        return False

    has_answered = False
    for server in servers:
        try:
            has_answered |= await server.ask(ctx, ask)
        except ToolFailure as failure:
            failures.append(failure)
        if answers and answers[-1]:
            break
    if not has_answered:
        raise failures[0] if failures else _unable(servers, method)
    notes += [failure.message for failure in failures]
    return answers[-1] or None


def _unable(servers: Sequence[Server], method: str) -> ToolFailure:
    names = ", ".join(server.name for server in servers)
    return ToolFailure("tool_error", f"no language server of this file ({names}) answers {method}")


_KEY: Final = "lsp.servers"


@dataclass(slots=True, eq=False)
class Fleet:
    """All servers that the configuration names. Kept with the session, and ended with it."""

    servers: Sequence[Server]
    problems: Sequence[str] = ()
    """Problems of configuration entries."""

    def for_file(self, name: str) -> Sequence[Server]:
        """Return the servers for a file, in the order of the configuration. Raises `ToolFailure` where none is."""
        found = [server for server in self.servers if server.spec.takes(name)]
        if not found:
            there = ", ".join(
                f"{one.name} ({' '.join(glob.pattern for glob in one.spec.files)})" for one in self.servers
            )
            raise ToolFailure(
                "tool_error",
                "; ".join([f"no language server is configured for {name!r}", *self.problems]),
                hint=f"those there are: {there or 'none'}; the operator names others under {KEY}",
            )
        return found

    async def aclose(self) -> None:
        """End all of them: the session is over."""
        async with anyio.create_task_group() as group:
            for server in self.servers:
                group.start_soon(server.aclose)


def is_configured(ctx: Context) -> bool:
    """True if the configuration has an entry for language servers, valid or not."""
    return ctx.host is not None and bool(ctx.host.setting("lsp"))


def fleet_of(ctx: Context) -> Fleet:
    """Return the servers of the session that makes this call. Raises `ToolFailure("unavailable")` where none is."""
    found = ctx.runtime.get(_KEY)
    if isinstance(found, Fleet):
        return found
    specs = read_settings(ctx.lent.setting("lsp"))
    if not specs.servers:
        what = "; ".join(specs.problems) or f"no language server is configured: {KEY} is empty"
        raise ToolFailure("unavailable", what, hint=HINT)
    fleet = ctx.runtime[_KEY] = Fleet([Server(spec) for spec in specs.servers], specs.problems)
    return fleet
