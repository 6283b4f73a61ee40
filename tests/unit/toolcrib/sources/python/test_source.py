"""Functions as a source: what becomes a tool, how it runs, what is told when it fails."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import ContextVar
from datetime import date
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib import Toolcrib
from toolcrib.core.context import Context
from toolcrib.core.events import Problem, SourceState
from toolcrib.core.tool import Annotations, Tool
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.sources.python import PythonSource, tool
from toolcrib.sources.source import Listing
from toolcrib.system.tasks import Threads
from toolcrib.testing import RecordingApprover, RecordingPeer


def context(**more: Any) -> Context:
    return Context(call_id="c1", session_key="s", principal="p", **more)


def tools_of(source: PythonSource) -> dict[str, Tool]:
    return {one.name: one for one in listing_of(source).tools}


def listing_of(source: PythonSource) -> Listing:
    seen: list[Listing] = []
    anyio.run(source.open, seen.append)
    return seen[-1]


async def call(function: Any, arguments: Mapping[str, Any] | None = None, surroundings: Context | None = None) -> str:
    source = PythonSource()
    seen: list[Listing] = []
    await source.open(seen.append)
    source.add(function)
    (only,) = seen[-1].tools
    try:
        return (await source.call(only, arguments or {}, surroundings or context())).text
    finally:
        await source.close()


def double(n: int) -> int:
    """Double a number."""
    return 2 * n


async def half(n: float) -> float:
    return n / 2


class Shelf:
    """An object with state."""

    def __init__(self) -> None:
        self.books = ["a"]

    @tool(kind="read")
    def list_books(self) -> list[str]:
        return self.books

    @tool
    @staticmethod
    def shout(text: str) -> str:
        return text.upper()

    @tool
    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    def not_a_tool(self) -> None: ...


# What becomes a tool


def test_a_plain_function_is_a_tool_that_is_dangerous_until_it_says_otherwise() -> None:
    source = PythonSource()
    source.add(double)

    assert listing_of(source).tools == (
        Tool(
            name="double",
            local_name="double",
            source="python",
            origin="python",
            description="Double a number.",
            input_schema={
                "type": "object",
                "additionalProperties": False,
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
            },
            annotations=Annotations(),
        ),
    )


def test_everything_that_a_declaration_says_is_in_the_tool() -> None:
    @tool(
        name="files_move",
        title="Move a file",
        description="Moves.",
        category="files",
        kind="write",
        op="files.move",
        tags=["fs"],
        aliases=["mv"],
        approval="always",
        version="2",
        timeout=5,
        examples=[{"path": "a"}],
        policy={"do": ["look first"]},
        core=True,
        locks=["path"],
        serial=True,
        idempotent=True,
        open_world=False,
    )
    def move(path: str) -> None: ...

    source = PythonSource("files")
    source.add(move)
    made = tools_of(source)["files_move"]

    said = (made.title, made.description, made.category, made.op, made.tags, made.aliases, made.approval, made.version)
    assert said == ("Move a file", "Moves.", "files", "files.move", ("fs",), ("mv",), "always", "2")
    more = (
        made.execution.timeout,
        made.guidance.examples,
        made.guidance.policy,
        made.core,
        made.execution.locks,
        made.execution.serial,
        made.source,
    )
    assert more == (5, ({"path": "a"},), {"do": ["look first"]}, True, ("path",), True, "files")
    assert made.annotations == Annotations(read_only=False, destructive=False, idempotent=True, open_world=False)


def test_a_read_is_idempotent_unless_it_says_otherwise() -> None:
    source = PythonSource()
    source.add(Shelf())

    assert tools_of(source)["list_books"].annotations == Annotations(read_only=True, destructive=False, idempotent=True)


def test_the_marked_methods_of_an_object_are_tools() -> None:
    source = PythonSource()

    assert sorted(source.add(Shelf())) == ["kind", "list_books", "shout"]


def test_a_partial_and_a_callable_object_have_the_name_and_the_words_of_what_they_call() -> None:
    def order(item: str, amount: int) -> str:
        """Order more of an item.

        Args:
            item: Its name.
        """
        return f"{amount} {item}"

    class Counter:
        def __call__(self, item: str) -> int:
            """Count an item."""
            return len(item)

    source = PythonSource()
    source.add([functools.partial(order, amount=2), tool(name="count")(Counter())])

    described = {one.name: (one.description, one.input_schema["properties"]) for one in tools_of(source).values()}
    item = {"type": "string"}
    assert described == {
        "order": (
            "Order more of an item.",
            {"item": {**item, "description": "Its name."}, "amount": {"type": "integer", "default": 2}},
        ),
        "count": ("Count an item.", {"item": item}),
    }


def test_a_module_gives_its_marked_functions_or_else_those_it_exports() -> None:
    marked, exported = ModuleType("marked"), ModuleType("exported")
    exec("from toolcrib.sources.python import tool\n@tool\ndef a(): ...\ndef b(): ...\n__all__ = ['b']", vars(marked))
    exec("def a(): ...\ndef b(): ...\n__all__ = ['b']", vars(exported))

    assert PythonSource().add(marked) == ("a",)
    assert PythonSource().add(exported) == ("b",)


def test_a_list_gives_all_that_is_in_it() -> None:
    assert PythonSource().add([double, half]) == ("double", "half")


@pytest.mark.parametrize(
    ("thing", "reason"),
    [
        (7, "int is not a tool, and has no method marked with @tool"),
        ("catalog.yaml", "'catalog.yaml' is not a tool; `await crib.load(path)` takes"),
        (Shelf, "Shelf is a class; add an instance of it whose methods are marked with @tool"),
        (ModuleType("empty"), "module empty has no function marked with @tool and none in __all__"),
        (lambda: None, "'<lambda>' is not a tool name; give it one: tool(name=…)(function)"),
    ],
)
def test_what_holds_no_tool_is_refused_with_what_would(thing: object, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        PythonSource().add(thing)

    assert reason in str(error.value)


def broken(*everything: int) -> None: ...


def test_one_broken_function_is_refused_and_several_hide_nothing() -> None:
    source = PythonSource()
    with pytest.raises(UsageError, match=r"broken: \*everything: a model must know every argument"):
        source.add(broken)

    assert source.add(broken, double) == ("double",)
    (problem,) = listing_of(source).problems
    assert (problem.source, problem.code, problem.tool) == ("python", "bad_tool", "broken")


def test_two_functions_cannot_have_one_name() -> None:
    def other(n: int) -> int:
        return n

    source = PythonSource()
    source.add(double)
    with pytest.raises(UsageError, match="there is a tool 'double' already"):
        source.add(tool(name="double")(other))
    assert source.add(double) == ("double",), "the same function again changes nothing"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"examples": [{"n": "two"}]}, "the example {'n': 'two'} is not valid: n: must be integer, not string"),
        ({"locks": ["path"]}, "locks names 'path', which is not a parameter; the parameters are n"),
        (
            {"input_schema": {"type": "object", "properties": {"m": {}}}},
            "input_schema has 'm', which is not a parameter; the parameters are n",
        ),
    ],
)
def test_a_declaration_is_held_against_the_signature(options: Any, reason: str) -> None:
    def twice(n: int) -> int:
        return 2 * n

    with pytest.raises(UsageError) as error:
        PythonSource().add(tool(**options)(twice))

    assert str(error.value).endswith(reason)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"categroy": "x"}, "@tool has no option 'categroy'; did you mean category?"),
        ({"read_only": True}, "@tool has no option 'read_only'; did you mean kind=\"read\"?"),
        ({"kind": "raed"}, "@tool(kind='raed'): takes one of read, write, destructive; did you mean 'read'?"),
        ({"approval": "sometimes"}, "@tool(approval='sometimes'): takes one of never, mode, always"),
        ({"timeout": 0}, "@tool(timeout=0): takes seconds, a number above 0 such as timeout=30"),
        ({"timeout": "5"}, "@tool(timeout='5'): takes seconds, a number above 0 such as timeout=30"),
        ({"check": 5}, "@tool(check=5): takes an `async def` function"),
        ({"tags": "fs"}, "@tool(tags='fs'): takes a list; write tags=['fs']"),
        ({"op": 3}, '@tool(op=3): takes a text; write op="3"'),
        ({"priority": "high"}, "@tool(priority='high'): takes a number from 0 to 100; 50 is the default"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(options: Any, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        tool(**options)

    where, _, told = str(error.value).partition(": ")
    assert (where.rpartition(":")[0], told) == (__file__, reason)


@pytest.mark.parametrize("mark", [tool, tool(kind="read")])
def test_what_is_no_function_is_refused_where_it_is_marked(mark: Any) -> None:
    with pytest.raises(UsageError) as error:
        mark(5)

    assert str(error.value).startswith(f"{__file__}:")


def test_a_marked_function_stays_what_it_was() -> None:
    assert tool(kind="read")(double) is double
    assert Shelf().shout("a") == "A"


# The source


async def test_every_change_is_published() -> None:
    source = PythonSource()
    seen: list[tuple[str, ...]] = []
    await source.open(lambda listing: seen.append(tuple(one.name for one in listing.tools)))
    source.add(double)
    source.add(half)
    source.remove("double")

    assert seen == [(), ("double",), ("double", "half"), ("half",)]
    assert source.state == SourceState(source="python", kind="python", state="ready", tools=1)
    await source.close()
    assert source.state.state == "closed"


async def test_a_removed_function_cannot_be_called() -> None:
    source = PythonSource()
    source.add(double)
    source.remove("double")

    with pytest.raises(ToolFailure, match="is not there any more"):
        await source.call(Tool(name="double", source="python", local_name="double"), {"n": 1}, context())
    with pytest.raises(UsageError, match="'double'"):
        source.remove("double")


def test_what_a_guest_brings_never_raises() -> None:
    source = PythonSource()

    assert source.offer(7, "pkg 1.0 (x)") == {}
    assert source.offer([broken, double], "pkg 1.0 (y)") == {"broken": "", "double": ""}
    assert [tool.name for tool in source.every_tool] == ["double"]
    source.report(Problem(source="plugins", code="unavailable", message="pkg 2"))
    assert [problem.code for problem in listing_of(source).problems] == ["bad_tool", "bad_tool", "unavailable"]


@pytest.mark.process
def test_pydantic_is_loaded_when_the_first_function_is_added() -> None:
    script = (
        "import sys; from toolcrib.sources.python import PythonSource, tool; s = PythonSource()\n"
        "before = 'pydantic' in sys.modules; s.add(tool(name='n')(lambda: None))\n"
        "print(before, 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "False True"


# Running


async def test_functions_of_every_kind_run() -> None:
    class Adder:
        def __call__(self, n: int) -> int:
            return n + 1

    async def later(n: int) -> int:
        return n

    def returns_an_awaitable(n: int) -> Any:
        return later(n)

    async def forgets_to_await(n: int) -> Any:
        return later(n)

    named = tool(name="adder")(Adder())
    partial = tool(name="partly")(functools.partial(double))
    functions = [double, half, named, partial, returns_an_awaitable, forgets_to_await]

    assert [await call(function, {"n": 4}) for function in functions] == ["8", "2.0", "5", "8", "4", "4"]


async def test_streams_are_joined_and_each_chunk_is_told_as_progress() -> None:
    async def words(n: int) -> AsyncIterator[str]:
        for i in range(n):
            yield f"w{i} "

    def numbers(n: int) -> Iterator[int]:
        yield from range(n)

    peer = RecordingPeer()

    assert await call(words, {"n": 2}, context(peer=peer, progress_token="t")) == "w0 w1 "
    assert await call(numbers, {"n": 3}, context(peer=peer, progress_token="t")) == "[0,1,2]"
    assert [params for _, params in peer.notifications] == [
        {"progressToken": "t", "progress": 1, "message": "w0 "},
        {"progressToken": "t", "progress": 2, "message": "w1 "},
        {"progressToken": "t", "progress": 1},
        {"progressToken": "t", "progress": 2},
        {"progressToken": "t", "progress": 3},
    ]


async def test_a_stream_that_is_cancelled_is_closed() -> None:
    closed = anyio.Event()
    started = anyio.Event()

    async def endless() -> AsyncIterator[str]:
        try:
            yield "x"
            started.set()
            await anyio.sleep_forever()
        finally:
            closed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, endless)
        await started.wait()
        tasks.cancel_scope.cancel()

    assert closed.is_set()


async def test_a_blocking_function_does_not_block_the_loop_and_sees_the_context_variables() -> None:
    release, seen = threading.Event(), list[str]()
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("here")

    def blocks() -> str:
        release.wait(PATIENCE)
        seen.append(variable.get())
        return "free"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, blocks)
        await anyio.wait_all_tasks_blocked()
        release.set()

    assert seen == ["here"]


async def test_a_hung_function_is_abandoned_and_keeps_its_place_once_too_many_hang() -> None:
    release, threads = threading.Event(), Threads(size=1, lost=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(threads.run, lambda: release.wait(PATIENCE))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    with anyio.move_on_after(0.01) as waiting:
        await threads.run(lambda: "next")
    assert waiting.cancelled_caught, "the only place is still taken"
    release.set()
    assert await threads.run(lambda: "next") == "next"
    threads.close()


async def test_a_hung_function_gives_its_place_to_another() -> None:
    release, threads = threading.Event(), Threads(size=1, lost=2)
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(threads.run, lambda: release.wait(PATIENCE))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    assert await threads.run(lambda: "next") == "next"
    release.set()
    threads.close()


async def test_a_function_whose_call_was_cancelled_before_it_began_never_begins() -> None:
    threads, begun, queue = Threads(size=2), list[str](), threading.Event()

    def first() -> None:
        queue.wait(PATIENCE)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(threads.run, first)
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await threads.run(lambda: begun.append("second"))
        queue.set()

    assert await threads.run(lambda: "third") == "third"
    assert begun == []
    threads.close()


async def test_threads_are_used_again() -> None:
    threads = Threads()
    names = {await threads.run(lambda: threading.current_thread().name) for _ in range(5)}

    assert len(names) == 1
    threads.close()


@pytest.mark.process
def test_the_process_ends_though_a_function_hangs() -> None:
    script = (
        "import anyio, threading\nfrom toolcrib.system.tasks import Threads\n"
        "async def main():\n    with anyio.move_on_after(0.05):\n        await Threads().run(threading.Event().wait)\n"
        "    print('left')\nanyio.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)

    assert (done.stdout, done.stderr) == ("left\n", "")


# Failures


async def test_a_failure_for_the_model_is_handed_on() -> None:
    def refuse() -> None:
        raise ToolFailure("tool_error", "no such file", hint="list the folder first")

    with pytest.raises(ToolFailure) as failure:
        await call(refuse)

    assert (failure.value.message, failure.value.hint) == ("no such file", "list the folder first")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError("slow"), "timeout"),
        (PermissionError(13, "no"), "denied"),
        (FileNotFoundError(2, "gone", "x.txt"), "not_found"),
        (ConnectionResetError("peer left"), "unavailable"),
        (OSError("disk"), "tool_error"),
    ],
)
async def test_a_failure_of_the_standard_library_keeps_its_kind(error: Exception, code: str) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(ToolFailure) as failure:
        await call(fails)

    assert failure.value.code == code


@pytest.mark.parametrize("error", [KeyError("k"), SystemExit("bye"), ValueError("x" * 900)])
async def test_any_other_exception_is_told_in_a_line_and_logged_whole(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise error

    with caplog.at_level(logging.ERROR), pytest.raises(ToolFailure) as failure:
        await call(fails)

    assert failure.value.code == "tool_error"
    assert failure.value.message.startswith(f"fails failed: {type(error).__name__}: ")
    assert len(failure.value.message) < 550
    assert "\n" not in failure.value.message
    assert caplog.records[0].exc_info is not None


async def test_an_error_code_that_does_not_exist_is_named() -> None:
    def refuse() -> None:
        raise ToolFailure("oops", "no such file")

    with pytest.raises(ToolFailure, match="no error code 'oops'; a tool's own failure is 'tool_error'"):
        await call(refuse)


async def test_a_failure_out_of_a_task_group_is_the_failure_of_its_task() -> None:
    async def fails(error: Exception) -> None:
        raise error

    async def alone() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fails, ToolFailure("not_found", "no such table", hint="list the tables"))

    def together() -> None:
        raise ExceptionGroup("both", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])

    with pytest.raises(ToolFailure) as single:
        await call(alone)
    with pytest.raises(ToolFailure) as several:
        await call(together)

    assert (single.value.code, single.value.hint) == ("not_found", "list the tables")
    assert several.value.message == "together failed: ValueError: a; KeyError: 'b'"


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_what_cannot_be_written_as_text_is_a_failure_of_the_tool() -> None:
    def returns() -> Any:
        return Wordless()

    def raises() -> None:
        raise Wordless

    for function in (returns, raises):
        with pytest.raises(ToolFailure) as failure:
            await call(function)

        assert failure.value.code == "tool_error"
        assert "Wordless" in failure.value.message


async def test_nobody_is_asked_about_arguments_that_a_type_refuses_although_the_schema_admits_them() -> None:
    def book(on: date) -> str:
        return on.isoformat()

    approver = RecordingApprover("yes")
    async with Toolcrib() as crib, crib.session(approver=approver) as session:
        crib.add(book)
        wrong = await session.call("book", {"on": "tomorrow"})
        right = await session.call("book", {"on": "2026-11-29"})

    assert wrong.error is not None
    assert (wrong.error.code, right.text) == ("invalid_arguments", "2026-11-29")
    assert [dict(question.arguments) for question in approver.questions] == [{"on": "2026-11-29"}]


async def test_a_function_in_a_thread_reports_asks_and_calls_as_an_async_one_does() -> None:
    heard: list[Any] = []

    def stock(item: str, context: Context) -> str:
        context.from_thread(context.report, 1, 2)
        with pytest.raises(ToolFailure, match="no user to ask"):
            context.from_thread(context.clarify, "Which?")
        return context.from_thread(context.call, "double", {"n": 4}).text + item

    async def waits(context: Context) -> None:
        context.from_thread(context.report, 1)

    async with Toolcrib(mode="autonomous") as crib, crib.session() as session:
        crib.add(stock, double, waits)
        done = await session.call("stock", {"item": " teas"}, listener=heard.append)
        refused = await session.call("waits")

    assert (done.text, [(one.progress, one.total) for one in heard]) == ("8 teas", [(1, 2)])
    assert "awaits instead" in refused.text


async def test_what_a_function_in_a_thread_waits_for_ends_with_its_call() -> None:
    asked, ended, caught = anyio.Event(), anyio.Event(), SimpleQueue[str]()

    async def never(_: object) -> str | None:
        asked.set()
        try:
            return await anyio.sleep_forever()
        finally:
            ended.set()

    def asks(context: Context) -> None:
        try:
            context.from_thread(context.clarify, "Which?")
        except ToolFailure as failure:
            caught.put(failure.code)

    async with Toolcrib(mode="autonomous") as crib:
        crib.add(asks)
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as callers:
                callers.start_soon(crib.session(elicitor=never).call, "asks")
                await asked.wait()
                callers.cancel_scope.cancel()
            await ended.wait()
            code = await anyio.to_thread.run_sync(caught.get)

    assert code == "cancelled"
