"""`toolcrib daemon` where no daemon runs, and its logs; running daemons are in `server/test_serve.py`."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from rig import PATIENCE, Hearing, eventually
from toolcrib.cli.commands.daemon import follow
from toolcrib.errors import CODES

from .conftest import TOOLCRIB, User


def test_without_a_daemon_the_status_is_empty_and_nothing_is_ended(user: User) -> None:
    status, stopped = user.types("daemon"), user.types("daemon", "stop")

    assert (status.exit_code, stopped.exit_code, user.reads("daemon")) == (0, 0, [])
    assert "no daemon runs" in status.stderr
    assert "no daemon runs" in stopped.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [(("logs",), "no daemon has run yet"), (("stop", "1"), "process 1 is not a daemon of yours; daemons: none")],
)
def test_what_is_not_there_is_a_clear_error(user: User, words: tuple[str, ...], message: str) -> None:
    result = user.types("daemon", *words)

    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


@pytest.mark.process
def test_a_daemon_starts_with_the_first_connection_serves_the_entry_and_ends_with_the_last(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.has(".gemini/settings.json", {"mcpServers": {}})
    connected = user.types("connect", "cursor", "gemini", "--start")
    (before,) = user.reads("daemon")
    entry = json.loads((user.home / ".cursor/mcp.json").read_text())["mcpServers"]["toolcrib"]
    session = [entry["command"], *entry["args"]]
    environ = os.environ | {"HOME": str(user.home), "XDG_RUNTIME_DIR": str(user.runtime)}
    subprocess.run(session, env=environ, cwd=user.project, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True)
    (after,) = user.reads("daemon")

    first, last = user.types("disconnect", "cursor"), user.types("disconnect", "gemini")

    assert (connected.exit_code, before["rests"], before["rest_seconds"]) == (0, False, 7200.0), connected.output
    assert after["pid"] == before["pid"]
    assert [str(before["pid"]) in result.stdout for result in (first, last)] == [False, True]
    assert user.reads("daemon") == []


@pytest.mark.process
def test_a_daemon_that_hangs_is_named_by_commands_and_the_doctor_and_can_be_ended(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.daemon.control._ANSWER_SECONDS", 0.5)
    user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.types("connect", "cursor", "--start")
    (daemon,) = user.reads("daemon")
    with closing(sqlite3.connect(user.home / ".local/share/toolcrib/toolcrib.db")) as store:
        store.execute("BEGIN IMMEDIATE")  # stopped in a write, it would hold the store, too
        os.kill(daemon["pid"], signal.SIGSTOP)
    environ = os.environ | {"HOME": str(user.home), "XDG_RUNTIME_DIR": str(user.runtime)}
    with subprocess.Popen([TOOLCRIB, "version"], env=environ, stderr=subprocess.PIPE, text=True) as command:
        doctor = user.types("doctor", "--json")
        message = command.communicate(timeout=PATIENCE)[1]
    stopped = user.types("daemon", "stop")
    user.types("disconnect", "cursor")

    states = [check["state"] for check in json.loads(doctor.stdout) if check["check"] == "daemon"]
    assert (command.returncode, f"process {daemon['pid']}" in message) == (0, True)
    assert (doctor.exit_code, states) == (CODES["unavailable"].exit, ["ok", "failed"])
    assert (stopped.exit_code, str(daemon["pid"]) in stopped.stderr) == (0, True)
    assert user.reads("daemon") == []


@pytest.mark.process
def test_a_daemon_that_schedules_keep_leaves_them_to_one_of_the_present_configuration(user: User) -> None:
    user.has(".config/toolcrib/config.yaml", "mode: cautious\n")
    added = user.types("schedule", "add", "--call", "current_time", "--every", "1h")
    environ = os.environ | {"HOME": str(user.home), "XDG_RUNTIME_DIR": str(user.runtime)}
    command = [TOOLCRIB, "serve", "--daemon-idle", "1"]
    subprocess.run(command, env=environ, cwd=user.project, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True)
    (before,) = user.reads("daemon")
    user.config.write_text("untrusted: {ask: false}\n")

    def is_another() -> bool:
        return [one["is_current"] for one in user.reads("daemon") if one["pid"] != before["pid"]] == [True]

    anyio.run(eventually, is_another)
    anyio.run(eventually, lambda: len(user.reads("daemon")) == 1)
    ended = user.types("daemon", "stop")

    assert (added.exit_code, ended.exit_code, before["works"]) == (0, 0, True), added.output
    assert str(before["pid"]) not in ended.stdout


@pytest.mark.process
def test_a_daemon_has_the_version_that_it_was_started_as_after_an_update(user: User) -> None:
    metadata = user.has("site/toolcrib-8.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toolcrib\nVersion: 8.0\n")
    own = {"HOME": str(user.home), "XDG_RUNTIME_DIR": str(user.runtime), "PYTHONPATH": str(metadata.parents[1])}
    session = [TOOLCRIB, "serve"]
    subprocess.run(
        session, env=os.environ | own, cwd=user.project, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True
    )
    metadata.write_text(metadata.read_text().replace("8.0", "9.0"))
    (daemon,), stopped = user.reads("daemon"), user.types("daemon", "stop")

    assert (daemon["version"], stopped.exit_code) == ("8.0", 0), stopped.output


_OTHER_VERSION = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
while True:
    link, _ = listener.accept()
    link.recv(1000)
    link.sendall(b'{"other": 1}\\n')
    link.close()
"""


