"""Background jobs as the tasks of revision 2025-11-25: asked for by the client, one session's way to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import anyio

from ...core.context import Progress
from ...core.json import dumps, loads
from ...core.tool import Tool
from ...errors import ToolFailure
from ...jobs.job import Job, Jobs
from .calls import ToolCall, result_body
from .exchange import Exchange
from .tasks import POLL_MS, as_rpc, find_job, message_of, read_id, result_of, times
from .wire import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, notification_message

__all__ = ["CAPABILITY", "METHODS", "VERSION", "LegacyTasks", "marked", "wants_task"]

VERSION: Final = "2025-11-25"
"""The only revision with these tasks."""
CAPABILITY: Final[Mapping[str, Any]] = {"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}
METHODS: Final = ("tasks/cancel", "tasks/get", "tasks/list", "tasks/result")
_RELATED: Final = "io.modelcontextprotocol/related-task"
_PAGE: Final = 100
_LONG: Final = 3600.0
"""Seconds to wait for a change before looking whether there is still a job."""
_FOLLOWED: Final = 64
"""Tasks of one session whose progress is told without being asked for; of more, the client asks."""


def wants_task(params: Mapping[str, Any]) -> bool:
    """Whether a `tools/call` asks for a task. Raises `RpcError` with INVALID_PARAMS for a `task` that is no object.

    How long it is kept is not the client's to say: the answer tells.
    """
    given = params.get("task")
    if given is not None and not isinstance(given, dict):
        raise RpcError(INVALID_PARAMS, 'Invalid params: "task" must be an object')
    return given is not None


def marked(listing: bytes, tools: tuple[Tool, ...]) -> bytes:
    """Return the listing with those tools marked that go on in the background by themselves when they take long.

    They are the ones that a client gains by asking for as tasks; asking for another one is answered, too.
    """
    names = {tool.name for tool in tools if tool.execution.background_after is not None}
    if not names:
        return listing
    definitions = cast("list[dict[str, Any]]", loads(listing))
    for definition in definitions:
        if definition["name"] in names:
            definition["execution"] = {"taskSupport": "optional"}
    return dumps(definitions)


class LegacyTasks:
    """The tasks of one principal, as one session asks for them and hears of them."""

    def __init__(self, jobs: Jobs, principal: str, tell: Callable[[bytes], object]) -> None:
        """`tell` sends what belongs to no request; it may drop it."""
        self._jobs = jobs
        self._principal = principal
        self._tell = tell
        self._waiting: dict[str, Exchange] = {}
        """Tasks whose result is waited for at the moment, and the request that does."""
        self._followed: dict[str, anyio.CancelScope] = {}

    async def answer(self, method: str, params: Mapping[str, Any], exchange: Exchange) -> bytes:
        """Answer a request about tasks. Raises `RpcError`."""
        if method == "tasks/list":
            return await self._list(params)
        job = await find_job(self._jobs, read_id(params), self._principal)
        if method == "tasks/get":
            return dumps(self._shown(job))
        if method == "tasks/result":
            return await self._result(job, exchange)
        if method == "tasks/cancel":
            return await self._cancel(job)
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method[:100]}")

    async def created(self, id: str) -> bytes:
        """Return the body that tells the client of the task its call has become."""
        return dumps({"task": self._shown(await find_job(self._jobs, id, self._principal))})

    async def follow(self, id: str, call: ToolCall) -> None:
        """Tell of the task's progress, where the call wanted to hear of it, and of its end; return then."""
        if len(self._followed) >= _FOLLOWED:
            return
        try:
            with anyio.CancelScope() as self._followed[id]:
                job = await self._jobs.get(id, self._principal)
                while job.result is None:
                    seen, job = job, await self._jobs.changed(job, _LONG)
                    if job.progress is not None and job.progress != seen.progress and call.progress_token is not None:
                        await self._say(id, "notifications/progress", _progress(call.progress_token, job.progress))
                await self._say(id, "notifications/tasks/status", self._shown(job))
        except ToolFailure:  # it is gone, or the store is away: the client asks
            return
        finally:
            self._followed.pop(id, None)

    def close(self) -> None:
        """Follow nothing any more; the jobs go on."""
        for scope in tuple(self._followed.values()):
            scope.cancel()

    async def _say(self, id: str, method: str, params: Mapping[str, Any]) -> None:
        message = notification_message(method, params)
        exchange = self._waiting.get(id)
        if exchange is not None and not exchange.ended:
            await exchange.tell(message)
        else:
            self._tell(message)

    async def _result(self, job: Job, exchange: Exchange) -> bytes:
        """Wait for the end, and return what the call is answered with."""
        self._waiting[job.id] = exchange
        try:
            while job.result is None:
                job = await self._jobs.changed(job, _LONG)
        except ToolFailure as failure:
            raise as_rpc(failure) from None
        finally:
            if self._waiting.get(job.id) is exchange:
                del self._waiting[job.id]
        return result_body(result_of(job).with_meta(**{_RELATED: {"taskId": job.id}}), modern=False)

    async def _cancel(self, job: Job) -> bytes:
        if job.result is not None:
            status = self._shown(job)["status"]
            raise RpcError(INVALID_PARAMS, f"Cannot cancel the task: it has ended already ({status})")
        try:
            return dumps(self._shown(await self._jobs.cancel(job.id, self._principal)))
        except ToolFailure as failure:
            raise as_rpc(failure) from None

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
        # One that ended with a question is over: `input_required` would tell a client to wait for it.
        status = "failed" if job.status == "input_required" else job.status
        ttl = {"ttl": round(self._jobs.age * 1000), "pollInterval": POLL_MS}
        return {"taskId": job.id, "status": status, **message_of(job), **times(job), **ttl}


def _progress(token: str | int, told: Progress) -> dict[str, Any]:
    params: dict[str, Any] = {"progressToken": token, "progress": told.progress}
    if told.total is not None:
        params["total"] = told.total
    if told.message:
        params["message"] = told.message
    return params
