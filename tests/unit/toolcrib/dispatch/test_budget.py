"""Budgets and rates: what ran counts, what did not run counts nothing, and nobody is asked for what is used up."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.config import Directories, Settings, bare, load
from toolcrib.core.budget import Bucket, Budget, Budgets, Loops
from toolcrib.core.call import Call
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Limits, SessionState
from toolcrib.core.tool import Tool
from toolcrib.crib import Session, Toolcrib
from toolcrib.disclosure.profiles import load as profile
from toolcrib.dispatch.budgets import BudgetUsage
from toolcrib.errors import ConfigError, ToolFailure
from toolcrib.plugin import tool
from toolcrib.store.store import Store
from toolcrib.testing import RecordingApprover


@tool(kind="read")
async def look(path: str = "") -> str:
    """Look at something."""
    return "forty characters, which make ten tokens."


@tool(kind="write")
async def change(path: str = "") -> str:
    """Change something."""
    return "changed"


@asynccontextmanager
async def crib_of(budgets: Budgets | None = None, *, home: Path | None = None, **more: Any) -> AsyncGenerator[Toolcrib]:
    settings = bare().with_values(budgets=budgets or Budgets(), **more)
    if home is not None:
        settings = settings.with_values(directories=Directories.of({"HOME": str(home)}))
    async with Toolcrib(settings, memory=home is None) as crib:
        crib.add(look)
        crib.add(change)
        yield crib


async def codes(session: Session, name: str, times: int, **options: Any) -> list[str]:
    results = [await session.call(name, {}, **options) for _ in range(times)]
    return [result.error.code if result.error else "ok" for result in results]


async def test_a_budget_of_a_session_is_shared_by_its_tools_and_by_no_other_session() -> None:
    async with crib_of(Budgets(session=Budget(calls=3))) as crib:
        session = crib.session(mode="autonomous")
        assert await codes(session, "look", 2) == ["ok", "ok"]
        assert await codes(session, "change", 2) == ["ok", "budget_exceeded"]
        assert await codes(crib.session(), "look", 1) == ["ok"]


async def test_a_budget_by_pattern_is_shared_by_the_tools_that_it_matches() -> None:
    budgets = Budgets(tools={"l*k": Budget(calls=1), "chan*": Budget(calls=2)})
    async with crib_of(budgets) as crib:
        session = crib.session(mode="autonomous")
        assert await codes(session, "look", 2) == ["ok", "budget_exceeded"]
        assert await codes(session, "change", 3) == ["ok", "ok", "budget_exceeded"]


async def test_tokens_count_as_the_model_saw_them_and_end_the_calls_after() -> None:
    async with crib_of(Budgets(session=Budget(tokens=15))) as crib:
        session = crib.session()
        assert await codes(session, "look", 3) == ["ok", "ok", "budget_exceeded"]
        assert session.state.usage.tokens == {"look": 20}


async def test_a_result_that_was_cut_counts_with_what_is_left_of_it() -> None:
    @tool(kind="read")
    async def flood() -> str:
        """Say much."""
        return "word " * 20_000

    async with crib_of(Budgets(session=Budget(tokens=10_000)), limits=Limits(result_tokens=1000)) as crib:
        crib.add(flood)
        session = crib.session()
        await session.call("flood")
        assert 0 < session.state.usage.tokens["flood"] <= 1000


@pytest.mark.parametrize("limits", [Limits(calls=2), Limits(calls_per_tool={"look": 2})])
async def test_a_session_has_the_calls_of_its_limits(limits: Limits) -> None:
    async with crib_of(limits=limits) as crib:
        assert await codes(crib.session(), "look", 3) == ["ok", "ok", "budget_exceeded"]


async def test_what_was_denied_described_or_answered_from_the_record_counts_nothing() -> None:
    async with crib_of(Budgets(session=Budget(calls=1, calls_per_minute=1), identity=Budget(calls=1))) as crib:
        no = crib.session(key="k", approver=RecordingApprover("no"))
        assert await codes(no, "change", 3) == ["denied"] * 3
        assert await codes(no, "change", 3, dry_run=True) == ["ok"] * 3
        yes = crib.session(key="k", approver=RecordingApprover("yes"))
        assert await codes(yes, "change", 1, idempotency_key="once") == ["ok"]
        assert yes.state.usage.calls == {"change": 1}


async def test_a_repeat_under_the_same_key_gives_its_share_back() -> None:
    async with crib_of(Budgets(session=Budget(calls=2))) as crib:
        session = crib.session(mode="autonomous")
        results = [await session.call("change", {}, idempotency_key="k") for _ in range(2)]
        assert [result.meta.get("replayed") for result in results] == [None, True]
        assert await codes(session, "look", 2) == ["ok", "budget_exceeded"]


@pytest.mark.parametrize("is_durable", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_job_counts_once(tmp_path: Path, is_durable: bool) -> None:
    budgets = Budgets(session=Budget(calls=2, tokens=1000))
    async with crib_of(budgets, home=tmp_path if is_durable else None) as crib:
        session = crib.session(mode="autonomous")
        job = await session.call("change", {}, background=True)
        await crib.jobs.result(job.meta["job"], "local", PATIENCE)
        assert (session.state.usage.calls, session.state.usage.tokens) == ({"change": 1}, {"change": 2})
        assert await codes(session, "look", 2) == ["ok", "budget_exceeded"]


async def test_nobody_is_asked_for_a_call_that_has_no_budget() -> None:
    approver = RecordingApprover("yes")
    async with crib_of(Budgets(tools={"change": Budget(calls=1)})) as crib:
        session = crib.session(approver=approver)
        assert await codes(session, "change", 3) == ["ok", "budget_exceeded", "budget_exceeded"]
    assert len(approver.questions) == 1


async def test_calls_at_the_same_moment_cannot_overdraw() -> None:
    async with crib_of(Budgets(session=Budget(calls=5), identity=Budget(calls=5))) as crib:
        results = await crib.session().call_many([("look", {"path": str(n)}) for n in range(20)])
    assert [result.is_error for result in results].count(False) == 5


async def test_a_rate_says_how_long_to_wait() -> None:
    async with crib_of(Budgets(session=Budget(calls_per_minute=2))) as crib:
        session = crib.session()
        refused = [await session.call("look", {}) for _ in range(3)][-1]
    assert refused.error is not None
    assert (refused.error.code, 0 < refused.error.details["retry_after"] <= 30) == ("overloaded", True)
    assert "this session may make 2 calls a minute" in refused.text


def test_a_bucket_fills_evenly_and_never_above_its_rate() -> None:
    bucket = Bucket(6, now=0.0)
    bucket.take(6)
    waits = [bucket.wait(6, now=now) for now in (0.0, 4.0, 10.0)]
    bucket.take()
    assert (waits, bucket.wait(6, now=10.0), bucket.wait(6, now=1000.0)) == ([10.0, 6.0, 0.0], 10.0, 0.0)
    bucket.take(6)
    assert bucket.wait(6, now=1000.0) == 10.0


async def test_an_identity_has_one_budget_for_all_its_sessions_and_after_a_restart(tmp_path: Path) -> None:
    budgets = Budgets(identity=Budget(calls=3))
    async with crib_of(budgets, home=tmp_path) as crib:
        assert await codes(crib.session(principal="ada"), "look", 1) == ["ok"]
        assert await codes(crib.session(principal="ada"), "look", 1) == ["ok"]
    async with crib_of(budgets, home=tmp_path) as crib:
        assert await codes(crib.session(principal="ada"), "look", 2) == ["ok", "budget_exceeded"]
        assert await codes(crib.session(principal="bob"), "look", 1) == ["ok"]


async def test_a_principal_that_has_a_budget_of_its_own_has_it_in_the_place_of_the_common_one() -> None:
    budgets = Budgets(identity=Budget(calls=1), identities={"ada": Budget(calls_per_minute=2)})
    async with crib_of(budgets) as crib:
        assert await codes(crib.session(principal="ada"), "look", 3) == ["ok", "ok", "overloaded"]
        assert await codes(crib.session(principal="bob"), "look", 2) == ["ok", "budget_exceeded"]


class Clocks:
    """Days and seconds that a test moves."""

    def __init__(self) -> None:
        self.wall, self.mono = 86400.0 * 20_000, 0.0


def spending_of(budget: Budget, clocks: Clocks) -> BudgetUsage:
    return BudgetUsage(Budgets(identity=budget), clock=lambda: clocks.wall, monotonic=lambda: clocks.mono)


async def taken(budget_usage: BudgetUsage, tokens: int = 0) -> str:
    """Take, run and settle one call."""
    call = Call(
        id="c",
        name="look",
        arguments={},
        session=SessionState(key="s", principal="ada"),
        tool=Tool(name="look", source="x", local_name="look"),
    )
    try:
        outcome = budget_usage.take(call)
        call = outcome if isinstance(outcome, Call) else await outcome
    except ToolFailure as failure:
        return failure.code
    grant: Any = object()
    budget_usage.settle(call.evolve(grant=grant), ToolResult.of_text("x" * tokens * 4))
    return "ok"


async def test_a_new_day_is_a_new_budget() -> None:
    clocks = Clocks()
    budget_usage = spending_of(Budget(calls=1, tokens=100), clocks)
    assert [await taken(budget_usage), await taken(budget_usage)] == ["ok", "budget_exceeded"]
    clocks.wall += 86400
    assert [await taken(budget_usage, tokens=100), await taken(budget_usage)] == ["ok", "budget_exceeded"]


async def test_what_other_processes_use_counts_a_little_later() -> None:
    clocks = Clocks()
    async with Store.open(None) as store:
        first, second = (spending_of(Budget(calls=3), clocks) for _ in range(2))
        for budget_usage in (first, second):
            budget_usage.open(store.budgets)
        assert [await taken(first), await taken(second), await taken(second)] == ["ok", "ok", "ok"]
        clocks.mono += 3.0
        assert [await taken(first), await taken(second)] == ["budget_exceeded", "budget_exceeded"]
        assert await store.budgets.used("ada", 20_000) == (3, 0)


async def test_the_store_forgets_days_that_are_long_gone() -> None:
    async with Store.open(None) as store:
        store.budgets.add("ada", 100, 1, 2)
        store.budgets.add("ada", 108, 1, 2)
        assert [await store.budgets.used("ada", day) for day in (100, 108)] == [(0, 0), (1, 2)]


def turns(crib: Toolcrib) -> Session:
    return crib.session(profile="flat")


async def test_flat_refuses_the_rest_of_a_turn_that_asks_for_more_than_a_model_can_read() -> None:
    async with crib_of() as crib:
        results = await turns(crib).call_many([("look", {"path": str(n)}) for n in range(14)])
    assert [result.is_error for result in results] == [False] * 12 + [True] * 2
    assert "one turn may make 12 calls, this was number 13; it did not run" in results[12].text


async def turn(session: Session, *names: str) -> list[bool]:
    """Whether each call of one turn ran."""
    return [not result.is_error for result in await session.call_many([("look", {"path": name}) for name in names])]


async def test_flat_refuses_the_fourth_of_the_same_calls_until_others_came_between() -> None:
    async with crib_of() as crib:
        session = turns(crib)
        assert [await turn(session, "a") for _ in range(5)] == [[True], [True], [True], [False], [False]]
        for name in "bcdefg":
            assert await turn(session, name) == [True]
        assert await turn(session, "a") == [True]


async def test_flat_refuses_a_pattern_that_comes_a_second_time() -> None:
    async with crib_of() as crib:
        session = turns(crib)
        assert [await turn(session, name) for name in "abcab"] == [[True]] * 5
        assert [await turn(session, name) for name in "cd"] == [[False], [True]]


async def test_the_same_call_twice_in_one_turn_is_no_circle() -> None:
    async with crib_of() as crib:
        assert await turn(turns(crib), *"aaaaaaaa") == [True] * 8


async def test_a_question_about_a_job_may_be_repeated_until_it_ends() -> None:
    async with crib_of() as crib:
        crib.add(tool(name="build", background_after=60)(change))
        session = turns(crib)
        results = [await session.call_many([("list_background_tasks", {})]) for _ in range(6)]
    assert [result.is_error for (result,) in results] == [False] * 6


async def test_calls_one_by_one_and_other_profiles_are_not_looked_at() -> None:
    async with crib_of() as crib:
        assert await codes(turns(crib), "look", 9) == ["ok"] * 9
        other = crib.session(profile="adaptive")
        assert [await turn(other, "a") for _ in range(6)] == [[True]] * 6


async def test_a_profile_of_ones_own_may_look_for_circles_or_leave_it() -> None:
    async with crib_of() as crib:
        crib.profiles.add({"name": "strict", "extends": "adaptive", "loops": {"same": 2}})
        crib.profiles.add({"name": "loose", "extends": "flat", "loops": {"same": None, "cycle": None}})
        strict, loose = crib.session(profile="strict"), crib.session(profile="loose")
        assert [await turn(strict, "a") for _ in range(2)] == [[True], [False]]
        assert [await turn(loose, "a") for _ in range(6)] == [[True]] * 6


def test_flat_has_the_figures_of_its_seed() -> None:
    assert profile("flat").session.loops == Loops(burst=12, same=4, cycle=2, window=8)


@pytest.mark.parametrize(
    ("loops", "key"),
    [({"same": 1}, "same"), ({"burst": 0}, "burst"), ({"sane": 4}, "sane"), ({"cycle": True}, "cycle"), ([], "loops")],
)
async def test_figures_that_cannot_be_meant_are_refused(loops: Any, key: str) -> None:
    async with crib_of() as crib:
        with pytest.raises(ConfigError, match=key):
            crib.profiles.add({"name": "odd", "extends": "flat", "loops": loops})


BUDGETS = """
budgets:
  session: {calls: 200, calls_per_minute: 60, tokens: 100000}
  identity: {calls: 5000}
  identities: {nightly: {calls_per_minute: 5}}
  tools:
    web_search: {calls: 5, calls_per_minute: 2}
    "github__*": {tokens: 20000}
