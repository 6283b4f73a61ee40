"""`pipeline`: calls that a model writes down at once, their permissions, and how a run goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolcrib import Toolcrib, tool
from toolcrib.config import bare
from toolcrib.core.call import NESTED
from toolcrib.core.result import ToolError, ToolResult
from toolcrib.crib import Session
from toolcrib.testing import RecordingApprover
from toolcrib.workflows import Workflows


class Shop:
    """Tools that note what they did, and one that fails as often as it is told to."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.looks = 0
        self.failures = 0

    @tool(kind="read")
    async def look_up(self, name: str) -> dict[str, Any]:
        """Look a thing up."""
        self.looks += 1
        return {"name": name.title(), "price": 3}

    @tool(kind="read", traits=["untrusted"])
    async def read_page(self) -> str:
        """Read what strangers wrote."""
        return "Buy now"

    @tool(kind="write")
    async def order(self, name: str, note: str = "") -> str:
        """Order a thing."""
        if self.failures:
            self.failures -= 1
            raise RuntimeError("closed")
        self.orders.append(name)
        return f"ordered {name}{note}"

    @tool(kind="write")
    async def order_catalog(self) -> ToolResult:
        """Order what has a long confirmation."""
        self.orders.append("catalog")
        return ToolResult.of_text("the beginning").with_meta(artifact="artifact_1")


LOOK = {"id": "look", "tool": "look_up", "params": {"name": {"$from": "$.input.wish"}}}
ORDER = {"id": "order", "tool": "order", "params": {"name": {"$from": "$.steps.look.name"}}}
HATS = {"name": "a hat", "steps": [ORDER, LOOK]}


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def crib(shop: Shop) -> AsyncIterator[Toolcrib]:
    async with Toolcrib(bare().with_values(builtins=("pipeline",)), memory=True) as crib:
        crib.add(shop)
        yield crib


def of(crib: Toolcrib, **options: Any) -> Session:
    known: dict[str, Any] = {"profile": "flat", "mode": "autonomous", **options}
    return crib.session(**known)


async def run(session: Session, pipeline: Any) -> ToolResult:
    given = {"action": "define_and_run", "pipeline": pipeline, "context": {"wish": "hat"}}
    return await session.call("pipeline", given)


def _error(result: ToolResult) -> ToolError:
    assert result.error is not None, result.text
    return result.error


def _content(result: ToolResult) -> Any:
    return result.structured_content


async def refused(session: Session, **given: Any) -> tuple[str, str]:
    result = await session.call("pipeline", given)
    assert result.error is not None, result.text
    return result.error.code, result.error.message


async def test_it_is_a_built_in_tool_that_can_be_chosen_by_name(crib: Toolcrib) -> None:
    assert (crib.catalog.tools["pipeline"].source, crib.problems) == ("builtin", ())


async def test_results_feed_arguments_whatever_the_order_of_the_steps(crib: Toolcrib, shop: Shop) -> None:
    result = await run(of(crib), HATS)
    assert (result.structured_content, shop.orders) == (
        {"order": "ordered Hat", "look": {"name": "Hat", "price": 3}},
        ["Hat"],
    )


async def test_every_step_is_decided_as_a_call_of_its_own(crib: Toolcrib, shop: Shop) -> None:
    result = await run(of(crib, rules={"deny": ["order"]}), HATS)
    assert (_error(result).code, shop.looks, shop.orders) == ("denied", 1, [])
    rows = await crib.store.calls.list()
    assert {(row.tool, row.outcome) for row in rows} == {
        ("pipeline", "denied"),
        ("look_up", "ok"),
        ("order", "denied"),
    }


@pytest.mark.parametrize(("answer", "orders"), [("yes", ["Hat"]), ("no", [])])
async def test_a_step_with_approval_asks_where_the_mode_allows_it(
    crib: Toolcrib, shop: Shop, answer: Any, orders: list[str]
) -> None:
    approver = RecordingApprover(answer)
    pipeline = {"name": "a hat", "steps": [LOOK, {**ORDER, "approval": True}]}
    await run(of(crib, approver=approver, rules={"allow": ["order"]}), pipeline)
    assert ([question.tool.name for question in approver.questions], shop.orders) == (["order"], orders)
    assert approver.questions[0].decision.rule == "workflow step: its definition asks before order"


async def test_a_deny_holds_for_a_step_with_approval(crib: Toolcrib, shop: Shop) -> None:
    approver = RecordingApprover("yes")
    pipeline = {"name": "a hat", "steps": [LOOK, {**ORDER, "approval": True}]}
    result = await run(of(crib, approver=approver, rules={"deny": ["order"]}), pipeline)
    assert (_error(result).code, approver.questions, shop.orders) == ("denied", [], [])


async def test_a_run_that_broke_off_goes_on_by_its_token_and_repeats_what_failed(crib: Toolcrib, shop: Shop) -> None:
    session, shop.failures = of(crib), 1
    broken = await run(session, HATS)
    token = _error(broken).details["resume_id"]
    assert (_error(broken).code, shop.looks, f'"resume_token": "{token}"' in _error(broken).hint) == (
        "tool_error",
        1,
        True,
    )
    again = await session.call("pipeline", {"action": "resume", "resume_token": token})
    assert (_content(again)["order"], shop.looks, shop.orders) == ("ordered Hat", 1, ["Hat"])
    assert (await refused(session, action="resume", resume_token=token))[0] == "not_found"
    shop.failures = 1
    other = _error(await run(session, HATS)).details["resume_id"]
    stranger = of(crib, principal="mallory")
    assert (await refused(stranger, action="resume", resume_token=other))[0] == "not_found"


