"""Calls side by side: who waits for whom, and what nasty functions can do to the others (security.md T37)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from rig import PATIENCE, eventually
from toolcrib.core.result import ToolResult
from toolcrib.crib import Toolcrib
from toolcrib.plugin import tool


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(memory=True) as opened:
        yield opened


def code(result: ToolResult) -> str:
    return result.error.code if result.error else "ok"


class Meeting:
    """Counts who is inside at the same time, and lets all go on once `together` are."""

    def __init__(self, together: int) -> None:
        self.together = together
        self.inside = self.most = 0
        self.all_here = anyio.Event()

    async def enter(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == self.together:
            self.all_here.set()

    def leave(self) -> None:
        self.inside -= 1


@pytest.mark.parametrize("blocking", [False, True])
async def test_the_reads_of_a_turn_run_at_the_same_time_and_answer_in_their_order(
    crib: Toolcrib, blocking: bool
) -> None:
    barrier, meeting = threading.Barrier(24), Meeting(24)

    @tool(kind="read", name="meet")
    def in_threads(number: int) -> int:
        """Meet the others."""
        barrier.wait(PATIENCE)
        return number

    @tool(kind="read", name="meet")
    async def on_the_loop(number: int) -> int:
        """Meet the others."""
        await meeting.enter()
        await meeting.all_here.wait()
        return number

    crib.add(in_threads if blocking else on_the_loop)
    results = await crib.session().call_many([("meet", {"number": n}) for n in range(24)], timeout=PATIENCE)
    assert [result.text for result in results] == [str(n) for n in range(24)]


async def test_writes_to_one_path_take_turns_and_writes_to_others_do_not_wait(crib: Toolcrib, tmp_path: Path) -> None:
    inside: dict[str, int] = {}
    most: dict[str, int] = {}
    meeting = Meeting(2)

    @tool(kind="write")
    async def write(path: str) -> str:
        """Write."""
        name = Path(path).name
        inside[name] = inside.get(name, 0) + 1
        most[name] = max(most.get(name, 0), inside[name])
        if inside[name] == most[name] == 1 and not meeting.all_here.is_set():
            await meeting.enter()
            await meeting.all_here.wait()  # the other file is written at the same time
        await anyio.lowlevel.checkpoint()
        inside[name] -= 1
        return name

    crib.add(write)
    session = crib.session(mode="autonomous", cwd=tmp_path)
    paths = ["a", "./a", str(tmp_path / "a"), "x/../a", "b", "./b"]
    results = await session.call_many([("write", {"path": path}) for path in paths], timeout=PATIENCE)
    assert ([result.text for result in results], most) == (["a", "a", "a", "a", "b", "b"], {"a": 1, "b": 1})


async def test_a_declared_key_and_a_serial_tool_take_turns_though_their_arguments_differ(crib: Toolcrib) -> None:
    most: dict[str, int] = {"book": 0, "ring": 0}
    inside = dict(most)

    async def work(name: str) -> None:
        inside[name] += 1
        most[name] = max(most[name], inside[name])
        await anyio.lowlevel.checkpoint()
        inside[name] -= 1

    @tool(kind="write", locks=("account",))
    async def book(account: int, amount: int) -> None:
        """Book."""
        await work("book")

    @tool(kind="read", serial=True)
    async def ring(number: int) -> None:
        """Ring."""
        await work("ring")

    crib.add(book)
    crib.add(ring)
    calls: list[tuple[str, Any]] = [("book", {"account": 1, "amount": n}) for n in range(5)]
    calls += [("ring", {"number": n}) for n in range(5)]
    results = await crib.session(mode="autonomous").call_many(calls, timeout=PATIENCE)
    assert ({code(result) for result in results}, most) == ({"ok"}, {"book": 1, "ring": 1})


async def test_a_blocking_write_that_was_given_up_ends_before_the_next_one_begins(crib: Toolcrib) -> None:
    release, log = threading.Event(), list[str]()
    begun = threading.Event()

    @tool(kind="write")
    def write(path: str, text: str) -> str:
        """Write in two halves."""
        log.append(f"{text} begins")
        if text == "first":
            begun.set()
            release.wait(PATIENCE)
        log.append(f"{text} ends")
        return text

    crib.add(write)
    session = crib.session(mode="autonomous")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.call, "write", {"path": "a", "text": "first"})
        await eventually(begun.is_set)
        tasks.cancel_scope.cancel()
    elsewhere = await session.call("write", {"path": "b", "text": "elsewhere"}, timeout=PATIENCE)
    results: list[ToolResult] = []

    async def second() -> None:
        results.append(await session.call("write", {"path": "a", "text": "second"}, timeout=PATIENCE))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        release.set()
    assert (elsewhere.text, results[0].text) == ("elsewhere", "second")
    assert log == ["first begins", "elsewhere begins", "elsewhere ends", "first ends", "second begins", "second ends"]


class Odd(BaseException):
    """An exception that nobody expects."""


class Nasty:
    """Twelve functions that do what functions should not, until they are let go."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def tools(self) -> dict[str, Callable[..., Any]]:
        """By name."""
        names = [name for name in vars(Nasty) if not name.startswith("_") and name != "tools"]
        return {name: getattr(self, name) for name in names}

    def hangs(self) -> None:
        self.release.wait(PATIENCE)

    def spins(self) -> int:
        count = 0
        while not self.release.is_set():
            count += 1
        return count

    def exits(self) -> None:
        raise SystemExit(3)

    def interrupts(self) -> None:
        raise KeyboardInterrupt

    def raises_odd(self) -> None:
        raise Odd("odd")

    async def raises_odd_async(self) -> None:
        raise Odd("odd")

    def recurses(self) -> None:
        self.recurses()

    def no_json(self) -> object:
        return object()

    def circular(self) -> list[Any]:
        circle: list[Any] = []
        circle.append(circle)
        return circle

    async def cancels_itself(self) -> None:
        raise asyncio.CancelledError

    async def swallows(self) -> None:
        while not self.release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await anyio.sleep_forever()

    def leaks(self) -> str:
        return "x" * 20_000_000


