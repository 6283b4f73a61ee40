"""MCP tasks: background jobs, for clients that know tasks. Other clients get a text that names the job.

Revision 2025-11-25 (experimental): the client asks for a task with its `tools/call`, gets the result by `tasks/result`,
and is notified of progress. Extension `io.modelcontextprotocol/tasks` of revision 2026-07-28: the client declares that
it takes tasks, the server decides which calls become one, and `tasks/get` returns the result.

A task is a job: same id, visible to its principal only, kept as long as the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import anyio

from ..core.context import Progress
from ..core.json import dumps
from ..core.result import ToolResult
from ..errors import ToolFailure
from ..jobs.job import Job, Jobs
from ..jobs.tools import TASK
from ..mcp.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Request, RpcError, notification_message
from ..mcp.server.calls import read_task_id, result_body
from ..mcp.server.exchange import Exchange, missing_capability, missing_downstream

_POLL_MS: Final = 1000
"""Polling interval that clients are advised to use, in milliseconds."""
_RELATED: Final = "io.modelcontextprotocol/related-task"
_PAGE: Final = 100
_LONG: Final = 3600.0
"""Seconds to wait for a change before checking whether the job still exists."""
_FOLLOWED: Final = 64
"""Tasks of one session with progress notifications; clients poll the others."""
_NEEDS_INPUT: Final = ToolResult.failed(
    "unavailable",
    "the tool asked for input, and a task has no client to ask",
    hint="call it again without a task",
)


class _JobTasks:
    """Tasks of one principal, in the part that both revisions share."""

    def __init__(self, jobs: Jobs, principal: str) -> None:
        self._jobs = jobs
        self._principal = principal

    def task_of(self, result: ToolResult) -> str:
        """Return the job that the call continues as; empty if `result` is its outcome.

        Results of the job tools are outcomes: the model asked for them.
        """
        return "" if TASK in result.meta else str(result.meta.get("job", ""))

    async def _find(self, id: str) -> Job:
        """Return the principal's job. Raises `RpcError`; jobs of other principals do not exist for this one."""
        try:
            return await self._jobs.get(id, self._principal)
        except ToolFailure as failure:
            raise _as_rpc(failure) from None

    async def _stop(self, job: Job) -> Job:
        try:
            return await self._jobs.cancel(job.id, self._principal)
        except ToolFailure as failure:
            raise _as_rpc(failure) from None


class JobTasks(_JobTasks):
    """Tasks in the form of the extension. Holds no state of a client."""

    def __init__(self, jobs: Jobs, principal: str, stamp: Mapping[str, Any]) -> None:
        """`stamp` goes into the `_meta` of every result."""
        super().__init__(jobs, principal)
        self._stamp = stamp

    async def created(self, id: str) -> bytes:
        """Return the response body for a call that has become a task."""
        job = await self._find(id)
        return dumps({"resultType": "task", **self._shown(job), "_meta": self._stamp})

    async def answer(self, request: Request, exchange: Exchange) -> bytes:
        """Answer `tasks/get`, `tasks/cancel` or `tasks/update`. Raises `RpcError`."""
        job = await self._find(read_task_id(request.params))
        if request.method == "tasks/get":
            return self._detailed(job)
        if request.method == "tasks/cancel":
            await self._stop(job)
        elif not isinstance(request.params.get("inputResponses"), dict):
            raise RpcError(INVALID_PARAMS, 'Invalid params: "inputResponses" must be an object')
        # Our tasks never wait for input: answers to questions that were not asked are ignored.
        return dumps({"resultType": "complete", "_meta": self._stamp})

    def _shown(self, job: Job) -> dict[str, Any]:
        ttl = {"ttlMs": max(1, round(self._jobs.age * 1000)), "pollIntervalMs": _POLL_MS}
        status = "working" if job.result is None else "cancelled" if job.status == "cancelled" else "completed"
        return {"taskId": job.id, "status": status, **_message_of(job), **_times(job), **ttl}

    def _detailed(self, job: Job) -> bytes:
        """Return the state, with the result once it exists.

        A failed call has `completed`: its result is an error. `failed` is for an error of the protocol: ours, or one of
        the tool's own server.
        """
        shown = {"resultType": "complete", **self._shown(job), "_meta": self._stamp}
        if shown["status"] != "completed":
            return dumps(shown)
        result = _result_of(job)
        if error := _protocol_error(result):
            return dumps({**shown, "status": "failed", "error": error})
        return b'%b,"result":%b}' % (dumps(shown)[:-1], result_body(result, modern=True))


