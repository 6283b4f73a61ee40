"""Schedules of a crib: fired under the rules of their creator, held like any call, told where nothing fires them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import eventually
from toolcrib.config import Settings
from toolcrib.config.directories import Directories
from toolcrib.core.budget import Budget, Budgets
from toolcrib.core.context import Context
from toolcrib.core.permission import Answer
from toolcrib.core.result import ToolResult
from toolcrib.core.services.schedules import Schedule
from toolcrib.core.tool import Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.testing import RecordingApprover, ScriptedSource

START = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()
PING = {"type": "call", "tool": "ping", "arguments": {"text": "hello"}}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Bench:
    """A crib whose time a test turns, with a tool that keeps what it was called with."""

    def __init__(self, crib: Toolcrib, engine: str) -> None:
        self.crib, self.engine = crib, engine
        self.calls: list[tuple[Mapping[str, Any], Context]] = []
        self.scheduler = crib.schedules.scheduler
        self.now = START
        self.scheduler.clock = lambda: self.now

    async def ping(self, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        self.calls.append((arguments, context))
        return ToolResult.of_text("pong")

    async def adds(self, session: Session, action: Mapping[str, Any] = PING, seconds: float = 60) -> Schedule:
        made, _ = await self.crib.schedules.of(session.state.principal, session.state.key).create(
            title="T", trigger_type="interval", trigger_config={"interval_seconds": seconds}, action=action
        )
        return made

    async def fires(self, after: float = 60) -> None:
        self.now += after
        await self.scheduler.fire_due()

    async def outcome(self, one: Schedule) -> tuple[int, str]:
        shown = await self.scheduler.get(one.id, None)
        return shown.runs, shown.outcome

    async def rows(self) -> list[tuple[str, str, str, str]]:
        return [(row.tool, row.outcome, row.origin, row.principal) for row in await self.crib.store.calls.list()]


def settings_in(folder: Path, engine: str = "process", **values: Any) -> Settings:
    directories = Directories.of({"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")})
    return Settings.of(directories, **{"builtins": False, "jobs": {"engine": engine}, **values})


@pytest.fixture(params=["process", pytest.param("durable", marks=pytest.mark.slow)])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    values = {"rules": {"deny": ["ping(text=never)"]}}
    async with opened(settings_in(tmp_path, request.param, **values), request.param) as made:
        yield made


class opened:
    """A crib of these settings with its tool, as a bench."""

    def __init__(self, settings: Settings, engine: str = "process") -> None:
        self._crib, self._engine = Toolcrib(settings), engine

    async def __aenter__(self) -> Bench:
        crib = await self._crib.__aenter__()
        bench = Bench(crib, self._engine)
        tool = Tool(name="ping", local_name="ping", source="net", input_schema=SCHEMA)
        source = ScriptedSource("net", {"ping": bench.ping}, listed=[tool])
        await crib.tools.mount_source(source, prefix=False, trusted=True)
        return bench

    async def __aexit__(self, *_: object) -> None:
        await self._crib.__aexit__(None, None, None)


async def test_a_schedule_fires_as_a_call_of_its_creator_and_is_in_the_log(bench: Bench) -> None:
    session = bench.crib.session(mode="autonomous", principal="ada", context={"project": "p"}, user="Ada")
    one = await bench.adds(session)

    await bench.fires()

    ((arguments, context),) = bench.calls
    assert (arguments, context.principal, context.user) == (PING["arguments"], "ada", "Ada")
    assert context.defaults == {"project": "p"}
    assert context.session_key != session.state.key
    assert (await bench.outcome(one), await bench.rows()) == ((1, "ok"), [("ping", "ok", "schedule", "ada")])
    jobs = await bench.crib.jobs.list("ada")
    assert [(job.tool, job.status) for job in jobs] == ([("ping", "completed")] if bench.engine == "durable" else [])


@pytest.mark.parametrize("engine", ["process", pytest.param("durable", marks=pytest.mark.slow)])
async def test_a_scheduled_call_draws_on_the_budget_of_its_creator(tmp_path: Path, engine: str) -> None:
    budgets = Budgets(identity=Budget(calls=1))
    async with opened(settings_in(tmp_path, engine, budgets=budgets), engine) as bench:
        session = bench.crib.session(mode="autonomous")
        one = await bench.adds(session)
        await bench.fires()
        ran = await bench.outcome(one)
        await bench.fires()

        assert (ran, await bench.outcome(one), len(bench.calls)) == ((1, "ok"), (2, "budget_exceeded"), 1)


@pytest.mark.parametrize(
    ("options", "action", "code"),
    [
        ({"rules": {"deny": ["ping"]}}, PING, "denied"),
        ({}, {**PING, "arguments": {"text": "never"}}, "denied"),
        ({"allowed_tools": ["other"]}, PING, "not_in_scope"),
        ({}, {**PING, "arguments": {}}, "invalid_arguments"),
    ],
)
async def test_a_run_has_never_more_than_its_creator(
    bench: Bench, options: dict[str, Any], action: dict[str, Any], code: str
) -> None:
    one = await bench.adds(bench.crib.session(mode="autonomous", **options), action)

    await bench.fires()

    assert (bench.calls, await bench.outcome(one)) == ([], (1, code))


async def test_a_tool_that_is_not_here_is_waited_for(bench: Bench) -> None:
    one = await bench.adds(bench.crib.session(mode="autonomous"), {**PING, "tool": "gone"})

    await bench.fires()

    assert await bench.outcome(one) == (0, "waits: no process that fires has the tool gone")


async def test_a_tool_that_was_refused_for_the_session_is_refused_for_its_schedules(bench: Bench) -> None:
    session = bench.crib.session(mode="cautious", approver=RecordingApprover("never"))
    assert (await session.call("ping", {"text": "x"})).is_error
    session.mode = "autonomous"
    one = await bench.adds(session)

    await bench.fires()

    assert (bench.calls, await bench.outcome(one)) == ([], (1, "denied"))


async def test_a_call_that_asks_waits_for_its_answer_in_the_store(bench: Bench) -> None:
    session = bench.crib.session(mode="cautious", approver=RecordingApprover("yes"))
    one = await bench.adds(session)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.fires)

        async def asked() -> bool:
            return bool(await bench.crib.approvals.list())

        await eventually(asked)
        open_ones = await bench.crib.approvals.list()
        assert (bench.calls, [approval.tool for approval in open_ones]) == ([], ["ping"])
        await bench.crib.approvals.decide(open_ones[0].id, Answer(verdict="yes"))
    assert (len(bench.calls), await bench.outcome(one)) == (1, (1, "ok"))


async def test_a_message_without_a_channel_is_in_the_next_result_of_its_principal(bench: Bench) -> None:
    ada = bench.crib.session(mode="autonomous", principal="ada")
    bob = bench.crib.session(mode="autonomous", principal="bob")
    await bench.adds(ada, {"type": "send_message", "content": "Water the plants."})
    await bench.fires()

    others, first, second = [(await one.call("ping", {"text": "x"})).text for one in (bob, ada, ada)]

    assert (others, second) == ("pong", "pong")
    assert (await bench.rows())[-1] == ("send_message", "ok", "schedule", "ada")
    assert first == "pong\n[Scheduled message (T), for the user:]\nWater the plants."


async def test_a_message_with_a_channel_is_sent_by_the_tool_for_messages(bench: Bench) -> None:
    tool = Tool(name="send_message", local_name="send_message", source="post")
    sent = ScriptedSource("post", {"send_message": bench.ping}, listed=[tool])
    await bench.crib.tools.mount_source(sent, prefix=False, trusted=True)
    one = await bench.adds(bench.crib.session(mode="autonomous"), {"type": "send_message", "content": "Water."})

    await bench.fires(3 * 3600)

    ((_, arguments),) = sent.calls
    assert arguments["title"] == "T"
    assert arguments["content"].splitlines()[0] == "Water."
    assert arguments["content"].endswith("runs 2:59:00 late (h:mm:ss).]")
    assert await bench.outcome(one) == (1, "ok (2:59:00 late)")


async def test_a_schedule_is_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(settings_in(tmp_path)) as first:
        one = await first.adds(first.crib.session(mode="autonomous"))
    async with opened(settings_in(tmp_path)) as second:
        second.now = START + 60
        await second.scheduler.fire_due()
        assert (len(second.calls), await second.outcome(one)) == (1, (1, "ok"))


async def test_behind_a_client_that_guards_a_schedule_is_as_careful_as_without_it(tmp_path: Path) -> None:
    settings = settings_in(tmp_path).with_values(guard=False, mode="autonomous")
    async with opened(settings) as bench:
        session = bench.crib.session(for_client=True)
        assert not (await session.call("ping", {"text": "x"})).is_error
        await bench.adds(session)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.fires)

            async def is_asked() -> bool:
                return bool(await bench.crib.approvals.list())

            await eventually(is_asked)
            assert len(bench.calls) == 1
            tasks.cancel_scope.cancel()


async def test_where_nothing_fires_making_and_listing_say_so(tmp_path: Path) -> None:
    async with opened(settings_in(tmp_path)) as bench:
        session = bench.crib.session(key="k")
        schedules = bench.crib.schedules.of("local", session.state.key)
        assert "toolcrib worker" in await schedules.warning()

        await bench.crib.schedules.start()
        assert await schedules.warning() == ""

    async with opened(settings_in(tmp_path, jobs={"engine": "process", "work": False})) as bench:
        await bench.crib.schedules.start()
        session = bench.crib.session(key="k")
        assert "toolcrib worker" in await bench.crib.schedules.of("local", session.state.key).warning()


async def test_schedules_are_listed_without_a_question_and_made_with_one() -> None:
    async with Toolcrib(builtins=["scheduling"]) as crib:
        session = crib.session(mode="cautious")
        every = {"trigger_type": "interval", "trigger_config": {"interval_seconds": 60}}
        create = {"operation": "create", **every, "action": {"type": "send_message", "content": "Water."}}
        ended = [await session.call("scheduled_task", arguments) for arguments in ({"operation": "list"}, create)]

    assert [result.error and result.error.code for result in ended] == [None, "denied"]
