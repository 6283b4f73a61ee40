"""A program that is killed: it accepts jobs, carries them, and writes down what their tools really did.

    python crash_program.py DATA LEDGER COUNT WHAT URL KILL_AFTER

Of WHAT `tools` every job is one call, of `workflows` each is a chain of four. Started again, it submits what it was
not told of yet. It ends once every job has ended, and writes LEDGER.end; or by kill -9 at the first line that begins
with KILL_AFTER.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import anyio

from toolcrib import Toolcrib, tool
from toolcrib.config import Directories, Settings
from toolcrib.config.settings import StoreSpec
from toolcrib.errors import ToolFailure
from toolcrib.jobs.durable import DurableJobs
from toolcrib.jobs.settings import JobLimits, Retries
from toolcrib.workflows import Workflows

DATA, LEDGER, COUNT, WHAT, URL = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
KILL_AFTER = sys.argv[6]
KINDS = {"tools": ("charge", "put", "look"), "workflows": ("chain",)}[WHAT]
CHAIN = {
    "input": {"n": "integer"},
    "steps": {
        "put": {"tool": "put", "arguments": {"n": {"$from": "$.input.n"}}},
        "look": {"tool": "look", "arguments": {"n": {"$from": "$.input.n"}}, "after": ["put"]},
        "charge": {"tool": "charge", "arguments": {"n": {"$from": "$.input.n"}}, "after": ["look"]},
        "thank": {"tool": "thank", "arguments": {"told": {"$from": "$.steps.charge"}}},
    },
}
"""One after the other; what one gives goes into the next."""
KILLS_AT_MOST = 20
"""Times that a job may find itself in a new process, where its tool refuses once more."""


def write(line: str, suffix: str = "") -> None:
    """Append a line so that no kill tears it: one write, there at once for whoever reads."""
    descriptor = os.open(f"{LEDGER}{suffix}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
    if KILL_AFTER and line.startswith(KILL_AFTER):
        os.kill(os.getpid(), signal.SIGKILL)


async def work(name: str, n: int) -> str:
    write(f"begin {name} {n}")
    await anyio.sleep(0.02)
    write(f"end {name} {n}")
    return f"{name} {n}"


@tool(kind="write")
async def charge(n: int) -> str:
    """Charge a card: never twice."""
    return await work("charge", n)


REFUSED: set[int] = set()


@tool(kind="write", idempotent=True)
async def put(n: int) -> str:
    """Set a value; each process refuses once, so that kills come between two attempts, too."""
    if WHAT == "tools" and n not in REFUSED:
        REFUSED.add(n)
        raise ToolFailure("unavailable", "not yet")
    return await work("put", n)


@tool(kind="read")
async def look(n: int) -> str:
    """Look at a value."""
    return await work("look", n)


@tool(kind="write")
async def thank(told: str) -> str:
    """Write a letter of thanks: never two."""
    return await work("thank", int(told.split()[1]))


async def submit(crib: Toolcrib, *, again: bool = False) -> None:
    """Submit what was not accepted yet; a submission whose answer was lost is repeated under its key.

    `again`: those that were refused, too. The key of one may have been held by a process that died before it accepted.
    """
    lines = [line.split() for line in Path(f"{LEDGER}.accepted").read_text().splitlines()]
    told = {n for n, task in lines if task != "?" or not again}
    session = crib.session(profile="flat", key="client")
    for n in range(COUNT):
        if str(n) in told:
            continue
        name = KINDS[n % len(KINDS)]
        result = await session.call(name, {"n": n}, background=True, idempotency_key=f"n{n}")
        while again and result.error is not None and result.error.code == "conflict":
            await anyio.sleep(0.1)  # no job is left: the key is free once the process counts as dead
            result = await session.call(name, {"n": n}, background=True, idempotency_key=f"n{n}")
        # A refusal: it was accepted before, by a process that died before it could say so.
        task = result.structured_content["task_id"] if result.error is None and "replayed" not in result.meta else "?"
        write(f"{n} {task}", ".accepted")


async def all_ended(crib: Toolcrib) -> None:
    """Wait until no job works, in any process."""
    while working := [job for job in await crib.jobs.list("local") if job.status == "working"]:
        for job in working:
            await crib.jobs.result(job.id, "local")


async def main() -> None:
    settings = Settings.of(
        Directories.of({"HOME": str(DATA), "XDG_DATA_HOME": str(DATA)}),
        builtins=False,
        mode="autonomous",
        store=StoreSpec(url=URL) if URL else StoreSpec(),
        jobs=JobLimits(
            engine="durable",
            working=8,
            kept=100_000,
            waiting=100_000,
            retries=Retries(attempts=2 * KILLS_AT_MOST, backoff=0.02),
        ),
    )
    Path(f"{LEDGER}.accepted").touch()
    async with Toolcrib(settings) as crib:
        crib.add(charge, put, look, thank)
        await crib.slice(Workflows).add("chain", CHAIN)
        await submit(crib)
        await all_ended(crib)
        await submit(crib, again=True)
        await all_ended(crib)
        assert isinstance(crib.jobs, DurableJobs)
        await crib.jobs.drain(60)  # of those that others have submitted meanwhile: from here on it takes no more
        await all_ended(crib)
        jobs = await crib.jobs.list("local")
        ended = {
            job.id: [job.tool, job.status, job.result.error.code if job.result and job.result.error else "ok"]
            for job in jobs
        }
        rows = [[row.id, row.tool, row.outcome] for row in await crib.store.calls.list(limit=100_000)]
        problem = (await crib.store.calls.verify()).problem
        write(json.dumps({"jobs": ended, "rows": rows, "problem": problem}), ".end")


anyio.run(main)
