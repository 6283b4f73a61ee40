"""One run of a workflow: every step as soon as what it needs is there, and what is known of it kept after each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import anyio

from ..core.json import read_json
from ..core.result import ToolError, ToolResult, Trust
from ..errors import ToolFailure
from .spec import Step, Workflow

__all__ = ["Door", "Progressed", "Run", "StepState"]

Door = Callable[..., Awaitable[ToolResult]]
"""Makes one call of the session that runs the workflow: `door(name, arguments, **fields of Call)`."""


_CUT_OFF: Final = ("cancelled", "outcome_unknown")
"""What a call came to that was stopped in the middle."""

Progressed = Callable[[float, float, str], Awaitable[None]]
"""Is told of every step that ended: how many of how many, and which."""


@dataclass(slots=True, kw_only=True)
class StepState:
    """What is known of one step. `attempt` is that of the call which ran, or is to run next."""

    status: Literal["waiting", "completed", "failed", "skipped"] = "waiting"
    value: Any = None
    attempt: int = 1
    call_id: str = ""
    error: ToolError | None = None
    trust: Trust = "local"
    """How far what it gave is to be trusted, be it a value or an error."""

    def to_json(self) -> dict[str, Any]:
        """Return what is kept."""
        if self.status == "completed":
            kept = {"status": "completed", "value": self.value, "attempt": self.attempt, "call_id": self.call_id}
            return {**kept, "trust": self.trust}
        return {"attempt": self.attempt, "failed": self.status == "failed"}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any], *, retry: bool) -> Self:
        """Return what was kept. A step that failed is tried under a new key where somebody wants that (`retry`).

        Else it meets what it came to before: nobody was told yet, and a crash is no reason to run it twice.
        """
        given = {key: value for key, value in kept.items() if key != "failed"}
        state = cls(**given)
        state.attempt += retry and bool(kept.get("failed"))
        return state

    def shown(self) -> dict[str, Any]:
        """Return what the caller is told."""
        told: dict[str, Any] = {"status": self.status}
        if self.call_id:
            told["call_id"] = self.call_id
        if self.error is not None:
            told["error"] = {"code": self.error.code, "message": self.error.message}
        return told


@dataclass(kw_only=True)
class Run:
    """One run, from its beginning or from where an earlier process left it. Used once."""

    id: str
    workflow: Workflow
    input: Mapping[str, Any]
    door: Door
    keep: Callable[[Run], Awaitable[None]]
    may_repeat: Callable[[str], bool]
    """Whether a call of that tool may be made again when nobody knows what came of the first one."""
    told: Progressed | None = None
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
        """How far the run is to be trusted: as its least trusted step."""
        known = {state.trust for state in self.steps.values()}
        return "untrusted" if "untrusted" in known else "reviewed" if "reviewed" in known else "local"

    def document(self) -> dict[str, Any]:
        """Return what paths look into: the input, and the value of every step that has ended well."""
        done = {name: state.value for name, state in self.steps.items() if state.status == "completed"}
        return {"input": self.input, "steps": done}

    async def __call__(self) -> None:
        """Run what has not ended well before. A step that fails keeps back those that need it, and nothing else."""
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
        if self.told is not None:
            over = sum(state.status != "waiting" for state in self.steps.values())
            await self.told(over, len(self.steps), f"{step.name}: {self.steps[step.name].status}")


def _was_cut_off(result: ToolResult) -> bool:
    """Whether this is what an earlier process left of the step."""
    return "replayed" in result.meta and result.error is not None and result.error.code in _CUT_OFF


def _unknown(result: ToolResult) -> ToolError:
    """Return what is said of a step that was cut off and is not repeated, however its process ended."""
    said = result.error.message if result.error is not None else ""
    return ToolError(code="outcome_unknown", message=f"it was cut off, and not run again: {said}")


def _failure(result: ToolResult) -> ToolError | None:
    if result.input_required is not None:
        return ToolError(code="tool_error", message="the tool asks its client for input, which a workflow cannot give")
    if result.error is None and "artifact" in result.meta:
        return ToolError(code="too_large", message="the result is too large to be handed to another step")
    return result.error


def _value(result: ToolResult) -> Any:
    """Return what a step gave: its structured content, else its text, read as JSON where it is an object or a list."""
    if result.structured_content is not None:
        return result.structured_content
    text = result.text
    if text.lstrip()[:1] in ("{", "["):
        try:
            return read_json(text, limit=len(text))
        except ValueError:
            return text
    return text
