"""One call of a trivial async tool with three validated arguments: our whole pipeline beside its peers, in one process.

Claim (performance.md): at most a quarter of the time of FastMCP's `server.call_tool`, with 50 rules, a grant,
redaction and a record.

What is measured is the CPU time of the whole process, every thread counted, and a round ends when its records are
committed: the writer's work is part of the price. The paths take turns; of many rounds the fastest counts for each,
because whatever else runs on the machine only ever adds (it evicts caches and takes the second core).
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from fastmcp import FastMCP
from mcp import Client
from mcp.server.mcpserver import MCPServer

from toolcrib import Toolcrib, tool
from toolcrib.config import Directories, Settings

ROUNDS, CALLS = 30, 300
ARGUMENTS = {"title": "Fix it", "priority": 3, "done": False}
Path = Callable[[], Awaitable[Any]]


@tool(kind="read")
async def create_task(title: str, priority: int, done: bool) -> str:
    """Make a task.

    Args:
        title: What is to be done.
        priority: 1 is urgent.
        done: Whether it is done already.
    """
    return f"{title} {priority} {done}"


async def plain(title: str, priority: int, done: bool) -> str:
    """Make a task."""
    return f"{title} {priority} {done}"


def settings() -> Settings:
    """Fifty rules, none of which speaks of our tool until the last."""
    deny = tuple(f"server{number}__delete_*" for number in range(25))
    allow = (*(f"server{number}__get_*(path=/srv/{number}/*)" for number in range(24)), "create_task")
    return Settings.of(Directories.of({}), builtins=False, rules={"deny": deny, "allow": allow})


async def timed(path: Path, settle: Callable[[], Awaitable[None]]) -> float:
    """Return microseconds of CPU a call in one round; `settle` waits for what the calls left to other threads."""
    start = time.process_time()
    for _ in range(CALLS):
        await path()
    await settle()
    return (time.process_time() - start) / CALLS * 1e6


async def main() -> None:
    """Print one JSON line and a table."""
    fast, sdk = FastMCP("peer"), MCPServer("peer")
    fast.tool(plain, name="create_task")
    sdk.add_tool(plain, name="create_task")
    async with Toolcrib(settings(), memory=True) as crib, Client(sdk) as client:
        crib.add(create_task)
        direct, adaptive = crib.session(profile="flat"), crib.session(profile="adaptive")
        wrapped = {"name": "create_task", "arguments": ARGUMENTS}
        paths: dict[str, Path] = {
            "bare await": lambda: create_task(**ARGUMENTS),
            "toolcrib pipeline": lambda: direct.call("create_task", ARGUMENTS),
            "toolcrib call_tool verb": lambda: adaptive.call("call_tool", wrapped),
            "fastmcp server.call_tool": lambda: fast.call_tool("create_task", ARGUMENTS),
            "mcp sdk in-memory client": lambda: client.call_tool("create_task", ARGUMENTS),
        }
        result = await direct.call("create_task", ARGUMENTS)
        assert result.text == "Fix it 3 False", result
        await crib.store.flush()
        fastest = dict.fromkeys(paths, float("inf"))
        for _ in range(ROUNDS):
            for name, path in paths.items():
                fastest[name] = min(fastest[name], await timed(path, crib.store.flush))
    report(fastest)


def report(fastest: dict[str, float]) -> None:
    """Print what was measured, and the ratio to FastMCP."""
    peer = fastest["fastmcp server.call_tool"]
    print(json.dumps({"bench": "dispatch", "us": fastest, "ratio_to_fastmcp": fastest["toolcrib pipeline"] / peer}))
    for name, took in fastest.items():
        print(f"{name:28} {took:8.1f} µs   {took / peer:6.3f} of FastMCP")


if __name__ == "__main__":
    anyio.run(main)
