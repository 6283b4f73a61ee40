"""Durable jobs: whoever shares the store carries them, looks at them, stops them; what was accepted outlives processes.

Two cribs of one test stand for two processes: one that accepts (`work=False`), and one that carries. What a kill does
is in `test_crash.py`.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from durable.conftest import background, free
from rig import PATIENCE, eventually
from toolcrib.config import Settings
from toolcrib.config.directories import Directories
from toolcrib.core.budget import Budget, Budgets
from toolcrib.core.context import Context
from toolcrib.core.events import SourceState
from toolcrib.core.permission import Answer, Approval
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.crib import Toolcrib
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.jobs.durable import DurableJobs
from toolcrib.jobs.inprocess import InProcessJobs
from toolcrib.jobs.settings import JobLimits, Retries
from toolcrib.policy.settings import ApprovalSettings
from toolcrib.sources.source import Publish
from toolcrib.testing import RecordingApprover, ScriptedSource, ToolBody
from toolcrib.workflows import Workflows

READS = Annotations(read_only=True, destructive=False)
SAFE = Annotations(destructive=False, idempotent=True)
LISTED = (
    Tool(name="build", local_name="build", source="make"),
    Tool(name="look", local_name="look", source="make", annotations=READS),
    Tool(name="put", local_name="put", source="make", annotations=SAFE),
)
Opening = Callable[..., AbstractAsyncContextManager[Toolcrib]]


class Bench:
    """A tool that the test lets go; two of them with one list of running calls count what runs in both."""

    def __init__(self, running: list[str] | None = None) -> None:
        self.go = anyio.Event()
        self.begun = anyio.Event()
        self.calls: list[str] = []
        self.running: list[str] = [] if running is None else running
        self.most = 0

    async def __call__(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        self.calls.append(context.call_id)
        self.running.append(context.call_id)
        self.most = max(self.most, len(self.running))
        await context.report(1, 2)
        self.begun.set()
        try:
            await self.go.wait()
        finally:
            self.running.remove(context.call_id)
        return ToolResult.of_text("built")


class Flaky:
    """Fails in passing, so often."""

    def __init__(self, times: int) -> None:
        self.calls: list[str] = []
        self._times = times

    async def __call__(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        self.calls.append(context.call_id)
        if len(self.calls) <= self._times:
            raise ToolFailure("unavailable", "the server restarts")
        return ToolResult.of_text("built")


async def quick(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("quick")


@pytest.fixture
def place(tmp_path: Path) -> Settings:
    directories = Directories.of({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")})
    return Settings.of(directories, builtins=False, jobs=JobLimits(engine="durable", retries=Retries(backoff=0.01)))


@pytest.fixture
def process(place: Settings) -> Opening:
    """How a process is started on the one store of this test."""

    @asynccontextmanager
    async def opening(
        body: ToolBody | None,
        *,
        listed: tuple[Tool, ...] = LISTED,
        limits: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> AsyncGenerator[Toolcrib]:
        jobs = place.jobs.model_copy(update=limits or {})
        async with Toolcrib(place.with_values(jobs=jobs, **more)) as crib:
            if body is not None:
                source = ScriptedSource("make", {tool.local_name: body for tool in listed}, listed=list(listed))
                await crib.tools.mount_source(source, prefix=False, trusted=True)
            yield crib

    return opening


ACCEPTS: dict[str, Any] = {"work": False}


async def rows(crib: Toolcrib) -> list[tuple[str, str]]:
    return [(row.id, row.outcome) for row in await crib.store.calls.list()]


async def test_what_one_process_accepts_another_carries_while_both_watch(process: Opening) -> None:
    bench = Bench()
    heard: list[tuple[str, str]] = []
    async with process(quick, limits=ACCEPTS) as front, process(bench) as worker:
        front.calls.on_job(lambda job: heard.append((job.id, job.status)))
        id = await background(free(front))
        await bench.begun.wait()
        assert (front.jobs.works, worker.jobs.works) == (False, True)
        job = await front.jobs.get(id, "local")
        with anyio.fail_after(PATIENCE):
            while job.progress is None:
                job = await front.jobs.changed(job, PATIENCE)
        bench.go.set()
        result = await front.jobs.result(id, "local", PATIENCE)
        assert (result.text, bench.calls) == ("built", [job.call_id])
        assert await front.jobs.get(id, "local") == await worker.jobs.get(id, "local")
        assert [job.id for job in await worker.jobs.list("local")] == [id]
        await eventually(lambda: len(heard) == 2)
        assert heard == [(id, "working"), (id, "completed")]


async def test_a_job_is_cancelled_from_another_process(process: Opening) -> None:
    bench = Bench()
    async with process(quick, limits=ACCEPTS) as front, process(bench) as worker:
        id = await background(free(front))
        await bench.begun.wait()
        with anyio.fail_after(PATIENCE):
            job = await front.jobs.cancel(id, "local")
        assert (job.status, await rows(worker)) == ("cancelled", [(job.call_id, "cancelled")])


async def test_a_call_that_went_on_by_itself_is_cancelled_from_another_process(process: Opening) -> None:
    bench = Bench()
    listed = (replace(LISTED[0], execution=Execution(background_after=0.01)),)
    async with process(quick, limits=ACCEPTS) as front, process(bench, listed=listed) as worker:
        told = await free(worker).call("build", {"n": 1})
        with anyio.fail_after(PATIENCE):
            job = await front.jobs.cancel(told.structured_content["task_id"], "local")
        assert (job.status, await rows(worker)) == ("cancelled", [(job.call_id, "cancelled")])


async def test_a_job_that_nobody_has_begun_is_cancelled_and_never_begins(process: Opening) -> None:
    async with process(quick, limits=ACCEPTS) as front:
        id = await background(free(front))
        job = await front.jobs.cancel(id, "local")
        assert (job.status, await rows(front)) == ("cancelled", [(job.call_id, "cancelled")])
    bench = Bench()
    async with process(bench) as worker:
        later = await background(free(worker), "look")
        await bench.begun.wait()
        bench.go.set()
        await worker.jobs.result(later, "local", PATIENCE)
        assert len(bench.calls) == 1


async def test_what_was_accepted_runs_after_a_restart_in_the_envelope_of_its_session(process: Opening) -> None:
    async with process(quick, limits=ACCEPTS) as front:
        session = free(front, profile="gateway", principal="ada")
        called: dict[str, Any] = {"op": "x.make.build", "args": {}}
        told = await session.call("tool_exec", called, background=True)
        id = told.structured_content["result"]["task_id"]
    async with process(quick) as worker:
        result = await worker.jobs.result(id, "ada", PATIENCE)
        job = await worker.jobs.get(id, "ada")
        answer = result.structured_content
        assert (answer["op"], answer["ok"], job.tool) == ("x.make.build", True, "x.make.build")


async def test_who_said_yes_before_a_restart_is_not_asked_again(process: Opening) -> None:
    approver = RecordingApprover("yes", "always")
    async with process(quick, limits=ACCEPTS) as front:
        session = front.session(approver=approver, mode="manual")
        asked = [await background(session), await background(session, "put")]
        by_an_answer_of_before = await background(session, "put")
    async with process(quick) as worker:
        results = [await worker.jobs.result(id, "local", PATIENCE) for id in (*asked, by_an_answer_of_before)]
        assert [result.text for result in results] == ["quick"] * 3
        assert (len(approver.questions), await worker.approvals.pending()) == (2, [])


async def test_a_deny_that_was_written_meanwhile_holds(process: Opening) -> None:
    bench = Bench()
    async with process(quick, limits=ACCEPTS) as front:
        id = await background(free(front))
    async with process(bench, rules={"deny": ("build",)}) as worker:
        result = await worker.jobs.result(id, "local", PATIENCE)
        assert (result.error and result.error.code, bench.calls) == ("denied", [])


async def test_a_job_that_was_cut_off_while_it_asked_costs_one_call_when_a_person_approves_it_later(
    process: Opening,
) -> None:
    asks: dict[str, Any] = {
        "rules": {"ask": ("put",)},
        "approvals": ApprovalSettings(wait=True),
        "budgets": Budgets(identity=Budget(calls=1)),
    }
    async with process(quick, limits=ACCEPTS, budgets=asks["budgets"]) as front:
        id = await background(free(front), "put")
    async with process(quick, **asks) as worker:
        await _next_question(worker)
    async with process(quick, **asks) as worker:
        await worker.approvals.decide((await _next_question(worker)).id, Answer(verdict="yes"))
        result = await worker.jobs.result(id, "local", PATIENCE)
        further = await free(worker).call("look", {"n": 1})
        assert (result.text, further.error and further.error.code) == ("quick", "budget_exceeded")


async def _next_question(crib: Toolcrib) -> Approval:
    async for asked in crib.approvals.watch():
        if asked.state == "pending":
            return asked
    raise AssertionError


async def test_a_tool_that_was_defined_anew_meanwhile_does_not_run(process: Opening) -> None:
    bench = Bench()
    async with process(quick, limits=ACCEPTS) as front:
        id = await background(free(front))
    async with process(bench, listed=(replace(LISTED[0], description="another"),)) as worker:
        result = await worker.jobs.result(id, "local", PATIENCE)
        assert (result.error and result.error.code, bench.calls) == ("definition_changed", [])


async def test_a_job_waits_for_a_process_that_has_its_tool(process: Opening) -> None:
    async with process(quick, limits=ACCEPTS) as front:
        id = await background(free(front))
    async with process(None) as worker:
        with pytest.raises(ToolFailure, match="still works"):
            await worker.jobs.result(id, "local", 2.5)
        source = ScriptedSource("make", {"build": quick}, listed=list(LISTED[:1]))
        await worker.tools.mount_source(source, prefix=False, trusted=True)
        assert (await worker.jobs.result(id, "local", PATIENCE)).text == "quick"


async def test_a_job_waits_for_the_key_that_sealed_it(process: Opening, tmp_path: Path) -> None:
    async with process(quick, limits=ACCEPTS) as front:
        id, other = await background(free(front)), await background(free(front))
    (key,) = tmp_path.rglob("key")
    saved = key.read_bytes()
    key.write_bytes(base64.b64encode(b"another key" + bytes(21)))
    async with process(quick) as worker:
        with pytest.raises(ToolFailure, match="still works"):
            await worker.jobs.result(id, "local", 1.5)
        waiting = await worker.store.unreadable()
        cancelled = await worker.jobs.cancel(other, "local")
    key.write_bytes(saved)
    async with process(quick) as worker:
        assert (await worker.jobs.result(id, "local", PATIENCE)).text == "quick"
        assert (waiting, cancelled.status, await worker.store.unreadable()) == ({"job": 2}, "cancelled", {})


async def test_what_may_be_repeated_is_tried_again_when_it_fails_in_passing(process: Opening) -> None:
    flaky = Flaky(2)
    async with process(flaky) as crib:
        id = await background(free(crib), "put", idempotency_key="k")
        result = await crib.jobs.result(id, "local", PATIENCE)
        call = (await crib.jobs.get(id, "local")).call_id
        again = await free(crib).call("put", {"n": 1}, idempotency_key="k")
        attempts = [call, f"{call}.2", f"{call}.3"]
        assert (result.text, flaky.calls, again.text) == ("built", attempts, "built")
        ended = [row for row in await rows(crib) if row[0] in attempts]
        assert ended == [(f"{call}.3", "ok"), (f"{call}.2", "unavailable"), (call, "unavailable")]


async def test_nothing_is_tried_more_often_than_said_and_what_may_not_be_repeated_once(process: Opening) -> None:
    safe, unsafe = Flaky(9), Flaky(9)
    async with process(safe, limits={"retries": Retries(attempts=2, backoff=0.01)}) as crib:
        result = await crib.jobs.result(await background(free(crib), "put"), "local", PATIENCE)
        assert (result.error and result.error.code, len(safe.calls)) == ("unavailable", 2)
    async with process(unsafe) as crib:
        result = await crib.jobs.result(await background(free(crib), "build"), "local", PATIENCE)
        assert (result.error and result.error.code, len(unsafe.calls)) == ("unavailable", 1)


async def test_closing_leaves_what_may_be_repeated_to_the_next_process(process: Opening) -> None:
    first, second = Bench(), Bench()
    second.go.set()
    async with process(first) as crib:
        id = await background(free(crib), "put")
        await first.begun.wait()
    async with process(second) as crib:
        result = await crib.jobs.result(id, "local", PATIENCE)
        call = (await crib.jobs.get(id, "local")).call_id
        assert (result.text, first.calls, second.calls) == ("built", [call], [f"{call}.2"])
        assert await rows(crib) == [(f"{call}.2", "ok"), (call, "cancelled")]


@pytest.mark.parametrize(("cut_off", "outcome", "calls"), [("put", "ok", 2), ("build", "outcome_unknown", 1)])
async def test_a_workflow_goes_on_in_the_next_process_where_it_was(
    process: Opening, cut_off: str, outcome: str, calls: int
) -> None:
    first, second = Bench(), Bench()
    second.go.set()
    steps = {
        "see": {"tool": "look", "arguments": {"n": 0}},
        "do": {"tool": cut_off, "arguments": {"n": 1}, "after": "see"},
    }

    async def see_first(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        return await first(arguments, context) if arguments["n"] else ToolResult.of_text("seen")

    async with process(see_first) as crib:
        await crib.slice(Workflows).add("errand", {"steps": steps})
        told = await free(crib).call("errand", {}, background=True)
        await first.begun.wait()
    async with process(second) as crib:
        await crib.slice(Workflows).add("errand", {"steps": steps})
        id = told.structured_content["task_id"]
        result = await crib.jobs.result(id, "local", PATIENCE)
        job = await crib.jobs.get(id, "local")

        assert (result.error.code if result.error else "ok", job.status) == (
            outcome,
            "completed" if outcome == "ok" else "failed",
        )
        assert len(first.calls) + len(second.calls) == calls
        assert (f"{job.call_id}.2", outcome) in await rows(crib)


class Slow(ScriptedSource):
    """Lists once somebody waits for it."""

    publish: Publish
    is_listed = False

    @property
    def state(self) -> SourceState:
        state = "ready" if self.is_listed else "connecting"
        return SourceState(source=self.name, kind="scripted", state=state, tools=0)

    async def open(self, publish: Publish) -> None:
        self.publish = publish

    async def ready(self) -> None:
        await super().open(self.publish)
        self.is_listed = True


async def test_a_workflow_waits_for_the_tools_of_its_steps_after_a_restart(process: Opening) -> None:
    steps = {"see": {"tool": "look", "arguments": {"n": 0}}}
    async with process(quick, limits=ACCEPTS) as crib:
        await crib.slice(Workflows).add("errand", {"steps": steps})
        told = await free(crib).call("errand", {}, background=True)
    async with process(None) as crib:
        await crib.tools.mount_source(Slow("make", {"look": quick}, listed=LISTED[1:2]), prefix=False, trusted=True)
        await crib.slice(Workflows).add("errand", {"steps": steps})

        result = await crib.jobs.result(told.structured_content["task_id"], "local", PATIENCE)

        assert result.text == "quick"


async def test_a_worker_that_drains_ends_what_works_and_takes_nothing_new(process: Opening) -> None:
    bench = Bench()
    async with process(quick, limits=ACCEPTS) as front:
        async with process(bench) as worker:
            jobs = worker.jobs
            assert isinstance(jobs, DurableJobs)
            ids = [await background(free(front))]
            await bench.begun.wait()
            async with anyio.create_task_group() as group:
                group.start_soon(jobs.drain, PATIENCE)
                await anyio.lowlevel.checkpoint()
                ids.append(await background(free(front)))
                bench.go.set()
        async with process(quick):
            results = [await front.jobs.result(id, "local", PATIENCE) for id in ids]
        assert ([result.text for result in results], len(bench.calls)) == (["built", "quick"], 1)


async def test_a_call_that_went_on_by_itself_is_left_to_the_next_process_too(process: Opening) -> None:
    first, second = Bench(), Bench()
    second.go.set()
    listed = (replace(LISTED[1], execution=Execution(background_after=0.01)),)
    async with process(first, listed=listed) as crib:
        told = await free(crib).call("look", {"n": 1})
        id = told.structured_content["task_id"]
    async with process(second, listed=listed) as crib:
        assert (await crib.jobs.result(id, "local", PATIENCE)).text == "built"
        assert (len(first.calls), len(second.calls)) == (1, 1)


async def test_one_principal_has_so_many_at_a_time_and_the_others_wait_their_turn(process: Opening) -> None:
    bench = Bench()
    async with process(bench, limits={"working": 2}) as crib:
        session, other = free(crib), free(crib, principal="bob")
        ids = [await background(session, "look") for _ in range(4)]
        bobs = await background(other, "look")
        await eventually(lambda: len(bench.calls) >= 3)
        bench.go.set()
        for id in ids:
            await crib.jobs.result(id, "local", PATIENCE)
        assert (await crib.jobs.result(bobs, "bob", PATIENCE)).text == "built"
        assert (bench.most, len(bench.calls)) == (3, 5)


async def test_a_queue_that_is_full_refuses_and_a_call_that_only_takes_long_waits_in_front(process: Opening) -> None:
    bench = Bench()
    listed = (*LISTED[:1], replace(LISTED[1], execution=Execution(background_after=0.01)))
    budgets = Budgets(session=Budget(calls=9))
    async with process(bench, listed=listed, limits={"waiting": 1}, budgets=budgets) as crib:
        session = free(crib)
        id = await background(session)
        refused = await session.call("build", {"n": 2}, background=True)
        assert session.state.usage.calls["build"] == 1, "what was refused gave its share of the budgets back"
        results: list[ToolResult] = []
        async with anyio.create_task_group() as group:

            async def look() -> None:
                results.append(await session.call("look", {"n": 1}))

            group.start_soon(look)
            await eventually(lambda: len(bench.calls) == 2)
            bench.go.set()
        assert (refused.error and refused.error.code, [one.text for one in results]) == ("overloaded", ["built"])
        await crib.jobs.result(id, "local", PATIENCE)


async def test_the_limit_of_a_principal_holds_for_all_processes_together(process: Opening) -> None:
    first = Bench()
    second = Bench(first.running)
    limits = {"working": 2}
    async with process(first, limits=limits) as one, process(second, limits=limits) as two:
        ids = [await background(free(crib), "look") for crib in (one, two, one, two)]
        await first.begun.wait()
        await second.begun.wait()
        first.go.set()
        second.go.set()
        for id in ids:
            assert (await one.jobs.result(id, "local", PATIENCE)).text == "built"
        assert (max(first.most, second.most), len(first.calls) + len(second.calls)) == (2, 4)


async def test_jobs_that_wait_begin_in_the_order_in_which_they_were_accepted(process: Opening) -> None:
    begun: list[int] = []

    async def note(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        begun.append(arguments["n"])
        return ToolResult.of_text("noted")

    async with process(quick, limits=ACCEPTS) as front:
        session = free(front)
        told = [await session.call("look", {"n": n}, background=True) for n in range(5)]
    async with process(note, limits={"working": 1}) as worker:
        told.append(await free(worker).call("look", {"n": 5}, background=True))
        for one in told:
            await worker.jobs.result(one.structured_content["task_id"], "local", PATIENCE)
    assert begun == list(range(6))


async def test_arguments_are_sealed_then_wiped_and_files_are_for_their_owner_only(
    process: Opening, tmp_path: Path
) -> None:
    word = "a-word-that-only-the-tool-reads"
    heard = Bench()
    async with process(quick, limits=ACCEPTS) as front:
        told = await free(front).call("build", {"note": word}, background=True)
        (waiting,) = await front.store.jobs.list("local")
    async with process(heard) as worker:
        heard.go.set()
        await worker.jobs.result(told.structured_content["task_id"], "local", PATIENCE)
        (ended,) = await worker.store.jobs.list("local")
    assert (len(waiting.saved) > 500, word in waiting.saved, ended.saved, len(heard.calls)) == (True, False, "", 1)
    files = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
    assert "toolcrib.db" in {file.name for file in files}
    assert {file.stat().st_mode & 0o077 for file in files} == {0}


async def test_jobs_in_memory_end_with_the_process_and_durable_ones_need_a_place(place: Settings) -> None:
    auto = dataclasses.replace(place, jobs=JobLimits())
    async with Toolcrib(auto, memory=True) as crib:
        assert isinstance(crib.jobs, InProcessJobs)
    with pytest.raises(UsageError, match="need a store on disk"):
        async with Toolcrib(place, memory=True):
            pass


async def test_a_key_stays_with_its_job_across_a_restart_and_is_free_when_the_job_never_ran(process: Opening) -> None:
    async with process(quick, limits=ACCEPTS) as front:
        session = free(front)
        id = await background(session, idempotency_key="k")
        dropped = await background(session, idempotency_key="other")
        await front.jobs.cancel(dropped, "local")
        again = await session.call("build", {"n": 1}, idempotency_key="other")
    async with process(quick, limits=ACCEPTS) as front:
        twin = await free(front).call("build", {"n": 1}, idempotency_key="k")
    async with process(quick) as worker:
        result = await worker.jobs.result(id, "local", PATIENCE)
        replay = await free(worker).call("build", {"n": 1}, idempotency_key="k")
    assert (again.text, twin.error and twin.error.code, result.text) == ("quick", "conflict", "quick")
    assert (replay.text, replay.meta["replayed"]) == ("quick", True)
