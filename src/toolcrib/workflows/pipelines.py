"""The tool `pipeline`: a workflow that a model writes and runs in one call, in the words of seed 004's project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import replace

from ..core.call import NESTED
from ..core.context import Context
from ..core.result import ToolResult
from ..core.tool import Tool
from ..errors import ConfigError, ToolFailure
from .host import WorkflowHost, once_within, refuse_within, steps_tool

if TYPE_CHECKING:
    from .spec import Workflow  # needs the extra `workflows`

_CODE: Final = "notebook_execute"
"""The tool that runs the code of a step."""
_KINDS: Final = ("tool", "skill", "code")
_MOST_STEPS: Final = 100
_SECONDS: Final = 300
_WORDS: Final = (
    ("workflows.pipeline.", ""),
    (".arguments", ".params"),
    (".after", ".depends_on"),
    (".timeout", ".timeout_seconds"),
)
"""Keys of a workflow's step, and those of a pipeline's."""
_KEPT: Final = "pipeline"
"""Key of the state of a run: the definition and the context that it was begun with."""


_STEP: Final = {
    "additionalProperties": False,
    "description": "One step: a tool, a skill or code.",
    "properties": {
        "id": {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$", "type": "string"},
        "tool": {"description": "Name of a tool.", "type": "string"},
        "skill": {"description": "Name of a skill; its result is its text.", "type": "string"},
        "code": {"description": "Python, with the params as the dict `params`.", "type": "string"},
        "params": {
            "additionalProperties": True,
            "description": 'Arguments; {"$from": "$.steps.ID.field"} or "$.input.name" takes a value from there.',
            "type": "object",
        },
        "depends_on": {
            "description": "Steps to wait for beside those it takes from.",
            "items": {"type": "string"},
            "type": "array",
        },
        "approval": {"description": "Ask the user before it.", "type": "boolean"},
        "timeout_seconds": {
            "description": "300 when not given.",
            "exclusiveMinimum": 0,
            "maximum": 86_400,
            "type": "number",
        },
    },
    "required": ["id"],
    "type": "object",
}
_PIPELINE: Final = {
    "additionalProperties": False,
    "description": "Several steps; each begins once those that it needs have ended well.",
    "properties": {
        "name": {"maxLength": 200, "minLength": 1, "type": "string"},
        "steps": {"items": {"$ref": "#/$defs/PipelineStep"}, "maxItems": _MOST_STEPS, "minItems": 1, "type": "array"},
    },
    "required": ["name", "steps"],
    "type": "object",
}
# Written here, not read from types: these are the only tools that every opening of a crib would need pydantic's
# schemas for, a fortieth of its CPU.
_SCHEMA: Final = {
    "$defs": {"PipelineDefinition": _PIPELINE, "PipelineStep": _STEP},
    "properties": {
        "action": {
            "description": "define_and_run waits for the end, run_background returns a task_id, resume goes on with a "
            "pipeline that broke off, status tells how those in the background are.",
            "enum": ["define_and_run", "run_background", "resume", "status"],
            "type": "string",
        },
        "pipeline": {
            "anyOf": [{"$ref": "#/$defs/PipelineDefinition"}, {"type": "null"}],
            "default": None,
            "description": "define_and_run and run_background: its name and steps.",
        },
        "resume_token": {
            "default": "",
            "description": "resume: from the answer that named it.",
            "maxLength": 200,
            "type": "string",
        },
        "task_id": {
            "default": "",
            "description": "status: of one pipeline; all of them when not given.",
            "maxLength": 200,
            "type": "string",
        },
        "context": {
            "anyOf": [{"additionalProperties": True, "type": "object"}, {"type": "null"}],
            "default": None,
            "description": "Values for the steps, as `$.input`.",
        },
    },
    "required": ["action"],
    "type": "object",
}


class Pipelines:
    """Pipelines of a crib."""

    def __init__(self, host: WorkflowHost) -> None:
        self._host = host

    @steps_tool(
        "x.workflow.pipeline",
        module="jsonpath_rfc9535",
        extra="workflows",
        input_schema=_SCHEMA,
        explicit=["task_id"],
        traits=["by_action", "hands_on"],
        metadata={"reads": {"action": ["status"]}},
        tags=["workflow_automation", "pipeline_execution", "steps", "chain", "several tools", "sequence"],
        examples=[
            {
                "action": "define_and_run",
                "pipeline": {
                    "name": "copy the notes",
                    "steps": [
                        {"id": "read", "tool": "read_file", "params": {"path": "notes.md"}},
                        {
                            "id": "write",
                            "tool": "write_file",
                            "params": {"path": "copy.md", "content": {"$from": "$.steps.read.content"}},
                            "approval": True,
                        },
                    ],
                },
            },
            {"action": "resume", "resume_token": "call-7"},
        ],
        policy={
            "do": [
                "Use it where every step is known before: for work that needs thought between the steps, use a plan."
            ],
            "edge_cases": [
                "Each step is a call of its own, with its own permission.",
                "Where a step fails, the others go on as far as they can; resume repeats what failed and nothing else.",
            ],
        },
    )
    async def pipeline(
        self,
        action: Literal["define_and_run", "run_background", "resume", "status"],
        ctx: Context,
        pipeline: Mapping[str, Any] | None = None,
        resume_token: str = "",
        task_id: str = "",
        context: dict[str, Any] | None = None,
    ) -> ToolResult:
        """Run several calls of tools, skills and code in one go, the results of some as arguments of others."""
        match action:
            case "status":
                return await self._status(task_id, ctx)
            case "resume":
                return await self._resume(resume_token, ctx)
            case _ if pipeline is None:
                raise ToolFailure("invalid_arguments", f"pipeline: {action} needs one, with name and steps")
            case "define_and_run":
                return await self._run(pipeline, context or {}, ctx)
            case "run_background":
                refuse_within()
                self._checked(pipeline, ctx)
                given = {"action": "define_and_run", "pipeline": pipeline, "context": context or {}}
                return await self._host.door_of(ctx)("pipeline", given, background=True, raw=True)

    async def _run(
        self, pipeline: Mapping[str, Any], values: Mapping[str, Any], ctx: Context, token: str | None = None
    ) -> ToolResult:
        workflow = self._checked(pipeline, ctx)
        from .source import WorkflowRunner  # needs the extra, as all that runs workflows

        with once_within():
            return await WorkflowRunner(self._host).run(
                workflow,
                values,
                ctx,
                token=token,
                go_on='{{"action": "resume", "resume_token": "{id}"}} goes on',
                origin=NESTED,
                beside={_KEPT: {"definition": pipeline, "context": values}},
            )

    async def _resume(self, token: str, ctx: Context) -> ToolResult:
        state = await self._host.runs.load(token, ctx.principal) if token else None
        begun: Mapping[str, Any] | None = (state or {}).get(_KEPT)
        if begun is None:
            hint = "take it from the answer of the pipeline that broke off, or begin a new one"
            raise ToolFailure("not_found", f"no pipeline of yours goes on by {token[:80]!r}", hint=hint)
        return await self._run(begun["definition"], begun["context"], ctx, token)

    async def _status(self, task_id: str, ctx: Context) -> ToolResult:
        jobs = self._host.jobs
        if task_id:
            found = [await jobs.get(task_id, ctx.principal)]
        else:
            found = [job for job in await jobs.list(ctx.principal) if job.tool == "pipeline"]
        value = {"pipelines": [job.to_json() for job in found], "count": len(found)}
        return ToolResult.of_json(value)

    def _checked(self, pipeline: Mapping[str, Any], ctx: Context) -> Workflow:
        """Return the workflow. Raises `ToolFailure` with all that is known to fail, before anything runs."""
        from .spec import check  # needs the extra

        workflow = _workflow(pipeline, lambda name: self._host.find(ctx, name))
        if wrong := check(workflow, lambda name: self._host.find(ctx, name)):
            raise ToolFailure("invalid_arguments", f"the pipeline cannot run: {_in_words('; '.join(wrong[:10]))}")
        return workflow


def _workflow(pipeline: Mapping[str, Any], find: Callable[[str], Tool | None]) -> Workflow:
    """Return a pipeline as a workflow. Raises `ToolFailure` naming the step and its key."""
    from .spec import read_workflow
    from .templates import CodeTemplate

    steps = pipeline["steps"]
    if len({step["id"] for step in steps}) < len(steps):
        raise ToolFailure("invalid_arguments", "pipeline.steps: two steps have one id")
    definition = {
        "input": {"type": "object"},
        "steps": {step["id"]: _step(step, find) for step in steps},
        "output": {step["id"]: {"$from": f"$.steps.{step['id']}"} for step in steps},
    }
    try:
        workflow = read_workflow("pipeline", definition)
    except ConfigError as error:
        raise ToolFailure("invalid_arguments", _in_words(str(error))) from None
    codes = {step["id"]: CodeTemplate(step.get("params") or {}, step["code"]) for step in steps if "code" in step}
    made = (replace(step, arguments=codes.get(step.name, step.arguments)) for step in workflow.steps)
    return replace(workflow, steps=tuple(made))


def _in_words(message: str) -> str:
    """Return a message about a workflow with the keys of a pipeline."""
    return reduce(lambda text, word: text.replace(*word), _WORDS, message)


def _step(step: Mapping[str, Any], find: Callable[[str], Tool | None]) -> dict[str, Any]:
    """Return a step in the words of a workflow, with the catalog's name of its tool."""
    kinds = [kind for kind in _KINDS if kind in step]
    if len(kinds) != 1:
        given = " and ".join(kinds) or "none of them"
        raise ToolFailure("invalid_arguments", f"steps.{step['id']}: one of tool, skill and code, not {given}")
    name = _CODE if "code" in step else step.get("tool") or step.get("skill") or ""
    tool = find(name)
    if tool is not None and "skill" in step and tool.capability.type != "SKILL":
        raise ToolFailure("invalid_arguments", f"steps.{step['id']}.skill: {name!r} is not a skill; write `tool`")
    return {
        "tool": name if tool is None else tool.name,
        "arguments": step.get("params") or {},
        "after": list(step.get("depends_on", ())),
        "timeout": step.get("timeout_seconds", _SECONDS),
        "approval": step.get("approval", False),
    }