@pytest.mark.process
def test_a_daemon_of_another_version_is_named_with_its_process_and_can_be_ended(user: User) -> None:
    folder = user.runtime / "toolcrib"
    folder.mkdir(parents=True, mode=0o700)
    command = [sys.executable, "-c", _OTHER_VERSION, f"{'0' * 16}.sock"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as daemon:
        try:
            Hearing(daemon.stdout).line()
            status, stopped = user.types("daemon"), user.types("daemon", "stop")
            ended = daemon.wait(PATIENCE)
        finally:
            daemon.kill()

    assert (status.exit_code, f"process {daemon.pid}" in status.stderr) == (0, True)
    assert (stopped.exit_code, ended) == (0, -signal.SIGTERM), stopped.output


@pytest.mark.process
def test_the_doctor_names_what_only_the_running_daemon_has(user: User) -> None:
    """A daemon of another configuration, whose server it cannot start and whose file is broken by now."""
    file = user.has("project/mine.yaml", {"servers": {"notes": {"command": "no-such-program"}}})
    environ = os.environ | {"HOME": str(user.home), "XDG_RUNTIME_DIR": str(user.runtime)}
    session = [TOOLCRIB, "serve", "--config", str(file)]
    subprocess.run(session, env=environ, cwd=user.project, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True)
    anyio.run(eventually, lambda: any(one["state"] == "failed" for one in user.reads("daemon")[0]["servers"]))
    file.write_text("colour: blue")
    (daemon,) = user.reads("daemon")
    doctor, stopped = user.types("doctor", "--json"), user.types("daemon", "stop")

    checks = json.loads(doctor.stdout)
    found = [check for check in checks if check["check"] == f"daemon {daemon['pid']}"]
    assert [check["state"] for check in found] == ["failed", "missing"]
    assert ["no-such-program" in found[0]["detail"], "colour" in found[1]["detail"]] == [True, True]
    assert (doctor.exit_code, stopped.exit_code) == (CODES["unavailable"].exit, 0)


@pytest.mark.process
def test_a_daemon_that_cannot_be_started_is_one_line_and_the_client_is_connected(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})
    connected = user.types("connect", "cursor", "--start", "--command", "false")

    assert (connected.exit_code, "toolcrib" in json.loads(file.read_text())["mcpServers"]) == (0, True)
    assert "the local daemon has not started" in connected.stderr


def test_the_end_of_the_newest_log_is_printed_without_control_characters(user: User) -> None:
    user.has(".local/state/toolcrib/daemon-00.log", "one\ntwo\n\x1b[31mthree\n")

    assert user.types("daemon", "logs", "-n", "2").stdout == "two\n\\x1b[31mthree\n"


def test_a_followed_log_gives_whole_lines_and_goes_on_after_a_rollover(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n")
    steps = iter(("ha", "lf\n", None))

    def wait(_: float) -> None:
        text = next(steps)
        with log.open("a") as file:
            file.write(text or "last\n")
        if text is None:
            log.rename(tmp_path / "log.1")
            log.write_text("first\n")

    followed = follow(log, 10, once=False, wait=wait)

    assert [next(followed) for _ in range(4)] == ["old", "half", "last", "first"]
    followed.close()
