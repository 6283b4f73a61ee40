"""Source of workflows: each is a tool whose work is calls of other tools, each through the pipeline."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, cast

from ..catalog.catalog import Catalog
from ..core.context import Context
from ..core.events import Problem, SourceState
from ..core.json import canonical, dumps
from ..core.result import ToolResult, Trust
from ..core.tool import Annotations, Execution, Tool
from ..errors import ConfigError, ToolFailure
from ..sources.source import Listing, Publish
from .run import CallTool, Run, StepState
from .spec import RESUME, Missing, Workflow, check, read_workflow

__all__ = ["SOURCE", "Host", "Runs", "WorkflowSource"]

SOURCE: Final = "workflows"


class Runs(Protocol):
    """Store of runs that have not succeeded."""

    async def load(self, id: str, principal: str) -> Mapping[str, Any] | None:
        """Return the last saved state; None for a run that this principal does not have."""
        ...

    async def save(self, id: str, principal: str, state: Mapping[str, Any]) -> None:
        """Keep `state`, on the disk."""
        ...

    async def forget(self, id: str, principal: str) -> None:
        """Keep nothing of it any more."""
        ...


class Host(Protocol):
    """Services of a crib for workflows."""

    @property
    def catalog(self) -> Catalog:
        """The current catalog."""
        ...

    def door_of(self, context: Context) -> CallTool:
        """Return how a call of the same session is made."""
        ...

    def recall(self, context: Context, tool: str, trust: Trust) -> None:
        """Take note that what `tool` gave an earlier session goes on in this one."""
        ...


class WorkflowSource:
    """All workflows of a crib. One that cannot be read is a problem, and hides no other."""

    def __init__(self, host: Host, runs: Runs) -> None:
        """`host` is the crib; `runs` stores the state of interrupted runs."""
        self._host = host
        self._runs = runs
        self._workflows: dict[str, Workflow] = {}
        self._problems: dict[str, Problem] = {}
        self._publish: Publish | None = None

    @property
    def name(self) -> str:
        """Always `workflows`."""
        return SOURCE

    @property
    def state(self) -> SourceState:
        """Ready, once it is open."""
        state = "ready" if self._publish else "closed"
        return SourceState(source=SOURCE, kind="workflows", state=state, tools=len(self._workflows))

    async def open(self, publish: Publish) -> None:
        """Publish the listing, now and at every change."""
        self._publish = publish
        self.refresh()

    async def ready(self) -> None:
        """Return at once."""

    async def close(self) -> None:
        """Hold nothing any more."""
        self._publish = None

    def put(self, name: str, definition: Any, *, file: str = "", strict: bool = False) -> None:
        """Take a workflow; it replaces one of the same name. One that cannot be read is a problem, if not `strict`.

        Raises `ConfigError` with `strict`, and changes nothing then.
        """
        try:
            workflow = read_workflow(name, definition)
        except ConfigError as error:
            if strict:
                raise
            self._workflows.pop(name, None)
            message = f"{file}: {error}" if file else str(error)
            self._problems[name] = Problem(source=SOURCE, tool=name, code="bad_entry", message=message)
        else:
            self._problems.pop(name, None)
            self._workflows[name] = workflow
        self.refresh()

    def refresh(self) -> None:
        """Publish again: the annotations of a workflow depend on the tools that it calls."""
        if self._publish is not None:
            tools = tuple(_tool(workflow, self._tools_of(workflow)) for workflow in self._workflows.values())
            self._publish(Listing(tools=tools, problems=tuple(self._problems.values())))

    def uses(self, names: Iterable[str]) -> bool:
        """Whether a workflow calls one of these tools."""
        used = {step.tool for workflow in self._workflows.values() for step in workflow.steps}
        return not used.isdisjoint(names)

    def check(self, name: str) -> list[str]:
        """Return the known defects of a workflow with the present tools."""
        return check(self._workflows[name], self._host.catalog.find)

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the calls that a run would make, in an order in which they can be made."""
        workflow = self._workflows[tool.local_name]
        waits = (f" after {', '.join(sorted(step.needs))}" if step.needs else "" for step in workflow.steps)
        return "; ".join(f"{step.name}: {step.tool}{wait}" for step, wait in zip(workflow.steps, waits, strict=True))

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run a workflow, or go on with a run. Nothing runs when something is known to fail."""
        workflow = self._workflows.get(tool.local_name)
        if workflow is None:
            raise ToolFailure("not_found", f"unknown workflow {tool.local_name}")
        if wrong := self.check(workflow.name):
            raise ToolFailure("invalid_arguments", f"{workflow.name} cannot run: {'; '.join(wrong[:10])}")
        given = dict(arguments)
        token = given.pop(RESUME, None)
        run = await self._begin(workflow, given, token, context)
        await run()
        if run.failed:
            return _broken_off(run).with_meta(source=SOURCE, trust=run.trust)
        await self._runs.forget(run.id, context.principal)
        return _answer(run).with_meta(source=SOURCE, trust=run.trust)

    async def _begin(self, workflow: Workflow, given: Mapping[str, Any], token: str | None, context: Context) -> Run:
        """Return the run that goes on: the one of `token`, or of an earlier attempt of this very call, or a new one."""
        bound = [workflow.name, hashlib.sha256(canonical(given)).hexdigest()]
        id = token or context.first_call or context.call_id
        kept = await self._runs.load(id, context.principal)
        if token and kept is None:
            raise ToolFailure("not_found", f"no run of yours goes on by {token[:80]!r}", hint="begin a new one")
        if kept is not None and kept["bound"] != bound:
            raise ToolFailure("conflict", "this run was begun by another workflow or with other arguments")
        known: Mapping[str, Mapping[str, Any]] = (kept or {}).get("steps", {})
        steps = {name: StepState.from_json(state, retry=bool(token)) for name, state in known.items()}
        for step in workflow.steps:
            if step.name in steps and steps[step.name].status == "completed":
                self._host.recall(context, step.tool, steps[step.name].trust)

        async def keep(run: Run) -> None:
            states = {name: state.to_json() for name, state in run.steps.items()}
            await self._runs.save(run.id, context.principal, {"bound": bound, "steps": states})

        return Run(
            id=id,
            workflow=workflow,
            input=given,
            door=self._host.door_of(context),
            keep=keep,
            may_repeat=self._may_repeat,
            on_progress=context.report,
            steps={step.name: steps.get(step.name, StepState()) for step in workflow.steps},
        )

    def _may_repeat(self, name: str) -> bool:
        """Whether the tool is idempotent: of a server, whose word a profile may not believe, that is never so."""
        tool = self._host.catalog.find(name)
        return tool is not None and tool.annotations.idempotent and tool.origin != "mcp"

    def _tools_of(self, workflow: Workflow) -> list[Tool | None]:
        catalog = self._host.catalog
        return [catalog.find(step.tool) for step in workflow.steps]


def _tool(workflow: Workflow, tools: list[Tool | None]) -> Tool:
    """Return the definition: it does what its steps do, and each of them is asked for by itself."""
    schema = dict(workflow.input_schema)
    token = {"type": "string", "description": "Of a run that broke off: go on with it, with the same arguments."}
    schema["properties"] = {**schema.get("properties", {}), RESUME: token}
    known = [tool for tool in tools if tool is not None]
    all_known = len(known) == len(tools)
    return Tool(
        name=workflow.name,
        local_name=workflow.name,
        source=SOURCE,
        title=workflow.title,
        description=workflow.description,
        input_schema=schema,
        annotations=Annotations(
            read_only=all_known and all(tool.annotations.read_only for tool in known),
            destructive=not all_known or any(tool.kind == "destructive" for tool in known),
            open_world=not all_known or any(tool.annotations.open_world for tool in known),
        ),
        category=workflow.category or "workflows",
        tags=workflow.tags,
        approval="never",
        origin="workflow",
        execution=Execution(background_after=workflow.background_after),
        traits=("resumable",),
    )


def _answer(run: Run) -> ToolResult:
    try:
        value = run.workflow.output.fill(run.document())
    except Missing as missing:
        return ToolResult.failed("tool_error", f"every step ended well, and for the output {missing.message}")
    calls = {name: state.call_id for name, state in run.steps.items()}
    if isinstance(value, str):
        return ToolResult.of_text(value).with_meta(workflow=calls)
    structured: Any = cast("Any", value) if isinstance(value, dict) else {"result": value}
    return ToolResult.of_text(dumps(value).decode(), structured=structured).with_meta(workflow=calls)


def _broken_off(run: Run) -> ToolResult:
    """Report the failed step with its error, the steps that ran, and how to continue."""
    name = run.failed[0]
    state = run.steps[name]
    code = state.error.code if state.error else "internal"
    tool = next(step.tool for step in run.workflow.steps if step.name == name)
    reason = state.error.message if state.error else "it did not end"
    return ToolResult.failed(
        code,
        f"step {name} ({tool}) failed: {reason}",
        hint=f"steps that ended well do not run again: same arguments and {RESUME} {run.id!r} to go on",
        details={"steps": {name: state.shown() for name, state in run.steps.items()}, RESUME: run.id},
    )
