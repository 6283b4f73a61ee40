"""Model of a task, and rules between tasks: dependencies exist and have no cycles."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from toolcrib.plugin import Context, Record, Records, ToolFailure

from .._records import Values, change, names_of

__all__ = ["DONE", "MOST_TASKS", "OPEN", "Board", "Status", "TaskType", "Verification", "board_of"]

Status = Literal["DEFINED", "READY", "IN_PROGRESS", "COMPLETED", "FAILED", "BLOCKED"]
TaskType = Literal["feature", "bugfix", "refactor", "test", "docs", "chore", "research", "plan"]
Verification = Literal["auto_test", "qa_agent", "human"]

OPEN: Final = ("DEFINED", "READY", "IN_PROGRESS", "BLOCKED")
DONE: Final = ("COMPLETED", "FAILED")
MOST_TASKS: Final = 10_000
"""Tasks of one owner, of all projects."""
_HISTORY: Final = 50
"""Changes that a task remembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All tasks of one owner, as they were when it was read; it knows what it has written since. Lives for one call."""

    records: Records
    tasks: dict[str, Record] = field(default_factory=dict[str, Record])

    def find(self, task_id: str) -> Record:
        """Return a task; raises `ToolFailure` with those that there are."""
        found = self.tasks.get(task_id.strip().removeprefix("#"))
        if found is None:
            there = sorted(self.tasks, key=int)
            raise ToolFailure("not_found", f"there is no task {task_id!r}", hint=names_of(there))
        return found

    def check_links(self, id: str, depends_on: Sequence[str], parent_id: str) -> tuple[list[str], str]:
        """Return a task's dependencies and parent, by id.

        Raises `ToolFailure` for an unknown task, and for a cycle of dependencies.
        """
        wanted = list(dict.fromkeys(self.find(other).id for other in depends_on))
        parent = self.find(parent_id).id if parent_id else ""
        self._check_circle(id, "depends_on", {id: wanted})
        self._check_circle(id, "parent_id", {id: [parent] if parent else []})
        return wanted, parent

    def unmet(self, depends_on: Sequence[str]) -> list[str]:
        """Return the tasks that are not completed; a deleted one counts as completed."""
        return [other for other in depends_on if other in self.tasks and self._status(other) != "COMPLETED"]

    def children(self, id: str) -> list[str]:
        """Return the tasks that belong to one."""
        return [other for other, record in self.tasks.items() if record.value["parent_id"] == id]

    def dependents(self, id: str) -> list[str]:
        """Return the tasks that wait for one."""
        return [other for other, record in self.tasks.items() if id in record.value["depends_on"]]

    async def add(self, value: Values, *, group: str) -> Record:
        """Keep a new task."""
        if len(self.tasks) >= MOST_TASKS:
            raise ToolFailure("too_large", f"there are {MOST_TASKS:,} tasks already")
        record = await self.records.add(value, group=group, text=_words(value))
        self.tasks[record.id] = record
        return record

    async def edit(self, record: Record, changes: Mapping[str, Any], *, group: str | None = None) -> Record:
        """Change a task, and remember what was changed."""

        def make(before: Values | None) -> Values:
            if before is None:
                raise ToolFailure("not_found", f"task {record.id} was deleted meanwhile")
            if "status" in changes and before["status"] != record.value["status"]:
                raise ToolFailure(
                    "conflict",
                    f"task {record.id} is {before['status']} by now, not {record.value['status']}",
                    hint="get_task shows what became of it",
                )
            entry = {"time": time.time(), **{name: changes[name] for name in changes if name != "description"}}
            return {**before, **changes, "history": [*before["history"], entry][-_HISTORY:]}

        kept = await change(self.records, record.id, make, group=record.group if group is None else group, text=_words)
        self.tasks[record.id] = kept
        return kept

    async def settle(self, id: str) -> tuple[list[str], list[str]]:
        """Make those who wait for a task ready, or blocked again; return the ids of both."""
        ready: list[str] = []
        blocked: list[str] = []
        for other in self.dependents(id):
            record = self.tasks[other]
            is_held = bool(self.unmet(record.value["depends_on"]))
            if is_held and record.value["status"] == "READY":
                await self.edit(record, {"status": "BLOCKED"})
                blocked.append(other)
            elif not is_held and record.value["status"] == "BLOCKED":
                await self.edit(record, {"status": "READY"})
                ready.append(other)
        return ready, blocked

    def _status(self, id: str) -> str:
        return str(self.tasks[id].value["status"])

    def _check_circle(self, id: str, key: str, new: Mapping[str, Sequence[str]]) -> None:
        """Follow the links from a task on; raise `ToolFailure` with the way that leads back to it."""
        ways = [[id]]
        seen: set[str] = set()
        while ways:
            way = ways.pop()
            for other in new.get(way[-1]) or self._linked(way[-1], key, new):
                if other == id:
                    shown = " → ".join([*way, id])
                    raise ToolFailure("tool_error", f"{key}: task {id} would wait for itself: {shown}")
                if other not in seen:
                    seen.add(other)
                    ways.append([*way, other])

    def _linked(self, id: str, key: str, new: Mapping[str, Sequence[str]]) -> Sequence[str]:
        if id in new or id not in self.tasks:
            return ()
        linked: str | list[str] = self.tasks[id].value[key]
        return [linked] if isinstance(linked, str) and linked else list(linked)


async def board_of(ctx: Context) -> Board:
    """Return the tasks of the calling session."""
    records = ctx.records("tasks")
    found = await records.list(limit=MOST_TASKS)
    return Board(records=records, tasks={record.id: record for record in found})


def _words(value: Mapping[str, Any]) -> str:
    return f"{value['title']} {value['title']} {value['description']}"
