"""`toolcrib chat -p`: what a script gets, and that nobody is asked."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from toolcrib.testing.models import Reply, ScriptedModel, calls
from toolcrib_agent.chat.command import EXITS, Format, run_script, with_context
from toolcrib_agent.chat.setup import ChatOptions
from unit.toolcrib.cli.chatter import Chatter
from unit.toolcrib.cli.conftest import User


@pytest.fixture
def chatter(tmp_path: Path) -> Chatter:
    return Chatter(tmp_path)


async def answered(
    chatter: Chatter, format: Format, *steps: Any, wanted: ChatOptions | None = None, **overrides: Any
) -> tuple[int, str]:
    out = io.StringIO()
    model = ScriptedModel(*steps)
    async with chatter.opened(io.StringIO(), (), (), model, wanted, asks=False, **overrides) as talk:
        return await run_script(talk, "do it", format, out), out.getvalue()


class ReaderGone(io.StringIO):
    def write(self, s: str) -> int:
        raise BrokenPipeError


def writes() -> Reply:
    return Reply(text="I write.") + calls("call_tool", name="write_file", arguments={"path": "a", "content": "x"})


async def test_text_is_the_answer_and_nothing_else(chatter: Chatter, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = await answered(chatter, "text", writes(), "Done, all of it.", mode="autonomous")

    assert (status, out) == (0, "I write.\nDone, all of it.\n")
    assert "✓ call_tool" in capsys.readouterr().err


async def test_a_model_that_cannot_be_reached_is_told_with_each_repetition_and_once_as_the_answer(
    chatter: Chatter, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = await answered(chatter, "text", ModelHTTPError(401, "m", {"message": "no such key."}))

    assert status == EXITS["failed"]
    assert out.splitlines() == ["There is no complete answer: HTTP 401 from m: no such key."]
    assert capsys.readouterr().err.splitlines() == ["failed: HTTP 401 from m: no such key."]


@pytest.mark.parametrize("format", ["text", "json", "events"])
async def test_a_reader_that_has_gone_ends_the_command_and_neither_the_work_nor_the_log(
    chatter: Chatter, caplog: pytest.LogCaptureFixture, format: Format
) -> None:
    model = ScriptedModel(writes(), "Done.")
    async with chatter.opened(io.StringIO(), (), (), model, asks=False, mode="autonomous") as talk:
        with pytest.raises(BrokenPipeError):
            await run_script(talk, "do it", format, ReaderGone())

    assert len(model.seen) == 2
    assert [record for record in caplog.records if record.exc_info] == []


async def test_json_is_one_object_with_the_calls_and_what_was_used(chatter: Chatter) -> None:
    status, out = await answered(chatter, "json", writes(), "Done.", mode="autonomous")

    told = json.loads(out)
    assert (status, told["text"], told["stopped"], told["model"]) == (0, "Done.", "answered", "scripted:model")
    (call,) = told["calls"]
    assert call["arguments"] == {"name": "write_file", "arguments": {"path": "a", "content": "x"}}
    assert (call["ok"], call["rule"]) == (True, "mode autonomous: a destructive tool is allowed")
    assert told["usage"]["requests"] == 2
    assert chatter.talk is not None
    assert told["chat"] == chatter.talk.saved.id


async def test_events_are_json_lines_and_the_last_one_tells_how_it_ended(chatter: Chatter) -> None:
    _, out = await answered(chatter, "events", writes(), "Done.", mode="autonomous")

    lines = [json.loads(line) for line in out.splitlines()]
    kinds = [line["type"] for line in lines]
    assert kinds == [
        "requesting", "text", "usage", "call", "result", "requesting", "text", "usage", "finished",
    ]  # fmt: skip
    assert "".join(line["text"] for line in lines if line["type"] == "text") == "I write.Done."
    assert lines[-1]["text"] == "Done."


async def test_what_would_be_asked_is_refused(chatter: Chatter) -> None:
    status, out = await answered(chatter, "json", writes(), "I may not.")

    (call,) = json.loads(out)["calls"]
    assert (status, call["ok"], call["code"]) == (0, False, "denied")
    assert not (chatter.project / "a").exists()


async def test_a_model_that_cannot_be_reached_ends_with_the_status_for_that(chatter: Chatter) -> None:
    status, out = await answered(chatter, "json", ModelHTTPError(401, "m", {"message": "bad key"}))

    assert status == EXITS["failed"] == 7
    assert json.loads(out)["stopped"] == "failed"


async def test_a_script_goes_on_with_the_newest_conversation(chatter: Chatter) -> None:
    await answered(chatter, "text", "One.")
    assert chatter.talk is not None
    first = chatter.talk.saved.id

    await answered(chatter, "text", "Two.", wanted=ChatOptions(goes_on=True))

    assert (chatter.talk.saved.id, chatter.talk.saved.turns) == (first, 2)


def test_what_is_piped_goes_along_in_a_fence_that_it_cannot_leave() -> None:
    assert with_context("why?", " \n") == "why?"
    assert with_context("why?", "a </stdin> b\n") == "why?\n\n<stdin>\na &lt;/stdin> b\n</stdin>"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--json"], "are for -p TEXT"),
        (["--resume"], "which? toolcrib chat --resume ID; none was saved yet"),
        (["--resume", "abcd"], "there is no conversation 'abcd'"),
        (["--continue"], "no conversation was saved in"),
        (["-p", "x", "y"], "'y' has no place beside it"),
        (["-p", "x", "-m", "nonsense"], "a model is named provider:name"),
        pytest.param(
            ["-p", "x", "-m", "anthropic:x"], "set ANTHROPIC_API_KEY in the environment", marks=pytest.mark.long
        ),
        (["-p", "x", "--mode", "fast"], "'fast'"),
    ],
    ids="json resume unknown continue words model key mode".split(),
)
def test_what_cannot_be_done_is_told_in_a_line(
    user: User, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)

    result = user.types("chat", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


@pytest.mark.parametrize("key", ["modle", "model"], ids=["an unknown key", "no text"])
def test_a_wrong_key_of_the_configuration_is_told_with_its_place(user: User, key: str) -> None:
    user.has(".config/toolcrib/config.yaml", f"chat:\n  {key}: 7\n")

    result = user.types("chat", "-p", "x")

    assert result.exit_code == 2
    assert "config.yaml:2: chat" in result.stderr
