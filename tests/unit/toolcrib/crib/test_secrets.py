"""No secret that goes through a call stays anywhere: not in what is told, not in the log, not in any file (T8)."""

from __future__ import annotations

import logging
import random
import string
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.config import Directories, Settings, bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.context import Context, Output, Progress
from toolcrib.core.permission import Answer
from toolcrib.core.session import Limits
from toolcrib.crib import Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.plugin import tool
from toolcrib.policy.settings import ApprovalSettings
from toolcrib.testing import RecordingApprover, RecordingPeer
from toolcrib.workflows import Workflows

RANDOM = random.Random(20261121)
OWN = [f"own-{''.join(RANDOM.choices(string.ascii_letters + string.digits, k=24))}" for _ in range(10)]
"""Values that the configuration declares secret."""
ISSUED = [f"ghp_{''.join(RANDOM.choices(string.ascii_letters, k=30))}{n:06d}" for n in range(40)]
"""Tokens of a known issuer, which nobody declared."""
CANARIES = [*OWN, *ISSUED]


def chunks(text: str, size: int = 7) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


@tool(kind="read")
async def echo(text: str, context: Context) -> str:
    """Say it back, in every way there is."""
    for piece in chunks(f"got {text} here\n"):
        await context.output(piece)
    await context.report(1, 2, f"at {text}")
    await context.log("info", {"note": f"saw {text}"})
    return f"the answer is {text}"


@tool(kind="write")
async def leak(text: str) -> str:
    """Fail with it."""
    logging.getLogger("toolcrib.plugins.leak").warning("about to fail with %s", text)
    raise ToolFailure("tool_error", f"no access with {text}", hint=f"not {text}", details={"sent": text})


@tool(kind="write")
async def crash(text: str) -> str:
    """Crash with it."""
    raise RuntimeError(f"crashed on {text}")


@tool(kind="read")
async def flood(text: str) -> str:
    """Say it among much else."""
    return f"{'word ' * 9000}{text}{' word' * 9000}"


@tool(kind="read")
async def linger(text: str, context: Context) -> str:
    """Say it and stay."""
    await context.output(f"got {text} here\n")
    await anyio.sleep_forever()
    return text


CHAIN = {
    "one": {"tool": "echo", "arguments": {"text": {"$from": "$.input.text"}}},
    "two": {"tool": "leak", "arguments": {"text": {"$from": "$.steps.one"}}},
}


@asynccontextmanager
async def crib_at(home: Path, work: Path | None = None) -> AsyncGenerator[Toolcrib]:
    settings: Settings = bare().with_values(
        directories=Directories.of({"HOME": str(home)}),
        secrets=tuple(OWN),
        limits=Limits(result_tokens=500),
        approvals=ApprovalSettings(wait=True),
        workspace=WorkspaceSpec(roots=(work,) if work is not None else ()),
        builtins=work is not None,
    )
    async with Toolcrib(settings) as crib:
        for function in (echo, leak, crash, flood, linger):
            crib.add(function)
        yield crib


def held(folder: Path, canaries: list[str]) -> dict[str, list[str]]:
    """File → canaries in it."""
    files = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    found = {
        str(file.relative_to(folder)): [canary for canary in canaries if canary.encode() in content]
        for file, content in files.items()
    }
    assert files, "nothing was written: the test looks in the wrong place"
    return {name: names for name, names in found.items() if names}


@pytest.mark.long
@pytest.mark.slow
async def test_fifty_canaries_leave_no_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    heard: list[Progress | Output] = []
    peer = RecordingPeer()
    told: list[Any] = []
    async with crib_at(tmp_path) as crib:
        crib.calls.on_finished(told.append)
        crib.calls.on_job(told.append)
        session = crib.session(mode="autonomous")
        asked = crib.session(approver=RecordingApprover("no"))
        for canary in CANARIES:
            arguments = {"text": canary}
            told += [
                await session.call(name, arguments, listener=heard.append, peer=peer, progress_token="p")
                for name in ("echo", "leak", "crash", "flood")
            ]
            told.append(await asked.call("leak", arguments))
            told.append(await session.call("leak", arguments, idempotency_key=f"key {len(told)}"))
            told.append(await session.call("leak", arguments, dry_run=True))
            told.append(await session.call("leak", {"txt": canary}))
            told.append(await session.call(f"use_{canary}", {}))
            job = await session.call("echo", arguments, background=True)
            told.append(await crib.jobs.result(job.meta["job"], "local", PATIENCE))
            told.append(await crib.jobs.get(job.meta["job"], "local"))
        await crib.store.flush()
        told += await crib.store.calls.list(limit=10_000)
        files = held(tmp_path, CANARIES)

    said = repr((heard, peer.notifications, told)) + caplog.text
    assert [canary for canary in CANARIES if canary in said] == []
    assert (files, held(tmp_path, CANARIES)) == ({}, {})
    assert "[redacted:secret]" in said


