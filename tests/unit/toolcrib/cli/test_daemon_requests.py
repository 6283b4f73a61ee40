"""Commands that a daemon carries out print what they print in a process of their own."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import toolcrib
from toolcrib.cli.output import print_part
from toolcrib.cli.processes.daemon import printing_to_callers, run_command
from toolcrib.cli.processes.daemon_requests import END, TAKEN, is_answered, program, run_answered, umask
from toolcrib.cli.prompts import approval_for
from toolcrib.config.directories import answering_for
from toolcrib.config.loader import load_gateway
from toolcrib.core.json import dumps, loads
from toolcrib.crib import Toolcrib
from toolcrib.daemon.caller import ASK, WITHDRAW, Caller
from toolcrib.daemon.rendezvous import DaemonEndpoint, DaemonPlace
from toolcrib.daemon.running_servers import RunningServers
from toolcrib.errors import CODES

from .conftest import NOTES_SERVER, User


@pytest.fixture(autouse=True)
def _at_home(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(user.home))


def request(user: User, *words: str, **other: Any) -> bytes:
    """Return the request of a command line that is typed in the user's project."""
    environ = {name: value for name, value in {**os.environ, **user.environ}.items() if value is not None}
    process = {"program": program(), "folder": str(user.project), "environ": environ, "umask": umask(), "columns": 80}
    whole = {**process, "words": words}
    return dumps({**whole, **other})


def ask(user: User, *words: str, **other: Any) -> list[Any]:
    """Return the lines that a daemon answers, which runs in another folder."""
    lines: list[Any] = []
    run_command(request(user, *words, **other), Caller(lambda line: lines.append(loads(line))))
    return lines


@pytest.mark.parametrize(
    ("words", "answered"),
    [
        (["tools"], True),
        (["tools", "--help"], True),
        (["serve", "--help"], True),
        (["chat", "--help"], False),
        (["approvals"], True),
        (["approvals", "--json"], True),
        (["approvals", "show", "abcd"], True),
        (["approvals", "yes", "abcd"], True),
        (["approvals", "--config", "x", "yes", "abcd"], True),
        (["approvals", "--json", "watch"], False),
        (["queue", "--all"], True),
        (["queue", "follow"], False),
        (["work", "mine"], True),
        (["log"], True),
        (["log", "--since", "2h", "notes__*"], True),
        (["log", "list", "-f"], False),
        (["log", "export", "x"], True),
        (["log", "verify", "x"], True),
        (["policy", "import"], True),
        (["policy", "test", "--tool", "x", "--args", "-"], True),
        (["lock"], True),
        (["connect", "cursor"], True),
        (["uninstall"], False),
        (["uninstall", "--dry-run"], True),
        (["serve"], False),
        (["chat"], False),
        (["call", "x"], True),
        (["daemon", "stop"], False),
        (["--debug", "tools"], False),
        ([], True),
    ],
)
def test_only_command_lines_that_a_daemon_may_carry_out_are_answered(words: Sequence[str], answered: bool) -> None:
    assert is_answered(words) is answered


