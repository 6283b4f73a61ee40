"""Steps of a run whose process was killed: what was stored as completed never runs again, what was in flight may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import anyio.lowlevel
import pytest

from toolcrib.core.result import ToolResult
from toolcrib.workflows.source import StepState, WorkflowRun
from toolcrib.workflows.spec import read_workflow

WORKFLOW = read_workflow(
    "chain",
    {
        "steps": {
            "one": {"tool": "look", "arguments": {}},
            "two": {"tool": "look", "arguments": {"after": {"$from": "$.steps.one"}}},
            "three": {"tool": "look", "arguments": {"after": {"$from": "$.steps.two"}}},
        }
    },
)


class Killed(Exception):
    """The process ended."""


class Disk:
    """What survives a kill: the states that were saved, until the save at which the process ends."""

    def __init__(self) -> None:
        self.steps: Mapping[str, Mapping[str, Any]] = {}
        self.ended: Counter[str] = Counter()
        self.saves = 0

    def run(self, *, killed_at: int | None) -> WorkflowRun:
        """Begin or go on; the process ends before the save with that number is on the disk."""

        async def door(tool: str, arguments: Any, *, idempotency_key: str, **options: Any) -> ToolResult:
            if self.saves == killed_at:  # nothing runs in a process that has ended
                raise Killed
            self.ended[idempotency_key.split(":")[2]] += 1
            return ToolResult.of_text("found")

        async def keep(run: WorkflowRun) -> None:
            self.saves += 1
            if self.saves == killed_at:
                raise Killed
            self.steps = {name: state.to_json() for name, state in run.steps.items()}

        known = {name: StepState.from_json(kept, retry=False) for name, kept in self.steps.items()}
        return WorkflowRun(
            id="run", workflow=WORKFLOW, input={}, door=door, keep=keep, may_repeat=lambda tool: True, steps=known
        )


@pytest.mark.parametrize("killed_at", [1, 2, 3])
async def test_only_the_step_whose_end_was_not_stored_yet_runs_again(killed_at: int) -> None:
    disk = Disk()
    with pytest.raises(BaseExceptionGroup) as caught:
        await disk.run(killed_at=killed_at)()
    assert caught.group_contains(Killed)
    stored = {name for name, state in disk.steps.items() if state.get("status") == "completed"}

    await disk.run(killed_at=None)()

    again = {name for name, count in disk.ended.items() if count > 1}
    assert set(disk.ended) == {"one", "two", "three"}
    assert (again & stored, again) == (set(), {("one", "two", "three")[killed_at - 1]})


async def test_no_step_begins_after_one_whose_end_could_not_be_stored() -> None:
    begun: list[str] = []

    async def door(tool: str, arguments: Any, *, idempotency_key: str, **options: Any) -> ToolResult:
        begun.append(idempotency_key.split(":")[2])
        return ToolResult.of_text("found")

    async def keep(run: WorkflowRun) -> None:
        await anyio.lowlevel.checkpoint()
        raise Killed

    run = WorkflowRun(id="run", workflow=WORKFLOW, input={}, door=door, keep=keep, may_repeat=lambda tool: True)
    with pytest.raises(BaseExceptionGroup):
        await run()

    assert begun == ["one"]
