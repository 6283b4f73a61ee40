"""Seed 001: `tool_batch`: several helps and calls in one round trip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from seeds.rigging import answer_of, in_project, seeded
from toolcrib.core.context import Context
from toolcrib.core.events import CallFinished
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.testing import RecordingApprover, ScriptedSource

pytestmark = pytest.mark.anyio


@pytest.fixture
async def session(shared: Toolcrib) -> Session:
    return await in_project(shared)


async def batch(session: Session, *ops: Mapping[str, Any], **options: Any) -> Any:
    return answer_of(await session.call("tool_batch", {"ops": ops, **options}))


async def titles(session: Session) -> list[str]:
    told = answer_of(await session.call("tool_exec", {"op": "onto.task.list", "args": {}}))
    return [task["title"] for task in told["result"]["tasks"]]


async def test_a_batch_mixes_help_and_exec_and_keeps_their_order(session: Session) -> None:
    told = await batch(
        session,
        {"type": "exec", "op": "onto.task.create", "args": {"title": "one"}},
        {"type": "help", "path": "onto.task.update", "format": "short"},
        {"op": "onto.task.list", "args": {}},
    )
    made, helped, listed = told["results"]

    assert (told["ok"], told["summary"]) == (True, {"total": 3, "succeeded": 3, "failed": 0})
    assert (made["type"], made["op"], made["ok"]) == ("exec", "onto.task.create", True)
    assert (helped["type"], helped["path"], helped["ok"]) == ("help", "onto.task.update", True)
    assert helped["result"]["op"] == "onto.task.update"
    assert [task["title"] for task in listed["result"]["tasks"]] == ["one"]


async def test_the_example_beside_an_error_of_a_batch_is_a_call_that_works(session: Session) -> None:
    refused = answer_of(await session.call("tool_batch", {}))
    followed = await batch(session, *refused["error"]["details"]["example"]["ops"])

    assert (refused["error"]["code"], followed["summary"]) == (
        "VALIDATION_ERROR",
        {"total": 1, "succeeded": 1, "failed": 0},
    )


async def test_the_record_of_each_call_of_a_batch_names_the_client(shared: Toolcrib, session: Session) -> None:
    ops: list[dict[str, Any]] = [
        {"type": "exec", "op": "onto.task.list", "args": {}},
        {"type": "help", "path": "onto"},
    ]
    result = await session.call("tool_batch", {"ops": ops}, client_name="desk/1.2")

    rows = await shared.store.calls.list(limit=3)
    assert {row.tool: row.client for row in rows} == {
        "tool_batch": "desk/1.2",
        "tool_help": "desk/1.2",
        "list_onto_tasks": "desk/1.2",
    }
    assert not result.is_error


async def test_one_failure_makes_the_whole_an_error_with_all_the_data(session: Session) -> None:
    result = await session.call(
        "tool_batch",
        {
            "ops": [
                {"type": "exec", "op": "onto.task.create", "args": {"title": "one"}},
                {"type": "exec", "op": "onto.task.create", "args": {}},
                {"type": "exec", "op": "onto.nothing", "args": {}},
                {"type": "exec", "op": "onto.task.list", "args": {}},
            ]
        },
    )
    told = answer_of(result)

    assert (result.is_error, told["ok"]) == (True, False)
    assert told["summary"] == {"total": 4, "succeeded": 2, "failed": 2}
    assert [entry.get("error", {}).get("code") for entry in told["results"]] == [
        None,
        "VALIDATION_ERROR",
        "NOT_FOUND",
        None,
    ]
    assert told["results"][3]["result"]["total"] == 1


WRONG: list[dict[str, Any]] = [{"ops": []}, {}, {"ops": [{"type": "run"}]}, {"ops": [{}], "mode": "fast"}]


@pytest.mark.parametrize("arguments", WRONG)
async def test_a_batch_of_nothing_or_of_something_else_is_a_validation_error(session: Session, arguments: Any) -> None:
    told = answer_of(await session.call("tool_batch", arguments))

    assert (told["op"], told["error"]["code"], told["error"]["help_path"]) == ("tool_batch", "VALIDATION_ERROR", "root")


async def test_an_entry_without_its_op_fails_alone_and_one_without_a_path_is_the_root(session: Session) -> None:
    told = await batch(session, {"type": "exec"}, {"type": "help"}, {"type": "exec", "op": "onto.task.list"})

    codes = [entry.get("error", {}).get("code") for entry in told["results"]]
    assert codes == ["VALIDATION_ERROR", None, None]


class Watched:
    """Tools that tell how many of them run at the same time."""

    def __init__(self, together: int) -> None:
        self.running = self.most = 0
        self.order: list[int] = []
        self._together = together
        self._all_there = anyio.Event()

    async def run(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        self.running += 1
        self.most = max(self.most, self.running)
        self.order.append(int(arguments["number"]))
        if self.running >= self._together:
            self._all_there.set()
        with anyio.move_on_after(60):
            await self._all_there.wait()
        self.running -= 1
        return ToolResult.of_text(str(arguments["number"]))


@pytest.mark.parametrize(("mode", "together"), [("parallel", 6), ("sequential", 1)])
async def test_both_modes_are_honoured(mode: str, together: int) -> None:
    watched = Watched(together)
    reads = Annotations(read_only=True, destructive=False)
    listed = [Tool(name="wait", source="s", local_name="wait", annotations=reads)]
    async with Toolcrib() as crib:
        await crib.tools.mount_source(ScriptedSource("s", {"wait": watched.run}, listed=listed), trusted=True)
        session = crib.session(profile="gateway")
        entries = [{"type": "exec", "op": "x.s.wait", "args": {"number": number}} for number in range(6)]
        told = await batch(session, *entries, mode=mode)

    assert [entry["result"] for entry in told["results"]] == [str(number) for number in range(6)]
    assert watched.most == together
    assert mode == "parallel" or watched.order == list(range(6))


async def test_a_batch_needs_no_permission_of_its_own_and_each_call_in_it_does(shared: Toolcrib) -> None:
    approver = RecordingApprover("yes", "no")
    session = await in_project(shared, mode="cautious", approver=approver)
    create = {"type": "exec", "op": "onto.task.create"}
    told = await batch(session, {**create, "args": {"title": "a"}}, {**create, "args": {"title": "b"}})

    assert [question.tool.name for question in approver.questions] == ["create_onto_task", "create_onto_task"]
    assert [entry["ok"] for entry in told["results"]] == [True, False]
    assert await titles(session) == ["a"]


async def test_every_call_of_a_batch_is_told_and_recorded_with_its_op() -> None:
    told: list[CallFinished] = []
    async with seeded("gateway") as crib:
        crib.calls.on_finished(told.append)
        session = await in_project(crib)
        begun = len(told), len(await crib.store.calls.list())
        await batch(session, {"type": "exec", "op": "onto.goal.list"}, {"type": "help", "path": "onto"})
        rows = await crib.store.calls.list()

    assert [(event.op, event.action) for event in told[begun[0] :] if event.op] == [("onto.goal.list", "list")]
    assert sorted(row.tool for row in rows[: -begun[1]]) == ["list_onto_goals", "tool_batch", "tool_help"]
