"""Jobs of a process, beside what all kinds of jobs promise (`durable.test_jobs`): callers, clients, thresholds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from rig import PATIENCE, eventually
from toolcrib.config import bare
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.jobs.settings import JobLimits
from toolcrib.testing import RecordingPeer, ScriptedSource, ToolBody

SOON, LATE = 0.01, 60.0
"""Thresholds: one that has passed when the tool waits for the test, and one that no test waits for."""


class Bench:
    """A tool that the test lets go, and what it did."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.begun = anyio.Event()
        self.runs = 0
        self.contexts: list[Context] = []

    async def __call__(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        self.runs += 1
        self.contexts.append(context)
        await context.output("half ")
        await context.output("way")
        await context.report(1, 2, "half way")
        self.begun.set()
        await self.go.wait()
        return ToolResult.of_text("built")


async def quick(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("quick")


async def late(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    await anyio.sleep(SOON * 5)
    return ToolResult.of_text('{"n": 1}', structured_content={"n": 1})


async def broken(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    raise ToolFailure("tool_error", "no such target")


def tool(name: str, after: float | None = SOON, **more: Any) -> Tool:
    return Tool(name=name, local_name=name, source="make", execution=Execution(background_after=after), **more)


@asynccontextmanager
async def crib_of(body: ToolBody, after: float | None = SOON, **settings: Any) -> AsyncGenerator[Toolcrib]:
    tools = [tool("build", after), tool("look", after, annotations=Annotations(read_only=True, destructive=False))]
    source = ScriptedSource("make", {"build": body, "look": body}, listed=tools)
    async with Toolcrib(bare().with_values(**settings), memory=True) as crib:
        await crib.tools.mount_source(source, prefix=False, trusted=True)
        yield crib


def free(crib: Toolcrib, **options: Any) -> Session:
    return crib.session(mode="autonomous", **options)


async def started(session: Session, name: str = "build", *, bench: Bench | None = None, **options: Any) -> str:
    """Call a tool that goes on in the background, and return the id of the job; with `bench`, once its body waits."""
    result = await session.call(name, {}, **options)
    assert result.error is None
    if bench is not None:
        await bench.begun.wait()
    return result.structured_content["task_id"]


async def rows(crib: Toolcrib) -> list[tuple[str, str]]:
    return [(row.tool, row.outcome) for row in await crib.store.calls.list()]


async def test_a_call_that_ends_within_the_threshold_is_an_ordinary_call() -> None:
    async with crib_of(quick, LATE) as crib:
        result = await free(crib).call("build", {})
        assert (result.text, await crib.jobs.list("local")) == ("quick", ())
        assert await rows(crib) == [("build", "ok")]


async def test_a_call_that_takes_longer_is_answered_with_the_job_that_goes_on() -> None:
    bench = Bench()
    async with crib_of(bench) as crib:
        result = await free(crib).call("build", {})
        id = result.structured_content["task_id"]
        assert result.structured_content == {
            "auto_backgrounded": True,
            "task_id": id,
            "plugin_name": "make",
            "tool_name": "build",
            "threshold_seconds": SOON,
            "message": f"build takes longer than {SOON:g} s and goes on in the background as task {id}. "
            "It runs once: do not call it again. get_background_task has its result.",
        }
        assert (await crib.jobs.get(id, "local")).status == "working"
        bench.go.set()
        assert (await crib.jobs.result(id, "local", PATIENCE)).text == "built"
        job = await crib.jobs.get(id, "local")
        assert (job.status, job.tool, job.source, bench.runs) == ("completed", "build", "make", 1)
        assert job.ended is not None


async def test_a_call_that_is_started_in_the_background_is_answered_at_once_whatever_its_threshold() -> None:
    bench = Bench()
    async with crib_of(bench, None) as crib:
        session = free(crib)
        result = await session.call("build", {}, background=True)
        answer = result.structured_content
        assert answer["background"] is True and "auto_backgrounded" not in answer
        assert "get_background_task" not in answer["message"], (
            "no tool here goes on by itself, so the session has no such tool"
        )
        bench.go.set()
        assert (await crib.jobs.result(answer["task_id"], "local", PATIENCE)).text == "built"
        assert session.state.usage.calls["build"] == 1


async def test_a_job_is_recorded_once_when_it_ends_under_the_id_of_its_call() -> None:
    bench = Bench()
    async with crib_of(bench) as crib:
        told: list[str] = []
        crib.calls.on_finished(lambda event: told.append(f"{event.call_id} {event.outcome}"))
        id = await started(free(crib))
        job = await crib.jobs.get(id, "local")
        assert (await rows(crib), told) == ([], [])
        bench.go.set()
        await crib.jobs.result(id, "local", PATIENCE)
        assert (await rows(crib), told) == ([("build", "ok")], [f"{job.call_id} ok"])
        assert [row.id for row in await crib.store.calls.list()] == [job.call_id]


async def test_the_result_of_a_job_went_through_every_step_after_the_execution() -> None:
    secret = "sk-live-of-the-test-0123456789"

    async def leaks(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return ToolResult.of_text(f"{secret} " + "line\n" * 20_000)

    async def mark(call: Any, result: ToolResult) -> ToolResult:
        return result.with_meta(enriched=call.id)

    async with crib_of(leaks, None, secrets=(secret,)) as crib:
        crib.calls.enrich(mark)
        result = await crib.jobs.result(await started(free(crib), background=True), "local", PATIENCE)
        assert secret not in result.text and len(result.text) < 20_000
        assert result.meta["enriched"] == result.meta["call_id"]
        assert result.meta["artifact"]


async def test_a_cancelled_job_stops_and_is_recorded() -> None:
    bench = Bench()
    async with crib_of(bench) as crib:
        id = await started(free(crib), bench=bench)
        job = await crib.jobs.cancel(id, "local")
        assert job.status == "cancelled"
        assert bench.contexts[0].signal.reason == "cancelled"
        assert await rows(crib) == [("build", "cancelled")]
        assert (await crib.jobs.cancel(id, "local")) == job, "what has ended stays as it is"


async def test_a_caller_that_leaves_while_it_waits_takes_the_call_with_it() -> None:
    bench = Bench()
    async with crib_of(bench, LATE) as crib:
        async with anyio.create_task_group() as group:
            group.start_soon(free(crib).call, "build")
            await bench.begun.wait()
            group.cancel_scope.cancel()
        assert bench.contexts[0].signal.aborted
        assert (await rows(crib), await crib.jobs.list("local")) == ([("build", "cancelled")], ())


async def test_a_call_that_its_caller_still_waits_for_is_no_job_to_anybody() -> None:
    bench = Bench()
    async with crib_of(bench, LATE) as crib, anyio.create_task_group() as group:
        group.start_soon(free(crib).call, "build")
        await bench.begun.wait()
        assert await crib.jobs.list("local") == ()
        bench.go.set()


async def test_where_there_is_no_room_a_call_waits_in_front_and_a_background_call_is_refused() -> None:
    bench = Bench()
    async with crib_of(bench, jobs=JobLimits(working=1)) as crib:
        session = free(crib)
        id = await started(session, bench=bench)
        refused = await session.call("look", {}, background=True)
        assert refused.error is not None and refused.error.code == "overloaded"
        results: list[ToolResult] = []
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                results.append(await session.call("look", {}))

            group.start_soon(wait)
            await eventually(lambda: bench.runs == 2)
            bench.go.set()
        assert [result.text for result in results] == ["built"]
        await crib.jobs.result(id, "local", PATIENCE)
        assert free(crib, principal="bob") and (await started(free(crib, principal="bob"), background=True))


async def test_the_client_hears_of_the_call_while_it_waits_for_it() -> None:
    bench, peer = Bench(), RecordingPeer()
    async with crib_of(bench, LATE) as crib, anyio.create_task_group() as group:
        group.start_soon(partial(free(crib).call, "build", peer=peer, progress_token="p"))
        await bench.begun.wait()
        bench.go.set()
    assert [params["message"] for _, params in peer.notifications] == ["half ", "way", "half way"]


async def test_a_client_that_was_answered_hears_no_more_and_is_asked_nothing() -> None:
    bench = Bench()
    peer = RecordingPeer({"elicitation/create": {"action": "accept", "content": {"answer": "yes"}}})
    async with crib_of(bench) as crib:
        await started(free(crib), bench=bench, peer=peer, progress_token="p")
        heard = len(peer.notifications)
        context = bench.contexts[0]
        await context.report(2, 2)
        with pytest.raises(ToolFailure) as refused:
            await context.clarify("Which?")
        assert refused.value.code == "unavailable"
        assert context.peer is not None
        with pytest.raises(ToolFailure, match="goes on without it"):
            await context.peer.request("elicitation/create", {})
        assert (len(peer.notifications), peer.requests) == (heard, [])


async def test_an_mcp_client_that_was_promised_structure_waits_for_it() -> None:
    listed = [tool("count", SOON, output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})]
    async with Toolcrib(memory=True) as crib:
        await crib.tools.mount_source(
            ScriptedSource("make", {"count": late}, listed=listed), prefix=False, trusted=True
        )
        result = await free(crib).call("count", {}, origin="mcp")
        assert result.structured_content == {"n": 1}


async def test_a_batch_of_calls_gets_its_answers_in_order_while_one_goes_on() -> None:
    bench = Bench()
    tools = {"build": bench, "quick": quick, "broken": broken}
    listed = [tool("build"), tool("quick", None), tool("broken", None)]
    async with Toolcrib(memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("make", tools, listed=listed), prefix=False, trusted=True)
        results = await free(crib).call_many([("quick", {}), ("build", {}), ("broken", {}), ("quick", {})])
        assert ["task_id" in (result.structured_content or {}) for result in results] == [False, True, False, False]
        assert [result.is_error for result in results] == [False, False, True, False]


async def test_options_of_jobs_are_checked() -> None:
    async with crib_of(quick, None) as crib:
        with pytest.raises(UsageError, match="no option 'in_background'"):
            await free(crib).call("build", {}, in_background=True)  # pyright: ignore[reportCallIssue]