@pytest.mark.parametrize("word", ["b\udcffd", "files"])
def test_a_command_with_bytes_that_are_no_utf_8_is_left_to_its_own_process(
    monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("NAME", "J\udcf6rg")

    assert run_answered(["find", word]) is None


@pytest.mark.long
@pytest.mark.process
def test_a_daemon_prints_what_the_command_prints_here(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    rules = {"deny": ["Bash(rm:*)"]}
    servers = {"notes": {"command": sys.executable, "args": [NOTES_SERVER]}, "down": {"command": "no-such-program"}}
    user.has(".config/toolcrib/config.yaml", {"servers": servers, "rules": rules})
    user.has("project/mine.yaml", "name: mine\nextends: adaptive\ncore: [nothing]\n")
    user.types("accept", "notes")
    user.types("lock", "notes", "--file", "my.lock")
    for line in (
        "tools --json",
        "find zzz",
        "show no_such_tool",
        "policy list",
        "policy test -- rm -rf x",
        "profile check mine.yaml",
        "lock notes --check --file my.lock",
        "lock notes --check --file no.lock",
        "shadow list --workspace .",
        "secret",
        "log --since x",
        "version",
    ):
        words = line.split()
        here = user.types(*words)
        taken, *parts, end = ask(user, *words)
        capsys.readouterr()
        for part in parts:
            print_part(part)
        printed = capsys.readouterr()

        assert (taken, end) == ([TAKEN], [END, here.exit_code]), line
        assert (printed.out, _at_once(printed.err)) == (here.stdout, _at_once(here.stderr)), line


def _at_once(notes: str) -> str:
    """Without the line that only a slow start of servers prints."""
    return re.sub(r"^waiting for .*\n", "", notes, flags=re.MULTILINE)


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_a_command_whose_asker_has_gone_ends_without_the_daemon(user: User, lines: int) -> None:
    heard: list[bytes] = []

    def send(line: bytes) -> None:
        if len(heard) == lines:
            raise BrokenPipeError
        heard.append(line)

    run_command(request(user, "policy", "list"), Caller(send))

    assert len(heard) == lines


@pytest.mark.parametrize("line", ["tools --nope", "tools --help", "jobs show --help", "jobs show", "call", "log --n"])
def test_help_and_a_wrong_command_line_print_the_same_as_here(
    user: User, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split()
    here = user.types(*words)
    with printing_to_callers():
        taken, *parts, end = ask(user, *words)
    for part in parts:
        print_part(part)
    printed = capsys.readouterr()

    own_name = (text.replace("root ", "toolcrib ").replace("'root", "'toolcrib") for text in (here.stdout, here.stderr))
    assert (taken, end) == ([TAKEN], [END, here.exit_code])
    assert (printed.out, printed.err) == (*own_name,)


@pytest.mark.slow
@pytest.mark.process
def test_a_command_ends_when_the_process_that_asked_goes_away(user: User) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    user.has(".config/toolcrib/config.yaml", {"servers": {"silent": silent}})
    lines: list[Any] = []
    taken = threading.Event()

    def send(line: bytes) -> None:
        lines.append(loads(line))
        taken.set()

    caller = Caller(send)
    running = threading.Thread(target=run_command, args=(request(user, "tools", "--wait", "600"), caller))
    running.start()
    assert taken.wait(20)
    caller.leave()
    running.join(20)

    assert not running.is_alive()
    assert lines[-1] == [END, 1]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("answer", "status"), [({"verdict": "yes", "by": "terminal"}, 0), ({"verdict": "no"}, 5), (None, 5)]
)
def test_a_call_asks_the_person_at_the_terminal_of_the_process_that_asked(
    owner: User, answer: dict[str, str] | None, status: int
) -> None:
    lines: list[Any] = []

    def send(line: bytes) -> None:
        lines.append(loads(line))
        if lines[-1][0] == ASK:
            caller.answer(lines[-1][1], answer)

    caller = Caller(send)
    run_command(request(owner, "call", "notes__delete_note", "id=7", terminals=["stdin", "stderr"]), caller)

    assert [line for line in lines if line[0] == ASK] == [[ASK, 0, "approval", "delete_note"]]
    assert lines[-1] == [END, status]


@pytest.mark.slow
@pytest.mark.process  # of `keyring`, which looks for its libraries
def test_a_command_reads_the_standard_input_of_the_process_that_asked(user: User) -> None:
    lines: list[Any] = []

    def send(line: bytes) -> None:
        lines.append(loads(line))
        if lines[-1][0] == ASK:
            caller.answer(lines[-1][1], "piped")

    caller = Caller(send)
    run_command(request(user, "secret", "set", "token"), caller)

    assert lines[1] == [ASK, 0, "secret", "token"]
    assert lines[-1] == [END, 0]
    assert user.reads("secret") == ["token"]


@pytest.mark.slow
@pytest.mark.process  # as above
def test_a_secret_is_not_kept_when_the_process_that_was_asked_for_it_goes_away(user: User) -> None:
    lines: list[Any] = []

    def send(line: bytes) -> None:
        lines.append(loads(line))
        if lines[-1][0] == ASK:
            caller.leave()

    caller = Caller(send)
    run_command(request(user, "secret", "set", "token"), caller)

    assert user.reads("secret") == []


def test_a_call_of_the_user_s_own_code_is_left_to_the_process_that_asks(user: User) -> None:
    """Such code sees its process: variables, the folder, the terminal."""
    entry = "{name: here, description: d, kind: read, implementation: {type: command, command: [pwd]}}"
    catalog = user.has("catalog.yaml", f"capabilities: [{entry}]\n")
    user.has(".config/toolcrib/config.yaml", f"catalogs: [{catalog}]\n")

    assert ask(user, "call", "here")[-1] == [END, None]
    assert ask(user, "call", "nowhere")[-1] == [END, CODES["not_found"].exit]


async def test_a_question_is_withdrawn_when_the_daemon_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    source, keyboard = os.pipe()
    with ours, theirs, os.fdopen(source) as stdin, os.fdopen(keyboard, "w"):
        monkeypatch.setattr("sys.stdin", stdin)
        theirs.send(dumps([WITHDRAW]) + b"\n")

        assert await anyio.to_thread.run_sync(approval_for, ours, "") is None


@pytest.mark.slow
@pytest.mark.process
async def test_a_command_that_lists_servers_asks_those_that_run_in_the_daemon_and_starts_none(user: User) -> None:
    starts = user.home / "starts"
    program = (
        f"import runpy; open({str(starts)!r}, 'a').write('x'); runpy.run_path({NOTES_SERVER!r}, run_name='__main__')"
    )
    server = {"command": sys.executable, "args": ["-c", program]}
    user.has(".config/toolcrib/config.yaml", {"servers": {"notes": server}, "builtins": False})
    environ = {**os.environ, **{name: value for name, value in user.environ.items() if value}}
    with answering_for(environ, user.project):
        settings = load_gateway((), {})
    async with Toolcrib(settings) as crib:
        await crib.tools.wait_ready(20, fresh=True)
        lines: list[Any] = []
        caller = Caller(lambda line: lines.append(loads(line)), RunningServers(crib))
        for words in (("doctor", "--json"), ("lock",)):
            await anyio.to_thread.run_sync(run_command, request(user, *words, environ=environ), caller)

    checks = loads(next(part[1] for part in lines if part[0] == "out"))
    assert {"check": "server notes", "state": "ok", "detail": f"{len(crib.tools.listed('notes'))} tools"} in checks
    assert starts.read_text() == "x"
    assert "notes" in (user.project / "toolcrib.lock").read_text()


def test_a_client_gets_the_place_that_it_would_find_itself_and_nothing_for_a_broken_configuration(user: User) -> None:
    """The daemon answers for the client's folder and environment, not for its own."""
    user.has("project/mine.yaml", {"servers": {"notes": {"command": sys.executable, "args": ["${WHERE}"]}}})
    environ = {**os.environ, **{name: value for name, value in user.environ.items() if value}, "WHERE": "there"}
    files, overrides = ["mine.yaml"], {"guard": "off", "mode": "plan"}
    place: dict[str, Any] = {"files": files, "overrides": overrides}
    with answering_for(environ, user.project):
        settings = load_gateway(files, overrides)
        found = DaemonPlace.of(settings, DaemonEndpoint.of(settings))

    assert ask(user, words=None, place=place, environ=environ) == [[TAKEN], [END, found._asdict()]]
    few = {**environ, "LANG": "xx_XX", "TZ": "Asia/Tokyo", "DBUS_SESSION_BUS_ADDRESS": "nowhere"}
    assert ask(user, words=None, place=place, environ=few) == [[TAKEN], [END, found._asdict()]]
    assert ask(user, words=None, place=place, environ={**environ, "HOME": "/nowhere"}) == []
    assert found.mode == "plan"
    assert ask(user, words=None, place={**place, "files": ["none.yaml"]}) == [[TAKEN], [END, {}]]
    assert ask(user, words=None, place=place, program=["another"]) == []


def test_a_process_of_another_program_home_or_umask_and_a_command_of_its_own_are_not_answered(
    user: User, tmp_path: Path
) -> None:
    assert ask(user, "version") != []
    assert ask(user, "version", program=["another"]) == []
    assert ask(user, "version", environ={"HOME": str(tmp_path / "another")}) == []
    assert ask(user, "version", umask=umask() ^ 0o022) == []
    assert ask(user, "uninstall") == []


CHANGING = """
import json, os, toolcrib.errors
from toolcrib.cli.processes.daemon import run_command
from toolcrib.cli.processes.daemon_requests import program, umask
from toolcrib.daemon.caller import Caller

def place():
    lines = []
    process = {"program": program(), "folder": ".", "environ": dict(os.environ), "umask": umask()}
    request = {**process, "words": None, "place": {"files": [], "overrides": {}}}
    run_command(json.dumps(request).encode(), Caller(lambda line: lines.append(json.loads(line))))
    return lines[1][1]["key"] if lines else ""

before = place()
os.utime(toolcrib.errors.__file__)
print(json.dumps([before, place()]))
"""


@pytest.mark.process
def test_a_daemon_whose_files_have_changed_answers_nothing_and_another_one_has_another_place(user: User) -> None:
    """The version is the same: an editable install, or one from git once more."""
    packages = user.home / "packages"
    shutil.copytree(Path(toolcrib.__file__).parent, packages / "toolcrib")
    environ = {**os.environ, "HOME": str(user.home), "PYTHONPATH": str(packages), "XDG_RUNTIME_DIR": str(user.home)}
    command = [sys.executable, "-c", CHANGING]
    (one, after), (another, _) = (
        json.loads(subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    )

    assert (len(one), after, len(another), one != another) == (64, "", 64, True)


@pytest.mark.slow
@pytest.mark.process
def test_what_a_client_waits_for_loads_little() -> None:
    probe = "import sys, {}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    daemon, command, shim = (
        subprocess.run([sys.executable, "-c", probe.format(names)], capture_output=True, text=True, check=True).stdout
        for names in (
            "toolcrib.cli.processes.daemon, toolcrib.daemon.daemon",
            "toolcrib.cli.entry, toolcrib.cli.processes.daemon_requests, toolcrib.daemon.control, toolcrib.cli.output",
            (
                "toolcrib.cli.entry, toolcrib.cli.processes.hook, toolcrib.cli.processes.stdio_server, "
                "toolcrib.daemon.control"
            ),
        )
    )

    assert {"httpx2", "typer"}.isdisjoint(daemon.split())
    assert {"anyio", "pydantic", "rich", "typer"}.isdisjoint(command.split())
    assert {"dataclasses", "hashlib", "inspect", "msgspec", "orjson", "shutil"}.isdisjoint(shim.split())
