"""A chat in the terminal: what is shown, what is typed, what the model is told, and what stays on the disk."""

from __future__ import annotations

import io
import json
import re
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.usage import RequestUsage

from rig import PATIENCE
from toolcrib import tool
from toolcrib.core.result import ToolResult
from toolcrib.testing.models import Call, Hold, Reply, ScriptedModel, calls
from toolcrib_agent import Agent
from toolcrib_agent.chat.call_view import CallRecord, result_block
from toolcrib_agent.chat.chat_session import ChatAgent, ChatSession
from toolcrib_agent.chat.commands import run_command
from toolcrib_agent.chat.screen import console_for
from toolcrib_agent.chat.setup import ChatOptions, converse
from unit.toolcrib.cli.chatter import Chatter


@pytest.fixture
def chatter(tmp_path: Path) -> Chatter:
    return Chatter(tmp_path)


def _flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
async def test_the_first_screen_says_where_one_is_which_model_answers_and_why(chatter: Chatter) -> None:
    shown = _flat(await chatter.chats(model=ScriptedModel()))

    assert "folder ~/project" in shown
    assert "model scripted:model the test says so" in shown
    assert "mode cautious Shift-Tab" in shown
    assert chatter.talk is not None
    assert f"tools {len([*chatter.talk.session.visible.offered()])}, " in shown


@pytest.mark.slow
async def test_without_a_model_every_variable_is_named_and_the_user_can_be_the_model(chatter: Chatter) -> None:
    shown = _flat(
        await chatter.chats("/find calculate a sum", "call calculate expression=6*7", "what is six times seven?")
    )

    assert "ANTHROPIC_API_KEY, OPENAI_API_KEY" in shown
    assert "Ollama (11434)" in shown
    assert "/call calculate … runs it" in shown
    assert re.search(r"✓ calculate expression=6\*7 [\d.]+ s · mode cautious: a read tool is allowed 42", shown)
    assert "no model is configured" in shown


@pytest.mark.process
async def test_what_a_model_would_see_is_shown_with_its_tokens(chatter: Chatter) -> None:
    shown = _flat(await chatter.chats("/context", "/context anthropic"))

    assert "Find one with search_tools" in shown
    assert re.findall(r"tools (\d+), ", shown) == re.findall(r"(\d+) tools in all\.", shown)
    assert "call_tool(name: string, arguments?: object)" in shown
    assert "tokens by o200k; all tools at once would be" in shown
    assert '"input_schema": {' in shown


@pytest.mark.slow
async def test_an_answer_is_shown_with_its_calls_their_arguments_and_who_decided(chatter: Chatter) -> None:
    (chatter.project / "a.txt").write_text("\n".join(f"line {n}" for n in range(50)))
    model = ScriptedModel(
        Reply(text="I look.") + calls("call_tool", name="read_file", arguments={"path": "a.txt"}),
        "# Counted\n\nThere are **fifty** lines.",
    )

    shown = await chatter.chats("how long is a.txt?", "/show", model=model)

    assert "I look.\n" in shown
    assert "✓ read_file by call_tool path=a.txt\n" in shown
    assert "mode cautious: a read tool is allowed" in shown
    assert "lines more: /show 1" in shown
    assert shown.index("I look.") < shown.index("✓ read_file") < shown.index("Counted") < shown.index("fifty")
    assert "**" not in shown
    assert "line 49" in shown.partition("fifty")[2], "/show has the whole of it"


@pytest.mark.slow
async def test_the_call_of_a_tool_that_does_not_exist_shows_the_refusal_and_the_chat_goes_on(chatter: Chatter) -> None:
    model = ScriptedModel(calls("no_such_tool"), "Sorry.")

    shown = await chatter.chats("do it", model=model)

    assert "✗ no_such_tool" in shown
    assert "not_found: " in shown and "'no_such_tool'" in shown
    assert "Sorry." in shown


