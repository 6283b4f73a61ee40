"""Jobs, whoever carries them: the same bodies over jobs of the process, durable ones on SQLite, and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from durable.conftest import background, free
from rig import PATIENCE, eventually
from toolcrib.config import Settings
from toolcrib.config.directories import Directories
from toolcrib.config.settings import StoreSpec
from toolcrib.core.context import Context, Progress
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.crib import Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.jobs.job import Job
from toolcrib.jobs.settings import Engine, JobLimits
from toolcrib.testing import RecordingApprover, ScriptedSource, ToolBody

SOON = 0.01
"""A threshold that has passed when the tool waits for the test."""
READS = Annotations(read_only=True, destructive=False)

Opening = Callable[..., AbstractAsyncContextManager[Toolcrib]]


class Bench:
    """A tool that the test lets go, and what it did."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.begun = anyio.Event()
        self.runs: list[Mapping[str, Any]] = []

    async def __call__(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        self.runs.append(arguments)
        await context.output("half ")
        await context.output("way")
        await context.report(1, 2, "half way")
        self.begun.set()
        await self.go.wait()
        return ToolResult.of_text("built", structured_content={"call": context.call_id})


async def quick(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("quick")


async def broken(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    raise ToolFailure("tool_error", "no such target")


@pytest.fixture(params=["process", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Where jobs are kept: the settings of a crib whose jobs are of this kind."""
    engine: Engine = "process" if request.param == "process" else "durable"
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    directories = Directories.of({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")})
    limits = JobLimits(engine=engine)
    return Settings.of(directories, builtins=False, store=StoreSpec(url=url) if url else StoreSpec(), jobs=limits)


@pytest.fixture
def opened(place: Settings) -> Opening:
    """How a crib with the tools `build` (a write) and `look` (a read) is opened, any number of times."""

    @asynccontextmanager
    async def opening(
        body: ToolBody, *, after: float | None = None, limits: Mapping[str, Any] | None = None, **settings: Any
    ) -> AsyncGenerator[Toolcrib]:
        tools = [
            Tool(name="build", local_name="build", source="make", execution=Execution(background_after=after)),
            Tool(
                name="look",
                local_name="look",
                source="make",
                execution=Execution(background_after=after),
                annotations=READS,
            ),
        ]
        source = ScriptedSource("make", {"build": body, "look": body}, listed=tools)
        jobs = place.jobs.model_copy(update=limits or {})
        async with Toolcrib(place.with_values(jobs=jobs, **settings)) as crib:
            await crib.tools.mount_source(source, prefix=False, trusted=True)
            yield crib

    return opening


async def rows(crib: Toolcrib) -> list[tuple[str, str]]:
    return [(row.tool, row.outcome) for row in await crib.store.calls.list()]


async def test_a_job_runs_once_and_its_result_waits(opened: Opening) -> None:
    bench = Bench()
    async with opened(bench) as crib:
        session = free(crib)
        id = await background(session)
        working = await crib.jobs.get(id, "local")
        bench.go.set()
        result = await crib.jobs.result(id, "local", PATIENCE)
        ended = await crib.jobs.get(id, "local")

        assert (working.status, working.tool, working.source, working.session) == (
            "working",
            "build",
            "make",
            session.state.key,
        )
        assert (result.text, result.structured_content) == ("built", {"call": working.call_id})
        assert (ended.status, ended.result, bench.runs) == ("completed", result, [{"n": 1}])
        assert [(row.id, row.outcome) for row in await crib.store.calls.list()] == [(working.call_id, "ok")]


async def test_a_call_that_takes_too_long_goes_on_as_a_job(opened: Opening) -> None:
    bench = Bench()
    async with opened(bench, after=SOON) as crib:
        told = await free(crib).call("build", {"n": 1})
        id = told.structured_content["task_id"]
        assert (told.structured_content["auto_backgrounded"], (await crib.jobs.get(id, "local")).status) == (
            True,
            "working",
        )
        bench.go.set()
        assert (await crib.jobs.result(id, "local", PATIENCE)).text == "built"
        assert (await rows(crib), len(bench.runs)) == ([("build", "ok")], 1)


async def test_a_process_knows_whether_it_carries_jobs(opened: Opening) -> None:
    bench = Bench()
    async with opened(bench) as crib:
        before = crib.jobs.works
        id = await background(free(crib))
        meanwhile = crib.jobs.works
        bench.go.set()
        await crib.jobs.result(id, "local", PATIENCE)
        await eventually(lambda: not crib.jobs.works)
    assert (before, meanwhile) == (False, True)


async def test_a_failed_job_says_why(opened: Opening) -> None:
    async with opened(broken) as crib:
        id = await background(free(crib))
        result = await crib.jobs.result(id, "local", PATIENCE)
        job = await crib.jobs.get(id, "local")
        assert (job.status, result.error and result.error.code, job.result) == ("failed", "tool_error", result)


async def test_a_job_tells_how_far_it_is(opened: Opening) -> None:
    bench = Bench()
    heard: list[Any] = []
    async with opened(bench, limits={"output": 6}) as crib:
        id = await background(free(crib), listener=heard.append)
        await bench.begun.wait()
        job = await crib.jobs.get(id, "local")
        progress = Progress(call_id=job.call_id, progress=1, total=2, message="half way")
        assert (job.progress, job.output, heard[-1]) == (progress, "lf way", progress)
        bench.go.set()
        await crib.jobs.result(id, "local", PATIENCE)
        ended = await crib.jobs.get(id, "local")
        assert (ended.progress, ended.output) == (progress, "lf way")


async def test_whoever_waits_for_a_change_hears_of_it(opened: Opening) -> None:
    bench = Bench()
    async with opened(bench) as crib:
        id = await background(free(crib))
        first = await crib.jobs.get(id, "local")
        job = first
        while job.progress is None:
            job = await crib.jobs.changed(job, PATIENCE)
        bench.go.set()
        while job.result is None:
            job = await crib.jobs.changed(job, PATIENCE)
        assert (job.status, await crib.jobs.changed(first, PATIENCE)) == ("completed", job)
        assert await crib.jobs.changed(job, 0.0) == job, "nothing changes any more"


async def test_a_job_that_works_can_be_cancelled_and_is_recorded(opened: Opening) -> None:
    bench = Bench()
    async with opened(bench) as crib:
        id = await background(free(crib))
        await bench.begun.wait()
        job = await crib.jobs.cancel(id, "local")
        assert (job.status, await rows(crib)) == ("cancelled", [("build", "cancelled")])
        assert await crib.jobs.cancel(id, "local") == job, "what has ended stays as it is"


async def test_a_job_is_known_to_its_principal_alone(opened: Opening) -> None:
    bench = Bench()
    async with opened(bench) as crib:
        id = await background(free(crib, principal="ada"))
        for ask in (crib.jobs.get, crib.jobs.result, crib.jobs.cancel, crib.jobs.delete):
            with pytest.raises(ToolFailure) as foreign:
                await ask(id, "bob")
            with pytest.raises(ToolFailure) as unknown:
                await ask(f"{id}0", "ada")
            assert (foreign.value.code, unknown.value.code) == ("not_found", "not_found")
        assert ([job.id for job in await crib.jobs.list("ada")], await crib.jobs.list("bob")) == ([id], ())
        bench.go.set()
        assert (await crib.jobs.result(id, "ada", PATIENCE)).text == "built"


async def test_the_newest_job_is_listed_first_and_an_ended_one_can_be_deleted(opened: Opening) -> None:
    bench = Bench()
    async with opened(bench) as crib:
        session = free(crib)
        first, second = await background(session), await background(session, "look")
        assert [job.id for job in await crib.jobs.list("local")] == [second, first]
        with pytest.raises(ToolFailure) as early:
            await crib.jobs.delete(first, "local")
        await crib.jobs.cancel(first, "local")
        assert [job.id for job in await crib.jobs.list("local", "working")] == [second]
        await crib.jobs.delete(first, "local")
        assert (early.value.code, [job.id for job in await crib.jobs.list("local")]) == ("conflict", [second])
        bench.go.set()
        await crib.jobs.result(second, "local", PATIENCE)


async def test_ended_jobs_are_forgotten_by_count(opened: Opening) -> None:
    async with opened(quick, limits={"kept": 2}) as crib:
        session = free(crib)
        ids: list[str] = []
        for _ in range(4):
            ids.append(await background(session))
            await crib.jobs.result(ids[-1], "local", PATIENCE)
        assert [job.id for job in await crib.jobs.list("local")] == [ids[3], ids[2]]


async def test_ended_jobs_are_forgotten_by_age(opened: Opening) -> None:
    async with opened(quick, limits={"age": 1e-6}) as crib:
        ended = list[Job]()
        crib.calls.on_job(lambda job: ended.append(job) if job.ended else None)
        id = await background(free(crib))
        await eventually(lambda: ended)
        with pytest.raises(ToolFailure) as refusal:
            await crib.jobs.get(id, "local")
        assert refusal.value.code == "not_found"
        assert await crib.jobs.list("local") == ()


async def test_waiting_for_a_result_that_does_not_come_ends_in_time(opened: Opening) -> None:
    bench = Bench()
    async with opened(bench) as crib:
        id = await background(free(crib))
        with pytest.raises(ToolFailure) as error:
            await crib.jobs.result(id, "local", SOON)
        assert error.value.code == "timeout"
        bench.go.set()
        await crib.jobs.result(id, "local", PATIENCE)


async def test_a_job_that_takes_longer_than_it_may_is_timed_out_whatever_its_caller_wants(opened: Opening) -> None:
    async with opened(Bench(), limits={"max_seconds": 0.2}) as crib:
        result = await crib.jobs.result(await background(free(crib), timeout=3600.0), "local", PATIENCE)
        assert result.error is not None
        assert (result.error.code, await rows(crib)) == ("timeout", [("build", "timeout")])


async def test_what_was_approved_for_a_job_is_asked_once_and_runs(opened: Opening) -> None:
    approver = RecordingApprover("yes")
    async with opened(quick) as crib:
        id = await background(crib.session(approver=approver, mode="manual"))
        result = await crib.jobs.result(id, "local", PATIENCE)
        assert (result.text, len(approver.questions)) == ("quick", 1)


async def test_what_is_denied_never_becomes_a_job(opened: Opening) -> None:
    bench, approver = Bench(), RecordingApprover("no")
    async with opened(bench, rules={"deny": ("build",)}) as crib:
        denied = await free(crib).call("build", {"n": 1}, background=True)
        refused = await crib.session(approver=approver, mode="manual").call("look", {"n": 1}, background=True)
        codes = [result.error.code for result in (denied, refused) if result.error]
        assert (codes, bench.runs, await crib.jobs.list("local")) == (["denied", "denied"], [], ())


async def test_a_repeat_with_the_same_key_conflicts_while_the_job_works_and_is_its_replay_afterwards(
    opened: Opening,
) -> None:
    bench = Bench()
    async with opened(bench) as crib:
        session = free(crib)
        id = await background(session, idempotency_key="k")
        twin = await session.call("build", {"n": 1}, idempotency_key="k")
        bench.go.set()
        await crib.jobs.result(id, "local", PATIENCE)
        replay = await session.call("build", {"n": 1}, idempotency_key="k")
        assert twin.error is not None
        assert (twin.error.code, replay.text, replay.meta["replayed"], len(bench.runs)) == (
            "conflict",
            "built",
            True,
            1,
        )


async def test_the_budget_of_a_session_is_charged_once_for_a_job(opened: Opening) -> None:
    async with opened(quick) as crib:
        session = free(crib)
        session.state.limits = session.state.limits.model_copy(update={"calls": 1})
        first = await crib.jobs.result(await background(session), "local", PATIENCE)
        second = await session.call("build", {"n": 1})
        assert (first.text, second.error and second.error.code) == ("quick", "budget_exceeded")


async def test_listeners_hear_of_a_job_and_of_its_end(opened: Opening) -> None:
    heard: list[Job] = []
    async with opened(quick) as crib:
        crib.calls.on_job(heard.append)
        id = await background(free(crib))
        await crib.jobs.result(id, "local", PATIENCE)
    assert [(job.id, job.status) for job in heard] == [(id, "working"), (id, "completed")]


async def test_a_job_speaks_in_the_envelope_of_the_session_that_started_it(opened: Opening) -> None:
    async with opened(broken) as crib:
        result = await crib.jobs.result(await background(free(crib, profile="flat")), "local", PATIENCE)
        assert (result.text, result.is_error) == ("no such target", True)


async def test_closing_cancels_a_write_that_works_and_records_it(opened: Opening) -> None:
    bench = Bench()
    jobs: list[Job] = []
    async with opened(bench) as crib:
        crib.calls.on_job(jobs.append)
        id = await background(free(crib))
        await bench.begun.wait()
    assert [(job.id, job.status) for job in jobs] == [(id, "working"), (id, "cancelled")]
    assert not crib.jobs.room("local")
