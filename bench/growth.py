"""Growth: 100,000 tools, 1,000,000 recorded calls, 2,000 sessions, large files, 150,000 calls with mixed faults.

Each in a process of its own.

Claims (issue 16, item 3): whatever grows, the event loop stalls at most 20 ms. At 100,000 tools an unknown name is
answered in 2 ms, a tool added in 2 ms and the next view shown in 2 ms, in at most 400 MB. `toolcrib log` filters a
million rows in 200 ms, `toolcrib log verify` reads 200,000 rows a second. After the first tenth of 150,000 calls (of a
server that is killed every few seconds, of names that do not exist, with wrong arguments, of tools that fail or return
100 KB) memory grows by 5 % at most, and open files and threads by 2.

A stall is how late a timer of 1 ms was, without the time that the thread waited for a processor: the machine may be
shared. One second counts from the start of each action, or its whole length.

    python bench/growth.py [tools] [calls] [sessions] [file] [commands] [faults] [--scale 1.0]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvloop
from search import FILLERS, OBJECTS, QUALIFIERS, VERBS

from toolcrib import Toolcrib, tool
from toolcrib.config import bare
from toolcrib.config.settings import StoreSpec, WorkspaceSpec
from toolcrib.core.context import Context
from toolcrib.core.events import SourceState
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.mcp.server.legacy import LegacySession
from toolcrib.mcp.server.service import Service
from toolcrib.server.backend import CribBackend
from toolcrib.sources.source import Listing, Publish
from toolcrib.store.store import Store
from toolcrib.system.memory import collect_seldom

TOOLS, CALLS, SESSIONS, FILE_BYTES, FAULTS = 100_000, 1_000_000, 2_000, 1 << 30, 150_000
GROWTH_PERCENT = 5.0
ROOT = Path(__file__).resolve().parents[1]
SOURCES = 100
STALL_MS, ANSWER_MS, MEMORY_MB, FILTER_MS, VERIFIED, FILE_MB = 20.0, 2.0, 400.0, 200.0, 200_000.0, 16.0
SETTLE_SECONDS = 1.0
ROUNDS = 5
_WAITED = Path("/proc/thread-self/schedstat")

Figures = dict[str, tuple[float, float, str]]
"""By name: the figure, its goal, and `most` or `least`."""


def waited() -> float:
    """Return the seconds that this thread has waited for a processor."""
    return int(_WAITED.read_bytes().split()[1]) / 1e9


@asynccontextmanager
async def heartbeat(into: Figures, name: str) -> AsyncGenerator[None]:
    """Record the longest stall of the event loop until the block ends."""
    worst, ended = 0.0, False

    async def beat() -> None:
        nonlocal worst
        while not ended:
            start, before = time.perf_counter(), waited()
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - start - 0.001 - (waited() - before))

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0.01)
    worst = 0.0
    try:
        yield
    finally:
        await asyncio.sleep(0.01)
        ended = True
        await beating
        into[f"stall: {name}, ms"] = (worst * 1e3, STALL_MS, "most")


async def least(action: Callable[[int], Any]) -> float:
    """Return milliseconds of CPU of the fastest of some rounds; `action` may be asynchronous."""
    best = math.inf
    for number in range(ROUNDS):
        start = time.thread_time()
        outcome = action(number)
        if isinstance(outcome, Awaitable):
            await outcome
        best = min(best, time.thread_time() - start)
    return best * 1e3


def resident() -> float:
    """Return the process's memory in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


class Many:
    """A source with many made-up tools."""

    def __init__(self, name: str, first: int, count: int) -> None:
        self.name = name
        self._numbers = range(first, first + count)
        self.state = SourceState(source=name, kind="python", state="connecting")

    async def open(self, publish: Publish) -> None:
        """Publish all tools."""
        tools = tuple(map(made_up, self._numbers))
        self.state = SourceState(source=self.name, kind="python", state="ready", tools=len(tools))
        publish(Listing(tools=tools))

    async def ready(self) -> None:
        """They are published."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Answer at once."""
        return ToolResult.of_text("done")

    async def close(self) -> None:
        """Nothing is open."""


