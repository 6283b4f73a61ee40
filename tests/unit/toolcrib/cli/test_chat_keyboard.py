"""What is typed: with keys, history and several lines on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import io
import os
import re
import stat
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_input, create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.output.vt100 import Vt100_Output

from rig import PATIENCE, eventually
from toolcrib_agent.chat.commands import complete, is_command
from toolcrib_agent.chat.keyboard import Keyboard, Plain
from toolcrib_agent.chat.prompt_input import PromptContext, PromptInput, history_at
from unit.toolcrib.cli.chatter import Chatter


class Hands:
    """Somebody at a terminal."""

    def __init__(self, pipe: PipeInput, history: Path) -> None:
        self.pipe = pipe
        self.modes = 0
        around = PromptContext(
            prompt=lambda: [("", "> ")],
            toolbar=lambda: [("", "cautious")],
            complete=lambda text: [("/tools", "the tools")] if text.startswith("/to") else [],
            next_mode=self._next,
        )
        kept = history_at(history, lambda text: text.replace("secret", "[masked]"))
        self.keyboard = PromptInput(around, kept, input=pipe, output=DummyOutput())

    def _next(self) -> None:
        self.modes += 1

    async def types(self, keys: str) -> str:
        """Type `keys` at the prompt, and return what is sent."""
        self.pipe.send_text(keys)
        with anyio.fail_after(PATIENCE):
            return await self.keyboard.command()


@pytest.fixture
def hands(tmp_path: Path) -> Generator[Hands]:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield Hands(pipe, tmp_path / "state" / "history")


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ("hello\r", "hello"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("one\ntwo\r", "one\ntwo"),
        ("one\\\rtwo\r", "one\ntwo"),
        ("\x1b[200~pasted\ntext\x1b[201~\r", "pasted\ntext"),
        ("never\x03mind\r", "mind"),
    ],
    ids=["enter", "alt-enter", "ctrl-j", "backslash", "paste", "ctrl-c clears"],
)
async def test_keys_make_a_line_or_several(hands: Hands, keys: str, sent: str) -> None:
    assert await hands.types(keys) == sent


async def test_shift_tab_goes_to_the_next_mode_and_keeps_what_was_typed(hands: Hands) -> None:
    assert await hands.types("he\x1b[Z\x1b[Zllo\r") == "hello"
    assert hands.modes == 2


@pytest.mark.parametrize(("key", "raised"), [("\x03", KeyboardInterrupt), ("\x04", EOFError)])
async def test_ctrl_c_and_ctrl_d_on_an_empty_line_are_told(hands: Hands, key: str, raised: type[BaseException]) -> None:
    with pytest.raises(raised):
        await hands.types(key)


async def test_what_was_typed_is_kept_for_its_user_alone_and_without_secrets(hands: Hands, tmp_path: Path) -> None:
    await hands.types("my secret\r")

    path = tmp_path / "state" / "history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "+my [masked]" in path.read_text()
    await hands.types("second\r")
    assert await hands.types("\x1b[A\x1b[A\r") == "my secret"


async def test_a_default_stands_in_the_line(hands: Hands) -> None:
    hands.pipe.send_text(" more\r")

    assert await hands.keyboard.command("some") == "some more"


class AtTerminal:
    """Somebody at a real terminal (a pty), with a keyboard that reads the other end of it."""

    def __init__(self, ours: int, theirs: int, stack: ExitStack, *, plain: bool) -> None:
        self._ours = ours
        source = stack.enter_context(os.fdopen(theirs, "r", closefd=False))
        target = stack.enter_context(os.fdopen(theirs, "w", closefd=False))
        around = PromptContext(
            prompt=lambda: [("", "> ")], toolbar=lambda: [("", "")], complete=lambda text: (), next_mode=lambda: None
        )
        if plain:
            self.keyboard: Keyboard = Plain(str, source, target)
            return
        self.columns, self.seen = 160, b""
        output = Vt100_Output(target, lambda: Size(rows=50, columns=self.columns), term="xterm", enable_cpr=False)
        self.keyboard = PromptInput(around, input=create_input(source), output=output)

    def types(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    async def is_asked(
        self, *answers: str, before: str = "", keys: Mapping[str, str] | None = None, question: str = "run it?"
    ) -> str:
        """Type `before`, be asked, type `answers` once the question is to be seen, and return what was understood."""
        self.types(before)
        understood = ""

        async def ask() -> None:
            nonlocal understood
            try:
                understood = await self.keyboard.answer(question, keys=keys)
            except KeyboardInterrupt:
                understood = "interrupted"  # raised in a task of its own it would end the event loop

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                self.seen = b""
                while b"run it?" not in self.seen:
                    await anyio.wait_readable(self._ours)
                    self.seen += os.read(self._ours, 65536)
                for answer in answers:
                    self.types(answer)
        return understood


@pytest.fixture(params=["keys", "lines"])
def at_terminal(request: pytest.FixtureRequest) -> Generator[AtTerminal]:
    ours, theirs = os.openpty()
    with ExitStack() as stack:
        stack.callback(os.close, ours)
        stack.callback(os.close, theirs)
        yield AtTerminal(ours, theirs, stack, plain=request.param == "lines")


@pytest.mark.slow
async def test_keys_before_a_question_do_not_answer_it_and_keys_after_it_do(at_terminal: AtTerminal) -> None:
    keys = {"y": "yes", "n": "no"}

    for before in ("y", "y\n", "y\r", "yes, ", "\x1b", "y\ny\ny\n"):
        assert await at_terminal.is_asked("n\n", before=before, keys=keys) == "no", before
    assert await at_terminal.is_asked("words\r", before="some ") == "words"


@pytest.mark.parametrize("at_terminal", ["keys"], indirect=True)
async def test_what_is_typed_ahead_of_a_question_goes_to_who_watches_the_keys(at_terminal: AtTerminal) -> None:
    heard: list[str] = []

    with at_terminal.keyboard.watching(heard.append):
        assert await at_terminal.is_asked("n", before="yet another", keys={"y": "yes", "n": "no"}) == "no"

    assert "".join(heard) == "yet another"


@pytest.mark.parametrize(("typed", "said"), [("y", "y"), ("no\r", "no"), ("\x03", "interrupted"), ("ay\r", "ay")])
@pytest.mark.parametrize("at_terminal", ["keys"], indirect=True)
async def test_one_key_answers_a_question(at_terminal: AtTerminal, typed: str, said: str) -> None:
    assert await at_terminal.is_asked(typed, keys={"y": "y"}) == said


@pytest.mark.parametrize("columns", [32, 101])  # where the line ends in a word
@pytest.mark.parametrize("at_terminal", ["keys"], indirect=True)
async def test_a_long_question_breaks_between_words(at_terminal: AtTerminal, columns: int) -> None:
    at_terminal.columns = columns
    question = (
        "this call can destroy: type CONFIRM, or n no · a always · t this turn · c comment · e edit · more · run it?"
    )
    assert await at_terminal.is_asked("n\r", question=question) == "n"

    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", at_terminal.seen.decode()).replace("\r", "\n").split("\n")
    assert {*question.split()} <= {word for line in lines for word in line.split()}


async def test_keys_are_heard_while_nobody_is_asked(hands: Hands) -> None:
    heard: list[str] = []

    with hands.keyboard.watching(heard.append):
        hands.pipe.send_text("ab\r\x7f\x1b[Z\x03")
        await eventually(lambda: "c-c" in heard)
        hands.pipe.send_text("\x1b")
        await eventually(lambda: "escape" in heard)
    hands.pipe.send_text("z")

    assert heard == ["a", "b", "enter", "backspace", "s-tab", "c-c", "escape"]


class Lines:
    """A pipe that lines come out of."""

    def __init__(self, text: str) -> None:
        read, write = os.pipe()
        os.write(write, text.encode())
        os.close(write)
        self.source = os.fdopen(read)
        self.target = io.StringIO()
        self.keyboard = Plain(lambda: "cautious", self.source, self.target)


async def test_plain_lines_are_read_echoed_and_end() -> None:
    lines = Lines("first\nand \\\nsecond\nlast")
    with lines.source:
        assert [await lines.keyboard.command() for _ in range(3)] == ["first", "and \nsecond", "last"]
        with pytest.raises(EOFError):
            await lines.keyboard.command()

    assert lines.target.getvalue() == "cautious> first\ncautious> and \\\n. second\ncautious> last\ncautious> \n"


async def test_a_plain_answer_is_a_key_a_word_or_the_default() -> None:
    lines = Lines("Y\nyes\n\n")
    with lines.source:
        keys = {"y": "y"}
        assert [await lines.keyboard.answer("run it?", keys=keys) for _ in range(2)] == ["y", "yes"]
        assert await lines.keyboard.answer("args?", default="{}") == "{}"


@pytest.mark.parametrize(
    ("line", "has_model", "expected"),
    [
        ("/tools", True, True),
        ("tools", True, False),
        ("call x", True, False),
        ("call x", False, True),
        ("find me", False, True),
        ("what is this?", False, False),
        ("/usr/bin is full", True, False),
    ],
)
def test_a_line_is_a_command_or_for_the_model(line: str, has_model: bool, expected: bool) -> None:
    assert is_command(line, has_model=has_model) is expected


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("/mod", ["/mode", "/model"]),
        ("/mode au", ["autonomous", "audit"]),
        ("/profile ga", ["gateway"]),
        ("call calc", ["calculate"]),
        ("/describe call_tool_", ["call_tool_readonly"]),
        ("look at @sr", ["@src/"]),
        ("look at @src/", ["@src/app.py"]),
        ("look at src", []),
        ("/nothing x", []),
    ],
)
async def test_what_is_begun_is_completed(tmp_path: Path, text: str, offered: list[str]) -> None:
    chatter = Chatter(tmp_path)
    (chatter.project / "src").mkdir()
    (chatter.project / "src" / "app.py").touch()
    (chatter.project / "src" / ".hidden").touch()

    async with chatter.opened(io.StringIO()) as talk:
        assert sorted(whole for whole, _ in complete(talk, text)) == sorted(offered)


@pytest.mark.long
@pytest.mark.process
def test_the_command_loads_no_model_library_before_it_needs_one() -> None:
    loads = "import toolcrib_agent.chat.command, sys; "
    probe = f"{loads}print([name for name in ('pydantic_ai', 'openai') if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=PATIENCE)

    assert done.stdout == "[]\n"
