"""`toolcrib jobs`: look at what runs in the background, in whichever process, and cancel it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import anyio
import typer

from ...config import Settings
from ...core.json import dumps
from ...crib.jobs import jobs_at
from ...crib.storage import has_store, open_store
from ...errors import CODES, ToolFailure
from ...jobs.attempts import job_of
from ...jobs.durable import DurableJobs
from ...jobs.job import Job, Status
from ...store.store import Store
from ..actions import action_group
from ..options import AsJson, ConfigFiles, find_by_id, run, settings_of
from ..output import Column, emit_json, escape, local_time, note, out, table

_COLUMNS: Final[tuple[Column, ...]] = (
    ("ID", "<"),
    ("STARTED", "<"),
    ("STATUS", "<"),
    ("SECONDS", ">"),
    ("TOOL", "<"),
    ("PRINCIPAL", "<"),
    ("PROGRESS", "<"),
)
_PREFIX: Final = "task_"
_CANCEL_SECONDS: Final = 30.0
"""Seconds that `cancel` waits for the process that runs the job."""

jobs = action_group(
    "List the background jobs, show one, print its result, cancel it or delete it.\n\n"
    "These are durable jobs: jobs that a process keeps in its memory are known to that process alone.",
    default="list",
)

_Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a job, or its beginning.")]


@jobs.command("list")
def list_jobs(
    status: Annotated[
        Status | None, typer.Option("--status", help="Only jobs in this state.", show_choices=True)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Number of jobs that have ended.", min=1)] = 50,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs that run, and the newest of those that have ended."""
    found = run(lambda: _list(settings_of(config), status))
    ended = [job for job in found if job.ended is not None]
    older = {job.id for job in sorted(ended, key=lambda job: job.ended or 0.0, reverse=True)[limit:]}
    shown = [job for job in found if job.id not in older]
    if as_json:
        emit_json([_shown(job) for job in shown])
    elif shown:
        table(_COLUMNS, map(_cells, shown))
    else:
        note("no jobs")
    if older:
        note(f"{len(older):,} more have ended: --limit shows them")


@jobs.command("show")
def show_job(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Show one job: state, progress, caller and outcome."""
    _print_job(run(lambda: _with_job(settings_of(config), id, _itself)), as_json=as_json)


@jobs.command("result")
def print_result(
    id: _Id,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the result.", min=0)] = 0.0,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Print the result of a job, and end with its exit status."""

    async def result(durable: DurableJobs, job: Job) -> Job:
        with anyio.move_on_after(wait):
            await durable.result(job.id, job.principal)
        return await durable.get(job.id, job.principal)

    _print_result(run(lambda: _with_job(settings_of(config), id, result)), as_json=as_json)


@jobs.command("cancel")
def cancel_job(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Cancel a job, in whichever process it runs."""

    async def cancel(durable: DurableJobs, job: Job) -> Job:
        with anyio.move_on_after(_CANCEL_SECONDS):
            return await durable.cancel(job.id, job.principal)
        raise ToolFailure("timeout", f"{job.id} was asked to stop, and has not yet", hint="`toolcrib jobs show` says")

    _print_job(run(lambda: _with_job(settings_of(config), id, cancel)), as_json=as_json)


@jobs.command("delete")
def delete_job(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Delete the record of a job that has ended."""

    async def delete(durable: DurableJobs, job: Job) -> Job:
        await durable.delete(job.id, job.principal)
        return job

    _print_job(run(lambda: _with_job(settings_of(config), id, delete)), as_json=as_json)


@asynccontextmanager
async def _open_jobs(settings: Settings) -> AsyncGenerator[tuple[Store, DurableJobs]]:
    async with open_store(settings) as store:
        yield store, jobs_at(store, settings.jobs)


async def _list(settings: Settings, status: Status | None) -> list[Job]:
    if not has_store(settings):
        return []
    async with _open_jobs(settings) as (store, _):
        rows = await store.jobs.list(None, since=time.time() - settings.jobs.age)
        return [job for job in map(job_of, rows) if status in (None, job.status)]


async def _with_job(settings: Settings, id: str, act: Callable[[DurableJobs, Job], Awaitable[Job]]) -> Job:
    """Find the job and act on it; return the job as it is then."""
    if not has_store(settings):
        raise _no_such(id)
    async with _open_jobs(settings) as (store, durable):
        return await act(durable, _found([job_of(row) for row in await store.jobs.list(None)], id))


async def _itself(_: DurableJobs, job: Job) -> Job:
    return job


def _found(jobs: list[Job], id: str) -> Job:
    """Return the job whose id begins like this. Raises `ToolFailure("not_found")`, `UsageError` for several."""
    found = find_by_id(jobs, id, _PREFIX)
    if found is None:
        raise _no_such(id)
    return found


def _no_such(id: str) -> ToolFailure:
    return ToolFailure("not_found", f"there is no job {id[:60]!r}", hint="`toolcrib jobs` lists them")


def _print_job(job: Job, *, as_json: bool) -> None:
    if as_json:
        emit_json(_shown(job))
        return
    for key, value in _shown(job).items():
        shown = value if isinstance(value, str) else dumps(value).decode()
        out(f"{key}: {escape(shown, lines=key == 'output')}")


def _print_result(job: Job, *, as_json: bool) -> None:
    """Print the result, and end with its exit status."""
    result = job.result
    if result is None:
        raise ToolFailure("timeout", f"{job.tool} still works as {job.id}", hint="--wait gives it more seconds")
    if as_json:
        error = {"error": result.error.to_json()} if result.error else {}
        content = {"content": result.content, "structuredContent": result.structured_content}
        emit_json({**content, "isError": result.is_error, **error})
    elif result.error is None:
        out(escape(result.text, lines=True), verbatim=True)
    if result.error is not None:
        if not as_json:
            note(result.text)
        raise typer.Exit(CODES[result.error.code].exit)


def _shown(job: Job) -> dict[str, Any]:
    about = {"principal": job.principal, "session": job.session, "source": job.source, "call_id": job.call_id}
    return {**job.to_json(), **about}


def _cells(job: Job) -> tuple[str, ...]:
    seconds = max(0.0, (job.ended or time.time()) - job.started)  # a clock that was set back shows none
    latest = job.progress
    progress = (
        "" if latest is None else f"{latest.progress:g}{f'/{latest.total:g}' if latest.total else ''} {latest.message}"
    )
    if job.result is not None and job.result.error is not None:
        progress = job.result.error.code
    return (job.id, local_time(job.started), job.status, f"{seconds:.1f}", job.tool, job.principal, progress)
