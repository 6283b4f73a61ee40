"""`toolcrib jobs`: look at what runs in the background, in whichever process, and cancel it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import anyio
import typer

from ..config import Settings
from ..core.json import dumps
from ..core.result import ToolResult
from ..crib.jobs import jobs_at
from ..crib.storage import open_store, place_of
from ..errors import CODES, ToolFailure, UsageError
from ..jobs.durable import DurableJobs, job_of
from ..jobs.job import Job, Status
from ..store.store import Store
from .open_crib import AsJson, ConfigFiles, run, settings_of
from .output import Column, emit_json, escape, note, out, table

__all__ = ["jobs"]

_ACTIONS: Final = ("list", "show", "result", "cancel", "delete")
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
_SHORTEST: Final = 4
"""Digits of an id that are taken for the whole, when only one job begins so."""
_CANCEL_SECONDS: Final = 30.0
"""How long `cancel` waits for the process that carries the job."""


def jobs(
    action: Annotated[str, typer.Argument(help=f"{', '.join(_ACTIONS)}.")] = "list",
    id: Annotated[str, typer.Argument(metavar="[ID]", help="Which one; its beginning will do.")] = "",
    status: Annotated[str, typer.Option("--status", help="List these only: working, completed, failed …")] = "",
    wait: Annotated[float, typer.Option("--wait", help="result: seconds to wait for it.", min=0)] = 0.0,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List what runs in the background and what has ended, show one, print its result, cancel it or forget it.

    These are durable jobs: jobs of a process that keeps them in its memory are known to that process alone.
    """
    if action not in _ACTIONS:
        raise UsageError(f"there is no {action!r}, only {', '.join(_ACTIONS)}")
    if action != "list" and not id:
        raise UsageError(f"which one? toolcrib jobs {action} ID; `toolcrib jobs` lists them")
    if status and status not in get_args(Status):
        raise UsageError(f"there is no status {status!r}, only {', '.join(get_args(Status))}")
    settings = settings_of(config)
    if action == "list":
        _print_list(run(lambda: _list(settings, status)), as_json=as_json)
        return
    job = run(lambda: _done(settings, action, id, wait))
    if action == "result":
        _print_result(job, as_json=as_json)
    else:
        _print_job(job, as_json=as_json)


@asynccontextmanager
async def _desk(settings: Settings) -> AsyncGenerator[tuple[Store, DurableJobs]]:
    async with open_store(settings) as store:
        yield store, jobs_at(store, settings.jobs)


async def _list(settings: Settings, status: str) -> list[Job]:
    place = place_of(settings)
    if isinstance(place, Path) and not place.exists():  # looking makes no store
        return []
    async with _desk(settings) as (store, _):
        rows = await store.jobs.list(None, since=time.time() - settings.jobs.age)
        return [job for job in map(job_of, rows) if status in ("", job.status)]


async def _done(settings: Settings, action: str, id: str, wait: float) -> Job:
    """Do what was asked, and return the job as it is then."""
    async with _desk(settings) as (store, desk):
        job = _found([job_of(row) for row in await store.jobs.list(None)], id)
        if action == "result":
            with anyio.move_on_after(wait):
                await desk.result(job.id, job.principal)
            return await desk.get(job.id, job.principal)
        if action == "cancel":
            with anyio.move_on_after(_CANCEL_SECONDS):
                return await desk.cancel(job.id, job.principal)
            raise ToolFailure("timeout", f"{job.id} was asked to stop, and has not yet", hint="toolcrib jobs show says")
        if action == "delete":
            await desk.delete(job.id, job.principal)
        return job


def _found(jobs: list[Job], id: str) -> Job:
    """Return the job whose id begins like this. Raises `ToolFailure("not_found")`, `UsageError` for several."""
    wanted = id if id.startswith(_PREFIX) else f"{_PREFIX}{id}"
    close = [job for job in jobs if job.id.startswith(wanted)]
    if len(wanted) < len(_PREFIX) + _SHORTEST or not close:
        raise ToolFailure("not_found", f"there is no job {id[:60]!r}", hint="`toolcrib jobs` lists them")
    if len(close) > 1:
        raise UsageError(f"{len(close)} jobs begin with {id!r}: give more of the id")
    return close[0]


def _print_list(found: list[Job], *, as_json: bool) -> None:
    if as_json:
        emit_json([_shown(job) for job in found])
    elif found:
        table(_COLUMNS, map(_cells, found))
    else:
        note("no jobs")


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
        emit_json({"content": result.content, "structuredContent": result.structured_content, **_error(result)})
    elif result.error is None:
        out(escape(result.text, lines=True))
    if result.error is not None:
        if not as_json:
            note(result.text)
        raise typer.Exit(CODES[result.error.code].exit)


def _error(result: ToolResult) -> dict[str, Any]:
    return {"isError": result.is_error} | ({"error": result.error.to_json()} if result.error else {})


def _shown(job: Job) -> dict[str, Any]:
    about = {"principal": job.principal, "session": job.session, "source": job.source, "call_id": job.call_id}
    return {**job.to_json(), **about}


def _cells(job: Job) -> tuple[str, ...]:
    started = datetime.fromtimestamp(job.started).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    seconds = (job.ended or time.time()) - job.started
    told = job.progress
    progress = "" if told is None else f"{told.progress:g}{f'/{told.total:g}' if told.total else ''} {told.message}"
    if job.result is not None and job.result.error is not None:
        progress = job.result.error.code
    return (job.id, started, job.status, f"{seconds:.1f}", job.tool, job.principal, progress)
