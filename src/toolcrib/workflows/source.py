"""Source of workflows: each is a tool whose work is calls of other tools, each through the pipeline.

In a run every step starts as soon as its inputs exist, and the state is saved after each.

    run breaks off (process ended)   the job of the same call goes on: steps that ended keep their outcome
    a step fails                     those that need it are skipped, the answer has `resume_id`
    call with `resume_id`            steps that ended well are not run again, the failed one is, under a new key

The idempotency key of a step's call has run, step and attempt in it. A step whose end could not be saved is therefore
answered with its recorded result when the run goes on, and not made a second time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal, Self, cast

import anyio
from msgspec import Struct, field

from ..core.context import Context
from ..core.events import Problem, SourceState
from ..core.json import canonical, dumps
from ..core.result import ToolError, ToolResult, Trust
from ..core.tool import NO_LOCKS, Annotations, Execution, Tool
from ..errors import ConfigError, ToolFailure
from ..sources.source import Listing, Publish
from .host import CallTool, WorkflowHost, failure_of, least_trusted, value_of, was_cut_off
from .spec import RESUME, Step, Workflow, check, read_workflow
from .templates import MissingValue

Progressed = Callable[[float, float, str], Awaitable[None]]
"""Callback for every step that ended: number of ended steps, number of steps, and the step."""

SOURCE: Final = "workflows"

_MAX_OUTPUT_BYTES: Final = 64 << 20
"""Most of an output, before it is shortened for its reader."""


class StepState(Struct, kw_only=True):
    """State of one step. `attempt` is that of the call which ran, or is to run next."""

    status: Literal["waiting", "completed", "failed", "skipped"] = "waiting"
    value: Any = None
    attempt: int = 1
    call_id: str = ""
    error: ToolError | None = None
    has_ended_well: bool = False
    """Whether its call did, whose result cannot be handed on: another attempt would do the same again."""
    trust: Trust = "local"
    """Trust of its value or error."""
    definition: str = ""
    """Digest of the step as it was when it ended well; empty in the runs of earlier versions."""

    def to_json(self) -> dict[str, Any]:
        """Return the saved form."""
        if self.status == "completed":
            kept = {"status": "completed", "value": self.value, "attempt": self.attempt, "call_id": self.call_id}
            return {**kept, "trust": self.trust, "definition": self.definition}
        return {"attempt": self.attempt, "failed": self.status == "failed" and not self.has_ended_well}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any], *, retry: bool) -> Self:
        """Return the saved state. With `retry` a failed step is tried again under a new key.

        Otherwise it gets its earlier outcome: no caller has seen it yet, and a crash is not a reason to run it twice.
        """
        given = {key: value for key, value in kept.items() if key != "failed"}
        state = cls(**given)
        state.attempt += retry and bool(kept.get("failed"))
        return state

    def shown(self) -> dict[str, Any]:
        """Return the report for the caller."""
        report: dict[str, Any] = {"status": self.status}
        if self.call_id:
            report["call_id"] = self.call_id
        if self.error is not None:
            report["error"] = {"code": self.error.code, "message": self.error.message}
        return report


class WorkflowRun(Struct, kw_only=True):
    """One run, from its beginning or from where an earlier process left it. Used once."""

    id: str
    """That of the call which began it: by it an attempt after a crash finds the run again."""
    workflow: Workflow
    input: Mapping[str, Any]
    door: CallTool
    keep: Callable[[WorkflowRun], Awaitable[None]]
    may_repeat: Callable[[str], bool]
    """Whether a call of that tool may be made again when the outcome of the first one is unknown."""
    on_progress: Progressed | None = None
    origin: str = "workflow"
    """Origin of its calls: `nested` where the model wrote the steps, which no client has shown its user then."""
    steps: dict[str, StepState] = field(default_factory=dict[str, StepState])

    def __post_init__(self) -> None:
        for step in self.workflow.steps:
            self.steps.setdefault(step.name, StepState())

    @property
    def failed(self) -> list[str]:
        """The steps that failed, in the order of the workflow."""
        return [name for name, state in self.steps.items() if state.status == "failed"]

    @property
    def trust(self) -> Trust:
        """Trust of the run: that of its least trusted step."""
        return least_trusted(state.trust for state in self.steps.values())

    def document(self) -> dict[str, Any]:
        """Return the document of paths: the input, and the value of every step that succeeded."""
        done = {name: state.value for name, state in self.steps.items() if state.status == "completed"}
        return {"input": self.input, "steps": done}

    async def __call__(self) -> None:
        """Run the steps that have not succeeded before. A failed step only holds back those that need it."""
        ended = {name: anyio.Event() for name in self.steps}
        async with anyio.create_task_group() as group:
            for step in self.workflow.steps:
                group.start_soon(self._run_step, step, ended)

    async def _run_step(self, step: Step, ended: Mapping[str, anyio.Event]) -> None:
        state = self.steps[step.name]
        if state.status != "completed":
            for name in step.needs:
                await ended[name].wait()
            if any(self.steps[name].status != "completed" for name in step.needs):
                state.status = "skipped"
            else:
                await self._call(step, state)
                await self.keep(self)
                await self._report_progress(step)
        ended[step.name].set()  # never after a save that failed: the steps that wait for it are cancelled

    async def _call(self, step: Step, state: StepState) -> None:
        try:
            arguments = step.arguments.fill(self.document())
        except ToolFailure as failure:
            state.status, state.error = "failed", ToolError(code=failure.code, message=failure.message)
            return
        result = await self._make_call(step, state, arguments)
        while was_cut_off(result) and self.may_repeat(step.tool):  # once for each process that was killed in it
            state.attempt += 1
            result = await self._make_call(step, state, arguments)
        state.call_id = str(result.meta.get("call_id", ""))
        state.trust = result.meta.get("trust", "local")
        error = failure_of(result)
        if error is None:
            state.status, state.value, state.definition = "completed", value_of(result), step.digest
        else:
            state.status, state.error, state.has_ended_well = "failed", error, result.error is None

    async def _make_call(self, step: Step, state: StepState, arguments: Any) -> ToolResult:
        return await self.door(
            step.tool,
            arguments,
            raw=True,
            origin=self.origin,
            ask=step.approval,
            timeout=step.timeout,
            idempotency_key=f"workflow:{self.id}:{step.name}:{state.attempt}",
        )

    async def _report_progress(self, step: Step) -> None:
        if self.on_progress is not None:
            over = sum(state.status != "waiting" for state in self.steps.values())
            await self.on_progress(over, len(self.steps), f"{step.name}: {self.steps[step.name].status}")


class WorkflowRunner:
    """Runs workflows, and keeps the state of those that broke off. One for a crib."""

    def __init__(self, host: WorkflowHost) -> None:
        self._host = host
        self._runs = host.runs

    async def run(
        self,
        workflow: Workflow,
        given: Mapping[str, Any],
        context: Context,
        *,
        go_on: str,
        token: str | None = None,
        origin: str = "workflow",
        beside: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Run a workflow, or go on with the run of `token`; return its output, or the report of what failed.

        `go_on` is the hint how to go on with the run `{id}`, `beside` is kept with its state. Raises
        `ToolFailure`: `not_found` and `conflict` for a token.
        """
        run = await self._begin(workflow, given, token, context, beside or {})
        run.origin = origin
        await run()
        if run.failed:
            return _broken_off_result(run, go_on.format(id=run.id)).with_meta(source=SOURCE, trust=run.trust)
        await self._runs.forget(run.id, context.principal)
        return _result_of(run).with_meta(source=SOURCE, trust=run.trust)

    async def _begin(
        self,
        workflow: Workflow,
        given: Mapping[str, Any],
        token: str | None,
        context: Context,
        beside: Mapping[str, Any],
    ) -> WorkflowRun:
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
        if changed := _changed_steps(workflow, steps):
            raise ToolFailure(
                "conflict",
                f"{', '.join(changed)} ran in this run already, and the workflow has another step in its place by now",
                hint="begin a new run, or give the workflow the step back that ran",
            )
        for step in workflow.steps:
            if step.name in steps and steps[step.name].status == "completed":
                self._host.recall(context, step.tool, steps[step.name].trust)

        async def keep(run: WorkflowRun) -> None:
            states = {name: state.to_json() for name, state in run.steps.items()}
            await self._runs.save(run.id, context.principal, {**beside, "bound": bound, "steps": states})

        return WorkflowRun(
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


def _changed_steps(workflow: Workflow, steps: Mapping[str, StepState]) -> list[str]:
    """Return the steps that ended well and would not run now as they ran: to go on would pass their change over."""
    now = {step.name: step.digest for step in workflow.steps}
    return [
        name
        for name, state in steps.items()
        if state.status == "completed" and state.definition and now.get(name) != state.definition
    ]


class WorkflowSource:
    """All workflows of a crib. One that cannot be read is a problem, and hides no other."""

    def __init__(self, host: WorkflowHost) -> None:
        self._host = host
        self._runner = WorkflowRunner(host)
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

    def defects(self) -> dict[str, list[str]]:
        """Return the defects of workflows that cannot run with the present tools, by name."""
        found = {name: self._defect_of(workflow) for name, workflow in self._workflows.items()}
        return {name: wrong for name, wrong in found.items() if wrong}

    def _defect_of(self, workflow: Workflow) -> list[str]:
        wrong = check(workflow, self._host.catalog.find)
        if circle := self._find_circle(workflow.name):
            wrong.append(f"it would call itself without end: {' → '.join(circle)}")
        return wrong

    def _find_circle(self, name: str) -> list[str]:
        """Return the way on which a workflow calls itself; empty if there is none."""
        ways, seen = [[name]], set[str]()
        while ways:
            way = ways.pop()
            for tool in self._tools_of(self._workflows[way[-1]]):
                if tool is None or tool.source != SOURCE or tool.local_name not in self._workflows.keys() - seen:
                    continue
                if tool.local_name == name:
                    return [*way, name]
                seen.add(tool.local_name)
                ways.append([*way, tool.local_name])
        return []

    async def check(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> None:
        """Raise the `ToolFailure` of a workflow that is known to fail with the present tools."""
        if failure := self.find_defect(tool):
            raise failure

    def find_defect(self, tool: Tool) -> ToolFailure | None:
        """Return the failure of a workflow that cannot run with the present tools."""
        workflow = self._workflows.get(tool.local_name)
        if workflow is None:
            return ToolFailure("not_found", f"unknown workflow {tool.local_name}")
        if wrong := self._defect_of(workflow):
            return ToolFailure("invalid_arguments", f"{workflow.name} cannot run: {'; '.join(wrong[:10])}")
        return None

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the calls that a run would make, in an order in which they can be made."""
        workflow = self._workflows[tool.local_name]
        waits = (f" after {', '.join(sorted(step.needs))}" if step.needs else "" for step in workflow.steps)
        return "; ".join(f"{step.name}: {step.tool}{wait}" for step, wait in zip(workflow.steps, waits, strict=True))

    def implementation_of(self, tool: Tool) -> str:
        """Return a hash over the steps of a workflow as they are now; empty for one that is not there any more."""
        workflow = self._workflows.get(tool.local_name)
        steps = [] if workflow is None else [[step.digest, step.approval] for step in workflow.steps]
        return hashlib.sha256(canonical(steps)).hexdigest() if steps else ""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run a workflow, or go on with a run. Nothing runs when something is known to fail."""
        await self.check(tool, arguments, context)
        workflow, given = self._workflows[tool.local_name], dict(arguments)
        token = given.pop(RESUME, None)
        go_on = "same arguments and " + RESUME + " {id!r} to go on"
        return await self._runner.run(workflow, given, context, token=token, go_on=go_on)

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
        execution=Execution(background_after=workflow.background_after, locks=NO_LOCKS),
        traits=("resumable",),
    )


def _result_of(run: WorkflowRun) -> ToolResult:
    try:
        value = run.workflow.output.fill(run.document(), _MAX_OUTPUT_BYTES)
    except MissingValue as missing:
        return ToolResult.failed("tool_error", f"every step ended well, and for the output {missing.message}")
    calls = {name: state.call_id for name, state in run.steps.items()}
    if isinstance(value, str):
        return ToolResult.of_text(value).with_meta(workflow=calls)
    structured: Any = cast("Any", value) if isinstance(value, dict) else {"result": value}
    return ToolResult.of_text(dumps(value).decode(), structured_content=structured).with_meta(workflow=calls)


def _broken_off_result(run: WorkflowRun, go_on: str) -> ToolResult:
    """Report the failed step with its error, the steps that ran, and how to continue."""
    name = run.failed[0]
    state = run.steps[name]
    code = state.error.code if state.error else "internal"
    tool = next(step.tool for step in run.workflow.steps if step.name == name)
    reason = state.error.message if state.error else "it did not end"
    return ToolResult.failed(
        code,
        f"step {name} ({tool}) failed: {reason}",
        hint=f"steps that ended well do not run again: {go_on}",
        details={"steps": {name: state.shown() for name, state in run.steps.items()}, RESUME: run.id},
    )
