"""Background jobs as MCP tasks, for clients that know tasks; everybody else is told of them in words.

Revision 2025-11-25 (experimental): the client asks for a task with its `tools/call`, gets the result by `tasks/result`,
and hears of progress meanwhile. The extension `io.modelcontextprotocol/tasks` of revision 2026-07-28: the client says
that it takes tasks, which calls become one is decided here, and the result is in what `tasks/get` answers.

A task is a job and nothing else: its id is the job's, its principal's alone, and lives as long as the job is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ...core.json import dumps
from ...core.result import ToolResult
from ...errors import ToolFailure
from ...jobs.job import Job, Jobs
from ...jobs.tools import TASK
from ...mcp.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, TASKS_EXTENSION, RpcError
from ...mcp.server.client import missing_capability, missing_downstream, supports
from .calls import result_body

__all__ = [
    "POLL_MS",
    "ModernTasks",
    "as_rpc",
    "find_job",
    "message_of",
    "read_id",
    "result_of",
    "takes_tasks",
    "task_of",
    "times",
]

POLL_MS: Final = 1000
"""How often a client should ask, in milliseconds."""
_DECLARED: Final[Mapping[str, Any]] = {"extensions": {TASKS_EXTENSION: {}}}
_NEEDS_INPUT: Final = ToolResult.failed(
    "unavailable",
    "the tool asked for input, and a task has nobody to ask",
    hint="call it again without a task",
)


def takes_tasks(declared: Mapping[str, Any]) -> bool:
    """Whether a client of the stateless era that declared `declared` may be answered with a task."""
    return supports(declared, _DECLARED)


def task_of(result: ToolResult) -> str:
    """Return the job that the call goes on as; empty where `result` is its outcome.

    What the tools for jobs answer is an outcome: a model has asked them.
    """
    return "" if TASK in result.meta else str(result.meta.get("job", ""))


def read_id(params: Mapping[str, Any]) -> str:
    """Return the task that the parameters name. Raises `RpcError` with INVALID_PARAMS."""
    given = params.get("taskId")
    if not isinstance(given, str):
        raise RpcError(INVALID_PARAMS, 'Invalid params: "taskId" must be a string')
    return given


async def find_job(jobs: Jobs, id: str, principal: str) -> Job:
    """Return the principal's job. Raises `RpcError`: one of somebody else is as one that never was."""
    try:
        return await jobs.get(id, principal)
    except ToolFailure as failure:
        raise as_rpc(failure) from None


def as_rpc(failure: ToolFailure) -> RpcError:
    """Return what a client is told when its task cannot be had."""
    code = INVALID_PARAMS if failure.code == "not_found" else INTERNAL_ERROR
    return RpcError(code, failure.message, {"code": failure.code})


def times(job: Job) -> dict[str, str]:
    """Return when it began, and when its status changed."""
    return {"createdAt": _moment(job.started), "lastUpdatedAt": _moment(job.ended or job.started)}


def result_of(job: Job) -> ToolResult:
    """Return what the call of an ended job is answered with: what it would have been answered with at once."""
    result = job.result
    assert result is not None, "the job has ended"
    return _NEEDS_INPUT if result.input_required is not None else result


def message_of(job: Job) -> dict[str, str]:
    """Return what is said of the status, if anything is: the last that the tool told."""
    told = job.progress.message if job.progress is not None else ""
    return {"statusMessage": told} if told else {}


def _protocol_error(result: ToolResult) -> dict[str, Any]:
    """Return the JSON-RPC error that stands for `result`; empty for one that is a result."""
    if missing := missing_downstream(result):
        error = missing_capability(missing)
        return {"code": error.code, "message": str(error), "data": error.data}
    code = result.error.details.get("rpc_code") if result.error is not None else None
    if result.error is None or not isinstance(code, int):
        return {}
    return {"code": code, "message": result.error.message, "data": result.error.to_json()}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ModernTasks:
    """The tasks of one principal, in the form of the extension. Holds nothing of any single client."""

    def __init__(self, jobs: Jobs, principal: str, stamp: Mapping[str, Any]) -> None:
        """`stamp` is what every result's `_meta` carries."""
        self._jobs = jobs
        self._principal = principal
        self._stamp = stamp

    async def created(self, id: str) -> bytes:
        """Return the body that tells a client of the task its call has become."""
        job = await find_job(self._jobs, id, self._principal)
        return dumps({"resultType": "task", **self._shown(job), "_meta": self._stamp})

    async def answer(self, method: str, params: Mapping[str, Any], declared: Mapping[str, Any]) -> bytes:
        """Answer a request about tasks. Raises `RpcError`."""
        if method not in ("tasks/get", "tasks/update", "tasks/cancel"):
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
        if not takes_tasks(declared):
            raise missing_capability(_DECLARED)
        job = await find_job(self._jobs, read_id(params), self._principal)
        if method == "tasks/get":
            return self._detailed(job)
        if method == "tasks/cancel":
            try:
                await self._jobs.cancel(job.id, self._principal)
            except ToolFailure as failure:
                raise as_rpc(failure) from None
        elif not isinstance(params.get("inputResponses"), dict):
            raise RpcError(INVALID_PARAMS, 'Invalid params: "inputResponses" must be an object')
        # No task of ours waits for input: what is answered here was not asked, and is to be ignored.
        return dumps({"resultType": "complete", "_meta": self._stamp})

    def _shown(self, job: Job) -> dict[str, Any]:
        ttl = {"ttlMs": max(1, round(self._jobs.age * 1000)), "pollIntervalMs": POLL_MS}
        status = "working" if job.result is None else "cancelled" if job.status == "cancelled" else "completed"
        return {"taskId": job.id, "status": status, **message_of(job), **times(job), **ttl}

    def _detailed(self, job: Job) -> bytes:
        """Return how far it is, with the result once there is one.

        A call that went wrong has `completed`: its result says that it is an error. `failed` is for an error of the
        protocol: ours, or one that the tool's own server answered with.
        """
        shown = {"resultType": "complete", **self._shown(job), "_meta": self._stamp}
        if shown["status"] != "completed":
            return dumps(shown)
        result = result_of(job)
        if error := _protocol_error(result):
            return dumps({**shown, "status": "failed", "error": error})
        return b'%b,"result":%b}' % (dumps(shown)[:-1], result_body(result, modern=True))