async def test_what_the_model_says_can_move_no_cursor(chatter: Chatter) -> None:
    shown = await chatter.chats("hello", model=ScriptedModel("ha\x1b[2Jha \u202eevil"))

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[2J" in shown


async def test_a_file_that_is_written_shows_as_a_diff_and_undo_takes_it_back_unasked(chatter: Chatter) -> None:
    (chatter.project / "a.txt").write_text("old\n")
    write = calls("call_tool", name="write_file", arguments={"path": "a.txt", "content": "new\n"})

    shown = await chatter.chats("change it", "/undo", model=ScriptedModel(write, "Done."), mode="autonomous")

    assert "+1 -1\n" in shown
    assert "  -old\n" in shown
    assert "  +new\n" in shown
    assert "✓ undo_edit" in shown
    assert '  paths ["a.txt"]' in shown
    assert (chatter.project / "a.txt").read_text() == "old\n"
    assert chatter.typist.prompts == []


@pytest.mark.process
async def test_what_would_change_is_told_from_what_has_changed(chatter: Chatter) -> None:
    (chatter.project / "a.txt").write_text("old\n")
    replace = "call find_and_replace pattern=old replacement=new"

    tried = await chatter.chats(f"{replace} dry_run=true", mode="autonomous")
    done = await chatter.chats(replace, mode="autonomous")

    assert "+1 -1  this is what would change; nothing did\n" in tried
    assert "+1 -1\n" in done


async def test_json_is_typed_as_it_is_and_a_text_that_looks_like_it_stays_a_text(chatter: Chatter) -> None:
    made = '[{"path": "a.txt", "action": "write", "content": "one two"}]'
    await chatter.chats(
        f"call multi_edit operations={made}",
        """call write_file path=b.py content='x = 1; y=["x", 2]'""",
        "call write_file path=c.txt content=[draft]1",
        mode="autonomous",
    )

    there = {path.name: path.read_text() for path in sorted(chatter.project.glob("?.*"))}
    assert there == {"a.txt": "one two", "b.py": 'x = 1; y=["x", 2]', "c.txt": "[draft]1"}


async def test_what_is_cut_says_how_to_see_it_and_what_is_empty_says_so(chatter: Chatter) -> None:
    (chatter.project / "long.txt").write_text("heron " * 100)
    (chatter.project / "lines.txt").write_text("".join(f"{n}\n" for n in range(7)))

    shown = await chatter.chats(
        "call read_file path=long.txt",
        "call read_file path=lines.txt",
        "call list_tracked_artifacts",
        "/show 1",
    )

    assert "… the rest: /show 1\n" in shown
    assert "… 1 line more: /show 2\n" in shown
    assert "done, nothing to show\n" in shown
    assert _flat(shown).count("heron") > 100


async def test_a_rule_that_denies_holds_for_undo_too(chatter: Chatter) -> None:
    shown = await chatter.chats("/undo", rules={"deny": ["undo_edit"]})

    assert "✗ undo_edit" in shown
    assert "denied" in shown


@pytest.mark.slow
async def test_changes_that_wait_are_told_shown_and_accepted_also_in_a_later_chat(chatter: Chatter) -> None:
    write = calls("call_tool", name="write_file", arguments={"path": "new.txt", "content": "new\n"})
    model = ScriptedModel(write, "Done.")

    first = await chatter.chats("write it", "/diff", model=model, mode="review")

    assert "● new.txt  file, 4 bytes" in first
    assert "+new" in first
    assert not (chatter.project / "new.txt").exists()

    second = await chatter.chats("/accept", model=ScriptedModel(), wanted=ChatOptions(goes_on=True))

    assert "✓ written: new.txt" in second
    assert "mode    review" in second
    assert (chatter.project / "new.txt").read_text() == "new\n"


async def test_a_conversation_is_saved_after_every_turn_for_its_user_alone_and_without_secrets(
    chatter: Chatter,
) -> None:
    secret = "hunter2-hunter2-hunter2"
    model = ScriptedModel(f"Your key is {secret}.")

    await chatter.chats(f"my key is {secret}", model=model, redact=[secret])

    (path,) = (chatter.home / ".local" / "share" / "toolcrib" / "chats").iterdir()
    saved = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in saved
    assert "Your key is" in saved
    assert json.loads(saved.splitlines()[0])["turns"] == 1


@pytest.mark.slow
async def test_a_conversation_goes_on_where_it_was_left(chatter: Chatter) -> None:
    await chatter.chats("My name is Ada.", model=ScriptedModel("Hello Ada."))
    assert chatter.talk is not None
    again = ScriptedModel("You are Ada.")

    shown = await chatter.chats("Who am I?", model=again, wanted=ChatOptions(resume=chatter.talk.saved.id[:6]))

    assert "❯ My name is Ada." in shown
    assert "Hello Ada." in shown
    assert again.seen[0].prompts == ["My name is Ada.", "Who am I?"]
    assert chatter.talk.saved.turns == 2
    assert chatter.talk.saved.title == "My name is Ada."


@pytest.mark.slow
async def test_a_conversation_is_listed_by_what_the_model_says_that_it_is_about(chatter: Chatter) -> None:
    describe = calls("session_describe", description="Ada's name")
    await chatter.chats("My name is Ada.", model=ScriptedModel(describe, "Hello Ada."), profile="flat")
    assert chatter.talk is not None
    chat = chatter.talk.saved.id

    shown = await chatter.chats("/history", model=ScriptedModel(), wanted=ChatOptions(resume=chat))

    assert [saved.title for saved in chatter.talk.chats.all()] == ["Ada's name"]
    assert "Ada's name" in shown


@pytest.mark.slow
async def test_a_new_conversation_begins_empty_and_an_earlier_one_can_be_taken_up_in_the_same_chat(
    chatter: Chatter,
) -> None:
    await chatter.chats("My name is Ada.", model=ScriptedModel("Hello Ada."))
    assert chatter.talk is not None
    first = chatter.talk.saved.id
    model = ScriptedModel("Hi.", "Who?", "Ada.")

    shown = await chatter.chats("hi", "/new", "who am I?", f"/resume {first}", "who am I?", "/history", model=model)

    assert [seen.prompts for seen in model.seen] == [["hi"], ["who am I?"], ["My name is Ada.", "who am I?"]]
    assert f"{first} ←" in shown
    assert len(chatter.talk.chats.all()) == 3


async def test_escape_interrupts_the_turn_and_the_next_one_knows_what_was_said(chatter: Chatter) -> None:
    hold = Hold()
    model = ScriptedModel(Reply(text="Once upon a time.", hold=hold), "Better.")
    shown = io.StringIO()

    async def interrupt() -> None:
        await hold.reached.wait()
        chatter.typist.press("escape")

    with anyio.fail_after(PATIENCE):
        async with chatter.opened(shown, ["a story", "shorter"], (), model) as talk, anyio.create_task_group() as group:
            group.start_soon(interrupt)
            await converse(talk)

    assert "interrupted" in shown.getvalue()
    assert "Once upon a time." in shown.getvalue()
    assert "Better." in shown.getvalue()
    assert model.seen[1].prompts[-1] == "shorter"
    assert talk.saved.turns == 2


async def test_what_is_typed_while_the_model_works_is_sent_next_or_stands_in_the_prompt(chatter: Chatter) -> None:
    hold = Hold()
    model = ScriptedModel(Reply(text="Wait.", hold=hold), "Yes.")
    shown = io.StringIO()

    async def type_ahead() -> None:
        await hold.reached.wait()
        for key in ("a", "n", "x", "backspace", "d", "?", "enter", "s-tab", "l", "a"):
            chatter.typist.press(key)
        hold.go_on.set()

    with anyio.fail_after(PATIENCE):
        async with chatter.opened(shown, ["begin"], (), model) as talk, anyio.create_task_group() as group:
            group.start_soon(type_ahead)
            await converse(talk)

    assert model.seen[1].prompts == ["begin", "and?"]
    assert talk.session.mode == "review"
    assert chatter.typist.defaults == ["", "la"]


async def test_a_model_that_is_named_while_another_one_is_loaded_is_the_one_that_answers(chatter: Chatter) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def loaded(talk: ChatSession) -> ChatAgent:
        assert talk.choice is not None
        model = ScriptedModel(f"I am {talk.choice.model}.")
        if not begun.is_set():
            begun.set()
            await go_on.wait()
        return Agent(model, talk.session)

    with anyio.fail_after(PATIENCE):
        async with chatter.opened(io.StringIO(), model=ScriptedModel()) as talk:
            talk.agent_loader = loaded
            async with anyio.create_task_group() as group:
                group.start_soon(talk.ready)
                await begun.wait()
                group.start_soon(run_command, talk, "/model other:model")
                await anyio.wait_all_tasks_blocked()
                go_on.set()
            outcome = await (await talk.ready()).run("Who are you?")

    assert outcome.text == "I am other:model."


async def test_a_model_that_fails_is_told_once_and_the_chat_goes_on(chatter: Chatter) -> None:
    model = ScriptedModel(ModelHTTPError(401, "scripted", {"message": "bad key"}), "Now it works.")

    shown = await chatter.chats("one", "two", model=model)

    assert shown.count("401") == 1
    assert "/model goes on with another one" in shown
    assert "Now it works." in shown


async def test_a_bug_costs_the_turn_and_not_the_conversation(chatter: Chatter) -> None:
    shown = io.StringIO()

    async def broken(talk: ChatSession) -> ChatAgent:
        raise RuntimeError("boom")

    async with chatter.opened(shown, ["one", "/mode plan"], (), ScriptedModel()) as talk:
        talk.agent_loader = broken
        await converse(talk)

    assert "internal error (RuntimeError('boom')); the conversation goes on" in shown.getvalue()
    assert talk.session.mode == "plan"


async def test_ctrl_c_at_the_prompt_warns_and_leaves_the_second_time(chatter: Chatter) -> None:
    shown = await chatter.chats(KeyboardInterrupt, "/mode", KeyboardInterrupt, KeyboardInterrupt, "/tools")

    assert shown.count("Ctrl-C again leaves") == 2
    assert "calculate" not in shown


async def test_nothing_that_waits_is_a_remark_and_no_failure(chatter: Chatter) -> None:
    shown = await chatter.chats("/pending", "/diff", "/accept", "/reject a.txt")

    assert shown.count("nothing waits for review\n") == 4
    assert "✗" not in shown


async def test_no_two_modes_are_explained_in_the_same_words(chatter: Chatter) -> None:
    shown = await chatter.chats("/mode")

    assert chatter.talk is not None
    told = [re.findall(rf"^[● ]  {name} +(.+)$", shown, re.MULTILINE) for name in chatter.talk.settings.policy.modes]
    assert [len(lines) for lines in told] == [1] * len(told)
    assert len({lines[0] for lines in told}) == len(told)


@pytest.mark.slow
async def test_a_long_result_is_shown_from_its_beginning_and_the_rest_has_its_command(chatter: Chatter) -> None:
    @tool(kind="read")
    def herons() -> str:
        """Count herons."""
        return "\n".join(f"{number} herons" for number in range(60_000))

    out = io.StringIO()
    async with chatter.opened(out, ("call herons", "/show")) as talk:
        talk.crib.add(herons)
        await converse(talk)

    called, _, shown = out.getvalue().partition("… it is much longer: /show 1\n")
    assert "  5 herons\n" in called
    assert "[resource_link]" not in called
    assert "  4000 herons\n" in shown
    assert "59999 herons" not in shown
    assert re.search(r"[\d,]+ bytes follow: `toolcrib results show [0-9a-f]{32} --offset \d+`", _flat(shown))


def test_a_text_in_a_structured_result_is_shown_as_text() -> None:
    """As MCP servers wrap what a function returned."""
    shown = result_block(
        CallRecord(
            name="look",
            arguments={},
            result=ToolResult(content=({"type": "text", "text": "a\nb"},), structured_content={"result": "a\nb"}),
            seconds=0.1,
        )
    )
    out = io.StringIO()
    console_for(out, width=80).print(shown)

    assert out.getvalue().splitlines() == ["✓ look", "  0.1 s", "  a", "  b"]


@pytest.mark.parametrize("mode", ["autonomous", "plan", "review"])
async def test_the_mode_is_changed_by_its_name(chatter: Chatter, mode: str) -> None:
    shown = await chatter.chats(f"/mode {mode}", "/mode")

    assert f"mode {mode}\n" in shown
    assert f"●  {mode}" in shown


async def test_no_mode_that_is_named_in_a_chat_is_laxer_than_that_of_the_identity(chatter: Chatter) -> None:
    careful: dict[str, Any] = {"identities": {"local": {"mode": "cautious"}}, "chat": {"mode": "autonomous"}}
    modes: list[str] = []

    for wanted in (ChatOptions(), ChatOptions(mode="autonomous"), ChatOptions(mode="plan")):
        async with chatter.opened(io.StringIO(), wanted=wanted, **careful) as talk:
            modes.append(talk.session.mode)
    shown = await chatter.chats("/mode autonomous", "/mode", **careful)

    assert modes == ["cautious", "cautious", "plan+cautious"]
    assert "autonomous is laxer" in shown
    assert "●  cautious" in shown


async def test_a_command_that_cannot_be_carried_out_says_why_and_the_chat_goes_on(chatter: Chatter) -> None:
    shown = await chatter.chats(
        "/mood",
        "/mode fast",
        "/profile none",
        "/call",
        "/call calculate expression",
        "/describe nothing",
        "/show",
        "/resume ffff",
        "/model nonsense",
        "/compact",
        "/context klingon",
        "/accept",
        "call x 'y",
    )

    for told in (
        "there is no /mood; did you mean /mode?",
        "unknown mode 'fast'",
        "profile",
        "which tool? call TOOL name=value",
        "'expression' is not an argument",
        "there is no tool 'nothing'",
        "nothing was called yet",
        "there is no conversation 'ffff'",
        "the conversation has no messages yet",
        "nothing waits for review",
        "the arguments cannot be read: No closing quotation",
    ):
        assert told in shown
    assert shown.count("✗") == 12


async def test_why_tells_who_decided_on_the_last_call_and_what_would_happen_to_another(chatter: Chatter) -> None:
    shown = _flat(await chatter.chats("call calculate expression=1", "/why", "/why remove_file path=a.txt"))

    assert "decided by mode cautious: a read tool is allowed now it would run" in shown
    assert "now it would be asked: mode cautious: a destructive tool is asked for" in shown


async def test_the_cost_of_a_conversation_is_summed_up(chatter: Chatter) -> None:
    used = RequestUsage(input_tokens=1200, output_tokens=34)
    model = ScriptedModel(Reply(text="One.", usage=used), Reply(text="Two.", usage=used))

    shown = _flat(await chatter.chats("one", "two", "/cost", model=model))

    assert "requests 2" in shown
    assert "tokens in 2,400" in shown
    assert "tokens out 68" in shown
    assert "money no known price" in shown


async def test_another_profile_shows_the_model_other_tools_from_the_next_turn_on(chatter: Chatter) -> None:
    model = ScriptedModel("One.", "Two.")

    shown = await chatter.chats("one", "/profile flat", "two", model=model)

    assert "call_tool" in model.seen[0].tools
    assert {"read_file", "write_file"} <= set(model.seen[1].tools)
    assert "profile flat: " in shown
    assert model.seen[1].prompts == ["one", "two"]


async def test_the_profile_and_the_mode_of_the_configuration_are_those_of_the_chat(chatter: Chatter) -> None:
    await chatter.chats(chat={"profile": "gateway", "mode": "plan"})

    assert chatter.talk is not None
    assert (chatter.talk.session.state.profile, chatter.talk.session.mode) == ("gateway", "plan")


async def test_help_names_every_command_and_key(chatter: Chatter) -> None:
    shown = await chatter.chats("/help")

    for word in "tools find mode approve undo cost why profile model compact history help quit".split():
        assert f"/{word}" in shown
    assert "Shift-Tab" in shown


async def test_calls_made_at_once_are_shown_each_with_its_own_result(chatter: Chatter) -> None:
    both = Reply(calls=(Call(name="calculate", arguments={"expression": "1+1"}), Call(name="nothing")))

    shown = await chatter.chats("both", model=ScriptedModel(both, "Done."))

    assert "✓ calculate expression=1+1\n" in shown
    assert "✗ nothing\n" in shown
