"""`toolcrib` alone: one screen from files, without a server being started."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest
import yaml

from rig import PATIENCE

from .conftest import TOOLCRIB, User

GONE = {"command": "/nonexistent/notes", "args": ["--all"]}


def kinds(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["kind"], finding["subject"]) for finding in facts["findings"]]


def test_clients_duplicates_and_risks_are_on_the_screen(user: User) -> None:
    risky = {"command": "npx", "args": ["-y", "@example/server"]}
    pinned = {"command": "npx", "args": ["-y", "@example/server@1.2.3"]}
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": GONE, "risky": risky, "pinned": pinned}})
    user.has(".gemini/settings.json", {"mcpServers": {"notes": {**GONE, "type": "stdio", "timeout": 5000}}})
    user.has(".codeium/windsurf/mcp_config.json", {"mcpServers": {"web": {"serverUrl": "http://192.0.2.1/mcp"}}})

    facts = user.reads("overview")
    screen = user.types()

    rows = {row["client"]: (row["servers"], row["connected"], row["movable"]) for row in facts["clients"]}
    assert rows == {
        "cursor": (3, False, ["notes", "risky", "pinned"]),
        "windsurf": (1, False, ["web"]),
        "gemini": (1, False, ["notes"]),
    }
    assert [one for one in kinds(facts) if one[0] != "unknown"] == [
        ("duplicate", "notes"),
        ("risky", "risky"),
        ("risky", "web"),
    ]
    assert facts["fixable"] == ["cursor", "windsurf", "gemini"]
    assert screen.exit_code == 0
    assert "toolcrib connect cursor windsurf gemini --replace" in screen.stdout


def test_somebody_without_servers_reads_how_to_begin(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {}})

    screen = user.types()

    assert all(f"`toolcrib {command}" in screen.stdout for command in ("demo --once", "add NAME", "connect CLIENT"))


def test_a_change_of_any_file_is_on_the_next_screen(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})
    before = user.reads("overview")
    file.write_text(json.dumps({"mcpServers": {"notes": GONE}}))
    after = user.reads("overview")
    user.has(".config/toolcrib/config.yaml", "servers: {own: {command: /nonexistent}}\n")
    own = user.reads("overview")

    assert [[row["servers"] for row in facts["clients"]] for facts in (before, after)] == [[0], [1]]
    assert (after["own"]["servers"], own["own"]["servers"]) == (0, 1)


def test_the_facts_are_gathered_anew_by_another_version_of_the_program(user: User) -> None:
    user.reads("overview")
    kept = user.home / ".cache" / "toolcrib" / "overview.json"
    facts = json.loads(kept.read_text())
    programs = [file for file in facts["stamps"] if "toolcrib/config/" in file or file.endswith("site-packages")]
    kept.write_text(json.dumps({**facts, "findings": [{"kind": "risky", "subject": "old", "detail": "screen"}]}))
    same = kinds(user.reads("overview"))
    outdated = {**facts["stamps"], programs[0]: [1, 2, 3]}
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "stamps": outdated}))

    assert (same, kinds(user.reads("overview"))) == ([("risky", "old")], [])
    assert any(file.endswith("site-packages") for file in programs)


def test_a_broken_file_is_named_and_hides_nothing(user: User) -> None:
    user.has(".cursor/mcp.json", "{ not JSON")
    user.has(".gemini/settings.json", {"mcpServers": {"notes": GONE}})
    user.has(".config/toolcrib/config.yaml", "mode: [")

    facts = user.reads("overview")

    assert {row["client"]: row["servers"] for row in facts["clients"]} == {"cursor": 0, "gemini": 1}
    assert [one for one in kinds(facts) if one[0] == "problem"] == [("problem", "configuration"), ("problem", "cursor")]
    assert facts["fixable"] == []  # `connect` would end with the same error


def test_an_entry_of_ours_that_is_no_mapping_hides_nothing(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": GONE}})
    user.has(".config/toolcrib/config.yaml", "servers: {text: notes-server, good: {command: /nonexistent}}\n")

    facts = user.reads("overview")

    assert (facts["own"]["servers"], facts["fixable"]) == (1, ["cursor"])
    assert [one for one in kinds(facts) if one[0] == "problem"] == [("problem", "text")]


def test_a_connected_client_shows_what_it_pays_and_a_program_that_is_gone(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.types("connect", "cursor")
    connected = user.reads("overview")["clients"][0]
    file.write_text(file.read_text().replace(TOOLCRIB, "/nonexistent/toolcrib"))

    facts = user.reads("overview")

    assert (connected["connected"], connected["tokens"]) == (True, 0)
    assert (facts["fixable"], kinds(facts)) == ([], [("entry", "Cursor")])


def test_in_the_home_itself_the_entry_of_a_program_that_is_gone_is_that_of_the_users_file(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"toolcrib": {"command": "/nonexistent/toolcrib", "args": ["serve"]}}})
    monkeypatch.chdir(user.home)

    (found,) = [one["detail"] for one in user.reads("overview")["findings"] if one["kind"] == "entry"]

    assert "`toolcrib connect cursor` names" in found


@pytest.mark.slow
@pytest.mark.process
def test_a_client_that_could_be_connected_is_something_to_do(owner: User) -> None:
    owner.types("tools")
    nothing = owner.types()
    servers = yaml.safe_load((owner.home / ".config/toolcrib/config.yaml").read_text())["servers"]
    owner.has(".cursor/mcp.json", {"mcpServers": servers})

    facts, screen = owner.reads("overview"), owner.types()

    assert (facts["fixable"], facts["findings"]) == (["cursor"], [])
    assert ("nothing to do" in nothing.output, "nothing to do" in screen.output) == (True, False)


@pytest.mark.process
def test_what_was_seen_when_a_server_was_asked_is_shown(owner: User) -> None:
    owner.types("tools")
    owner.has(".cursor/mcp.json", {"mcpServers": {"gone": GONE}})
    owner.types("import", "--dry-run", "--wait", "5")

    facts = owner.reads("overview")

    assert (facts["own"]["servers"], facts["own"]["tools"], facts["own"]["unlisted"]) == (1, 4, [])
    assert ("silent", "gone") in kinds(facts)


@pytest.mark.process
def test_a_screen_whose_reader_has_gone_ends_without_a_traceback(user: User) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        done = subprocess.run(
            [TOOLCRIB],
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
            timeout=PATIENCE,
            env={"HOME": str(user.home), "PATH": os.environ["PATH"]},
            cwd=user.project,
        )

    assert (done.returncode, done.stderr) == (1, b"")


def test_what_counts_servers_that_were_never_listed_writes_no_configuration(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": GONE}})

    [unknown] = [one for one in user.reads("overview")["findings"] if one["kind"] == "unknown"]

    assert unknown["detail"].startswith("`toolcrib import --dry-run` ")


@pytest.mark.process
def test_a_screen_that_is_known_loads_no_configuration(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": GONE}})
    user.types()
    probe = (
        "import sys, json; sys.argv = ['toolcrib']; from toolcrib.cli.main import main; main()\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    env = {"HOME": str(user.home), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        env=env,
        cwd=user.project,
    )

    modules = set(json.loads(done.stdout.splitlines()[-1]))
    heavy = {"anyio", "httpx2", "jsonschema_rs", "pydantic", "toolcrib.config.loader", "toolcrib.crib"}
    assert heavy & modules == set()


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("answer,connected", [("n", False), ("y", True)])
def test_at_a_terminal_it_shows_the_change_and_asks(user: User, answer: str, connected: bool) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {"notes": GONE}})
    env = {"HOME": str(user.home), "PATH": os.environ["PATH"], "TOOLCRIB_COMMAND": TOOLCRIB, "TERM": "dumb"}
    ours, theirs = pty.openpty()
    with subprocess.Popen([TOOLCRIB], env=env, cwd=user.project, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        shown = _read_all(ours)
        process.wait(PATIENCE)

    assert "would put Toolcrib into" in shown
    assert ("toolcrib" in json.loads(file.read_text())["mcpServers"]) is connected


def _read_all(terminal: int) -> str:
    """Return what is written to the other end until it is closed."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # Linux says so when the last process at the other end has left
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)
