"""Questions in a chat: every answer that there is does what it says, and what will run is seen before."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

from rig import PATIENCE
from toolcrib import Context, tool
from toolcrib.core.permission import Verdict
from toolcrib.core.result import ToolResult
from toolcrib.testing.models import Reply, ScriptedModel, calls
from toolcrib_agent.chat.approval_prompts import ANSWERS
from toolcrib_agent.chat.commands import run_command
from toolcrib_agent.chat.setup import converse
from unit.toolcrib.cli.chatter import Chatter, Typed


@pytest.fixture
def chatter(tmp_path: Path) -> Chatter:
    return Chatter(tmp_path)


def writes(name: str, content: str = "x\n") -> Reply:
    return calls("call_tool", name="write_file", arguments={"path": name, "content": content})


async def asked(chatter: Chatter, *answers: Typed, model: ScriptedModel | None = None, **more: Any) -> str:
    """Have the model write two files one after another in one turn, then a third one in the next."""
    model = model or ScriptedModel(writes("a"), writes("b"), "Done.", writes("c"), "Done again.")
    return await chatter.chats("write", "again", answers=answers, model=model, **more)


def there(chatter: Chatter) -> str:
    return "".join(sorted(path.name for path in chatter.project.iterdir()))


def test_every_answer_that_there_is_has_a_key() -> None:
    assert {verdict for verdict, _ in ANSWERS.values()} == set(get_args(Verdict))


WORD = "write_file"
"""Approves a call of that tool, which can overwrite."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "made", "prompts"),
    [
        ([WORD, "n", "n"], "a", 3),
        (["y", WORD, "n", "n"], "a", 4),
        (["y", "y", "n", "n", "n"], "", 5),
        (["yes", WORD, "no", "once", WORD], "ac", 5),
        (["o", WORD, "n", "y", WORD], "ac", 5),
        (["a", WORD], "abc", 2),
        (["a", "a", "n", "n", "n"], "", 5),
        (["t", WORD, "n"], "ab", 3),
        (["i", WORD], "abc", 2),
        (["l", WORD], "abc", 2),
        (["v"], "", 1),
        (["n", "n", "n"], "", 3),
        ([EOFError, EOFError, EOFError], "", 3),
        (["huh", WORD, "n", "n"], "a", 4),
    ],
    ids="word yes-word yes-yes words once always always-twice turn idle all never no the-end unclear".split(),
)
async def test_an_answer_covers_what_it_says_and_no_more(
    chatter: Chatter, answers: Sequence[Typed], made: str, prompts: int
) -> None:
    await asked(chatter, *answers)

    assert (there(chatter), len(chatter.typist.prompts)) == (made, prompts)


async def test_what_will_run_is_shown_with_the_diff_and_the_rule_before_anybody_answers(chatter: Chatter) -> None:
    (chatter.project / "a").write_text("old\n")

    shown = await asked(chatter, "n", "n", "n", model=ScriptedModel(writes("a", "new\n"), "Well.", "Well."))
    question = shown.partition("→ no")[0]

    for line in (
        '"path": "a"',
        '"content": "new\\n"',
        "-old",
        "+new",
        "mode cautious: a destructive tool is asked for",
    ):
        assert line in question
    assert "write_file destructive · builtin" in question
    assert "→ no" in shown


@pytest.mark.slow
async def test_what_a_long_diff_leaves_out_can_be_seen_before_the_answer(chatter: Chatter) -> None:
    long = "".join(f"line {number}\n" for number in range(200))

    shown = await asked(chatter, "d", "n", model=ScriptedModel(writes("a", long), "Well.", "Well."))

    first, _, second = shown.partition("+line 199")
    assert "lines more …" in first
    assert "+line 100" not in first
    assert "+line 199" in second, "the last line is in the cut diff, and again in the whole one"
    assert "+line 100" in second


async def test_a_comment_is_a_no_that_the_model_reads(chatter: Chatter) -> None:
    model = ScriptedModel(writes("a"), "I see.", "Bye.")

    await asked(chatter, "c", "write to b instead", model=model)

    assert there(chatter) == ""
    assert "write to b instead" in model.seen[1].results[0]