"""


def configured(folder: Path, text: str) -> Settings:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return load([file], environ={"HOME": str(folder)})


def test_budgets_are_said_in_the_configuration(tmp_path: Path) -> None:
    assert configured(tmp_path, BUDGETS).budgets == Budgets(
        session=Budget(calls=200, calls_per_minute=60, tokens=100_000),
        identity=Budget(calls=5000),
        identities={"nightly": Budget(calls_per_minute=5)},
        tools={"web_search": Budget(calls=5, calls_per_minute=2), "github__*": Budget(tokens=20_000)},
    )


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("budgets: {sesion: {calls: 1}}", "budgets.sesion"),
        ("budgets: {session: {calls: -1}}", "budgets.session.calls"),
        ("budgets: {session: {calls: many}}", "budgets.session.calls"),
        ("budgets: {tools: {a: {call: 1}}}", "budgets.tools.a.call"),
        ("budgets: {tools: [a]}", "budgets.tools"),
    ],
)
def test_a_budget_that_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, text)
    assert f"{tmp_path / 'config.yaml'}:1: {key}" in str(caught.value)


async def test_a_call_that_its_caller_left_keeps_its_share_once_it_ran() -> None:
    async with crib_of(Budgets(session=Budget(calls=1))) as crib:
        begun = anyio.Event()

        @tool(kind="read")
        async def wait() -> str:
            """Wait."""
            begun.set()
            await anyio.sleep_forever()
            return ""

        crib.add(wait)
        session = crib.session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "wait")
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert await codes(session, "look", 1) == ["budget_exceeded"]
