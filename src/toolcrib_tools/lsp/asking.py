"""Asking the servers of a file one after the other: one that cannot tell, or does not run, leaves it to the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from toolcrib.plugin import Context, ToolFailure

from .live import Live
from .server import Server

__all__ = ["first_of"]

T = TypeVar("T")


async def first_of(
    ctx: Context, servers: Sequence[Server], method: str, work: Callable[[Live], Awaitable[T]], notes: list[str]
) -> T | None:
    """Return the first answer with something in it; None where nothing is known.

    A server that fails is told in `notes` where another one answers. Raises `ToolFailure` where none does.
    """
    failures: list[ToolFailure] = []
    answers: list[T] = []

    async def ask(live: Live) -> bool:
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
