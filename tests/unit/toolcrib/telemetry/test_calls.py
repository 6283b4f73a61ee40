"""A call is one span and a few figures, by the conventions of OpenTelemetry, whatever becomes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from rig import PATIENCE
from toolcrib.core.context import Context
from toolcrib.crib import Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.plugin import tool
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from toolcrib.testing import RecordingApprover
from unit.toolcrib.server.wire_client import call, serving
from unit.toolcrib.telemetry.watched import Watched, attributes, watched_crib

INCOMING = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TOKEN = "ghp_" + "A1b2C3d4E5f6" * 3


@tool(kind="read")
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


@tool(kind="read")
async def fail(word: str) -> str:
    """Fail."""
    raise ToolFailure("tool_error", f"no {word} here")


@tool(kind="write")
async def push() -> str:
    """Push."""
    return "pushed"


@tool(kind="read")
async def hang() -> str:
    """Hang."""
    await anyio.sleep_forever()
    return "never"


@pytest.fixture
async def watched() -> AsyncGenerator[Watched]:
    async with watched_crib(rules={"deny": ("fail(word=bad)",)}) as opened:
        for function in (add, fail, push, hang):
            opened.crib.add(function)
        yield opened


async def test_a_call_is_a_span_with_the_names_of_the_conventions_and_ours(watched: Watched) -> None:
    session = watched.crib.session(key="conversation-1", profile="flat")
    result = await session.call("add", {"a": 1, "b": 2})

    span = watched.span("execute_tool add")
    said = attributes(span)
    assert (span.kind, span.status.status_code, span.parent) == (SpanKind.INTERNAL, StatusCode.UNSET, None)
    assert said == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Add two numbers.",
        "gen_ai.tool.call.id": result.meta["call_id"],
        "toolcrib.decision": "allow",
        "toolcrib.rule": "mode cautious: a read tool is allowed",
        "toolcrib.origin": "library",
        "toolcrib.outcome": "ok",
        "toolcrib.profile": "flat",
        "toolcrib.session": said["toolcrib.session"],
        "toolcrib.source": "python",
    }
    assert "conversation-1" not in said["toolcrib.session"]
    assert watched.points("gen_ai.execute_tool.duration") == [
        (
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "add",
                "gen_ai.tool.type": "function",
            },
            1,
        )
    ]


async def test_all_calls_of_a_session_and_of_no_other_share_its_mark(watched: Watched) -> None:
    one, other = watched.crib.session(), watched.crib.session()
    for session in (one, one, other):
        await session.call("add", {"a": 1, "b": 2})

    first, second, third = (attributes(span)["toolcrib.session"] for span in watched.spans)
    assert (first == second, first == third) == (True, False)


async def test_a_failure_is_an_error_by_its_code_and_says_nothing_of_its_words(watched: Watched) -> None:
    await watched.crib.session().call("fail", {"word": "wine"})

    span = watched.span("execute_tool fail")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert attributes(span)["error.type"] == "tool_error"
    assert span.events == ()
    assert "wine" not in span.to_json()


async def test_a_denied_call_names_the_rule_and_counts_as_a_denial(watched: Watched) -> None:
    await watched.crib.session().call("fail", {"word": "bad"})

    said = attributes(watched.span("execute_tool fail"))
    assert (said["error.type"], said["toolcrib.outcome"]) == ("denied", "denied")
    assert watched.points("toolcrib.calls") == [({"toolcrib.decision": "deny", "toolcrib.outcome": "denied"}, 1)]
    assert said["toolcrib.rule"] == "deny fail(word=bad) (config)"


@pytest.mark.parametrize(("verdict", "approval", "outcome"), [("yes", "granted", "ok"), ("no", "refused", "denied")])
async def test_what_came_of_asking_is_told_and_counted(
    watched: Watched, verdict: Any, approval: str, outcome: str
) -> None:
    await watched.crib.session(approver=RecordingApprover(verdict)).call("push")

    said = attributes(watched.span("execute_tool push"))
    assert (said["toolcrib.decision"], said["toolcrib.approval"], said["toolcrib.outcome"]) == (
        "ask",
        approval,
        outcome,
    )
    assert watched.points("toolcrib.approvals") == [({"toolcrib.approval": approval}, 1)]
    assert watched.points("toolcrib.calls") == [({"toolcrib.decision": "ask", "toolcrib.outcome": outcome}, 1)]


async def test_a_call_that_is_held_for_an_answer_is_not_counted_as_refused() -> None:
    async with watched_crib(approvals={"wait": True}, approval_wait=0.05) as watched:
        watched.crib.add(push)
        await watched.crib.call("push")

        assert watched.points("toolcrib.approvals") == [({"toolcrib.approval": "pending"}, 1)]


async def test_a_dry_run_asks_nobody_and_says_that_it_was_one(watched: Watched) -> None:
    await watched.crib.session().call("push", dry_run=True)

    said = attributes(watched.span("execute_tool push"))
    assert (said["toolcrib.dry_run"], said["toolcrib.outcome"], "toolcrib.approval" in said) == (True, "ok", False)


async def test_a_name_that_a_model_made_up_names_no_span(watched: Watched) -> None:
    await watched.crib.session().call(f"fetch_{TOKEN}", {})

    (span,) = watched.spans
    said = attributes(span)
    assert (span.name, said["error.type"]) == ("execute_tool", "not_found")
    assert TOKEN not in span.to_json()
    assert watched.points("gen_ai.execute_tool.duration") == [
        ({"gen_ai.operation.name": "execute_tool", "error.type": "not_found"}, 1)
    ]


async def test_a_call_through_a_verb_is_one_span_of_the_real_tool(watched: Watched) -> None:
    await watched.crib.session(profile="adaptive").call("call_tool", {"name": "add", "arguments": {"a": 1, "b": 2}})

    said = attributes(watched.span("execute_tool add"))
    assert (watched.names, said["toolcrib.requested"], said["toolcrib.verb"]) == (
        ["execute_tool add"],
        "call_tool",
        "call",
    )


async def test_a_caller_that_leaves_ends_its_span_as_cancelled(watched: Watched) -> None:
    async with anyio.create_task_group() as tasks:
        begun = anyio.Event()

        @tool(kind="read")
        async def wait(context: Context) -> str:
            """Wait."""
            begun.set()
            await anyio.sleep_forever()
            return context.call_id

        watched.crib.add(wait)
        tasks.start_soon(watched.crib.session().call, "wait")
        await begun.wait()
        tasks.cancel_scope.cancel()

    span = watched.span("execute_tool wait")
    assert (attributes(span)["error.type"], span.status.status_code) == ("cancelled", StatusCode.ERROR)


async def test_a_timeout_is_an_error_of_that_type(watched: Watched) -> None:
    await watched.crib.session().call("hang", timeout=0.05)

    assert attributes(watched.span("execute_tool hang"))["error.type"] == "timeout"


async def test_the_span_of_the_caller_is_the_parent_and_what_the_tool_does_is_a_child(watched: Watched) -> None:
    tracer = watched.tracers.get_tracer("test")

    @tool(kind="read")
    def inside() -> str:
        """Work in a thread, with a span."""
        with tracer.start_as_current_span("inside a thread"):
            return "done"

    watched.crib.add(inside)
    with tracer.start_as_current_span("agent"):
        await watched.crib.session().call("inside")

    agent, ours, inner = watched.span("agent"), watched.span("execute_tool inside"), watched.span("inside a thread")
    assert (_parent(ours), _parent(inner)) == (_id(agent), _id(ours))


async def test_calls_that_run_at_once_are_siblings_and_not_each_others_children(watched: Watched) -> None:
    tracer = watched.tracers.get_tracer("test")
    with tracer.start_as_current_span("turn"):
        await watched.crib.session().call_many([("add", {"a": 1, "b": n}) for n in range(5)])

    turn, *calls = watched.span("turn"), *[span for span in watched.spans if span.name == "execute_tool add"]
    assert [_parent(span) for span in calls] == [_id(turn)] * 5


async def test_every_call_of_a_batch_is_a_child_of_the_batch(watched: Watched) -> None:
    session = watched.crib.session(profile="gateway")
    op = session.op_of(session.visible.find("add") or _none())
    ops = [{"type": "exec", "op": op, "args": {"a": 1, "b": n}} for n in range(2)]
    await session.call("tool_batch", {"ops": ops})

    batch = watched.span("execute_tool tool_batch")
    calls = [span for span in watched.spans if span.name == "execute_tool add"]
    assert [_parent(span) for span in calls] == [_id(batch)] * 2
    assert {attributes(span)["toolcrib.call.parent"] for span in calls} == {attributes(batch)["gen_ai.tool.call.id"]}


@pytest.mark.parametrize(
    ("meta", "headers"),
    [
        ({"traceparent": INCOMING, "baggage": "team=red"}, {}),
        ({"traceparent": INCOMING}, {"traceparent": "00-11111111111111111111111111111111-2222222222222222-01"}),
        ({}, {"traceparent": INCOMING}),
    ],
    ids=["meta", "meta before headers", "headers"],
)
@pytest.mark.parametrize("modern", [True, False])
async def test_the_trace_of_an_mcp_client_goes_on_here(
    watched: Watched, modern: bool, meta: dict[str, str], headers: dict[str, str]
) -> None:
    async with serving(CribBackend(watched.crib), HttpOptions()) as site:
        request = call("add", {"a": 1, "b": 2}, _meta=meta)
        if modern:
            answer = await site.ask(request, **headers)
        else:
            answer = await site.post(request, **await site.open(), **headers)
    span = watched.span("execute_tool add")

    assert answer.json()["result"]["isError"] is False
    assert (span.parent and trace.format_span_id(span.parent.span_id), attributes(span)["toolcrib.origin"]) == (
        "b7ad6b7169203331",
        "mcp",
    )
    assert trace.format_trace_id(_context(span).trace_id) == "0af7651916cd43dd8448eb211c80319c"


async def test_broken_trace_context_of_a_client_is_ignored(watched: Watched) -> None:
    result = await watched.crib.session().call("add", {"a": 1, "b": 2}, meta={"traceparent": "00-abc-def-01"})

    assert (result.is_error, watched.span("execute_tool add").parent) == (False, None)


async def test_content_is_told_only_where_it_is_asked_for_and_then_redacted() -> None:
    async with watched_crib(content=True, secrets=("correct horse battery",)) as watched:

        @tool(kind="read")
        async def login(user: str, password: str) -> str:
            """Log in."""
            return f"{user} has {TOKEN} and correct horse battery"

        watched.crib.add(login)
        await watched.crib.session().call("login", {"user": "ada", "password": "correct horse battery"})

    said = attributes(watched.span("execute_tool login"))
    assert json.loads(said["gen_ai.tool.call.arguments"]) == {"user": "ada", "password": "[redacted:secret]"}
    assert said["gen_ai.tool.call.result"] == "ada has [redacted:github_token] and [redacted:secret]"


async def test_long_content_is_cut() -> None:
    async with watched_crib(content=True) as watched:

        @tool(kind="read")
        async def read() -> str:
            """Read."""
            return "word " * 3000

        watched.crib.add(read)
        await watched.crib.session(profile="flat").call("read")

    result = attributes(watched.span("execute_tool read"))["gen_ai.tool.call.result"]
    assert (len(result), result[-1]) == (8193, "…")


async def test_a_job_in_the_background_is_a_trace_of_its_own_that_links_to_the_call(watched: Watched) -> None:
    session = watched.crib.session(approver=RecordingApprover("yes"))
    answer = await session.call("push", background=True)
    await watched.crib.jobs.result(answer.meta["job"], "local", PATIENCE)

    submitted, job = watched.span("submit_job push"), watched.span("execute_tool push")
    assert (job.parent, [link.context.span_id for link in job.links]) == (None, [_id(submitted)])
    assert _context(job).trace_id != _context(submitted).trace_id
    assert (attributes(job)["toolcrib.outcome"], attributes(submitted)["toolcrib.outcome"]) == ("ok", "job")
    assert [count for _, count in watched.points("gen_ai.execute_tool.duration")] == [1]
    assert watched.points("toolcrib.jobs.active") == [({}, 0)]


@pytest.mark.slow
async def test_a_job_of_a_queue_links_to_the_call_too(tmp_path: Path) -> None:
    async with watched_crib(home=tmp_path) as watched:
        watched.crib.add(push)
        answer = await watched.crib.session(mode="autonomous").call("push", background=True)
        await watched.crib.jobs.result(answer.meta["job"], "local", PATIENCE)

        submitted, job = watched.span("submit_job push"), watched.span("execute_tool push")
        assert (job.parent, [link.context.span_id for link in job.links]) == (None, [_id(submitted)])
        assert watched.points("toolcrib.jobs.active") == [({}, 0)]


async def test_a_job_that_its_caller_waits_for_is_a_child_of_the_call(watched: Watched) -> None:
    @tool(kind="read", background_after=PATIENCE)
    async def build() -> str:
        """Build."""
        return "built"

    watched.crib.add(build)
    result = await watched.crib.session().call("build")

    assert result.text == "built"
    assert _parent(watched.span("execute_tool build")) == _id(watched.span("submit_job build"))


async def test_without_an_sdk_nothing_is_watched() -> None:
    async with Toolcrib() as crib:
        crib.add(probe)
        result = await crib.session().call("probe")

    assert result.text == "false"


@tool(kind="read")
async def probe() -> bool:
    """Say whether a span is open."""
    return trace.get_current_span().get_span_context().is_valid


@pytest.mark.long
@pytest.mark.process
def test_the_sdk_of_the_program_is_used_as_soon_as_it_is_there() -> None:
    code = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from toolcrib import Toolcrib

def add(a: int) -> int:
    return a

async def main():
    exporter = InMemorySpanExporter()
    async with Toolcrib() as crib:
        crib.add(add)
        session = crib.session(mode="autonomous")
        await session.call("add", {"a": 1})
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        for _ in range(600):
            await asyncio.sleep(0.1)
            await session.call("add", {"a": 1})
            if exporter.get_finished_spans():
                break
    print([span.name for span in exporter.get_finished_spans()])

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)

    assert done.stdout == "['execute_tool add']\n"


def _context(span: ReadableSpan) -> trace.SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def _id(span: ReadableSpan) -> int:
    return _context(span).span_id


def _parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def _none() -> Any:
    raise AssertionError("there is no such tool")
