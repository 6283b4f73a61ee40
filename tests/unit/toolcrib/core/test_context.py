"""What a running tool may do besides its work: tell, ask, notice that it is not wanted any more, keep things."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib.core.call_guards import Signal
from toolcrib.core.context import Context, Output, Progress
from toolcrib.core.elicitation import DISMISSED, Clarification
from toolcrib.core.session import Runtime
from toolcrib.errors import ToolFailure
from toolcrib.testing import RecordingPeer


def context(**more: Any) -> Context:
    return Context(call_id="c", session_key="s", principal="p", **more)


def told(peer: RecordingPeer) -> list[tuple[str, Any, str]]:
    return [
        (method.rpartition("/")[2], params.get("progress"), params.get("message", params.get("data", "")))
        for method, params in peer.notifications
    ]


def poll(signal: Signal, seen: threading.Event) -> None:
    while not signal.aborted:
        time.sleep(0.001)
    seen.set()


async def test_output_and_progress_reach_the_listener_whole() -> None:
    heard: list[Progress | Output] = []
    here = context(listener=heard.append)
    await here.output("x" * 2000)
    await here.output({"row": 1})
    await here.report(0.5, 1, "half")
    assert heard == [
        Output(call_id="c", chunk="x" * 2000),
        Output(call_id="c", chunk={"row": 1}),
        Progress(call_id="c", progress=0.5, total=1, message="half"),
    ]


async def test_a_listener_that_breaks_does_not_end_the_call() -> None:
    def breaks(update: Progress | Output) -> None:
        raise RuntimeError("boom")

    peer = RecordingPeer()
    await context(listener=breaks, peer=peer, progress_token=1).output("on")
    assert told(peer) == [("progress", 1, "on")]


async def test_output_counts_as_progress_until_the_tool_counts_itself() -> None:
    peer = RecordingPeer()
    here = context(peer=peer, progress_token=1)
    await here.output("a")
    await here.output("b" * 501)
    await here.report(10, 20)
    await here.output("c")
    assert told(peer) == [
        ("progress", 1, "a"),
        ("progress", 2, "b" * 500),
        ("progress", 10, ""),
        ("message", None, "c"),
    ]


async def test_a_client_that_asked_for_no_progress_gets_output_as_log_messages() -> None:
    peer = RecordingPeer()
    here = context(peer=peer)
    await here.output("a")
    await here.report(1)
    assert told(peer) == [("message", None, "a")]


def test_a_relative_path_begins_in_the_folder_of_the_session() -> None:
    here = context(cwd=Path("/place"))
    assert [here.path(path) for path in ("a/b", "/etc", Path("c"))] == [
        Path("/place/a/b"),
        Path("/etc"),
        Path("/place/c"),
    ]


async def test_the_elicitor_is_asked_before_the_client() -> None:
    asked: list[Clarification] = []

    async def answers(question: Clarification) -> str:
        asked.append(question)
        return "b"

    peer = RecordingPeer({"elicitation/create": {"action": "accept", "content": {"answer": "client"}}})
    answer = await context(elicitor=answers, peer=peer).clarify("Which?", ("a", "b"), allow_custom=False)
    assert (answer, peer.requests) == ("b", [])
    assert asked == [Clarification(call_id="c", question="Which?", options=("a", "b"), allow_custom=False)]


@pytest.mark.parametrize("answer", [None, "", "  ", "c"])
async def test_no_answer_is_told_neutrally(answer: str | None) -> None:
    async def answers(question: Clarification) -> str | None:
        return answer

    assert await context(elicitor=answers).clarify("Which?", ("a", "b"), allow_custom=False) == DISMISSED


async def test_without_options_any_text_is_an_answer() -> None:
    async def answers(question: Clarification) -> str:
        return "mine"

    assert await context(elicitor=answers).clarify("Which?", allow_custom=False) == "mine"


@pytest.mark.parametrize("peer", [None, RecordingPeer({"sampling/createMessage": {}})])
async def test_where_nobody_can_be_asked_it_is_a_failure(peer: RecordingPeer | None) -> None:
    with pytest.raises(ToolFailure) as error:
        await context(peer=peer).clarify("Which?")
    assert error.value.code == "unavailable"


async def test_a_signal_is_seen_by_threads_and_by_who_waits_and_keeps_its_first_reason() -> None:
    signal, seen = Signal(), threading.Event()
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(signal.wait)
        group.start_soon(anyio.to_thread.run_sync, poll, signal, seen)
        await anyio.wait_all_tasks_blocked()
        assert (signal.aborted, signal.reason) == (False, "")
        signal.abort("cancelled")
        signal.abort("timeout")
    await signal.wait()
    assert (signal.reason, seen.is_set()) == ("cancelled", True)


def test_a_signal_is_given_by_its_deadline_alone() -> None:
    assert (Signal(time.monotonic() - 1).reason, Signal(time.monotonic() + 1000).reason) == ("timeout", "")


async def test_a_runtime_closes_what_it_keeps_the_newest_first_whatever_breaks() -> None:
    closed: list[str] = []

    class Kept:
        def __init__(self, name: str) -> None:
            self.name = name

    class Sync(Kept):
        def close(self) -> None:
            closed.append(self.name)

    class Async(Kept):
        async def aclose(self) -> None:
            closed.append(self.name)

    class Broken(Kept):
        def close(self) -> None:
            closed.append(self.name)
            raise RuntimeError("stuck")

    runtime = Runtime(a=Sync("a"), b=Async("b"), c=Broken("c"), plain={"x": 1})
    await runtime.aclose()
    assert (closed, runtime) == (["c", "b", "a"], {})
