"""Jobs and their rows: one is what a principal sees, the other what is written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..core.call import Call
from ..core.context import Progress
from ..core.json import dumps, loads
from ..core.saved import SavedCall
from ..store.jobs import JobRow, unpack_result
from ..store.vault import Vault
from .job import Job, Status

__all__ = ["Told", "job_of", "open_row", "progress_of", "row_of"]


class Told:
    """What a row holds under its seal: the call, and the approval that it was accepted with."""

    __slots__ = ("approval", "saved")

    def __init__(self, saved: SavedCall, approval: str) -> None:
        self.saved = saved
        self.approval = approval


def row_of(job: Job, call: Call, vault: Vault, approval: str) -> JobRow:
    """Return the row of a job that nobody carries yet, with the real arguments sealed."""
    sealed = {"call": SavedCall.of(call).to_json(), "approval": approval}
    return JobRow(
        id=job.id,
        principal=job.principal,
        session=job.session,
        call=job.call_id,
        tool=job.tool,
        source=job.source,
        status=job.status,
        accepted=job.started,
        saved=vault.seal(sealed, _purpose(job.id)),
        repeatable=_is_repeatable(call),
        resumable="resumable" in call.target.traits,
        progress=progress_of(job),
        output=job.output,
    )


def open_row(row: JobRow, vault: Vault) -> Told:
    """Return what is under the seal. Raises `ToolFailure("storage")` for another key."""
    values: Mapping[str, Any] = vault.open(row.saved, _purpose(row.id))
    return Told(SavedCall.from_json(values["call"]), str(values["approval"]))


def job_of(row: JobRow) -> Job:
    """Return the job as its row has it."""
    return Job(
        id=row.id,
        call_id=row.call,
        principal=row.principal,
        session=row.session,
        tool=row.tool,
        source=row.source,
        status=cast("Status", row.status),
        started=row.accepted,
        ended=row.ended,
        progress=Progress(call_id=row.call, **loads(row.progress)) if row.progress else None,
        output=row.output,
        result=unpack_result(row.result) if row.result is not None else None,
    )


def progress_of(job: Job) -> str:
    """Return the progress of `job` as its row holds it."""
    if job.progress is None:
        return ""
    told = job.progress
    return dumps({"progress": told.progress, "total": told.total, "message": told.message}).decode()


def _is_repeatable(call: Call) -> bool:
    """Whether it may run again: a read, or a tool that says so, where the session believes what its source says."""
    tool = call.target
    hints = tool.annotations
    return (hints.read_only or hints.idempotent) and tool.origin not in call.session.wary


def _purpose(id: str) -> str:
    return f"job {id}"
