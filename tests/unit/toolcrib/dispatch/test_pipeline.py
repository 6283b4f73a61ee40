"""The pipeline keeps two promises: a step that stops the walk stops it, and after-steps see every outcome."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from toolcrib.core.call import Call
from toolcrib.core.result import SpooledResult, ToolResult
from toolcrib.core.session import SessionState
from toolcrib.dispatch.pipeline import After, Before, Pipeline
from toolcrib.dispatch.plan import Plans
from toolcrib.dispatch.redacted_peers import RedactedPeers
from toolcrib.errors import ToolFailure
from toolcrib.results.redaction.output import OutputCleaner
from toolcrib.results.redaction.redactor import Redactor
from toolcrib.testing import RecordingPeer

CALL = Call(id="c1", name="echo", arguments={}, session=SessionState(key="s"))


class Seen:
    """An after-step that keeps what it saw."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        self.calls.append((call.name, result.error.code if result.error else "ok"))
        return result


async def echo(call: Call) -> ToolResult:
    return ToolResult.of_text(call.name)


async def refuse(_: Call) -> Call:
    raise ToolFailure("denied", "no")


async def answer(_: Call) -> ToolResult:
    return ToolResult.of_text("answered before it ran")


async def rename(call: Call) -> Call:
    return call.evolve(name="renamed")


async def explode(_: Call) -> Call:
    raise RuntimeError("secret /srv/path")


async def never(_: Call) -> ToolResult:
    raise AssertionError("the tool ran")


def pipeline(*before: Before, execute: object = echo, after: tuple[After, ...] = ()) -> Pipeline:
    return Pipeline(Plans(before, execute, after))  # pyright: ignore[reportArgumentType]


async def test_steps_change_the_call_one_after_the_other() -> None:
    assert await pipeline(rename).run(CALL) == ToolResult.of_text("renamed")


async def test_before_step_that_returns_a_result_ends_the_walk() -> None:
    assert await pipeline(answer, execute=never).run(CALL) == ToolResult.of_text("answered before it ran")


async def test_refusal_is_a_result_and_the_tool_does_not_run() -> None:
    assert await pipeline(refuse, execute=never).run(CALL) == ToolResult.failed("denied", "no")


async def test_refusal_is_still_seen_by_the_after_steps_with_the_call_as_it_was_then() -> None:
    seen = Seen()
    await pipeline(rename, refuse, after=(seen,)).run(CALL)
    assert seen.calls == [("renamed", "denied")]


async def test_unexpected_error_tells_the_model_nothing_about_the_inside() -> None:
    result = await pipeline(explode).run(CALL)
    assert (result.error.code if result.error else "", "secret" in result.text) == ("internal", False)


async def test_result_is_withheld_when_an_after_step_breaks_and_the_later_ones_still_run() -> None:
    async def broken(_: Call, __: ToolResult) -> ToolResult:
        raise RuntimeError("redaction failed")

    seen = Seen()
    result = await pipeline(after=(broken, seen)).run(CALL)
    assert (result.text == "echo", seen.calls) == (False, [("echo", "internal")])


async def test_the_file_of_a_result_is_gone_with_its_call_also_when_an_after_step_breaks(tmp_path: Path) -> None:
    file = tmp_path / "output"

    async def spool(_: Call) -> ToolResult:
        file.write_text("long")
        return ToolResult(spooled=SpooledResult(path=file, size=4, mime_type="text/plain", head="lo", tail="ng"))

    async def broken(_: Call, __: ToolResult) -> ToolResult:
        raise RuntimeError("redaction failed")

    whole = await pipeline(execute=spool).run(CALL)
    assert (whole.error, file.exists()) == (None, False)

    result = await pipeline(execute=spool, after=(broken,)).run(CALL)
    assert (result.error and result.error.code, file.exists()) == ("internal", False)


async def test_cancelled_call_is_still_recorded() -> None:
    seen, started = Seen(), anyio.Event()

    async def hang(_: Call) -> ToolResult:
        started.set()
        await anyio.sleep_forever()
        return ToolResult()

    async with anyio.create_task_group() as group:
        group.start_soon(pipeline(execute=hang, after=(seen,)).run, CALL)
        await started.wait()
        group.cancel_scope.cancel()
    assert seen.calls == [("echo", "cancelled")]


async def test_after_steps_run_in_order_each_on_the_result_of_the_one_before() -> None:
    async def add_a(_: Call, result: ToolResult) -> ToolResult:
        return ToolResult.of_text(result.text + "a")

    async def add_b(_: Call, result: ToolResult) -> ToolResult:
        return ToolResult.of_text(result.text + "b")

    assert (await pipeline(after=(add_a, add_b)).run(CALL)).text == "echoab"


@pytest.mark.parametrize("field", ["name", "arguments", "grant"])
def test_a_call_cannot_be_changed_in_place(field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(CALL, field, None)
    assert replace(CALL) == CALL


def test_a_client_and_its_redacting_wrappers_count_as_one() -> None:
    peers, client, other = RedactedPeers(OutputCleaner(Redactor())), RecordingPeer(), RecordingPeer()
    wrapped = [peers.to(client, "ann"), peers.to(client, "ben"), peers.to(other, "ann")]
    assert len({client, *wrapped}) == 2
    assert len({other, client, *wrapped}) == 2
