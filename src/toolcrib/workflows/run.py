"""One run of a workflow: every step starts as soon as its inputs exist, and the state is saved after each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import anyio

from ..core.json import read_json
from ..core.result import ToolError, ToolResult, Trust
from ..errors import ToolFailure
from .spec import Step, Workflow

__all__ = ["CallTool", "Progressed", "Run", "StepState"]

CallTool = Callable[..., Awaitable[ToolResult]]
"""Makes one call of the session that runs the workflow: `call_tool(name, arguments, **fields of Call)`."""


_CUT_OFF: Final = ("cancelled", "outcome_unknown")
"""Outcomes of a call that was stopped midway."""

Progressed = Callable[[float, float, str], Awaitable[None]]
"""Callback for every step that ended: number of ended steps, number of steps, and the step."""


@dataclass(slots=True, kw_only=True)
class StepState:
    """State of one step. `attempt` is that of the call which ran, or is to run next."""

    status: Literal["waiting", "completed", "failed", "skipped"] = "waiting"
    value: Any = None
    attempt: int = 1
    call_id: str = ""
    error: ToolError | None = None
    trust: Trust = "local"
    """Trust of its value or error."""

    def to_json(self) -> dict[str, Any]:
        """Return the saved form."""
        if self.status == "completed":
            kept = {"status": "completed", "value": self.value, "attempt": self.attempt, "call_id": self.call_id}
            return {**kept, "trust": self.trust}
        return {"attempt": self.attempt, "failed": self.status == "failed"}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any], *, retry: bool) -> Self:
        """Return the saved state. With `retry` a failed step is tried again under a new key.

        Otherwise it gets its earlier outcome: no caller has seen it yet, and a crash is no reason to run it twice.
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


@dataclass(kw_only=True)
class Run:
    """One run, from its beginning or from where an earlier process left it. Used once."""

    id: str
    workflow: Workflow
    input: Mapping[str, Any]
    door: CallTool
    keep: Callable[[Run], Awaitable[None]]
    may_repeat: Callable[[str], bool]
    """Whether a call of that tool may be made again when the outcome of the first one is unknown."""
    on_progress: Progressed | None = None
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
        known = {state.trust for state in self.steps.values()}
        return "untrusted" if "untrusted" in known else "reviewed" if "reviewed" in known else "local"

    def document(self) -> dict[str, Any]:
        """Return what paths look into: the input, and the value of every step that has ended well."""
        done = {name: state.value for name, state in self.steps.items() if state.status == "completed"}
        return {"input": self.input, "steps": done}

    async def __call__(self) -> None:
        """Run the steps that have not succeeded before. A failed step only holds back those that need it."""
        ended = {name: anyio.Event() for name in self.steps}
        async with anyio.create_task_group() as group:
            for step in self.workflow.steps:
                group.start_soon(self._one, step, ended)

    async def _one(self, step: Step, ended: Mapping[str, anyio.Event]) -> None:
        state = self.steps[step.name]
        try:
            if state.status == "completed":
                return
            for name in step.needs:
                await ended[name].wait()
            if any(self.steps[name].status != "completed" for name in step.needs):
                state.status = "skipped"
                return
            await self._call(step, state)
            await self.keep(self)
            await self._tell(step)
        finally:
            ended[step.name].set()

    async def _call(self, step: Step, state: StepState) -> None:
        try:
            arguments = step.arguments.fill(self.document())
        except ToolFailure as failure:
            state.status, state.error = "failed", ToolError(code=failure.code, message=failure.message)
            return
        result = await self._made(step, state, arguments)
        if _was_cut_off(result) and self.may_repeat(step.tool):
            state.attempt += 1
            result = await self._made(step, state, arguments)
        state.call_id = str(result.meta.get("call_id", ""))
        state.trust = result.meta.get("trust", "local")
        error = _unknown(result) if _was_cut_off(result) else _failure(result)
        if error is None:
            state.status, state.value = "completed", _value(result)
        else:
            state.status, state.error = "failed", error

    async def _made(self, step: Step, state: StepState, arguments: Any) -> ToolResult:
        return await self.door(
            step.tool,
            arguments,
            raw=True,
            origin="workflow",
            timeout=step.timeout,
            idempotency_key=f"workflow:{self.id}:{step.name}:{state.attempt}",
        )

    async def _tell(self, step: Step) -> None:
        if self.on_progress is not None:
            over = sum(state.status != "waiting" for state in self.steps.values())
            await self.on_progress(over, len(self.steps), f"{step.name}: {self.steps[step.name].status}")


def _was_cut_off(result: ToolResult) -> bool:
    """Whether this is the outcome of a step that an earlier process left unfinished."""
    return "replayed" in result.meta and result.error is not None and result.error.code in _CUT_OFF


def _unknown(result: ToolResult) -> ToolError:
    """Return the error of a step that was cut off and is not repeated, for any end of its process."""
    reason = result.error.message if result.error is not None else ""
    return ToolError(code="outcome_unknown", message=f"it was cut off, and not run again: {reason}")


def _failure(result: ToolResult) -> ToolError | None:
    if result.input_required is not None:
        return ToolError(code="tool_error", message="the tool asks its client for input, which a workflow cannot give")
    if result.error is None and "artifact" in result.meta:
        return ToolError(code="too_large", message="the result is too large to be handed to another step")
    return result.error


def _value(result: ToolResult) -> Any:
    """Return the value of a step: its structured content, else its text, parsed if it is a JSON object or array."""
    if result.structured_content is not None:
        return result.structured_content
    text = result.text
    if text.lstrip()[:1] in ("{", "["):
        try:
            return read_json(text, limit=len(text))
        except ValueError:
            return text
    return text
