"""What the steps of a program may do to a call and to its result, and what they may not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from rig import PATIENCE
from toolcrib import (
    AfterStep,
    Answer,
    BeforeStep,
    Budget,
    Call,
    Question,
    Session,
    Toolcrib,
    ToolFailure,
    ToolResult,
    UsageError,
    defer_approval,
    pending_approval,
    tool,
)
from toolcrib.dispatch.pipeline import Pipeline
from toolcrib.policy.grant import mint
from toolcrib.testing import RecordingApprover

RAN: list[dict[str, Any]] = []
SECRET = "sk-ant-api03-" + "a" * 93 + "AA"


@tool(kind="write")
async def send(to: str, text: str = "hello", copies: int = 1) -> str:
    """Send a message."""
    RAN.append({"to": to, "text": text, "copies": copies})
    return f"sent {text} to {to}"


@tool(kind="read")
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@tool(kind="write")
async def fail(why: str) -> str:
    """Fail."""
    raise ToolFailure("conflict", why, hint="try again", details={"why": why})


@pytest.fixture(autouse=True)
def _ran() -> None:
    RAN.clear()


@asynccontextmanager
async def crib_of(
    *before: BeforeStep, after: tuple[AfterStep, ...] = (), **config: Any
) -> AsyncGenerator[tuple[Toolcrib, Session]]:
    config = {"mode": "autonomous", **config}
    async with Toolcrib(before=before, after=after, **config) as crib:
        crib.add(send, add, fail)
        yield crib, crib.session(profile="adaptive")


def code(result: ToolResult) -> str:
    return result.error.code if result.error is not None else "ok"


def shout(call: Call) -> Call:
    return call.evolve(arguments={**call.arguments, "text": call.arguments["text"].upper()})


async def shout_later(call: Call) -> Call:
    await anyio.lowlevel.checkpoint()
    return shout(call)


def copies(call: Call) -> Call:
    return replace(call, arguments={**call.arguments, "copies": call.arguments["copies"] + 1})


def footer(call: Call, result: ToolResult) -> ToolResult:
    return replace(result, content=(*result.content, {"type": "text", "text": f"by {call.name}"}))


async def footer_later(call: Call, result: ToolResult) -> ToolResult:
    await anyio.lowlevel.checkpoint()
    return footer(call, result)


# Before-steps.


@pytest.mark.parametrize("step", [shout, shout_later])
async def test_what_a_before_step_makes_of_validated_arguments_runs_and_is_recorded(
    step: BeforeStep,
) -> None:
    async with crib_of(step, copies) as (crib, session):
        result = await session.call("send", {"to": "Ada"})
        [row] = await crib.store.calls.list()

    assert (result.text, RAN) == ("sent HELLO to Ada", [{"to": "Ada", "text": "HELLO", "copies": 2}])
    assert (row.outcome, row.arguments) == ("ok", '{"to":"Ada","text":"HELLO","copies":2}')


@pytest.mark.parametrize("arguments", [{"to": 3}, {}, {"to": "Ada", "cc": "Eve"}, {"to": "Ada", "copies": "many"}])
async def test_arguments_of_a_before_step_are_validated_again(arguments: dict[str, Any]) -> None:
    async with crib_of(lambda call: call.evolve(arguments=arguments)) as (_, session):
        result = await session.call("send", {"to": "Ada"})

    assert (code(result), RAN) == ("invalid_arguments", [])
    assert result.error is not None
    assert result.error.details["field_errors"]


async def test_rules_decide_on_the_arguments_of_a_before_step() -> None:
    def elsewhere(call: Call) -> Call:
        return call.evolve(arguments={**call.arguments, "to": "Eve"})

    async with crib_of(elsewhere, rules={"deny": ["send(to:Eve)"]}) as (crib, session):
        result = await session.call("send", {"to": "Ada"})
        [row] = await crib.store.calls.list()

    assert (code(result), RAN) == ("denied", [])
    assert (row.decision, row.arguments) == ("deny", '{"to":"Eve","text":"hello","copies":1}')


async def test_the_approver_sees_the_arguments_of_a_before_step() -> None:
    approver = RecordingApprover("yes")
    async with crib_of(shout, mode="manual") as (crib, _):
        result = await crib.session(profile="adaptive", approver=approver).call("send", {"to": "Ada"})

    assert [question.arguments["text"] for question in approver.questions] == ["HELLO"]
    assert (code(result), RAN) == ("ok", [{"to": "Ada", "text": "HELLO", "copies": 1}])


@pytest.mark.parametrize(("text", "outcome"), [("LOUD", "ok"), ("quiet", "denied")])
async def test_arguments_that_an_approver_edits_must_pass_the_before_steps(text: str, outcome: str) -> None:
    async def edits(question: Question) -> Answer:
        return Answer(verdict="edit", arguments={"to": "Ada", "text": text, "copies": 1}, by="Ada")

    async with crib_of(shout, mode="manual") as (crib, _):
        result = await crib.session(profile="adaptive", approver=edits).call("send", {"to": "Ada"})

    assert (code(result), [ran["text"] for ran in RAN]) == (outcome, ["LOUD"] if outcome == "ok" else [])


async def test_arguments_changed_in_place_reach_neither_the_caller_nor_the_tool_unchecked() -> None:
    def meddle(call: Call) -> Call:
        call.arguments["to"] = 3
        return call

    sent = {"to": "Ada"}
    async with crib_of(meddle) as (_, session):
        result = await session.call("send", sent)

    assert (code(result), sent, RAN) == ("invalid_arguments", {"to": "Ada"}, [])


@pytest.mark.parametrize(
    ("ending", "text", "outcome"),
    [
        (ToolResult.of_text("from the cache"), "from the cache", "ok"),
        (ToolResult.failed("unavailable", "closed today"), "unavailable: closed today", "unavailable"),
    ],
)
async def test_a_result_of_a_before_step_ends_the_call_and_is_recorded(
    ending: ToolResult, text: str, outcome: str
) -> None:
    def cached(call: Call) -> Call | ToolResult:
        return ending.with_meta(trust="local", rule="mine", call_id="c0")

    async with crib_of(cached, explode, budgets={"session": {"calls": 1}}, after=(footer,)) as (crib, session):
        results = [await session.call("send", {"to": "Ada"}) for _ in range(2)]
        rows = await crib.store.calls.list()

    assert [(result.text, code(result)) for result in results] == [(f"{text}\nby send", outcome)] * 2
    assert RAN == []
    assert results[0].meta["ended_by"] == f"{__name__}.{cached.__qualname__}"
    assert (results[0].meta["rule"], results[0].meta["call_id"] != "c0") == ("", True)
    assert [(row.tool, row.outcome) for row in rows] == [("send", outcome)] * 2
    assert Budget(calls=1) == crib.settings.budgets.session


def explode(call: Call) -> Call:
    raise RuntimeError("secret /srv/path")


def forget(call: Call) -> Call:
    return None  # pyright: ignore[reportReturnType]


def invent(call: Call) -> ToolResult:
    result = ToolResult.failed("denied", "no")
    assert result.error is not None
    return replace(result, error=replace(result.error, code="my_code"))


async def cancel(call: Call) -> Call:
    raise anyio.get_cancelled_exc_class()


def redirect(call: Call) -> Call:
    return call.evolve(name="add", tool=None)


def hurry(call: Call) -> Call:
    return call.evolve(dry_run=True)


def grant(call: Call) -> Call:
    return call.evolve(grant=mint(call.id, call.target, call.arguments, "me"))


@pytest.mark.parametrize("step", [explode, forget, invent, cancel, redirect, hurry, grant])
async def test_a_before_step_that_breaks_or_changes_more_than_arguments_is_internal_and_nothing_runs(
    step: BeforeStep,
) -> None:
    async with crib_of(step) as (crib, session):
        result = await session.call("send", {"to": "Ada"})
        [row] = await crib.store.calls.list()

    assert (code(result), row.outcome, RAN) == ("internal", "internal", [])
    assert "secret" not in result.text


async def test_a_failure_that_a_before_step_raises_is_the_result() -> None:
    def guard(call: Call) -> Call:
        raise ToolFailure("denied", "not on Sundays")

    async with crib_of(guard) as (_, session):
        result = await session.call("send", {"to": "Ada"})

    assert (code(result), result.text, RAN) == ("denied", "denied: not on Sundays", [])


async def test_a_before_step_sees_neither_a_grant_nor_calls_that_are_refused_before_it() -> None:
    seen: list[tuple[str, Any]] = []

    def watch(call: Call) -> Call:
        seen.append((call.name, call.grant))
        return call

    async with crib_of(watch) as (_, session):
        await session.call("nothing", {})
        await session.call("send", {"to": 3})
        await session.call("add", {"a": 1, "b": 2})

    assert seen == [("add", None)]


async def test_a_call_that_is_approved_late_runs_with_the_arguments_that_were_shown() -> None:
    async with crib_of(copies, mode="manual") as (crib, _):
        session = crib.session(profile="adaptive", approver=defer_approval)
        question = pending_approval(await session.call("send", {"to": "Ada"}))
        assert question is not None
        result = await session.resume(question.approval, Answer(verdict="yes"))

    assert (code(result), [ran["copies"] for ran in RAN]) == ("ok", [2])
    assert '"copies": 2' in question.arguments


@pytest.mark.parametrize("engine", ["process", pytest.param("durable", marks=pytest.mark.slow)])
async def test_a_call_in_the_background_meets_each_step_once(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = {"store": tmp_path / "calls.db", "jobs": {"engine": engine}}
    async with crib_of(copies, after=(footer,), **config) as (crib, session):
        begun = await session.call("send", {"to": "Ada"}, background=True)
        with anyio.fail_after(PATIENCE):
            result = await crib.jobs.result(begun.meta["job"], "local")

    assert (RAN, result.text) == ([{"to": "Ada", "text": "hello", "copies": 2}], "sent hello to Ada\nby send")


# After-steps.


@pytest.mark.parametrize("step", [footer, footer_later])
async def test_an_after_step_changes_content(step: AfterStep) -> None:
    async with crib_of(after=(step,)) as (_, session):
        done, failed = await session.call("send", {"to": "Ada"}), await session.call("fail", {"why": "busy"})

    assert (done.text, done.is_error) == ("sent hello to Ada\nby send", False)
    assert (failed.text, code(failed)) == ("conflict: busy\ntry again\nby fail", "conflict")


async def test_an_after_step_changes_neither_code_nor_metadata() -> None:
    def meddle(call: Call, result: ToolResult) -> ToolResult:
        assert call.grant is None
        result.meta["rule"] = "mine"  # pyright: ignore[reportIndexIssue]
        if result.error is not None:
            result.error.details["why"] = "changed"  # pyright: ignore[reportIndexIssue]
        return ToolResult(
            content=({"type": "text", "text": "new"},), meta={"trust": "local", "call_id": "c0"}, error=None
        )

    def break_it(call: Call, result: ToolResult) -> ToolResult:
        return ToolResult.failed("denied", "now it is an error").with_meta(latency_ms=0)

    async with crib_of(after=(meddle, break_it)) as (crib, session):
        done, failed = await session.call("send", {"to": "Ada"}), await session.call("fail", {"why": "busy"})
        rows = await crib.store.calls.list()

    assert [code(result) for result in (done, failed)] == ["ok", "conflict"]
    assert failed.error is not None
    assert (failed.error.message, failed.error.details) == ("busy", {"why": "busy"})
    assert [row.outcome for row in rows] == ["conflict", "ok"]
    assert "trust" in done.meta
    assert (done.meta["rule"], done.meta["call_id"] != "c0", done.meta["latency_ms"] > 0) == (
        "mode autonomous: a write tool is allowed",
        True,
        True,
    )


async def test_an_after_step_comes_before_secrets_are_redacted() -> None:
    def leak(call: Call, result: ToolResult) -> ToolResult:
        return replace(result, content=({"type": "text", "text": SECRET},))

    async with crib_of(after=(leak,)) as (_, session):
        result = await session.call("send", {"to": "Ada"})

    assert SECRET not in result.text


@tool(kind="read")
async def table() -> dict[str, str]:
    """Return a table."""
    return {"a": "b"}


@pytest.mark.parametrize("is_enricher", [True, False])
async def test_a_secret_that_a_step_puts_into_the_value_in_place_is_masked(is_enricher: bool) -> None:
    def leak(call: Call, result: ToolResult) -> ToolResult:
        result.structured_content["token"] = SECRET
        return result

    async def leak_and_break(call: Call, result: ToolResult) -> ToolResult:
        leak(call, result)
        raise RuntimeError("no")

    async with crib_of(after=() if is_enricher else (leak,)) as (crib, session):
        crib.add(table)
        if is_enricher:
            crib.calls.enrich(leak_and_break)
        result = await session.call("table", {})

    assert (result.structured_content["a"], result.structured_content["token"] == SECRET) == ("b", False)


def explode_after(call: Call, result: ToolResult) -> ToolResult:
    raise RuntimeError("secret /srv/path")


def refuse_after(call: Call, result: ToolResult) -> ToolResult:
    raise ToolFailure("denied", "too late")


def forget_after(call: Call, result: ToolResult) -> ToolResult:
    return None  # pyright: ignore[reportReturnType]


def nonsense(call: Call, result: ToolResult) -> ToolResult:
    return replace(result, content=("sent",))


def unsendable(call: Call, result: ToolResult) -> ToolResult:
    return replace(result, structured_content=object())


@pytest.mark.parametrize("step", [explode_after, refuse_after, forget_after, nonsense, unsendable])
async def test_an_after_step_that_breaks_withholds_the_result_and_says_that_the_tool_ran(step: AfterStep) -> None:
    async with crib_of(after=(step,)) as (crib, session):
        ran = await session.call("send", {"to": "Ada"})
        refused = await session.call("nothing", {})
        rows = await crib.store.calls.list()

    assert (code(ran), code(refused), len(RAN)) == ("internal", "internal", 1)
    assert ran.error is not None
    assert refused.error is not None
    assert (ran.error.details, refused.error.details) == ({"outcome": "ok"}, {"outcome": "not_found"})
    assert ran.error.hint
    assert "sent hello" not in ran.text
    assert "secret" not in ran.text
    assert [row.outcome for row in rows] == ["internal", "internal"]


async def test_structured_content_of_an_after_step_keeps_the_output_schema() -> None:
    def halve(call: Call, result: ToolResult) -> ToolResult:
        return replace(result, structured_content={"sum": result.structured_content["sum"] // 2})

    def empty(call: Call, result: ToolResult) -> ToolResult:
        return replace(result, structured_content={"sum": "none"})

    async with crib_of(after=(halve,)) as (_, session):
        assert (await session.call("add", {"a": 4, "b": 2})).structured_content == {"sum": 3}
    async with crib_of(after=(empty,)) as (_, session):
        assert code(await session.call("add", {"a": 4, "b": 2})) == "internal"


async def test_a_replayed_result_goes_through_the_after_steps_once() -> None:
    async with crib_of(after=(footer,)) as (_, session):
        texts = [(await session.call("send", {"to": "Ada"}, idempotency_key="k")).text for _ in range(2)]

    assert (texts, len(RAN)) == (["sent hello to Ada\nby send"] * 2, 1)


# Both.


async def test_why_names_the_steps_and_runs_none() -> None:
    async with crib_of(explode, after=(explode_after,)) as (crib, session):
        told = crib.explainer.why("send", session, {"to": "Ada"})
        unknown = crib.explainer.why("nothing", session)

    assert (told.verdict, told.before, told.after) == (
        "runs",
        (f"{__name__}.explode",),
        (f"{__name__}.explode_after",),
    )
    assert (unknown.before, unknown.after) == ((), (f"{__name__}.explode_after",))


async def test_a_crib_without_steps_has_none_in_its_pipeline() -> None:
    def length(crib: Toolcrib) -> int:
        pipeline = crib.calls.check_open()
        assert isinstance(pipeline, Pipeline)
        before, _, after = pipeline.steps
        return len(before) + len(after)

    async with crib_of() as (none, _), crib_of(shout, after=(footer, footer)) as (some, _):
        assert length(some) - length(none) == 3


@pytest.mark.parametrize("steps", [{"before": shout}, {"after": [None]}, {"before": ["shout"]}])
def test_what_is_no_list_of_functions_is_refused_where_the_crib_is_made(steps: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Toolcrib(**steps)
