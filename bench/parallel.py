"""One turn of 64 independent tools that take 50 ms each: ours beside FastMCP's server, in one process.

Claim (performance.md): at most 56 ms with async tools and 65 ms with functions in threads, through the whole
pipeline; the floors are 51 ms (asyncio) and 55 ms (threads). A program that gathers the same calls (`run_code`, and
FastMCP's code mode, in the same interpreter) takes at most 1.1 times as long as the peer's.

What is measured is the wall clock from the first call to the last result. The paths take turns; of several rounds the
median and the fastest are shown, because whatever else runs on the machine only ever adds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import anyio
from fastmcp import FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode

from toolcrib import Toolcrib, tool
from toolcrib.config import bare

ROUNDS, TOGETHER, SECONDS = 15, 64, 0.05
PROGRAM = f"import asyncio\nlen(await asyncio.gather(*[call_tool('wait', {{'number': n}}) for n in range({TOGETHER})]))"
PROGRAM_OF_PEER = PROGRAM.replace("\nlen", "\nreturn len")
Turn = Callable[[], Awaitable[Any]]


async def wait(number: int) -> int:
    """Wait on the loop."""
    await asyncio.sleep(SECONDS)
    return number


def block(number: int) -> int:
    """Block a thread."""
    time.sleep(SECONDS)
    return number


async def in_floor_threads(pool: ThreadPoolExecutor) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(loop.run_in_executor(pool, block, number) for number in range(TOGETHER)))


async def timed(turn: Turn) -> float:
    """Return milliseconds of one turn."""
    begun = time.perf_counter()
    await turn()
    return (time.perf_counter() - begun) * 1e3


async def lag(turn: Turn) -> float:
    """Return the milliseconds by which the loop was late at the 99th percentile while `turn` ran."""
    late: list[float] = []

    async def probe() -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - begun - 0.001) * 1e3)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe)
        for _ in range(5):
            await turn()
        tasks.cancel_scope.cancel()
    return sorted(late)[int(len(late) * 0.99)]


async def main() -> None:
    """Print one JSON line and a table."""
    peer = FastMCP("peer")
    for function in (wait, block):
        peer.tool(function)
    coding_peer = FastMCP("coding peer", transforms=[CodeMode(max_tool_calls=None)])
    coding_peer.tool(wait)
    settings = bare().with_values(mode="autonomous", builtins=("run_code",))
    with ThreadPoolExecutor(TOGETHER) as pool:
        async with Toolcrib(settings, memory=True) as crib:
            for function in (wait, block):
                crib.add(tool(kind="read")(function))
            session = crib.session()
            calls = {name: [(name, {"number": n}) for n in range(TOGETHER)] for name in ("wait", "block")}

            def of_peer(name: str) -> Awaitable[Any]:
                return asyncio.gather(*(peer.call_tool(name, {"number": n}) for n in range(TOGETHER)))

            turns: dict[str, Turn] = {
                "asyncio floor": lambda: asyncio.gather(*map(wait, range(TOGETHER))),
                "toolcrib async": lambda: session.call_many(calls["wait"]),
                "fastmcp async": lambda: of_peer("wait"),
                "threads floor": lambda: in_floor_threads(pool),
                "toolcrib sync": lambda: session.call_many(calls["block"]),
                "fastmcp sync": lambda: of_peer("block"),
                "toolcrib code": lambda: session.call("run_code", {"code": PROGRAM}),
                "fastmcp code": lambda: coding_peer.call_tool("execute", {"code": PROGRAM_OF_PEER}),
            }
            for name in ("wait", "block"):
                assert [result.text for result in await session.call_many(calls[name])] == list(
                    map(str, range(TOGETHER))
                )
            assert (await session.call("run_code", {"code": PROGRAM})).text == str(TOGETHER)
            assert str(TOGETHER) in str(await coding_peer.call_tool("execute", {"code": PROGRAM_OF_PEER}))
            took: dict[str, list[float]] = {name: [] for name in turns}
            for _ in range(ROUNDS):
                for name, turn in turns.items():
                    took[name].append(await timed(turn))
            lags = {name: await lag(turns[name]) for name in ("toolcrib async", "toolcrib sync")}
    report(took, lags)


def report(took: dict[str, list[float]], lags: dict[str, float]) -> None:
    """Print what was measured."""
    medians, fastest = ({name: of(times) for name, times in took.items()} for of in (median, min))
    print(json.dumps({"bench": "parallel", "ms": medians, "fastest_ms": fastest, "lag_p99_ms": lags}))
    for name in took:
        late = f"   loop late by {lags[name]:.1f} ms at p99" if name in lags else ""
        print(f"{name:16} {medians[name]:7.1f} ms   fastest {fastest[name]:7.1f} ms{late}")


if __name__ == "__main__":
    anyio.run(main)
