"""The tool `pipeline`: a workflow that a model writes and runs in one call, in the words of seed 004's project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NotRequired

from msgspec.structs import replace
from pydantic import Field
from typing_extensions import TypedDict

from ..core.call import NESTED
from ..core.context import Context
from ..core.result import ToolResult
from ..core.tool import Tool
from ..errors import ConfigError, ToolFailure
from .host import WorkflowHost, once_within, refuse_within, steps_tool

if TYPE_CHECKING:
    from .spec import Workflow  # needs the extra `workflows`

_CODE_TOOL: Final = "notebook_execute"
"""The tool that runs the code of a step."""
_STEP_KINDS: Final = ("tool", "skill", "code")
_MAX_STEPS: Final = 100
_DEFAULT_STEP_SECONDS: Final = 300
_KEY_REPLACEMENTS: Final = (
    ("workflows.pipeline.", ""),
    (".arguments", ".params"),
    (".after", ".depends_on"),
    (".timeout", ".timeout_seconds"),
)
"""Keys of a workflow's step, and those of a pipeline's."""
_STATE_KEY: Final = "pipeline"
"""Key of the state of a run: the definition and the context that it was begun with."""


class PipelineStep(TypedDict):
    """One step: a tool, a skill or code."""

    id: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
    tool: NotRequired[Annotated[str, Field(description="Name of a tool.")]]
    skill: NotRequired[Annotated[str, Field(description="Name of a skill; its result is its text.")]]
    code: NotRequired[Annotated[str, Field(description="Python, with the params as the dict `params`.")]]
    params: NotRequired[
        Annotated[
            dict[str, Any],
            Field(description='Arguments; {"$from": "$.steps.ID.field"} or "$.input.name" takes a value from there.'),
        ]
    ]
    depends_on: NotRequired[Annotated[list[str], Field(description="Steps to wait for beside those it takes from.")]]
    approval: NotRequired[Annotated[bool, Field(description="Ask the user before it.")]]
    timeout_seconds: NotRequired[Annotated[float, Field(gt=0, le=86_400, description="300 when not given.")]]


class PipelineDefinition(TypedDict):
    """Several steps; each begins once those that it needs have ended well."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    steps: Annotated[list[PipelineStep], Field(min_length=1, max_length=_MAX_STEPS)]


class Pipelines:
    """Pipelines of a crib."""

    def __init__(self, host: WorkflowHost) -> None:
        self._host = host

    @steps_tool(
        "x.workflow.pipeline",
        module="jsonpath_rfc9535",
        extra="workflows",
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
        pipeline: PipelineDefinition | None = None,
        resume_token: Annotated[str, Field(max_length=200)] = "",
        task_id: Annotated[str, Field(max_length=200)] = "",
        context: dict[str, Any] | None = None,
    ) -> ToolResult:
        """Run several calls of tools, skills and code in one go, the results of some as arguments of others.

        Args:
            ctx: The call.
            action: define_and_run waits for the end, run_background returns a task_id, resume goes on with a pipeline
                that broke off, status tells how those in the background are.
            pipeline: define_and_run and run_background: its name and steps.
            resume_token: resume: from the answer that named it.
            task_id: status: of one pipeline; all of them when not given.
            context: Values for the steps, as `$.input`.
        """
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
        self, pipeline: PipelineDefinition, values: Mapping[str, Any], ctx: Context, token: str | None = None
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
                beside={_STATE_KEY: {"definition": pipeline, "context": values}},
            )

    async def _resume(self, token: str, ctx: Context) -> ToolResult:
        state = await self._host.runs.load(token, ctx.principal) if token else None
        begun: Mapping[str, Any] | None = (state or {}).get(_STATE_KEY)
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

    def _checked(self, pipeline: PipelineDefinition, ctx: Context) -> Workflow:
        """Return the workflow. Raises `ToolFailure` with all that is known to fail, before anything runs."""
        from .spec import check  # needs the extra

        workflow = _workflow(pipeline, lambda name: self._host.find(ctx, name))
        if wrong := check(workflow, lambda name: self._host.find(ctx, name)):
            raise ToolFailure(
                "invalid_arguments", f"the pipeline cannot run: {_message_in_pipeline_terms('; '.join(wrong[:10]))}"
            )
        return workflow


def _workflow(pipeline: PipelineDefinition, find: Callable[[str], Tool | None]) -> Workflow:
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
        raise ToolFailure("invalid_arguments", _message_in_pipeline_terms(str(error))) from None
    codes = {step["id"]: CodeTemplate(step.get("params") or {}, step["code"]) for step in steps if "code" in step}
    made = (replace(step, arguments=codes.get(step.name, step.arguments)) for step in workflow.steps)
    return replace(workflow, steps=tuple(made))


def _message_in_pipeline_terms(message: str) -> str:
    """Return a message about a workflow with the keys of a pipeline."""
    return reduce(lambda text, word: text.replace(*word), _KEY_REPLACEMENTS, message)


def _step(step: PipelineStep, find: Callable[[str], Tool | None]) -> dict[str, Any]:
    """Return a step in the words of a workflow, with the catalog's name of its tool."""
    kinds = [kind for kind in _STEP_KINDS if kind in step]
    if len(kinds) != 1:
        given = " and ".join(kinds) or "none of them"
        raise ToolFailure("invalid_arguments", f"steps.{step['id']}: one of tool, skill and code, not {given}")
    name = _CODE_TOOL if "code" in step else step.get("tool") or step.get("skill") or ""
    tool = find(name)
    if tool is not None and "skill" in step and tool.capability.type != "SKILL":
        raise ToolFailure("invalid_arguments", f"steps.{step['id']}.skill: {name!r} is not a skill; write `tool`")
    return {
        "tool": name if tool is None else tool.name,
        "arguments": step.get("params") or {},
        "after": list(step.get("depends_on", ())),
        "timeout": step.get("timeout_seconds", _DEFAULT_STEP_SECONDS),
        "approval": step.get("approval", False),
    }
