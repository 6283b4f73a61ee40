"""Tools by which a model manages its jobs; listed once a tool can run in the background.

They are ordinary tools: a call made by `start_background_task` passes through the pipeline, with its own permission.

A job's result that such a tool fetched already passed the after-steps (`is_settled`): it was limited and put into its
envelope when the job ended; doing so again would cut and wrap it twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, get_args

from ..core.call import Call
from ..core.context import Context
from ..core.result import ToolResult, Trust
from ..core.tool import PLAIN, READS, Annotations, Capability, Tool
from ..errors import ToolFailure
from ..sources.source import BaseSource
from .job import LOOK, Job, Jobs, Status

SOURCE: Final = "jobs"
"""The source of the tools for jobs."""
TASK: Final = "task"
"""Metadata key of a result that went through the pipeline as a task: its id. It is passed on unchanged."""
_MAX_WAIT: Final = 30
"""Seconds that a model may wait for a job in one call: less than its clients wait for an answer."""
_WRITE_ANNOTATIONS: Final = Annotations(destructive=False, open_world=False)
_ALL_TASKS: Final = "*"
"""Instead of an id: every task that works."""
_ID_SCHEMA: Final = {"task_id": {"type": "string", "description": "From the answer that named the task."}}

_OWN_ID: Final = Capability(explicit=("task_id",))
"""A `task_id` of the session's context is that of a task, not of a job."""


class JobTools(BaseSource):
    """A source of five tools. Every caller sees the jobs of its own principal."""

    def __init__(
        self,
        jobs: Jobs,
        door_of: Callable[[Context], Callable[..., Awaitable[ToolResult]]],
        trust_of: Callable[[Job], Trust],
        offered: Callable[[Context], Iterable[tuple[str, Tool]]],
    ) -> None:
        """`door_of` returns how a call makes others of its session, `trust_of` how far the output of a job is trusted.

        `offered` returns the tools that the session of a call may call, each by the name that it is shown by.
        """
        super().__init__(SOURCE, "jobs")
        self._jobs = jobs
        self._door_of = door_of
        self._offered = offered
        self._trust_of = trust_of

    def offer_all(self) -> None:
        """List the tools; they never change."""
        self.offer(*_TOOLS)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Carry out one of the tools. Raises `ToolFailure`: `not_found` for a job that this principal does not have."""
        jobs, principal = self._jobs, context.principal
        if tool.local_name == "start_background_task":
            return await self._start(arguments, context)
        if tool.local_name == "list_background_tasks":
            listed = await jobs.list(principal, arguments.get("status"))
            return self._report({"tasks": [job.to_json() for job in listed], "count": len(listed)}, *listed)
        if tool.local_name == "list_background_capable_tools":
            return self._report(_capable(self._offered(context)))
        task_id = str(arguments["task_id"])
        if tool.local_name == "cancel_background_task" and task_id == _ALL_TASKS:
            return await self._cancel_all(principal)
        if tool.local_name == "cancel_background_task":
            job = await jobs.cancel(task_id, principal)
            return self._report(job.to_json(), job)
        return await self._look_up(task_id, principal, float(arguments["wait_seconds"]))

    async def _start(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        name, values = str(arguments["tool_name"]), arguments["arguments"]
        run = self._door_of(context)
        result = await run(name, values, background=True, timeout=arguments.get("timeout_seconds"))
        return result.with_meta(**{TASK: result.meta["job"]}) if "job" in result.meta else result

    async def _cancel_all(self, principal: str) -> ToolResult:
        """Stop all running jobs of a principal. A job that ends meanwhile is left out of the report."""
        stopped: list[Job] = []
        for job in await self._jobs.list(principal, "working"):
            with suppress(ToolFailure):
                stopped.append(await self._jobs.cancel(job.id, principal))
        return self._report({"tasks": [job.to_json() for job in stopped], "count": len(stopped)}, *stopped)

    async def _look_up(self, task_id: str, principal: str, seconds: float) -> ToolResult:
        """Return the result of a job that ends within `seconds`, else its progress."""
        jobs = self._jobs
        try:
            return (await jobs.result(task_id, principal, seconds)).with_meta(**{TASK: task_id})
        except ToolFailure as failure:
            if failure.code != "timeout":
                raise
        job = await jobs.get(task_id, principal)
        return self._report(job.to_json(), job)

    def _report(self, value: Any, *jobs: Job) -> ToolResult:
        """Return the state of jobs; the output of one may contain foreign text already."""
        answer = ToolResult.of_json(value)
        saying = [job for job in jobs if job.output or job.progress is not None]
        if any(self._trust_of(job) == "untrusted" for job in saying):
            return answer.with_meta(source=SOURCE, trust="untrusted")
        return answer


def _capable(tools: Iterable[tuple[str, Tool]]) -> dict[str, Any]:
    listed = [
        {"name": name, "source": tool.source, "seconds": tool.execution.background_after, "description": tool.summary}
        for name, tool in tools
        if tool.execution.background_after is not None
    ]
    return {"tools": listed, "count": len(listed)}


def _tool(
    name: str, op: str, description: str, annotations: Annotations, required: list[str], **properties: Any
) -> Tool:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(
        name=name,
        local_name=name,
        source=SOURCE,
        op=op,
        description=description,
        input_schema=schema,
        annotations=annotations,
        category="coordination",
        approval="never",
        capability=_OWN_ID if "task_id" in properties else PLAIN,
    )


_TOOLS: Final = (
    _tool(
        "start_background_task",
        "x.job.start",
        "Run a tool in the background from the beginning. Returns a task_id at once.",
        _WRITE_ANNOTATIONS,
        ["tool_name"],
        tool_name={"type": "string"},
        arguments={"type": "object", "default": {}, "description": "The tool's own arguments."},
        timeout_seconds={"type": "number", "exclusiveMinimum": 0},
    ),
    _tool(
        LOOK,
        "x.job.get",
        "The result of a task that has ended; else its status, progress and latest output.",
        READS,
        ["task_id"],
        **_ID_SCHEMA,
        wait_seconds={"type": "number", "minimum": 0, "maximum": _MAX_WAIT, "default": 0},
    ),
    _tool(
        "cancel_background_task",
        "x.job.cancel",
        "Stop a task that works; * stops all of yours.",
        _WRITE_ANNOTATIONS,
        ["task_id"],
        **_ID_SCHEMA,
    ),
    _tool(
        "list_background_tasks",
        "x.job.list",
        "Your tasks, the newest first.",
        READS,
        [],
        status={"type": "string", "enum": list(get_args(Status))},
    ),
    _tool(
        "list_background_capable_tools",
        "x.job.tools",
        "The tools that go on in the background when a call takes long, and after how many seconds. "
        "start_background_task takes any other, too.",
        READS,
        [],
    ),
)


def is_settled(call: Call, result: ToolResult) -> bool:
    """Whether `result` is that of an earlier call, which this one only fetched."""
    return call.tool is not None and call.tool.source == SOURCE and TASK in result.meta
