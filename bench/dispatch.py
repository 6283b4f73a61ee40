"""One call of a trivial async tool with three validated arguments: our whole pipeline beside its peers, in one process.

Claims (performance.md), with 50 rules, a grant, redaction and a record: at most 30 µs, and at most a fifth of the time
of FastMCP's `server.call_tool`; a meta-tool adds at most 6 µs; a call that a rule denies costs no more than one that
runs; and one call enters at most 25 of our files.

What is measured is the CPU time of the whole process, every thread counted, and a round ends when its records are
committed: the writer's work is part of the price. The paths take turns; of many rounds the fastest counts for each,
because whatever else runs on the machine only ever adds (it evicts caches and takes the second core).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path as File
from types import FrameType
from typing import Any, Final

import anyio
from fastmcp import FastMCP
from mcp import Client
from mcp.server.mcpserver import MCPServer

import toolcrib
from toolcrib import Toolcrib, tool
from toolcrib.config import Directories, Settings

ROUNDS, CALLS = 30, 300
ARGUMENTS: Final[dict[str, Any]] = {"title": "Fix it", "priority": 3, "done": False}
Path = Callable[[], Awaitable[Any]]
GOALS: Final[Mapping[str, float]] = {
    "a recorded read, µs": 30,
    "a recorded read, of FastMCP": 0.2,
    "what a meta-tool adds, µs": 6,
    "a denied call, of one that runs": 1.0,
    "files of ours that one call enters": 25,
}
"""At most."""


@tool(kind="read")
async def create_task(title: str, priority: int, done: bool) -> str:
    """Make a task.

    Args:
        title: What is to be done.
        priority: 1 is urgent.
        done: Whether it is done already.
    """
    return f"{title} {priority} {done}"


@tool(kind="read")
async def erase_task(title: str, priority: int, done: bool) -> str:
    """Erase a task; a rule denies it."""
    return title


async def plain(title: str, priority: int, done: bool) -> str:
    """Make a task."""
    return f"{title} {priority} {done}"


def settings() -> Settings:
    """Fifty rules, none of which speaks of our tool until the last."""
    deny = ("erase_task", *(f"server{number}__delete_*" for number in range(24)))
    allow = (*(f"server{number}__get_*(path=/srv/{number}/*)" for number in range(24)), "create_task")
    return Settings.of(Directories.of({}), builtins=False, rules={"deny": deny, "allow": allow})


async def timed(path: Path, settle: Callable[[], Awaitable[None]]) -> float:
    """Return microseconds of CPU a call in one round; `settle` waits for what the calls left to other threads."""
    start = time.process_time()
    for _ in range(CALLS):
        await path()
    await settle()
    return (time.process_time() - start) / CALLS * 1e6


async def files_entered(call: Path) -> int:
    """Return how many files below `src` one call enters; earlier calls have made what is made once."""
    ours, seen = str(File(toolcrib.__file__).parent.parent), set[str]()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ours):
            seen.add(frame.f_code.co_filename)

    sys.setprofile(enter)
    try:
        await call()
    finally:
        sys.setprofile(None)
    return len(seen)


async def main() -> None:
    """Print one JSON line and two tables."""
    fast, sdk = FastMCP("peer"), MCPServer("peer")
    fast.tool(plain, name="create_task")
    sdk.add_tool(plain, name="create_task")
    async with Toolcrib(settings(), memory=True) as crib, Client(sdk) as client:
        crib.add(create_task, erase_task)
        direct, adaptive = crib.session(profile="flat"), crib.session(profile="adaptive")
        wrapped = {"name": "create_task", "arguments": ARGUMENTS}
        paths: dict[str, Path] = {
            "bare await": lambda: create_task(**ARGUMENTS),
            "toolcrib pipeline": lambda: direct.call("create_task", ARGUMENTS),
            "toolcrib denied call": lambda: direct.call("erase_task", ARGUMENTS),
            "toolcrib by its own name": lambda: adaptive.call("create_task", ARGUMENTS),
            "toolcrib call_tool verb": lambda: adaptive.call("call_tool", wrapped),
            "fastmcp server.call_tool": lambda: fast.call_tool("create_task", ARGUMENTS),
            "mcp sdk in-memory client": lambda: client.call_tool("create_task", ARGUMENTS),
        }
        result, denied = await paths["toolcrib pipeline"](), await paths["toolcrib denied call"]()
        assert (result.text, denied.error.code) == ("Fix it 3 False", "denied"), (result, denied)
        await crib.store.flush()
        fastest = dict.fromkeys(paths, float("inf"))
        for _ in range(ROUNDS):
            for name, path in paths.items():
                fastest[name] = min(fastest[name], await timed(path, crib.store.flush))
        for _ in range(100):
            await paths["toolcrib pipeline"]()
        files = await files_entered(paths["toolcrib pipeline"])
    report(fastest, files)


def report(fastest: Mapping[str, float], files: int) -> None:
    """Print what was measured, and each goal with "held" or "missed"."""
    peer, ours = fastest["fastmcp server.call_tool"], fastest["toolcrib pipeline"]
    figures = dict(
        zip(
            GOALS,
            (
                ours,
                ours / peer,
                fastest["toolcrib call_tool verb"] - fastest["toolcrib by its own name"],
                fastest["toolcrib denied call"] / ours,
                files,
            ),
            strict=True,
        )
    )
    print(json.dumps({"bench": "dispatch", "us": fastest, "ratio_to_fastmcp": ours / peer, "files": files}))
    for name, took in fastest.items():
        print(f"{name:28} {took:8.1f} µs   {took / peer:6.3f} of FastMCP")
    for name, figure in figures.items():
        print(f"{name:36} {figure:8.2f}   goal {GOALS[name]:g}: {'held' if figure <= GOALS[name] else 'missed'}")


if __name__ == "__main__":
    anyio.run(main)
