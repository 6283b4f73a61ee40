"""`toolcrib uninstall`: what it shows is what it removes, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rig import PATIENCE, Hearing
from toolcrib.cli.main import app
from toolcrib.config.secrets import write_secret

from .conftest import TOOLCRIB, User

ENTRY = {"command": TOOLCRIB, "args": ["serve", "--profile", "flat", "--guard", "off"]}


def tree(home: Path) -> dict[str, bytes]:
    """Return every file below `home` with its content."""
    files = (path for path in home.rglob("*") if path.is_file())
    return {str(path.relative_to(home)): path.read_bytes() for path in files}


@pytest.mark.process  # the keyring looks for libraries
def test_everything_that_toolcrib_keeps_goes_and_nothing_else(user: User) -> None:
    user.has(".cursor/mcp.json", '{"mcpServers": {}} // mine\n')
    user.has(".claude/settings.json", '{"hooks": {}}')
    user.has("project/.toolcrib/config.yaml", "mode: cautious\n")
    user.has(".local/share/other/file", "somebody else's")
    user.has(".config/toolcrib/config.yaml", "mode: cautious\n")
    before = tree(user.home)
    user.types("connect", "cursor")
    user.types("connect", "claude", "--approvals")
    user.has(".cache/toolcrib/list.json", "{}")
    write_secret("db", "hunter-two", {"HOME": str(user.home)})

    shown = user.types("uninstall", "--dry-run")
    during = tree(user.home)
    done = user.types("uninstall", "--yes")

    assert (shown.exit_code, done.exit_code) == (0, 0), done.output
    assert during.keys() >= {".cache/toolcrib/list.json", *before}
    assert tree(user.home) == before
    assert [folder for folder in user.home.rglob("*/*") if folder.is_dir() and not any(folder.iterdir())] == []
    lines = [line.split(maxsplit=1) for line in shown.stdout.splitlines()]
    assert sorted({verb for verb, _ in lines}) == ["disconnect", "keep", "remove"]
    assert sum(verb == "disconnect" for verb, _ in lines) == 3
    assert user.types("uninstall", "--yes", "--config").exit_code == 0
    assert not user.config.exists()


def test_what_it_removes_can_be_read_by_a_program(user: User) -> None:
    file = user.has(".cursor/mcp.json", "{}")
    hand_made = user.has(".gemini/settings.json", {"mcpServers": {"toolcrib": ENTRY}})
    user.types("connect", "cursor")
    data = user.has(".local/share/toolcrib/file", "12345")

    count = len(list(data.parent.iterdir()))

    planned = user.reads("uninstall", "--dry-run")
    unasked = user.types("uninstall", "--json")
    there = data.exists()
    done = user.reads("uninstall", "--yes")

    assert (unasked.exit_code, there, data.exists(), file.read_text()) == (2, True, False, "{}")
    assert planned["disconnect"] == [
        {"client": "cursor", "file": str(file), "recorded": True},
        {"client": "gemini", "file": str(hand_made), "recorded": False},
    ]
    (folder,) = (row for row in planned["folders"] if row["path"] == str(data.parent))
    assert (folder.keys(), folder["files"]) == ({"path", "files", "bytes"}, count)
    assert (planned["removed"], done) == (False, {**planned, "removed": True})


def test_a_client_that_changed_since_loses_only_the_entry(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.types("connect", "cursor")
    changed = json.loads(file.read_text())
    file.write_text(json.dumps({**changed, "new": 1}))
    hand_made = user.has(".gemini/settings.json", {"mcpServers": {"toolcrib": ENTRY, "mine": {"command": "x"}}})

    done = user.types("uninstall", "--yes")

    assert done.exit_code == 0, done.output
    assert json.loads(file.read_text()) == {"mcpServers": {}, "new": 1}
    assert json.loads(hand_made.read_text()) == {"mcpServers": {"mine": {"command": "x"}}}


def test_what_may_be_the_only_copy_of_a_clients_servers_stays(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"toolcrib": ENTRY}})
    user.has(".config/toolcrib/config.yaml", {"servers": {"moved": {"command": "x"}}})

    done = user.types("uninstall", "--yes", "--config")

    assert (done.exit_code, user.config.exists()) == (0, True)


def test_where_a_client_cannot_be_put_back_nothing_is_removed(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.types("connect", "cursor")
    file.write_text("{ not JSON")
    kept = user.has(".local/share/toolcrib/file", "data")

    failed = user.types("uninstall", "--yes")

    assert (failed.exit_code, kept.exists(), file.read_text()) == (2, True, "{ not JSON")
    assert (user.home / ".local/state/toolcrib/connections").is_dir()


def test_without_a_terminal_it_asks_for_the_option_that_answers(user: User) -> None:
    kept = user.has(".local/share/toolcrib/file", "data")

    refused = user.types("uninstall")

    assert (refused.exit_code, kept.exists()) == (2, True)
    assert "toolcrib uninstall --yes" in refused.stderr


def test_a_folder_that_is_a_link_is_unlinked(user: User) -> None:
    elsewhere = user.has("elsewhere/file", "data")
    (user.home / ".cache").mkdir()
    (user.home / ".cache" / "toolcrib").symlink_to(elsewhere.parent)

    done = user.types("uninstall", "--yes")

    assert (done.exit_code, elsewhere.read_text()) == (0, "data")
    assert not (user.home / ".cache" / "toolcrib").is_symlink()


@pytest.mark.process
@pytest.mark.slow
def test_a_daemon_is_ended_with_its_clients(user: User) -> None:
    runtime = user.runtime
    env = {"HOME": str(user.home), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime)}
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", "from toolcrib.cli.entry import main; main()", "serve"]
    with subprocess.Popen(command, env=env, cwd=user.project, stdin=pipe, stdout=pipe, stderr=pipe) as client:
        assert client.stdin is not None
        client.stdin.write(json.dumps(hello).encode() + b"\n")
        client.stdin.flush()
        assert Hearing(client.stdout).line()

        other = User(user.home / "other")
        other.environ |= {"XDG_RUNTIME_DIR": str(runtime)}
        foreign = CliRunner(env=other.environ).invoke(app, ["uninstall", "--yes"])
        still = list(runtime.glob("toolcrib/*.sock"))
        done = user.types("uninstall", "--yes")

        assert (foreign.exit_code, "ended the daemon" in foreign.stdout, len(still)) == (0, False, 1)
        assert done.exit_code == 0, done.output
        assert "ended the daemon" in done.stdout
        assert not (runtime / "toolcrib").exists()
        client.stdin.close()
        client.wait(PATIENCE)


@pytest.mark.process
def test_a_daemon_that_hangs_has_ended_before_its_files_go(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.daemon.control._ANSWER_SECONDS", 0.5)
    user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.types("connect", "cursor", "--start")
    (daemon,) = user.reads("daemon")
    os.kill(daemon["pid"], signal.SIGSTOP)

    done = user.types("uninstall", "--yes")

    assert (done.exit_code, f"ended the daemon (process {daemon['pid']})" in done.stdout) == (0, True), done.output
    with suppress(FileNotFoundError):  # its parent may not have taken note of its end
        assert " Z " in Path(f"/proc/{daemon['pid']}/stat").read_text()