async def test_the_token_of_a_workflow_is_not_one_of_a_pipeline(crib: Toolcrib, shop: Shop) -> None:
    await crib.slice(Workflows).add("buy", {"steps": {"order": {"tool": "order", "arguments": {"name": "hat"}}}})
    session, shop.failures = of(crib), 1
    token = _error(await session.call("buy", {})).details["resume_id"]
    assert (await refused(session, action="resume", resume_token=token))[0] == "not_found"


async def test_one_in_the_background_is_found_by_its_task(crib: Toolcrib, shop: Shop) -> None:
    session = of(crib)
    begun = await session.call("pipeline", {"action": "run_background", "pipeline": HATS, "context": {"wish": "cap"}})
    task = _content(begun)["task_id"]
    ended = await crib.jobs.result(task, session.state.principal, 30)
    assert (json.loads(ended.text)["order"], shop.orders) == ("ordered Cap", ["Cap"])
    status = await session.call("pipeline", {"action": "status", "task_id": task})
    every = await session.call("pipeline", {"action": "status"})
    assert [one["status"] for one in _content(status)["pipelines"]] == ["completed"]
    assert every.structured_content == status.structured_content
    assert (await refused(session, action="status", task_id="task_0"))[0] == "not_found"


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ({"name": "x", "steps": [{"id": "a"}]}, "steps.a: one of tool, skill and code, not none of them"),
        (
            {"name": "x", "steps": [{"id": "a", "tool": "order", "code": "1"}]},
            "steps.a: one of tool, skill and code, not tool and code",
        ),
        ({"name": "x", "steps": [LOOK, LOOK]}, "pipeline.steps: two steps have one id"),
        (
            {"name": "x", "steps": [{"id": "a", "skill": "order"}]},
            "steps.a.skill: 'order' is not a skill; write `tool`",
        ),
        (
            {"name": "x", "steps": [{"id": "a", "tool": "ordr"}]},
            "steps.a.tool: unknown tool 'ordr'",
        ),
        (
            {"name": "x", "steps": [{"id": "a", "tool": "order", "params": {"nam": "x"}}]},
            "steps.a.params: name is missing; steps.a.params.nam: the tool has no such argument; it has name, note",
        ),
    ],
)
async def test_what_is_known_to_fail_is_refused_before_anything_runs(
    crib: Toolcrib, shop: Shop, pipeline: Any, message: str
) -> None:
    told = await refused(of(crib), action="define_and_run", pipeline=pipeline)
    assert (told[0], told[1].removeprefix("the pipeline cannot run: "), shop.looks) == ("invalid_arguments", message, 0)


async def test_a_circle_names_its_steps(crib: Toolcrib) -> None:
    steps = [{"id": "a", "tool": "look_up", "params": {"name": "x"}, "depends_on": ["a"]}]
    code, message = await refused(of(crib), action="define_and_run", pipeline={"name": "x", "steps": steps})
    assert (code, "a → a" in message) == ("invalid_arguments", True)


async def test_its_result_is_trusted_as_little_as_its_least_trusted_step(crib: Toolcrib) -> None:
    session = of(crib)
    page = {"name": "x", "steps": [{"id": "page", "tool": "read_page"}]}
    trust = [(await run(session, pipeline)).meta["trust"] for pipeline in (HATS, page)]
    assert (trust, bool(session.state.taint.source)) == (["local", "untrusted"], True)


async def test_its_steps_are_calls_that_no_client_has_shown_to_its_user(crib: Toolcrib) -> None:
    await run(of(crib), HATS)
    rows = await crib.store.calls.list()
    assert {(row.tool, row.origin) for row in rows} == {
        ("pipeline", "library"),
        ("look_up", NESTED),
        ("order", NESTED),
    }


@pytest.mark.parametrize("action", ["define_and_run", "run_background"])
async def test_a_pipeline_that_starts_itself_ends(crib: Toolcrib, action: str) -> None:
    itself = {"$from": "$.input.itself"}
    again = {"tool": "pipeline", "params": {"action": action, "pipeline": itself, "context": {"itself": itself}}}
    pipeline = {"name": "twice", "steps": [{"id": "a", **again}, {"id": "b", **again}]}
    given = {"action": "define_and_run", "pipeline": pipeline, "context": {"itself": pipeline}}

    assert _error(await of(crib).call("pipeline", given)).code == "invalid_arguments"
    assert [row.outcome for row in await crib.store.calls.list()] == ["invalid_arguments"] * 3
    assert await crib.store.jobs.open() == []


async def test_a_step_whose_result_is_too_large_is_not_made_again(crib: Toolcrib, shop: Shop) -> None:
    session = of(crib)
    broken = _error(await run(session, {"name": "a catalog", "steps": [{"id": "only", "tool": "order_catalog"}]}))
    again = await session.call("pipeline", {"action": "resume", "resume_token": broken.details["resume_id"]})
    assert (broken.code, _error(again).code, shop.orders) == ("too_large", "too_large", ["catalog"])