ANSWERS = {
    "hangs": "timeout",
    "spins": "timeout",
    "exits": "tool_error",
    "interrupts": "tool_error",
    "raises_odd": "tool_error",
    "raises_odd_async": "tool_error",
    "recurses": "tool_error",
    "cancels_itself": "cancelled",
    "swallows": "ok",  # nothing but its own return can end it
    "leaks": "ok",
}
"""What their callers get; a result that is no JSON may be taken or refused."""


@pytest.mark.slow
async def test_twelve_nasty_functions_end_on_time_and_disturb_nobody(crib: Toolcrib) -> None:
    them = Nasty()
    nasty = them.tools()
    for function in nasty.values():
        crib.add(tool(kind="read")(function))

    @tool(kind="read")
    async def nice() -> str:
        """Be nice."""
        return "nice"

    crib.add(nice)
    session = crib.session()
    answers: dict[str, str] = {}

    async def one(name: str) -> None:
        seconds = 1.0 if name in ("hangs", "spins", "swallows") else PATIENCE  # threads take turns with one that spins
        answers[name] = code(await session.call(name, {}, timeout=seconds))

    async def let_go() -> None:
        await eventually(lambda: len(answers) >= len(nasty) - 1)
        them.release.set()

    async def be_nice() -> None:
        others.extend([(await session.call("nice")).text for _ in range(20)])

    others: list[str] = []
    async with anyio.create_task_group() as tasks:
        for task in (be_nice, let_go):
            tasks.start_soon(task)
        for name in nasty:
            tasks.start_soon(one, name)

    assert others == ["nice"] * 20
    assert (len(nasty), answers) == (12, {**ANSWERS, **{name: answers[name] for name in ("no_json", "circular")}})
    assert {answers["no_json"], answers["circular"]} <= {"ok", "tool_error"}
    assert (await session.call("nice")).text == "nice"


@pytest.mark.slow
async def test_a_function_that_blocks_the_loop_is_named_in_the_log(
    crib: Toolcrib, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="toolcrib.dispatch")

    @tool(kind="read")
    async def blocks() -> str:
        """Block."""
        threading.Event().wait(0.5)
        return "done"

    @tool(kind="read")
    async def quick() -> str:
        """Return at once."""
        return "done"

    crib.add(blocks, quick)
    session = crib.session()
    for _ in range(2):
        await session.call("quick")
        threading.Event().wait(0.2)  # the program itself: a synchronous client of a model
    assert (await session.call("blocks")).text == "done"
    await eventually(lambda: "stood still" in caplog.text)
    assert "while these tools ran: blocks; one that blocks belongs in `def`" in caplog.text


async def test_calls_that_never_pause_leave_turns_to_other_work(
    crib: Toolcrib, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="toolcrib.dispatch")
    had_turn = anyio.Event()

    @tool(kind="read")
    async def quick() -> str:
        """Return at once."""
        return "done"

    async def take_turn() -> None:
        had_turn.set()

    crib.add(quick)
    session = crib.session()
    await session.call("quick")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turn)
        begun = time.monotonic()
        while not had_turn.is_set() and time.monotonic() < begun + 2:
            await session.call("quick")

    assert had_turn.is_set()
    assert "stood still" not in caplog.text


async def watch_the_loop(done: anyio.Event, lags: list[float]) -> None:
    """Note by how many seconds the loop is late, until it is done."""
    while not done.is_set():
        begun = time.monotonic()
        await anyio.sleep(0.005)
        lags.append(time.monotonic() - begun - 0.005)


@pytest.mark.slow
async def test_functions_in_threads_leave_the_loop_free(crib: Toolcrib) -> None:
    """The goal is a lag of at most 100 ms at p99 on a machine that does nothing else; here the bound is generous."""
    lags: list[float] = []
    done = anyio.Event()

    @tool(kind="read")
    def busy(number: int) -> int:
        """Compute in Python, holding the interpreter as long as it lets a thread."""
        return sum(range(300_000 + number))

    crib.add(busy)
    results: list[str] = []

    async def work() -> None:
        calls = [("busy", {"number": n}) for n in range(64)]
        results.extend(map(code, await crib.session().call_many(calls, timeout=PATIENCE)))
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_the_loop, done, lags)
        tasks.start_soon(work)
    assert results == ["ok"] * 64
    assert sorted(lags)[int(len(lags) * 0.5)] < 2.0, sorted(lags)[-5:]