async def test_edited_arguments_run_instead_and_what_is_no_json_is_asked_for_again(chatter: Chatter) -> None:
    answers = ("e", "{broken", '["no object"]', '{"path": "z", "content": "mine"}', WORD)

    shown = await asked(chatter, *answers, model=ScriptedModel(writes("a"), "I see.", "Bye."))

    assert "not JSON" in shown
    assert (chatter.project / "z").read_text() == "mine"
    assert not (chatter.project / "a").exists()


@tool(kind="write")
async def jot(text: str) -> str:
    """Write a note down."""
    return text


@tool(name="bash", kind="destructive", tags=["shell"])
async def pretended_shell(command: str) -> str:
    """Pretend to run a command."""
    return command


async def test_one_key_answers_for_a_write_and_a_command_is_approved_by_its_own_word(chatter: Chatter) -> None:
    shown = io.StringIO()
    answers = ["y", "touch", "rm", "y; rm -rf /tmp/x", "bash"]
    model = ScriptedModel(
        calls("call_tool", name="jot", arguments={"text": "one"}),
        calls("call_tool", name="bash", arguments={"command": "/usr/bin/touch x"}),
        calls("call_tool", name="bash", arguments={"command": "y; rm -rf x"}),
        calls("call_tool", name="bash", arguments={"command": "y"}),
        "Done.",
    )

    async with chatter.opened(shown, ["go"], answers, model) as talk:
        talk.crib.add(jot, pretended_shell)
        await converse(talk)

    asked = [prompt.partition(",")[0] for prompt in chatter.typist.prompts]
    words = ["touch", "rm", "bash", "bash"]
    assert asked[1:] == [f"this call can destroy: type {word} to run it" for word in words]
    assert asked[0].startswith("run it?  y yes")
    assert shown.getvalue().count("→ yes") == 4


async def test_ctrl_c_at_a_question_is_a_no_and_ends_the_turn(chatter: Chatter) -> None:
    model = ScriptedModel(writes("a"), "What now?")

    shown = await asked(chatter, KeyboardInterrupt, model=model)

    assert there(chatter) == ""
    assert "interrupted" in shown
    assert model.seen[1].prompts[-1] == "again"


async def test_a_question_mark_explains_all_answers(chatter: Chatter) -> None:
    shown = await asked(chatter, "?", "n", model=ScriptedModel(writes("a"), "Well.", "Well."))

    for verdict, meaning in ANSWERS.values():
        assert verdict in shown
        assert meaning in shown


async def test_a_call_of_another_session_is_answered_by_its_id(chatter: Chatter) -> None:
    shown = io.StringIO()
    results: list[ToolResult] = []

    async with chatter.opened(shown, approvals={"wait": True}) as talk, anyio.create_task_group() as group:
        other = talk.crib.session(profile="flat")

        async def call() -> None:
            results.append(await other.call("write_file", {"path": "theirs", "content": "x"}))

        group.start_soon(call)
        with anyio.fail_after(PATIENCE):
            asked = await anext(talk.crib.approvals.watch())
            for words in ("", "nobody yes", f"{asked.id} perhaps", asked.id):
                await run_command(talk, f"/approve {words}")
            assert asked.id in shown.getvalue()

    assert '"path": "theirs"' in shown.getvalue()
    assert "0 of the waiting approvals begin with 'nobody'" in shown.getvalue()
    assert "'perhaps'" in shown.getvalue()
    assert [result.is_error for result in results] == [False]
    assert there(chatter) == "theirs"


@tool(kind="read")
async def choose(ctx: Context) -> str:
    """Ask the user for a colour."""
    return await ctx.clarify("Which colour?", ("red", "green"), allow_custom=False)


@pytest.mark.parametrize(
    ("answers", "told"),
    [(["2"], "green"), (["red"], "red"), (["blue", "1"], "red"), ([""], "closed the question"), ([EOFError], "closed")],
    ids=["by number", "by word", "not one of them", "dismissed", "at the end"],
)
async def test_a_tools_own_question_is_answered_by_number_or_in_words(
    chatter: Chatter, answers: Sequence[Typed], told: str
) -> None:
    shown = io.StringIO()
    async with chatter.opened(shown, ["call choose"], answers) as talk:
        talk.crib.add(choose)
        await converse(talk)

    assert "Which colour?" in shown.getvalue()
    assert "2 green" in shown.getvalue()
    assert told in shown.getvalue().rpartition("✓ choose")[2]
