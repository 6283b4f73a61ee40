"""`toolcrib chat` in a real terminal, with a model behind a real HTTP API that nobody here wrote (aimock)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from rig import PATIENCE, ensure_npm, free_port, node, serving

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")
_CALL: Final = {
    "name": "call_tool",
    "arguments": json.dumps({"name": "write_file", "arguments": {"path": "note.md", "content": "hello\n"}}),
}
_STORY: Final = "Once upon a time there was a crib. " * 200


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A model that writes a file when it is told to, tells what came of it, and can tell a story without an end."""
    folder = tmp_path_factory.mktemp("model")
    fixtures: list[dict[str, Any]] = [
        {
            "match": {"userMessage": "write it", "hasToolResult": False},
            "response": {"content": "I will write it.", "toolCalls": [_CALL]},
        },
        {"match": {"userMessage": "write it"}, "response": {"content": "# Written\n\nIt is in `note.md`."}},
        {"match": {"userMessage": "story"}, "response": {"content": _STORY}, "latency": 300, "chunkSize": 10},
        {"match": {"userMessage": "and now"}, "response": {"content": "Now it is your turn."}},
    ]
    (folder / "cases.json").write_text(json.dumps({"fixtures": fixtures}))
    main, port = ensure_npm() / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js", free_port()
    with serving([node(), main, "-p", str(port), "-f", folder], port=port, log=folder / "log"):
        yield f"http://127.0.0.1:{port}"


class Somebody:
    """A user with a home and a project, at a terminal."""

    def __init__(self, home: Path, model: str) -> None:
        self.project = home / "project"
        self.project.mkdir()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TOOLCRIB"))}
        self.env = {
            **clean,
            "HOME": str(home),
            "TERM": "xterm-256color",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "OPENAI_API_KEY": "mock",
            "OPENAI_BASE_URL": f"{model}/v1",
        }

    @contextmanager
    def chatting(self, *options: str) -> Generator[Terminal]:
        """Start a chat, and end it whatever happens."""
        pid, screen = pty.fork()
        if pid == 0:  # the child
            os.chdir(self.project)
            os.execve(TOOLCRIB, ["toolcrib", "chat", *options], self.env)
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        terminal = Terminal(pid, screen)
        try:
            yield terminal
        finally:
            terminal.close()


class Terminal:
    """What a person has of a program: a screen to read, and keys."""

    def __init__(self, pid: int, screen: int) -> None:
        self._pid = pid
        self._screen = screen
        self._raw = b""
        self._read = 0
        """Characters of the text that were looked at already."""

    @property
    def text(self) -> str:
        """Everything that was shown, without colours and moves."""
        return _ESCAPES.sub("", self._raw.decode(errors="replace"))

    def sees(self, *wanted: str) -> None:
        """Wait until all of `wanted` stands there, behind what was seen before."""
        deadline = time.monotonic() + PATIENCE
        for text in wanted:
            while (place := self.text.find(text, self._read)) < 0:
                assert time.monotonic() < deadline, f"{text!r} did not come:\n{self.text[self._read :][-4000:]}"
                if not self._listen():
                    raise AssertionError(f"it ended before {text!r} came:\n{self.text[-4000:]}")
            self._read = place + len(text)

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._screen, keys.encode())

    def ends(self) -> int:
        """Wait until the program has ended, and return its status."""
        deadline = time.monotonic() + PATIENCE
        while self._listen():
            assert time.monotonic() < deadline, f"it does not end:\n{self.text[-4000:]}"
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """End what still runs."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._screen)

    def _listen(self) -> bool:
        """Take what is shown; False when nobody shows anything any more."""
        ready, _, _ = select.select([self._screen], [], [], 0.2)
        if not ready:
            return True
        try:
            piece = os.read(self._screen, 65536)
        except OSError as error:
            if error.errno == errno.EIO:
                return False
            raise
        self._raw += piece
        return bool(piece)


@pytest.fixture
def somebody(tmp_path: Path, model: str) -> Somebody:
    return Somebody(tmp_path, model)


@pytest.mark.timeout(600)
def test_a_file_is_written_after_a_yes_in_place_and_the_conversation_goes_on_later(somebody: Somebody) -> None:
    with somebody.chatting() as chat:
        chat.sees("toolcrib chat", "folder", "~/project", "OPENAI_API_KEY is set", "mode", "cautious")
        chat.types("please write it\r")
        chat.sees(
            "I will write it.", "write_file", "destructive", "+hello", "mode cautious", "type write_file to run it"
        )
        assert not (somebody.project / "note.md").exists()
        chat.types("write_file\r")
        chat.sees("→ yes", "✓ write_file by call_tool", "Written", "It is in note.md.", "❯")
        assert (somebody.project / "note.md").read_text() == "hello\n"
        chat.types("/cost\r")
        chat.sees("requests", "2", "tokens in", "❯")
        chat.types("\x04")
        chat.sees("toolcrib chat --resume")
        assert chat.ends() == 0

    with somebody.chatting("--continue") as chat:
        chat.sees("going on with", "please write it", "It is in note.md.", "❯")
        chat.types("and now?\r")
        chat.sees("Now it is your turn.", "❯")
        chat.types("\x03")
        chat.sees("Ctrl-C again leaves", "❯")
        chat.types("\x03")
        assert chat.ends() == 0


@pytest.mark.timeout(600)
def test_keys_change_the_mode_and_interrupt_while_the_model_works(somebody: Somebody) -> None:
    with somebody.chatting() as chat:
        chat.sees("toolcrib chat", "❯")
        chat.types("tell me a story\r")
        chat.sees("Once upon a time", "esc interrupts · cautious")
        chat.types("\x1b[Z")
        chat.sees("esc interrupts · review")
        chat.types("and now?\r")
        chat.types("\x03")
        chat.sees("interrupted", "❯ and now?", "Now it is your turn.", "❯")
        chat.types("\x04")
        assert chat.ends() == 0


@pytest.mark.timeout(600)
def test_without_a_model_the_user_calls_by_hand_and_may_type_before_the_prompt_is_there(somebody: Somebody) -> None:
    del somebody.env["OPENAI_API_KEY"]
    with somebody.chatting("--model", "") as chat:
        chat.sees("toolcrib chat")
        chat.types("/call calculate expression=6*7\r")
        chat.sees("✓ calculate", "mode cautious: a read tool is allowed", "42")
        chat.types("/quit\r")
        assert chat.ends() == 0


@pytest.mark.timeout(600)
def test_a_script_pipes_its_context_in_and_gets_json(somebody: Somebody, model: str) -> None:
    command = [TOOLCRIB, "chat", "-p", "and now, with this?", "--json"]

    done = subprocess.run(
        command,
        input="piped text",
        env=somebody.env,
        cwd=somebody.project,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"] == "Now it is your turn."
    with urllib.request.urlopen(f"{model}/__aimock/journal", timeout=PATIENCE) as answer:
        assert "<stdin>\\npiped text\\n</stdin>" in json.dumps(json.load(answer))
