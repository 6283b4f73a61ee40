"""An open crib for the commands that need tools, with patience for slow servers; `options` for the rest."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from ..catalog.names import SEPARATOR, portable
from ..config import Settings
from ..crib import Session, Toolcrib
from ..crib.plugins import categories_of_guests
from ..crib.problem_summaries import summaries
from ..daemon.caller import current_caller
from ..sources.source import Source
from .output import note

if TYPE_CHECKING:  # of a daemon
    from ..daemon.running_servers import RunningServers

_SILENT: Final = logging.NullHandler()
_QUIET: Final = 1.0
"""Seconds after which a waiting command says what it waits for."""


def only_for(settings: Settings, tool: str) -> Settings:
    """Return the settings without other servers and built-in tools than the server that `tool` names by its prefix.

    One call does not need them. A name that is not plainly of one server needs all.
    """
    servers = tuple(spec for spec in settings.sources.servers if tool.startswith(portable(spec.name) + SEPARATOR))
    apis = tuple(spec for spec in settings.sources.openapi if tool.startswith(portable(spec.name) + SEPARATOR))
    names = [spec.name for spec in servers]
    others = (spec.name for spec in settings.sources.servers if spec not in servers)
    is_unclear = any(tool.startswith(name) and len(name) > len(min(names, default=name)) for name in others)
    if len(servers) + len(apis) != 1 or settings.sources.no_prefix or is_unclear:  # `a__b/c`, beside a server `a__b`
        return settings
    return settings.with_values(servers=servers, openapi=apis, builtins=False)


@asynccontextmanager
async def opened(settings: Settings, *, wait: float, fresh: bool = False) -> AsyncGenerator[Toolcrib]:
    """Open a crib and wait at most `wait` seconds until every server is known: listed, from disk too, or failed.

    `fresh` also waits for those that are known from disk only; else such a server starts when a call needs it. In a
    daemon a server that it has running is listed there: a crib that is opened `fresh` lists, and makes no calls.
    """
    logging.getLogger("toolcrib").addHandler(_SILENT)
    unsettled = ("connecting", "cached") if fresh else ("connecting",)
    settings = replace(
        settings.at_once().with_values(starts_on_use=not fresh), jobs=settings.jobs.model_copy(update={"work": False})
    )  # a command ends too soon to carry jobs
    caller = current_caller()
    running = _running(settings, caller.servers if caller and fresh else None)
    others = tuple(spec for spec in settings.sources.servers if spec.name not in running)
    async with Toolcrib(settings=settings.with_values(servers=others) if running else settings) as crib:
        there = (spec for spec in settings.sources.servers if spec.name in running)
        await crib.tools.mount_servers(there, accept=settings.sources.accept, through=lambda one: running[one.name])
        async with patience(lambda: _waiting_for(crib, unsettled)):
            await crib.tools.wait_ready(wait, fresh=fresh)
        yield crib


def _running(settings: Settings, servers: RunningServers | None) -> Mapping[str, Source]:
    """Return by name the servers of the settings that a daemon has running; none where names depend on their number."""
    if servers is None or settings.sources.no_prefix:
        return {}
    found = {spec.name: servers.find(spec, settings.environment) for spec in settings.sources.servers}
    return {name: source for name, source in found.items() if source is not None}


@asynccontextmanager
async def patience(doing: Callable[[], str]) -> AsyncGenerator[None]:
    """Print on standard error what takes longer than a second, once; nothing when `doing` returns nothing."""

    async def tell() -> None:
        await anyio.sleep(_QUIET)
        if text := doing():
            note(text)

    async with anyio.create_task_group() as group:
        group.start_soon(tell)
        yield
        group.cancel_scope.cancel()


def report(crib: Toolcrib, *, has_wait: bool = True) -> None:
    """Print on standard error what could not be taken or is not known yet, one line each; a server's tools in one.

    `has_wait`: the command has an option `--wait`, which a line about a slow server names.
    """
    failed = {state.source: state.detail for state in crib.tools.sources if state.state in ("failed", "stale")}
    for problem, text in summaries(crib.problems, crib.settings.file_options):
        is_down = problem.code == "unavailable" and not problem.tool and not problem.hint
        if is_down and (detail := failed.get(problem.source)):
            # The state has the server's last output, which the problem, that models read too, has not.
            text = f"{problem.source}: {detail} (`toolcrib doctor` checks it)"
        note(" ".join(text.split()))
    for state in crib.tools.sources:
        if has_wait and state.state == "connecting":
            words = f" ({state.detail})" if state.detail else ""
            note(f"{state.source}: has not answered yet{words}; --wait gives it more seconds")
    if crib.settings.sources.no_prefix and len(crib.settings.sources.servers) > 1:
        note("no_prefix is for a single server: the tools keep their servers' prefixes")


def report_missing(crib: Toolcrib, session: Session, name: str) -> None:
    """Print what `report` prints and, of a tool hidden from a session, what it needs or switches it on."""
    report(crib)
    found = crib.explainer.why(name, session)
    if found.stopped_by == "need":
        note(f"{name}: {found.reason}; {found.hint}")
    elif crib.catalog.find(name) is None and (category := categories_of_guests().get(name)):
        note(f"{name} is built in and switched off: add {category} to `builtins` in the configuration")


def _waiting_for(crib: Toolcrib, unsettled: Collection[str]) -> str:
    names = [state.source for state in crib.tools.sources if state.state in unsettled]
    return f"waiting for {', '.join(names) or 'servers'} …"