@pytest.mark.slow
async def test_what_waits_leaves_no_trace_either(tmp_path: Path) -> None:
    """Questions and their answers, changes of files, jobs, runs that broke off: real values wait under a seal."""
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    first, second, third = OWN[0], ISSUED[0], ISSUED[1]
    told: list[Any] = []
    async with crib_at(home, work) as crib, anyio.create_task_group() as group:
        await crib.slice(Workflows).add("chain", {"input": {"text": "string"}, "steps": CHAIN})
        group.start_soon(crib.session().call, "leak", {"text": first})
        asked = await anext(crib.approvals.watch())
        answer = Answer(verdict="edit", by=third, comment=second, arguments={"text": second})
        review = crib.session(mode="review")
        told.append(await review.call("write_file", {"path": "a.txt", "content": f"{first} {second}\n"}))
        told.append(await review.call("write_file", {"path": "a.txt", "content": f"{first} {third}\n"}, dry_run=True))
        broken = await crib.session(mode="autonomous").call("chain", {"text": second})
        told += [asked, broken, *await crib.changes.list()]
        job = await crib.session(mode="autonomous").call("linger", {"text": second}, background=True)
        told += [job, await crib.jobs.list("local")]
        while_it_waits = held(home, CANARIES)
        told.append(await crib.approvals.decide(asked.id, answer))
        told += await crib.approvals.list()
        await crib.jobs.cancel(job.meta["job"], "local")
        told.append(await crib.jobs.result(job.meta["job"], "local", PATIENCE))
        exported = BytesIO()
        await crib.store.calls.export(exported)
        told.append(exported.getvalue())

        assert broken.error is not None
        assert "resume_id" in broken.error.details
        assert while_it_waits == {}
    assert held(home, CANARIES) == {}
    assert [canary for canary in CANARIES if canary in repr(told)] == []


async def test_the_tool_itself_gets_the_real_value(tmp_path: Path) -> None:
    got: list[str] = []

    @tool(kind="read")
    async def keep(text: str) -> None:
        """Keep it."""
        got.append(text)

    async with crib_at(tmp_path) as crib:
        crib.add(keep)
        await crib.session().call("keep", {"text": CANARIES[0]})
    assert got == [CANARIES[0]]


async def test_output_is_heard_while_the_call_runs(tmp_path: Path) -> None:
    heard: list[str] = []
    go = anyio.Event()

    def hear(update: Progress | Output) -> None:
        if isinstance(update, Output):
            heard.append(update.chunk)
            go.set()

    @tool(kind="read")
    async def slow(context: Context) -> str:
        """Wait until the first piece was heard."""
        await context.output("half ")
        await go.wait()
        await context.output("way")
        return "done"

    async with crib_at(tmp_path) as crib:
        crib.add(slow)
        result = await crib.session().call("slow", {}, listener=hear, timeout=PATIENCE)
    assert (result.text, heard) == ("done", ["half ", "way"])


async def test_output_that_waits_is_told_when_the_call_ends_however_it_ends(tmp_path: Path) -> None:
    heard: list[str] = []

    @tool(kind="read")
    async def breaks(context: Context) -> str:
        """Break after a word that may be a token."""
        await context.output("last words: ghp_")
        raise RuntimeError("boom")

    async with crib_at(tmp_path) as crib:
        crib.add(breaks)
        await crib.session().call("breaks", {}, listener=lambda update: heard.append(getattr(update, "chunk", "")))
    assert "".join(heard) == "last words: ghp_"


async def test_what_belongs_to_the_protocol_reaches_the_client_as_it_is(tmp_path: Path) -> None:
    peer = RecordingPeer()

    @tool(kind="read")
    async def tell(context: Context) -> str:
        """Tell the client."""
        await context.report(1, 3, f"with {OWN[0]}")
        return ""

    async with crib_at(tmp_path) as crib:
        crib.add(tell)
        await crib.session().call("tell", {}, peer=peer, progress_token=ISSUED[0])
    assert peer.notifications == [
        (
            "notifications/progress",
            {"progressToken": ISSUED[0], "progress": 1, "total": 3, "message": "with [redacted:secret]"},
        )
    ]


async def test_what_a_source_sends_to_the_client_by_itself_is_masked_as_its_results_are(tmp_path: Path) -> None:
    peer = RecordingPeer({"elicitation/create": {"action": "accept", "content": {"keep": True}}})
    form = {"type": "object", "properties": {"keep": {"type": "boolean", "description": f"for {OWN[0]}"}}}

    @tool(kind="read")
    async def ask(context: Context) -> bool:
        """Log and ask, as MCP servers do."""
        assert context.peer is not None
        await context.peer.notify("notifications/message", {"level": "info", "data": f"saw {ISSUED[0]}"})
        params = {"message": f"keep {OWN[0]}?", "requestedSchema": form}
        return (await context.peer.request("elicitation/create", params))["content"]["keep"]

    async with crib_at(tmp_path) as crib:
        crib.add(ask)
        result = await crib.session().call("ask", {}, peer=peer)
    sent = repr((peer.notifications, peer.requests))
    assert (result.text, len(peer.notifications), len(peer.requests)) == ("true", 1, 1)
    assert (OWN[0] in sent, ISSUED[0] in sent, "keep [redacted:secret]?" in sent) == (False, False, True)
