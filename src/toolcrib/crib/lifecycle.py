"""Lifecycle of a crib: its parts made of its settings, and everything that opens and closes with it, in order."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from anyio import to_thread

from ..catalog.success_rates import MEMORY
from ..config import Settings
from ..core.context import Context
from ..core.entry_points import PROGRAM_SESSIONS, installed
from ..core.services.host import ProgramRequest, ServedTools
from ..disclosure.settings import seed_tools
from ..dispatch.steps.custom import AfterStep, BeforeStep, CustomSteps
from ..sources.python import PythonSource
from .agents import mount_agent_tools
from .assembly import Parts, Slices, assemble, build_pipeline
from .jobs import follow_catalog, mount_jobs
from .loader import mount_entries
from .meta_tool_source import MetaToolSource
from .needs import provide
from .options import settings_of
from .plugins import GUESTS, follow_servers, load_guests
from .services.contributions import GuestServices

_logger = logging.getLogger(__name__)

ProgramSessions = Callable[[Parts, Context, ProgramRequest], AbstractAsyncContextManager[ServedTools | None]]
"""Target of the entry point: serves the session of a program; the context is the call that starts the program."""


def make_parts(
    settings: Settings | str | Path | None,
    keywords: Mapping[str, Any],
    before: Iterable[BeforeStep],
    after: Iterable[AfterStep],
    memory: bool | Mapping[str, Any],
) -> Parts:
    """Return the parts of the crib that `Toolcrib(settings, …)` describes; nothing is opened. Raises as that does."""
    values = dict(keywords)
    if isinstance(memory, Mapping):
        values["memory"], memory = memory, False
    read = settings_of(settings, values)
    by_default = not memory and settings is None and keywords.get("store") is None
    home = None if memory or by_default else read.directories
    return assemble(read, home, CustomSteps.of(before, after), memory_by_default=by_default)


async def open_parts(parts: Parts, slices: Slices, stack: AsyncExitStack) -> None:
    """Open the store, the sources and the guests; `stack` closes them.

    `stack` closes in reverse, and that decides the order: jobs end before the shells and connections that sessions
    keep, these before the sources, and the store last, as all of them record. The pipeline takes calls before anything
    is mounted, since jobs that an earlier process left are taken up at once.

    Returns when each source has listed, is in the cache or has failed, at the latest after `ready_timeout`.
    """
    parts.storage.store.start()
    await stack.enter_async_context(parts.storage.store)
    parts.budget_usage.open(parts.storage.store.budgets)
    parts.workspaces.shells.seek()
    stack.push_async_callback(parts.host_services.aclose)
    stack.callback(parts.storage.folders.remove_temporary)
    stack.callback(parts.artifacts.close)
    pipeline = build_pipeline(parts, stack)
    parts.calls.open(pipeline)
    await parts.ingest.open(stack)
    parts.success_rates.replay(await parts.storage.store.calls.outcomes(since=time.time() - MEMORY))
    stack.push_async_callback(slices.aclose)
    stack.push_async_callback(parts.tools.close)
    stack.push_async_callback(parts.session_table.runtimes.close)
    stack.push_async_callback(parts.jobs.close)
    await parts.jobs.open(pipeline.work)
    follow_catalog(parts.tools, parts.jobs)
    stack.push_async_callback(parts.schedules.close)
    await parts.schedules.open(parts, parts.host_services)
    parts.host_services.open(_programs_of(parts))
    await _mount_all(parts, slices)
    await parts.inventory.ranking.open(stack)
    await parts.approval_channels.open(stack)
    await parts.tools.wait_ready(parts.settings.sources.ready_timeout)


async def start_services(parts: Parts, slices: Slices) -> None:
    """Start what works beside calls: due schedules, tools that run agents, services of guests.

    The process stays: it loads its guests now, and keeps their version when they are updated.
    """
    guests = parts.inventory.sources.get(GUESTS)
    if isinstance(guests, PythonSource):
        await guests.load()
    await parts.schedules.start()
    await mount_agent_tools(parts)
    if parts.settings.jobs.work and parts.settings.sources.builtins:
        await slices.get(GuestServices).start()


async def _mount_all(parts: Parts, slices: Slices) -> None:
    """Mount the sources of the configuration, in the order in which their tools are listed."""
    tools, settings = parts.tools, parts.settings
    for problem in settings.problems:
        if problem.code == "bad_config":
            _logger.warning("%s", problem.message)
    await tools.mount_source(MetaToolSource(parts.calls, parts.artifacts), trusted=True)
    await tools.mount_source(tools.functions, prefix=False, trusted=True)
    builtins = settings.sources.builtins
    is_whole = builtins is True or (bool(builtins) and builtins == seed_tools(settings.disclosure.profile))
    if builtins:
        parts.inventory.ranking.registry.declare(GUESTS, prefix=False, yields=True)
        from ..workflows import Workflows  # a slice, above the parts: its tools are like those of guests

        guests = load_guests(builtins, settings.tools.get, *slices.get(Workflows).tools)
        there = await parts.workspaces.shells.ready()
        provided = there | {"workspace"} if settings.workspace.roots else there
        provide((guests, *parts.inventory.sources.values()), provided)  # first: each of them lists once
        await tools.mount_source(guests, prefix=False, trusted=True)
        if not is_whole:
            follow_servers(guests, tools)  # the profile of a seed has all tools of its seed beside any server
    await parts.plugins.open(every=bool(builtins))
    await tools.mount_servers(settings.sources.servers, accept=settings.sources.accept)
    await parts.loader.mount_configured()
    await mount_entries(settings, tools, parts.storage.folders.cache)
    await _mount_workflows(parts, slices)
    await mount_jobs(
        parts.jobs,
        tools,
        parts.calls,
        parts.views,
        parts.session_table,
        parts.policy,
        at_once=is_whole or any(spec.background_after for spec in settings.sources.servers),
    )
    await _restore_registrations(parts, slices)
    await tools.mount_source(parts.plan_mode, prefix=False, trusted=True)
    await tools.mount_source(parts.resources.tools, prefix=False, trusted=True)


async def _mount_workflows(parts: Parts, slices: Slices) -> None:
    """Mount the workflows of the configuration. Raises `UsageError` where what they need is not installed."""
    if workflows := parts.settings.sources.workflows:
        from ..workflows import Workflows  # a slice, above the parts: loaded where the configuration has workflows

        await slices.get(Workflows).add_all(workflows)


async def _restore_registrations(parts: Parts, slices: Slices) -> None:
    """Offer again the registered tools that the store keeps. Raises `ToolFailure` where it cannot be read.

    Without them the process would serve fewer tools than the others of its store until it is started again.
    """
    if rows := await parts.storage.store.registrations.all():
        from ..registration import Registrations  # a slice, above the parts: loaded where the store has some

        await slices.get(Registrations).restore(rows)


def _programs_of(parts: Parts) -> Callable[[Context, ProgramRequest], AbstractAsyncContextManager[ServedTools | None]]:
    """Return the function that serves sessions of a crib to programs; it gives None if no package does."""

    @asynccontextmanager
    async def serve(context: Context, request: ProgramRequest) -> AsyncGenerator[ServedTools | None]:
        sessions = await to_thread.run_sync(_loaded)  # it brings the MCP server
        if sessions is None:
            yield None
            return
        async with sessions(parts, context, request) as served:
            yield served

    return serve


def _loaded() -> ProgramSessions | None:
    """Return the target of the entry point; None if there is none, or it cannot be loaded."""
    for point in installed(PROGRAM_SESSIONS):
        try:
            return cast("ProgramSessions", point.load())
        except Exception:  # the code of another package
            _logger.warning("sessions of programs cannot be served by %s", point.value, exc_info=True)
    return None
