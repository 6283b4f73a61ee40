"""A function is read once in a process, and is what it is all the same: of its source, of its object, as it is now."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import anyio
import pytest

from toolcrib.core.context import Context
from toolcrib.core.tool import Tool
from toolcrib.errors import UsageError
from toolcrib.sources.python import PythonSource, tool
from toolcrib.sources.source import Listing


@tool(kind="read")
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def tools_of(source: PythonSource) -> dict[str, Tool]:
    seen: list[Listing] = []
    anyio.run(source.open, seen.append)
    return {one.name: one for one in seen[-1].tools}


async def call(thing: Any, **arguments: Any) -> str:
    source = PythonSource()
    seen: list[Listing] = []
    await source.open(seen.append)
    source.add(thing)
    (only,) = seen[-1].tools
    try:
        return (await source.call(only, arguments, Context(call_id="c1", session_key="s", principal="p"))).text
    finally:
        await source.close()


def test_a_function_is_read_once_and_again_when_it_says_something_else_of_itself() -> None:
    @tool(kind="read")
    def weather(city: str) -> str:
        """Tell the weather."""
        return city

    def told() -> Tool:
        source = PythonSource()
        source.add(weather)
        (found,) = tools_of(source).values()
        return found

    first = told()
    assert told() is first

    weather.__doc__ = "Tell what the sky looks like."
    assert told().description == "Tell what the sky looks like."
    tool(kind="write")(weather)
    assert told().annotations.kind == "write"
    weather.__name__ = "sky"
    assert told().name == "sky"
    assert first.description == "Tell the weather."


def test_a_function_is_a_tool_of_each_source_that_it_was_added_to() -> None:
    first, second = PythonSource("first"), PythonSource("second")
    first.add(shout)
    second.add(shout)

    assert [tools_of(source)["shout"].source for source in (first, second)] == ["first", "second"]


async def test_a_method_runs_on_the_object_that_it_is_of_however_many_read_alike() -> None:
    class Counter:
        def __init__(self, start: int) -> None:
            self.start = start

        @tool(kind="read")
        def count(self, by: int = 1) -> str:
            """Count on."""
            return str(self.start + by)

    class Loud(Counter):
        @tool(kind="read")
        def count(self, by: int = 2) -> str:
            return f"{self.start + by}!"

    things = [Counter(10), Counter(20), Loud(30), Counter(40), Loud(50)]
    assert [await call(thing) for thing in things] == ["11", "21", "32!", "41", "52!"]
    with pytest.raises(UsageError, match="the method of an instance"):
        await call(Counter.count)


@pytest.mark.slow
def test_a_function_that_nobody_has_any_more_is_let_go() -> None:
    @tool(kind="read")
    def passing() -> str:
        """Come and go."""
        return ""

    gone = weakref.ref(passing)
    PythonSource().add(passing)
    del passing
    gc.collect()

    assert gone() is None
