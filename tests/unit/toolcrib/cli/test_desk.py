"""`connect claude --approvals`, `disconnect claude` and `hook claude` in a home directory."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rig import PATIENCE
from toolcrib.cli.processes.serve_options import desk_overrides
from toolcrib.config.clients.claude_files import HOOK_SECONDS
from toolcrib.config.directories import answering_for
from toolcrib.config.loader import load_gateway
from toolcrib.daemon.rendezvous import DaemonEndpoint, Welcome, receive_line
from toolcrib.errors import UsageError

from .conftest import User

MINE = '{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}'


META = [f"mcp__toolcrib__{name}" for name in ("search_tools", "read_artifact", "describe_tools", "call_tool")]
"""What Claude Code need not ask about, as it stands in its settings."""


def event(command: str, name: str = "PreToolUse") -> str:
    said = {"hook_event_name": name, "session_id": "s", "cwd": "/", "tool_name": "Bash"}
    return json.dumps({**said, "tool_input": {"command": command}})


def hooks(path: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(path.read_text())["hooks"]["PreToolUse"]
    return listed


@pytest.mark.parametrize(
    "before",
    [
        "{}",
        '{\n  "model": "opus"\n}\n',
        '{"hooks": {"Stop": []}}',
        '{"hooks": {"PreToolUse": []}}',
        '{"hooks": {"PreToolUse": [' + MINE + "]}}",
        '{\n\t"hooks": {\n\t\t"PreToolUse": [\n\t\t\t' + MINE + ",\n\t\t\t" + MINE + "\n\t\t]\n\t}\n}",
        '{\r\n  "hooks": {\r\n    "PreToolUse": [\r\n      ' + MINE + "\r\n    ]\r\n  }\r\n}",
    ],
)
def test_the_hook_is_added_to_those_there_are_and_every_byte_comes_back(user: User, before: str) -> None:
    settings = user.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_bytes(before.encode())

    connected = user.types("connect", "claude", "--approvals")
    listed = hooks(settings)
    again = user.types("connect", "claude", "--approvals")
    undone = user.types("disconnect", "claude")

    assert (connected.exit_code, again.exit_code, undone.exit_code) == (0, 0, 0), connected.output + again.output
    [hook] = listed[0]["hooks"]
    assert (listed[0]["matcher"], hook["timeout"], hook["onFailure"]) == ("*", HOOK_SECONDS, "block")
    assert shlex.split(hook["command"])[1:] == ["hook", "claude"]
    assert listed[1:] == json.loads(before).get("hooks", {}).get("PreToolUse", [])
    assert "already" in again.output
    assert settings.read_bytes() == before.encode()
    assert not (user.home / ".claude.json").exists()


@pytest.mark.parametrize("changed", [False, True])
def test_permissions_and_the_hook_in_one_file_are_both_taken_back(user: User, changed: bool) -> None:
    before = '{"permissions": {"allow": ["Bash(ls)"]}}\n'
    settings = user.has(".claude/settings.json", before)

    user.types("connect", "claude", "--approvals", "--profile", "adaptive")
    connected = json.loads(settings.read_text())
    if changed:
        settings.write_text(settings.read_text().replace("{", '{"model": "opus", ', 1))
    undone = user.types("disconnect", "claude")

    assert (connected["permissions"]["allow"], len(connected["hooks"]["PreToolUse"])) == (
        [*META, "Bash(ls)"],
        1,
    )
    assert undone.exit_code == 0, undone.output
    if changed:
        assert json.loads(settings.read_text())["permissions"] == json.loads(before)["permissions"]
        assert "toolcrib" not in settings.read_text()
    else:
        assert settings.read_text() == before


def test_connecting_shows_the_server_with_the_tool_that_asks_and_says_what_to_start(user: User) -> None:
    result = user.types("connect", "claude", "--approvals", "--project", "--unanswered", "ask")

    [entry] = json.loads((user.project / ".mcp.json").read_text())["mcpServers"].values()
    [hook] = hooks(user.project / ".claude" / "settings.json")
    assert entry["args"] == ["serve", "--profile", "adaptive", "--desk"]
    assert hook["hooks"][0]["command"].endswith(" hook claude --unanswered ask")
    assert "--permission-prompt-tool mcp__toolcrib__approve" in result.output
    assert not (user.home / ".claude.json").exists()
    assert user.types("disconnect", "--all").exit_code == 0
    assert [path for path in user.project.rglob("*") if path.is_file()] == []


def test_of_settings_that_changed_since_only_our_hook_is_taken_out(user: User) -> None:
    settings = user.has(".claude/settings.json", '{"hooks": {"PreToolUse": [' + MINE + "]}}")
    user.types("connect", "claude", "--approvals")
    settings.write_text(settings.read_text().replace("{", '{"model": "opus", ', 1))

    kept = user.types("disconnect", "claude")

    assert json.loads(settings.read_text()) == {"model": "opus", "hooks": {"PreToolUse": [json.loads(MINE)]}}, (
        kept.output
    )


def test_a_server_that_was_connected_without_the_desk_is_not_changed_behind_its_back(user: User) -> None:
    user.types("connect", "claude")

    result = user.types("connect", "claude", "--approvals")

    assert result.exit_code == 2
    assert "`toolcrib disconnect claude-code` first" in result.stderr
    assert "hooks" not in json.loads((user.home / ".claude" / "settings.json").read_text())


@pytest.mark.parametrize("words", [("cursor",), ("claude", "cursor"), ("--all",)])
def test_only_claude_code_has_a_desk(user: User, words: tuple[str, ...]) -> None:
    result = user.types("connect", *words, "--approvals")

    assert result.exit_code == 2
    assert "`toolcrib connect claude --approvals`" in result.stderr


def test_settings_that_are_no_json_are_left_alone(user: User) -> None:
    settings = user.has(".claude/settings.json", '{"hooks": ')

    result = user.types("connect", "claude", "--approvals")

    assert result.exit_code == 2
    assert "settings.json" in result.stderr
    assert settings.read_text() == '{"hooks": '


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("where", ["daemon", "process"])
def test_the_hook_answers_whether_or_not_there_is_a_daemon(tmp_path: Path, where: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("rules: {allow: ['Bash(touch:*)'], deny: ['Bash(rm:*)']}\nbuiltins: false\n")
    run = tmp_path / "run"
    if where == "daemon":
        run.mkdir(mode=0o700)
    else:
        run.write_text("no place for a socket")
    env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(run), "CLAUDE_PROJECT_DIR": str(tmp_path), "PATH": "/bin"}

    def decides(command: str) -> str:
        done = _hook(event(command), "--config", str(config), env=env)
        assert done.returncode == 0, done.stderr
        decision: str = json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"]
        return decision

    assert [decides("touch a"), decides("rm a"), decides("ls")] == ["allow", "deny", "allow"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "decision"),
    [
        ("guard: off\nbuiltins: false\n", "deny"),
        ("guard: off\nbuiltins: false\nmode: autonomous\n", "allow"),
    ],
)
def test_where_toolcrib_asks_in_the_place_of_the_client_the_guard_is_on(
    user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: str, decision: str
) -> None:
    """Only a mode that is named lets calls run unasked: Claude Code shows no dialog of its own after an `allow`."""
    user.has(".config/toolcrib/config.yaml", config)
    (tmp_path / "run").write_text("no place for a socket")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr("toolcrib.daemon.rendezvous.private_directory", _no_directory)

    result = user.types("hook", "claude", "--seconds", "1", stdin=event("touch a"))

    assert json.loads(result.stdout)["hookSpecificOutput"]["permissionDecision"] == decision


@pytest.mark.process
@pytest.mark.parametrize("welcome", [Welcome(pid=1), Welcome(pid=1, error="another version"), None])
def test_without_an_answer_of_its_daemon_a_hook_decides_itself(
    user: User, monkeypatch: pytest.MonkeyPatch, welcome: Welcome | None
) -> None:
    """One that ends while it decides, one that refuses, and one that hangs then."""
    monkeypatch.setattr("toolcrib.cli.processes.hook._LOOK_SECONDS", 0.1)
    with answering_for({name: value for name, value in user.environ.items() if value}, user.project):
        endpoint = DaemonEndpoint.of(load_gateway([], {"guard": "on"}))
    lock = endpoint.lock()
    assert lock is not None
    listener = socket.socket(socket.AF_UNIX)
    links: list[socket.socket] = []

    def listen() -> None:
        with suppress(OSError):  # the end of the test
            while True:
                links.append(listener.accept()[0])
                if json.loads(receive_line(links[-1]))["way"] == "hook":
                    links[-1].sendall((welcome or Welcome(pid=1)).encode())
                    receive_line(links[-1])
                if welcome:
                    links.pop().close()

    with listener, endpoint.address() as address:
        listener.bind(address)
        listener.listen()
        threading.Thread(target=listen, daemon=True).start()
        result = user.types("hook", "claude", stdin=event("ls"))
        os.close(lock)
        listener.shutdown(socket.SHUT_RDWR)
    for link in links:
        link.close()

    assert json.loads(result.stdout)["hookSpecificOutput"]["permissionDecision"] == "allow", result.stderr
    assert "deciding in this process" in result.stderr


def _no_directory(path: Path) -> Path:
    raise UsageError("no place for a socket")


@pytest.mark.parametrize("words", [("--no-daemon",), ()])
def test_a_server_that_asks_in_the_place_of_the_client_is_not_told_to_leave_that_to_the_client(
    user: User, words: tuple[str, ...]
) -> None:
    result = user.types("serve", "--desk", "--guard", "off", *words)

    assert (result.exit_code, "--guard off" in result.stderr) == (2, True)
    assert desk_overrides({"guard": None, "mode": "manual"}) == {"guard": "on", "mode": "manual"}


@pytest.mark.long
@pytest.mark.process
def test_a_hook_that_cannot_decide_denies_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("colour: blue\n")
    env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "PATH": "/bin"}

    broken = _hook(event("ls"), "--config", str(tmp_path / "config.yaml"), env=env)
    unread = _hook("no json", env=env)
    other = _hook(event("ls", "PostToolUse"), env=env)

    said = json.loads(broken.stdout)["hookSpecificOutput"]
    assert (broken.returncode, said["permissionDecision"]) == (0, "deny")
    assert "unknown key" in said["permissionDecisionReason"]
    assert (unread.returncode, unread.stdout) == (2, "")
    assert (other.returncode, other.stdout) == (0, "")


def _hook(said: str, *options: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("toolcrib")), "hook", "claude", *options]
    return subprocess.run(command, input=said, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
