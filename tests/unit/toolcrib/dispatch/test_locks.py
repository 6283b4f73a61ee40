"""What a call writes, and who waits for whom."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.core.call_guards import Signal
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.dispatch.running_calls import Locks, lock_keys


def tool(**fields: Any) -> Tool:
    return Tool(name="s__t", source="s", local_name="t", **fields)


READ = Annotations(read_only=True, destructive=False)


@pytest.mark.parametrize(
    ("fields", "arguments", "keys"),
    [
        ({}, {"path": "./a//b/", "text": "x"}, ("resource:a/b",)),
        ({}, {"path": ["b", "a"]}, ("resource:a", "resource:b")),
        ({}, {"path": None, "text": "x"}, ()),
        ({"execution": Execution(locks=("id",))}, {"id": 5, "path": "a"}, ("resource:5",)),
        ({}, {"path": "a/../b"}, ("resource:b",)),
        ({}, {"path": "file:///srv/a"}, ("resource:/srv/a",)),
        ({"execution": Execution(locks=("id",))}, {"id": {"b": 1, "a": 2}}, ('resource:{"a":2,"b":1}',)),
        (
            {"execution": Execution(locks=("all.path",))},
            {"all": [{"path": "b"}, {"path": "./a"}, {}]},
            ("resource:a", "resource:b"),
        ),
        ({"execution": Execution(locks=("all.path",))}, {"all": "b"}, ()),
        ({"execution": Execution(serial=True)}, {"path": "a"}, ("resource:a", "tool:s/t")),
        ({"execution": Execution(serial=True), "annotations": READ}, {"path": "a"}, ("tool:s/t",)),
        ({"annotations": READ}, {"path": "a"}, ()),
    ],
)
def test_a_call_takes_turns_for_what_it_writes(
    fields: dict[str, Any], arguments: dict[str, Any], keys: tuple[str, ...]
) -> None:
    assert lock_keys(tool(**fields), arguments) == keys


async def test_calls_that_need_the_same_two_things_never_wait_for_each_other() -> None:
    locks, order = Locks(), list[str]()

    async def work(name: str, path: list[str]) -> None:
        async with locks.hold(lock_keys(tool(), {"path": path})):
            order.append(name)
            await anyio.lowlevel.checkpoint()
            order.append(name)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(work, "one", ["a", "b"])
            group.start_soon(work, "two", ["b", "a"])
    assert order == ["one", "one", "two", "two"]


@pytest.mark.parametrize("other", ["/srv/a/b", "./a/b", "a//x/../b", "file:///srv/a/b"])
def test_one_file_under_two_names_is_one_resource_of_a_session(other: str) -> None:
    one, two = (set(lock_keys(tool(), {"path": path}, Path("/srv"))) for path in ("a/b", other))
    assert one & two


def test_what_is_no_path_is_no_file_of_the_session() -> None:
    assert lock_keys(tool(), {"uri": "https://x.test/a"}, Path("/srv")) == ("resource:https://x.test/a",)


async def test_turns_come_in_the_order_of_the_callers_and_who_leaves_the_line_holds_up_nobody() -> None:
    locks, order = Locks(), list[str]()
    first, leaves = anyio.Event(), anyio.CancelScope()

    async def work(name: str) -> None:
        async with locks.hold(("k",)):
            order.append(name)
            if name == "first":
                await first.wait()

    async def leave() -> None:
        with leaves:
            await work("left")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            for task in (partial(work, "first"), partial(work, "second"), leave, partial(work, "third")):
                group.start_soon(task)
                await anyio.wait_all_tasks_blocked()
            leaves.cancel()
            await anyio.wait_all_tasks_blocked()
            first.set()
    assert order == ["first", "second", "third"]


async def test_a_turn_that_comes_in_the_moment_of_leaving_goes_to_the_next() -> None:
    locks, order = Locks(), list[str]()
    leaves = anyio.CancelScope()

    async def leave() -> None:
        with leaves:
            async with locks.hold(("k",)):
                order.append("left")

    async def stay() -> None:
        async with locks.hold(("k",)):
            order.append("stays")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            async with locks.hold(("k",)):
                group.start_soon(leave)
                await anyio.wait_all_tasks_blocked()
                group.start_soon(stay)
                await anyio.wait_all_tasks_blocked()
            leaves.cancel()
    assert order[-1] == "stays"


async def test_what_outlives_its_call_keeps_the_turn_until_it_is_over() -> None:
    locks, signal, order = Locks(), Signal(), list[str]()

    async def follow() -> None:
        async with locks.hold(("k",)):
            order.append("next")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            async with locks.hold(("k",), signal):
                works = [signal.outlive(), signal.outlive()]
            group.start_soon(follow)
            for over in works:
                await anyio.wait_all_tasks_blocked()
                order.append("over")
                over()
    assert order == ["over", "over", "next"]