class JobSessionTasks(_JobTasks):
    """Tasks of revision 2025-11-25, for one session."""

    def __init__(self, jobs: Jobs, principal: str, notify: Callable[[bytes], object]) -> None:
        """`notify` sends a message outside of any request, or drops it."""
        super().__init__(jobs, principal)
        self._notify = notify
        self._waiting: dict[str, Exchange] = {}
        """Tasks whose result is waited for at the moment, and the request that does."""
        self._followed: dict[str, anyio.CancelScope] = {}

    async def answer(self, request: Request, exchange: Exchange) -> bytes:
        """Answer `tasks/list`, `tasks/get`, `tasks/result` or `tasks/cancel`. Raises `RpcError`."""
        if request.method == "tasks/list":
            return await self._list(request.params)
        job = await self._find(read_task_id(request.params))
        if request.method == "tasks/result":
            return await self._result(job, exchange)
        if request.method == "tasks/cancel":
            return await self._cancel(job)
        return dumps(self._shown(job))

    async def created(self, id: str) -> bytes:
        """Return the response body for a call that has become a task."""
        return dumps({"task": self._shown(await self._find(id))})

    async def follow(self, id: str, progress_token: str | int | None) -> None:
        """Notify of the task's progress, if the call has a progress token, and of its end; then return."""
        if len(self._followed) >= _FOLLOWED:
            return
        try:
            with anyio.CancelScope() as self._followed[id]:
                job = await self._jobs.get(id, self._principal)
                while job.result is None:
                    seen, job = job, await self._jobs.changed(job, _LONG)
                    if job.progress is not None and job.progress != seen.progress and progress_token is not None:
                        await self._say(id, "notifications/progress", _progress(progress_token, job.progress))
                await self._say(id, "notifications/tasks/status", self._shown(job))
        except ToolFailure:  # it is gone, or the store is away: the client asks
            return
        finally:
            self._followed.pop(id, None)

    def close(self) -> None:
        """Stop following; the jobs continue."""
        for scope in tuple(self._followed.values()):
            scope.cancel()

    async def _say(self, id: str, method: str, params: Mapping[str, Any]) -> None:
        message = notification_message(method, params)
        exchange = self._waiting.get(id)
        if exchange is not None and not exchange.ended:
            await exchange.tell(message)
        else:
            self._notify(message)

    async def _result(self, job: Job, exchange: Exchange) -> bytes:
        """Wait for the end, and return the answer to the call."""
        self._waiting[job.id] = exchange
        try:
            while job.result is None:
                job = await self._jobs.changed(job, _LONG)
        except ToolFailure as failure:
            raise _as_rpc(failure) from None
        finally:
            if self._waiting.get(job.id) is exchange:
                del self._waiting[job.id]
        return result_body(_result_of(job).with_meta(**{_RELATED: {"taskId": job.id}}), modern=False)

    async def _cancel(self, job: Job) -> bytes:
        if job.result is not None:
            status = self._shown(job)["status"]
            raise RpcError(INVALID_PARAMS, f"Cannot cancel the task: it has ended already ({status})")
        return dumps(self._shown(await self._stop(job)))

    async def _list(self, params: Mapping[str, Any]) -> bytes:
        jobs, cursor = await self._jobs.list(self._principal), params.get("cursor")
        if cursor is not None:
            place = next((place for place, job in enumerate(jobs) if job.id == cursor), None)
            if place is None:
                raise RpcError(INVALID_PARAMS, 'Invalid params: "cursor" is not ours, or its task is not kept any more')
            jobs = jobs[place + 1 :]
        shown: dict[str, Any] = {"tasks": [self._shown(job) for job in jobs[:_PAGE]]}
        if len(jobs) > _PAGE:
            shown["nextCursor"] = jobs[_PAGE - 1].id
        return dumps(shown)

    def _shown(self, job: Job) -> dict[str, Any]:
        # A job that ended with a question is over: `input_required` would make a client wait for it.
        status = "failed" if job.status == "input_required" else job.status
        ttl = {"ttl": round(self._jobs.age * 1000), "pollInterval": _POLL_MS}
        return {"taskId": job.id, "status": status, **_message_of(job), **_times(job), **ttl}


def _progress(token: str | int, report: Progress) -> dict[str, Any]:
    params: dict[str, Any] = {"progressToken": token, "progress": report.progress}
    if report.total is not None:
        params["total"] = report.total
    if report.message:
        params["message"] = report.message
    return params


def _as_rpc(failure: ToolFailure) -> RpcError:
    """Return the protocol error for a task that cannot be read."""
    code = INVALID_PARAMS if failure.code == "not_found" else INTERNAL_ERROR
    return RpcError(code, failure.message, {"code": failure.code})


def _times(job: Job) -> dict[str, str]:
    """Return when it began, and when its status changed."""
    return {"createdAt": _moment(job.started), "lastUpdatedAt": _moment(job.ended or job.started)}


def _result_of(job: Job) -> ToolResult:
    """Return the answer to the call of an ended job: the same as in the foreground."""
    result = job.result
    assert result is not None, "the job has ended"
    return _NEEDS_INPUT if result.input_required is not None else result


def _message_of(job: Job) -> dict[str, str]:
    """Return the message of the status, if any: the last one that the tool reported."""
    message = job.progress.message if job.progress is not None else ""
    return {"statusMessage": message} if message else {}


def _protocol_error(result: ToolResult) -> dict[str, Any]:
    """Return the JSON-RPC error behind `result`; empty for an ordinary result."""
    if missing := missing_downstream(result):
        error = missing_capability(missing)
        return {"code": error.code, "message": str(error), "data": error.data}
    code = result.error.details.get("rpc_code") if result.error is not None else None
    if result.error is None or not isinstance(code, int):
        return {}
    return {"code": code, "message": result.error.message, "data": result.error.to_json()}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
