"""What commands that need tools share: settings from the files, an open crib, patience with slow servers."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import anyio
import typer

from ..catalog.names import SEPARATOR, portable
from ..config import Settings, load
from ..core.events import Problem
from ..crib import Toolcrib
from .output import note

__all__ = [
    "AsJson",
    "ConfigFiles",
    "Wait",
    "only_for",
    "opened",
    "patience",
    "report",
    "run",
    "settings_of",
    "summaries",
]

T = TypeVar("T")

ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", "-c", help="mcpServers JSON or our YAML, instead of your own; repeatable.", metavar="FILE"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait for servers that are not known yet.", min=0)]

_LOOK_AGAIN: Final = 0.02
"""Seconds between two looks at how the servers are doing."""

_BY_SERVER: Final[Mapping[str, str]] = {
    "quarantined": "withheld, nobody has reviewed their definitions",
    "definition_changed": "withheld, their definitions have changed since they were reviewed",
    "unreviewed": "in use (guard is off), nobody has reviewed their definitions",
    "unreviewed_change": "in use (guard is off), their definitions have changed since they were reviewed",
}
"""Codes of problems that all tools of a server tend to have at once, and what they mean."""

_NAMED: Final = 3
"""So many of those tools are named."""

_QUIET: Final = 1.0
"""Seconds after which a waiting command says what it waits for."""


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` on an event loop of its own."""
    return anyio.run(main)


def settings_of(files: list[Path] | None, **overrides: Any) -> Settings:
    """Return the settings of `files`, or the user's and project's own; `None` among `overrides` is not said."""
    given: Mapping[str, Any] = overrides
    return load(files or (), given)


def only_for(settings: Settings, tool: str) -> Settings:
    """Return the settings with nothing but the server that `tool` names by its prefix, if exactly one does.

    One call does not need the other servers started.
    """
    servers = tuple(spec for spec in settings.sources.servers if tool.startswith(portable(spec.name) + SEPARATOR))
    apis = tuple(spec for spec in settings.sources.openapi if tool.startswith(portable(spec.name) + SEPARATOR))
    if len(servers) + len(apis) != 1 or settings.sources.no_prefix:
        return settings
    return settings.with_values(servers=servers, openapi=apis)


@asynccontextmanager
async def opened(settings: Settings, *, wait: float, fresh: bool = False) -> AsyncGenerator[Toolcrib]:
    """Open a crib and wait at most `wait` seconds until every server is known: listed, from disk too, or failed.

    `fresh` also waits for those that are known from disk only.
    """
    logging.getLogger("toolcrib").addHandler(logging.NullHandler())
    unsettled = ("connecting", "cached") if fresh else ("connecting",)
    settings = replace(
        settings, jobs=settings.jobs.model_copy(update={"work": False})
    )  # a command ends too soon to carry jobs
    async with Toolcrib(settings=settings) as crib:
        async with patience(lambda: _waiting_for(crib, unsettled)):
            with anyio.move_on_after(wait):
                while any(state.state in unsettled for state in crib.tools.sources):  # noqa: ASYNC110 - states tell nobody
                    await anyio.sleep(_LOOK_AGAIN)
        yield crib


@asynccontextmanager
async def patience(doing: Callable[[], str]) -> AsyncGenerator[None]:
    """Tell on standard error what takes longer than a second, once; nothing when `doing` says nothing."""

    async def tell() -> None:
        await anyio.sleep(_QUIET)
        if text := doing():
            note(text)

    async with anyio.create_task_group() as group:
        group.start_soon(tell)
        yield
        group.cancel_scope.cancel()


def report(crib: Toolcrib) -> None:
    """Tell on standard error what could not be taken or is not known yet, one line each; a server's tools in one."""
    for _, text in summaries(crib.problems):
        note(text)
    for state in crib.tools.sources:
        if state.state == "connecting":
            note(f"{state.source}: has not answered yet; --wait gives it more seconds")
    if crib.settings.sources.no_prefix and len(crib.settings.sources.servers) > 1:
        note("no_prefix is for a single server: the tools keep their servers' prefixes")


def summaries(problems: Iterable[Problem]) -> Iterator[tuple[Problem, str]]:
    """Yield one line for each problem, with the problem; those that all tools of a server have share one line."""
    alike: dict[tuple[str, str], list[Problem]] = {}
    for place, problem in enumerate(problems):
        kind = problem.code if problem.code in _BY_SERVER else f"{place}"
        alike.setdefault((problem.source, kind), []).append(problem)
    for found in alike.values():
        yield found[0], _told(found)


def _told(problems: Sequence[Problem]) -> str:
    first, *others = problems
    if others:
        tools = ", ".join(problem.tool for problem in problems[:_NAMED])
        more = f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        reason = _BY_SERVER[first.code]
        look = f"`toolcrib show {first.source}/{first.tool}` shows one, `toolcrib accept {first.source}` takes all"
        return f"{first.source}: {len(problems)} tools are {reason}: {tools}{more} ({look})"
    where = f"{first.source}/{first.tool}" if first.tool else first.source
    return f"{where}: {first.message}" + (f" ({first.hint})" if first.hint else "")


def _waiting_for(crib: Toolcrib, unsettled: Collection[str]) -> str:
    names = [state.source for state in crib.tools.sources if state.state in unsettled]
    return f"waiting for {', '.join(names) or 'servers'} …"
