"""The language servers of one session, and which of them is asked about a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from toolcrib.plugin import Context, ToolFailure

from .configured import HINT, KEY, read
from .server import Server

__all__ = ["Fleet", "configured", "fleet_of"]

_KEY: Final = "lsp.servers"


@dataclass(slots=True, eq=False)
class Fleet:
    """All servers that the configuration names. Kept with the session, and ended with it."""

    servers: Sequence[Server]
    problems: Sequence[str] = ()
    """What is wrong with entries of the configuration."""

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


def configured(ctx: Context) -> bool:
    """Whether the configuration names language servers, rightly or wrongly."""
    return ctx.host is not None and bool(ctx.host.setting("lsp"))


def fleet_of(ctx: Context) -> Fleet:
    """Return the servers of the session that makes this call. Raises `ToolFailure("unavailable")` where none is."""
    found = ctx.runtime.get(_KEY)
    if isinstance(found, Fleet):
        return found
    said = read(ctx.lent.setting("lsp"))
    if not said.servers:
        what = "; ".join(said.problems) or f"no language server is configured: {KEY} is empty"
        raise ToolFailure("unavailable", what, hint=HINT)
    fleet = ctx.runtime[_KEY] = Fleet([Server(spec) for spec in said.servers], said.problems)
    return fleet
