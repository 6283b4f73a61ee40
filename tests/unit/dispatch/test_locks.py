"""What a call writes, and who waits for whom."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.core.tool import Annotations, Tool
from toolcrib.dispatch.locks import Locks, lock_keys


def tool(**fields: Any) -> Tool:
    return Tool(name="s__t", source="s", local_name="t", **fields)


READ = Annotations(read_only=True, destructive=False)


@pytest.mark.parametrize(
    ("fields", "arguments", "keys"),
    [
        ({}, {"path": "./a//b/", "text": "x"}, ("resource:a/b",)),
        ({}, {"path": ["b", "a"]}, ("resource:a", "resource:b")),
        ({}, {"path": None, "text": "x"}, ()),
        ({"locks": ("id",)}, {"id": 5, "path": "a"}, ("resource:5",)),
        ({"locks": ("id",)}, {"id": {"b": 1, "a": 2}}, ('resource:{"a":2,"b":1}',)),
        ({"serial": True}, {"path": "a"}, ("resource:a", "tool:s/t")),
        ({"serial": True, "annotations": READ}, {"path": "a"}, ("tool:s/t",)),
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