def made_up(number: int) -> Tool:
    """Return a tool of some 35 words, the same at every run."""
    verb, thing = VERBS[number % len(VERBS)], OBJECTS[number // 7 % len(OBJECTS)]
    kind, other = QUALIFIERS[number // 3 % len(QUALIFIERS)], FILLERS[number // 5 % len(FILLERS)]
    name = f"{verb}_{kind}_{thing}_{number}"
    properties = {f"{thing}_{one}": {"type": "string", "description": f"The {one}"} for one in (other, "owner", "date")}
    return Tool(
        name=name,
        local_name=name,
        source="",
        description=f"{verb.capitalize()} the {kind} {thing} of a {other}. Use it when a {thing} is {kind}.",
        input_schema={"type": "object", "properties": properties, "required": [f"{thing}_owner"]},
    )


async def tools(scale: float) -> Figures:
    """Measure a crib with many tools."""
    found: Figures = {}
    count = round(TOOLS * scale / SOURCES)
    gc.collect()
    before = resident()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        store = StoreSpec(path=Path(folder) / "store.db")
        crib = await stack.enter_async_context(Toolcrib(bare().with_values(mode="autonomous", store=store)))
        async with heartbeat(found, "mount 100 sources of 1,000 tools"):
            for number in range(SOURCES):
                await crib.tools.mount_source(Many(f"s{number}", number * count, count))
                await asyncio.sleep(0)
        session = crib.session(profile="adaptive")
        async with heartbeat(found, "first view"):
            _ = session.listing
        async with heartbeat(found, "first unknown name"):
            refused = await session.call("s1__creat_pending_tikcet", {})
            assert refused.error is not None, refused
            await asyncio.sleep(SETTLE_SECONDS)
        async with heartbeat(found, "first search"):
            answer = await session.call("search_tools", {"query": "archive the monthly invoice"})
            assert answer.error is None, answer
            await asyncio.sleep(SETTLE_SECONDS)
        async with heartbeat(found, "further searches"):
            for query in ("send a message", "list overdue tickets", "delete the recurring meeting"):
                await session.call("search_tools", {"query": query})
                await asyncio.sleep(0.01)
        found["an unknown name, ms"] = (
            await least(lambda n: session.call(f"s{n}__creat_pending_tikcet", {})), ANSWER_MS, "most",
        )  # fmt: skip
        adding: list[float] = []
        viewing: list[float] = []
        async with heartbeat(found, "add a tool, next view, next search"):
            for number in range(ROUNDS):
                start = time.thread_time()
                crib.add(new_tool(number))
                adding.append(time.thread_time() - start)
                await asyncio.sleep(0)
                start = time.thread_time()
                _ = session.listing
                await session.call(f"new_{number}", {})
                viewing.append(time.thread_time() - start)
                await session.call("search_tools", {"query": "a new tool"})
                await asyncio.sleep(0.05)
        found["add one tool, ms"] = (min(adding) * 1e3, ANSWER_MS, "most")
        found["the next view and a call, ms"] = (min(viewing) * 1e3, ANSWER_MS, "most")
        gc.collect()
        found["memory, MB"] = (resident() - before, MEMORY_MB, "most")
    return found


def new_tool(number: int) -> Any:
    async def new() -> str:
        """Do something new."""
        return "done"

    new.__name__ = f"new_{number}"
    return tool(kind="read")(new)


async def calls(scale: float) -> Figures:
    """Measure a store with many recorded calls, and a crib on it."""
    from store import DONE, make_call

    found: Figures = {}
    count = round(CALLS * scale)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        place = Path(folder) / "store.db"
        async with Store.open(place) as store:
            for first in range(0, count, 5_000):
                for number in range(first, min(first + 5_000, count)):
                    store.calls.note(make_call(number), DONE)
                await store.flush()
        settings = bare().with_values(mode="autonomous", store=StoreSpec(path=place))
        async with Toolcrib(bare(), memory=True):  # what a process loads once takes 30 ms, whatever the store holds
            pass
        async with heartbeat(found, "open on 1,000,000 calls"):
            crib = await Toolcrib(settings).__aenter__()
        crib.add(new_tool(0))
        async with crib.session(profile="flat", principal="grace") as session:
            for _ in range(3):
                await session.call("new_0", {})
        every = crib.store.calls
        filters: dict[str, dict[str, Any]] = {
            "newest": {},
            "tool": {"tool": "new_0"},
            "tool with *": {"tool": "n*w_0"},
            "session": {"session": "nobody"},
            "principal": {"principal": "grace"},
            "outcome": {"outcome": "denied"},
            "error": {"outcome": "error"},
            "client": {"client": "claude*"},
            "since": {"since": time.time() - 3600, "outcome": "error"},
        }
        slowest = 0.0
        async with heartbeat(found, "filters of `toolcrib log`"):
            for wanted in filters.values():
                times: list[float] = []
                for _ in range(3):
                    start = time.process_time()
                    await every.list(**wanted)
                    times.append(time.process_time() - start)
                slowest = max(slowest, min(times))
        found["slowest filter of `toolcrib log`, ms"] = (slowest * 1e3, FILTER_MS, "most")
        async with heartbeat(found, "verify beside calls"):
            start, before = time.perf_counter(), time.process_time()
            checked = await every.verify()
            took = min(time.perf_counter() - start, time.process_time() - before)
        assert not checked.problem, checked
        found["`toolcrib log verify`, rows/s"] = (checked.rows / took, VERIFIED, "least")
        await crib.__aexit__(None, None, None)
    return found


async def sessions(scale: float) -> Figures:
    """Measure many clients that listen for changes."""
    found: Figures = {}
    count = round(SESSIONS * scale)
    async with Toolcrib(bare().with_values(mode="autonomous"), memory=True) as crib:
        await crib.tools.mount_source(Many("s0", 0, 200))
        async with Service(CribBackend(crib), profile="flat", mode="autonomous") as service:
            opened: list[LegacySession] = []
            told = 0

            def outlet(_: bytes) -> None:
                nonlocal told
                told += 1

            LegacySession(service, principal="local", profile="flat", mode="autonomous").close()  # what is loaded once
            async with heartbeat(found, "open 2,000 sessions"):
                for _ in range(count):
                    one = LegacySession(service, principal="local", profile="flat", mode="autonomous")
                    one.listen(outlet, lambda: None)
                    opened.append(one)
                    await asyncio.sleep(0)
            async with heartbeat(found, "tell 2,000 sessions of a new tool"):
                crib.add(new_tool(0))
                for _ in range(200):
                    await asyncio.sleep(0.01)
                    if told >= count:
                        break
            assert told == count, told
            async with heartbeat(found, "end 2,000 sessions"):
                for one in opened:
                    one.close()
                    await asyncio.sleep(0)
    return found


async def file(scale: float) -> Figures:
    """Measure the tools for files on one of 1 GiB."""
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        root = Path(folder)
        line = b"2026-11-28 09:00:00 INFO a line of a log, as long as most of them are in reality ok\n"
        with (root / "big.log").open("wb") as big:
            for _ in range(round(FILE_BYTES * scale) >> 20):
                big.write((line * ((1 << 20) // len(line) + 1))[: 1 << 20])
        os.chdir(root)
        place = WorkspaceSpec(roots=(root,))
        settings = bare().with_values(mode="autonomous", builtins=("files", "search"), workspace=place)
        async with Toolcrib(settings, memory=True) as crib:
            session = crib.session(profile="flat")
            for name, arguments in FILE_CALLS.items():
                gc.collect()
                reset_peak()
                before = resident()
                async with heartbeat(found, f"{name} of 1 GiB"):
                    result = await session.call(name, arguments)
                print(name, result.text[:100], file=sys.stderr)
                found[f"memory: {name} of 1 GiB, MB"] = (peak() - before, FILE_MB, "most")
    return found


FILE_CALLS: dict[str, dict[str, Any]] = {
    "file_info": {"path": "big.log"},
    "read_file": {"path": "big.log", "offset": 5_000_000},
    "grep": {"pattern": "no such word", "path": "big.log"},
}


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """Return the most memory since `reset_peak`, in MB."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


@tool(kind="read")
def fail(text: str) -> str:
    """Fail."""
    raise ValueError(text)


@tool(kind="read")
def long(lines: int) -> str:
    """Return a long text."""
    return "\n".join(f"line {number} of {lines}" for number in range(lines))


@tool(kind="write")
def put(text: str) -> str:
    """Put something."""
    return text


SAID = "echo__say"
KILL_SECONDS = 3.0
WARM = 0.1


def mixed(number: int) -> tuple[str, dict[str, Any]]:
    """Return a call: of twenty eleven are answered by the server, six fail."""
    place = number * 7 % 20
    if place < 11:
        return SAID, {"text": f"hello {number}"}
    if place < 13:
        return f"nothing_{number}", {}
    if place < 15:
        return SAID, {"txt": number}
    if place < 17:
        return "fail", {"text": f"no {number}"}
    return ("put", {"text": f"v{number}"}) if place < 19 or number % 3 else ("long", {"lines": 5_000})


@tool(kind="write", category="shell")
async def run(command: str) -> str:
    """Run a command."""
    return command


async def commands(scale: float) -> Figures:
    """Measure decisions under a deny on commands that run large files, also such as slow a reader down."""
    found: Figures = {}
    rules = {"allow": ["Bash"], "deny": [*(f"Bash(x{number}:*)" for number in range(8)), "Bash(git push:*)"]}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        root = Path(folder)
        settings = bare().with_values(mode="autonomous", rules=rules, workspace=WorkspaceSpec(roots=(root,)))
        async with Toolcrib(settings, memory=True) as crib:
            crib.add(run)
            session = crib.session(profile="flat")
            await session.call("run", {"command": "make"})
            for name, (command, file, text) in LARGE.items():
                (root / file).parent.mkdir(exist_ok=True)
                (root / file).write_text(text[: round(len(text) * scale)], encoding="utf-8")
                (root / file).chmod(0o755)
                async with heartbeat(found, f"decide on {name}"):
                    start = time.process_time()
                    await session.call("run", {"command": command})
                    print(f"{name}: {(time.process_time() - start) * 1e3:.1f} ms of CPU", file=sys.stderr)
    return found


LARGE: dict[str, tuple[str, str, str]] = {
    "a Makefile of 500 KB": (
        "make t1",
        "Makefile",
        "".join(f"t{n}: t{n + 1} a{n}.o\n\techo $(CC) {n}\n" for n in range(14_000)),
    ),
    "a Makefile of values of values": (
        "make",
        "Makefile",
        f"A=x $(B)\nB=$(C)$(C)\nC=$(D)$(D)\nD={'y' * 3000}\nall:\n" + "\techo $(A) $(A)\n" * 2000,
    ),
    "a Makefile of open brackets": ("make", "Makefile", f"all:\n\techo {'${shell x' * 50_000}"),
    "a Makefile of blanks": ("make", "Makefile", f"all:\n\techo\n{' ' * 500_000}x"),
    "a Makefile of unknown needs": (
        "make",
        "Makefile",
        f"all: {' '.join(f'$$a{n}' for n in range(20_000))}\n" + "".join(f"t{n}:\n\techo\n" for n in range(20_000)),
    ),
    "1 MB of code in quotes": ("python a.py", "a.py", "\"'`; " * 190_000 + "git"),
    "1 MB of code with the name everywhere": ("python a.py", "a.py", "'git status'\n" * 75_000),
    "1 MB of blanks": ("python a.py", "a.py", "\n" + " " * 990_000),
    "1 MB of one import": ("python a.py", "a.py", f"import {'a' * 990_000}"),
    "1 MB of shell text": ("./a.sh", "a.sh", "#!/bin/sh\n" + "echo hello; git log | grep x\n" * 34_000),
    "a configuration of git without an end": ("git st", ".git/config", f"[{'a' * 990_000}"),
}
"""What is decided on: the command, the file that it runs, its text."""


async def faults(scale: float) -> Figures:
    """Measure a crib that serves mixed faults for long."""
    logging.disable()  # each tool that fails logs where
    count, before = round(FAULTS * scale), (0.0, 0, 0)
    server = {"command": sys.executable, "args": [str(ROOT / "tests" / "peers" / "plain_server.py"), "echo"]}
    done = 0
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = bare().with_values(mode="autonomous", store=StoreSpec(path=Path(folder) / "store.db"))
        async with Toolcrib(settings) as crib:
            await crib.mount({"mcpServers": {"echo": server}}, accept=True)
            crib.add(fail, long, put)

            async def work(number: int) -> None:
                nonlocal done, before
                session = crib.session(key=f"k{number}")
                while done < count:
                    done += 1
                    if done == round(count * WARM):
                        before = usage()
                    await session.call(*mixed(done))
                    await asyncio.sleep(0)

            async def kill() -> None:
                while done < count:
                    await asyncio.sleep(KILL_SECONDS)
                    for pid in children():
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)

            await asyncio.gather(kill(), *map(work, range(8)))
            await asyncio.sleep(SETTLE_SECONDS)
            after = usage()
    return {
        "memory after the first tenth, %": ((after[0] / before[0] - 1) * 100, GROWTH_PERCENT, "most"),
        "open files more": (after[1] - before[1], 2.0, "most"),
        "threads more": (after[2] - before[2], 2.0, "most"),
    }


def children() -> list[int]:
    """Return the processes that this one has started."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def usage() -> tuple[float, int, int]:
    """Return memory in MB, open files, and threads."""
    gc.collect()
    return resident(), len(os.listdir("/proc/self/fd")), threading.active_count()


CASES: dict[str, Callable[[float], Coroutine[Any, Any, Figures]]] = {
    "tools": tools,
    "calls": calls,
    "sessions": sessions,
    "file": file,
    "commands": commands,
    "faults": faults,
}


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--here", action="store_true", help="measure in this process and print JSON")
    options = parser.parse_args()
    if options.here:
        collect_seldom()  # as every process that serves
        print(json.dumps(uvloop.run(CASES[options.cases[0]](options.scale))))
        return
    found: dict[str, Figures] = {}
    for case in options.cases:
        command = [sys.executable, __file__, case, "--scale", str(options.scale), "--here"]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[case] = json.loads(ran.stdout.splitlines()[-1])
        for name, (figure, goal, kind) in found[case].items():
            held = figure <= goal if kind == "most" else figure >= goal
            print(f"{case:9} {name:44} {figure:12,.1f}   goal at {kind} {goal:,g}: {'held' if held else 'missed'}")
    print(json.dumps({"bench": "growth", "scale": options.scale, "figures": found}))


if __name__ == "__main__":
    main()
