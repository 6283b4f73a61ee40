"""Plans: one of each session, steps that wait for others, and everybody hears what they follow."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from toolcrib import Toolcrib
from toolcrib.config.loader import bare
from toolcrib.crib.session import Session
from toolcrib_tools import plans
from toolcrib_tools.plans import state
from unit.toolcrib_tools.telling import refused, told

STEPS = ["Read", "Write", "Ship"]


GUESTS = (plans,)


@pytest.fixture
def session(crib: Toolcrib) -> Session:
    return crib.session(profile="flat", mode="cautious", key="one")


async def started(session: Session, *steps: str) -> str:
    made = await told(session, "create_plan", title="Paging", steps=list(steps or STEPS))
    await told(session, "start_plan")
    return str(made["plan_id"])


async def events(session: Session, **arguments: Any) -> list[str]:
    return [
        f"{one['type']} {one['step_id']}".strip()
        for one in (await told(session, "get_task_events", **arguments))["events"]
    ]


async def set_step(session: Session, step_id: str, status: str, **more: Any) -> Any:
    return await told(session, "set_step_status", step_id=step_id, status=status, **more)


async def test_a_plan_goes_from_its_first_step_to_its_end(session: Session) -> None:
    made = await told(session, "create_plan", title=" Paging ", steps=STEPS)
    await told(session, "start_plan")
    await set_step(session, "s1", "in_progress")
    await set_step(session, "s1", "completed", result="three handlers")
    await set_step(session, "s2", "failed", error="no database")
    now = await told(session, "get_plan_status")

    step: dict[str, Any] = {"depends_on": [], "waits_for": [], "result": "", "error": "", "output": None}
    assert (made["title"], made["status"], made["next"]) == ("Paging", "created", ["s1", "s2", "s3"])
    assert now == {
        "plan_id": "1",
        "title": "Paging",
        "overview": "",
        "text": "",
        "status": "active",
        "steps": [
            {**step, "id": "s1", "description": "Read", "status": "completed", "result": "three handlers"},
            {**step, "id": "s2", "description": "Write", "status": "failed", "error": "no database"},
            {**step, "id": "s3", "description": "Ship", "status": "pending"},
        ],
        "done": 1,
        "total": 3,
        "next": ["s3"],
    }
    assert (await refused(session, "complete_plan", status="completed")).startswith(
        "the plan is not completed: s2, s3 are not"
    )
    await set_step(session, "s2", "skipped")
    await set_step(session, "s3", "completed")
    assert (await told(session, "complete_plan", status="completed"))["status"] == "completed"
    for name, arguments in (
        ("set_step_status", {"step_id": "s1", "status": "pending"}),
        ("add_step", {"description": "More"}),
        ("start_plan", {}),
        ("complete_plan", {"status": "failed"}),
    ):
        assert (await refused(session, name, **arguments)).startswith("this plan is completed")


async def test_what_cannot_be_is_refused_with_what_to_do(session: Session) -> None:
    no_plan = await refused(session, "get_plan_status")
    await told(session, "create_plan", title="Paging", steps=["Read"])

    not_started = await refused(session, "set_step_status", step_id="s1", status="in_progress")
    await told(session, "create_plan", title="Another", steps=["Read"])
    await told(session, "start_plan")
    second = await refused(session, "create_plan", title="Third", steps=["Read"])
    unknown = await refused(session, "set_step_status", step_id="s9", status="completed")
    blank = await refused(session, "add_step", description="  ")
    error = await refused(session, "set_step_status", step_id="s1", status="completed", error="none")
    assert no_plan == "this session has no plan\nmake one with create_plan"
    assert not_started == "the plan was not started yet\nstart_plan begins the work on it"
    assert second.startswith("the plan 'Another' is being worked on\nadd_step adds to it")
    assert unknown == "the plan has no step 's9'\nthere are s1"
    assert "description" in blank
    assert "error says why a step failed; this one is completed" in error
    assert (await told(session, "get_plan_status"))["title"] == "Another"
    await told(session, "complete_plan", status="cancelled")
    assert (await told(session, "create_plan", title="Third", steps=["Read"]))["plan_id"] == "3"


async def test_a_step_waits_for_those_that_it_depends_on_and_gets_what_they_hand_on(session: Session) -> None:
    await started(session, "Find", "Measure")
    added = await told(session, "add_dependent_step", description="Compare", depends_on=["s1", "s2", "s1"])

    assert (added["id"], added["depends_on"], added["waits_for"]) == ("s3", ["s1", "s2"], ["s1", "s2"])
    held = await refused(session, "set_step_status", step_id="s3", status="in_progress")
    assert held.startswith("step s3 waits for s1, s2, so it cannot be in_progress")
    first = await told(session, "complete_step_with_output", step_id="s1", output={"handlers": ["a", "b"]})
    assert (first["step"]["output"], first["unblocked"]) == ({"handlers": ["a", "b"]}, [])
    blocked = (await told(session, "get_blocked_steps"))["blocked"]
    assert [(step["id"], step["waits_for"]) for step in blocked] == [("s3", ["s2"])]
    second = await told(session, "complete_step_with_output", step_id="s2", output={"seconds": 2})
    assert [step["id"] for step in second["unblocked"]] == ["s3"]
    assert second["inputs"] == {"s1": {"handlers": ["a", "b"]}, "s2": {"seconds": 2}}
    assert (await told(session, "get_blocked_steps"))["blocked"] == []
    assert (await set_step(session, "s3", "completed"))["step"]["status"] == "completed"


async def test_a_step_waits_for_a_step_of_a_plan_of_another_session_of_the_same_owner(crib: Toolcrib) -> None:
    parent, child = (crib.session(profile="flat", mode="autonomous", key=key) for key in ("parent", "child"))
    stranger = crib.session(profile="flat", mode="autonomous", key="parent", principal="bob")
    theirs = await started(child, "Research")
    await started(parent, "Begin")
    await started(stranger, "Begin")
    await told(parent, "add_dependent_step", description="Report", depends_on=[f"{theirs}/s1"])

    missing = await refused(parent, "add_dependent_step", description="x", depends_on=[f"{theirs}/s7"])
    hidden = await refused(stranger, "add_dependent_step", description="x", depends_on=["2/s1"])
    before = await told(parent, "get_plan_status")
    await set_step(child, "s1", "completed")
    after = await told(parent, "get_plan_status")
    assert (missing.splitlines()[0], hidden) == ("the plan has no step 's7'", "'2/s1': there is no plan '2'")
    assert (before["next"], before["steps"][1]["waits_for"]) == (["s1"], ["1/s1"])
    assert (after["next"], after["steps"][1]["waits_for"]) == (["s1", "s2"], [])
    assert [step["id"] for step in (await told(parent, "get_plan_status"))["steps"]] == ["s1", "s2"]


async def test_sessions_have_plans_of_their_own_and_keep_them(crib: Toolcrib, session: Session) -> None:
    await started(session)
    other = crib.session(profile="flat", key="two")

    assert (await refused(other, "get_plan_status")).startswith("this session has no plan")
    again = crib.session(profile="flat", key="one")
    assert (await told(again, "get_plan_status"))["title"] == "Paging"


async def test_steps_that_are_set_at_once_are_all_set(session: Session) -> None:
    await started(session, *(f"step {number}" for number in range(8)))

    async with anyio.create_task_group() as group:
        for number in range(1, 9):
            group.start_soon(session.call, "set_step_status", {"step_id": f"s{number}", "status": "completed"})

    assert (await told(session, "get_plan_status"))["done"] == 8


# Events


async def test_without_a_subscription_a_session_hears_of_its_own_plan(crib: Toolcrib, session: Session) -> None:
    await started(session, "Read")
    await told(session, "add_dependent_step", description="Write", depends_on=["s1"])
    await started(crib.session(profile="flat", key="two"), "Other")
    await set_step(session, "s1", "completed", result="read")

    heard = ["plan_created", "plan_started", "step_added s2", "step_completed s1", "step_unblocked s2"]
    assert await events(session) == heard
    assert await events(session, limit=2) == heard[-2:]
    answer = await told(session, "get_task_events", limit=2)
    step = answer["events"][0]
    assert step.pop("time").startswith("20")
    assert step == {
        "number": 6,
        "type": "step_completed",
        "plan_id": "1",
        "plan": "Paging",
        "step_id": "s1",
        "text": "read",
        "own": True,
    }
    assert answer["last"] == 7
    assert await events(session, after=answer["last"]) == []


async def test_who_follows_others_hears_what_happens_from_then_on(crib: Toolcrib, session: Session) -> None:
    child = crib.session(profile="flat", key="child")
    plan_id = await started(child, "Research", "Report")
    await set_step(child, "s1", "completed")
    first = await told(session, "subscribe_to_tasks", event_types=["step_completed", "step_completed"])
    second = await told(session, "subscribe_to_tasks", event_types=["plan_completed"], plan_id=plan_id)
    await set_step(child, "s2", "in_progress")
    await set_step(child, "s2", "completed")
    await told(child, "complete_plan", status="completed")

    assert first == {"id": "1", "event_types": ["step_completed"], "plan_id": ""}
    assert await told(session, "list_subscriptions") == {"subscriptions": [first, second]}
    assert await events(session) == ["step_completed s2", "plan_completed"]
    ended = await session.call("unsubscribe", {"subscription_id": "1"})
    assert ended.text == "ended: 1"
    assert await events(session) == ["plan_completed"]
    assert await refused(child, "unsubscribe", subscription_id="2") == (
        "this session has no subscription '2'\nthere are none yet"
    )
    assert (await refused(session, "subscribe_to_tasks", event_types=["plan_created"], plan_id="9")).startswith(
        "there is no plan '9'"
    )
    assert "event_types" in await refused(session, "subscribe_to_tasks", event_types=["party"])


async def test_only_the_newest_events_are_kept(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "EVENTS", 3)
    monkeypatch.setattr(state, "_SWEEP", 5)
    await started(session, *"abcdefgh")
    for number in range(1, 9):
        await set_step(session, f"s{number}", "completed")

    assert await events(session) == [f"step_completed s{number}" for number in (6, 7, 8)]


# The plan in one tool


async def test_one_tool_makes_a_plan_updates_its_todos_and_ends_it_with_the_last_one(session: Session) -> None:
    made = await told(
        session, "plan", action="create", name="Move", overview="To 3.13", plan="# Plan", todos=["A", "B"]
    )
    first = await told(session, "plan", action="update", todo_id="s1", status="completed", result="done")
    words = await told(session, "plan", action="update", overview="To 3.14")
    last = await told(session, "plan", action="update", todo_id="s2", status="skipped")

    assert (made["title"], made["overview"], made["text"], made["status"]) == ("Move", "To 3.13", "# Plan", "active")
    assert (first["steps"][0]["result"], first["done"], first["status"]) == ("done", 1, "active")
    assert (words["overview"], words["title"]) == ("To 3.14", "Move")
    assert last["status"] == "completed"
    assert (await told(session, "get_plan_status"))["plan_id"] == made["plan_id"]


async def test_a_plan_that_is_written_anew_keeps_what_came_of_todos_that_stay(session: Session) -> None:
    await told(session, "plan", action="create", name="Move", todos=["A", "B", "C"])
    await told(session, "add_dependent_step", description="D", depends_on=["s2", "s3"])
    await told(session, "plan", action="update", todo_id="s1", status="completed", result="done")
    new = await told(session, "plan", action="rewrite", todos=["X", "A", "C", "D"], name="Move on")

    assert new["title"] == "Move on"
    assert [(step["id"], step["description"], step["status"], step["depends_on"]) for step in new["steps"]] == [
        ("s5", "X", "pending", []),
        ("s1", "A", "completed", []),
        ("s3", "C", "pending", []),
        ("s4", "D", "pending", ["s3"]),
    ]


async def test_ids_that_a_plan_had_before_can_be_given_again_when_it_is_written_anew(session: Session) -> None:
    no_plan = await refused(session, "plan", action="update", overview="x")
    first = [{"id": "1", "title": "A"}, {"id": "2", "title": "B"}]
    await told(session, "plan", action="create", name="Move", todos=first)
    await told(session, "plan", action="update", todo_id="1", status="completed", result="done")
    new = await told(
        session, "plan", action="rewrite", todos=[{"id": "1", "title": "X"}, {"id": "2", "title": "A"}, "B"]
    )
    twice = await refused(session, "plan", action="rewrite", todos=["X", {"id": "1", "title": "Y"}])

    assert no_plan.splitlines()[1] == "plan with action create makes one"
    assert [(step["id"], step["description"], step["status"], step["result"]) for step in new["steps"]] == [
        ("1", "X", "pending", ""),
        ("2", "A", "completed", "done"),
        ("s1", "B", "pending", ""),
    ]
    assert twice == "two steps have the id '1'"


async def test_a_new_plan_gives_up_the_one_that_is_open(crib: Toolcrib, session: Session) -> None:
    await told(session, "plan", action="create", name="One", todos=["A"])
    await told(session, "plan", action="create", name="Two", todos=["B"])

    record = await crib.store.records.get((session.state.principal, "plans"), "1")
    assert record is not None
    assert record.value["status"] == "cancelled"
    assert await events(session) == ["plan_created", "plan_cancelled", "plan_created"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"action": "create", "todos": ["A"]}, "create needs a name"),
        ({"action": "create", "name": "x"}, "create needs todos"),
        ({"action": "rewrite"}, "rewrite needs todos"),
        ({"action": "update", "todos": ["A"]}, "update changes one todo"),
        ({"action": "update", "todo_id": "s1"}, "update needs todo_id and status, or neither"),
        ({"action": "update", "status": "completed"}, "update needs todo_id and status, or neither"),
        ({"action": "update", "result": "x"}, "result is what came of a todo"),
        ({"action": "rewrite", "todos": ["A"], "todo_id": "s1"}, "belong to update, not to rewrite"),
        ({"action": "rewrite", "todos": ["A", " "]}, "step 2 says nothing"),
        ({"action": "update", "todo_id": "s7", "status": "completed"}, "the plan has no step 's7'"),
    ],
)
async def test_a_plan_is_left_as_it_is_by_what_makes_no_sense(
    session: Session, arguments: dict[str, Any], problem: str
) -> None:
    await told(session, "plan", action="create", name="Kept", todos=["A"])

    assert problem in await refused(session, "plan", **arguments)
    now = await told(session, "get_plan_status")
    assert (now["title"], now["status"], [step["description"] for step in now["steps"]]) == ("Kept", "active", ["A"])


async def test_the_seeds_names_stand_for_the_same_plan() -> None:
    async with Toolcrib(bare().with_values(builtins=True), memory=True) as crib:
        jaato = crib.session(profile="introspection", mode="autonomous", key="seed")
        declared = [tool.name for tool in jaato.tools]
        await told(jaato, "createPlan", title="Paging", steps=["Read"])
        await told(jaato, "startPlan")
        await told(jaato, "completeStepWithOutput", step_id="s1", output={"a": 1})

        plan = await told(crib.session(profile="flat", key="seed"), "get_plan_status")
    assert (plan["steps"][0]["output"], plan["done"]) == ({"a": 1}, 1)
    assert {"createPlan", "startPlan", "getPlanStatus"} <= set(declared)
    assert "create_plan" not in declared
