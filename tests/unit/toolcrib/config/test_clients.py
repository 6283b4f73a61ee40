"""Every client's configuration is read in its own shape, and is put back byte for byte after Toolcrib was in it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import Directories
from toolcrib.config.clients.connections import Moved, connect, connections, disconnect, entries
from toolcrib.config.clients.discovery import FoundServer, discover
from toolcrib.config.clients.table import CLIENTS, missing_program
from toolcrib.config.directories import Places


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One client's file as it is found in the wild, and the servers that stand in it, in our words."""

    client: str
    file: str
    """Where it belongs, in the home directory."""
    sample: str
    """What it says: a file in `samples`."""
    servers: dict[str, dict[str, Any]]
    notices: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What of it has no effect here."""


SAMPLES = [
    Sample(
        client="claude-code",
        file=".claude.json",
        sample="claude-code.json",
        servers={
            "github": {
                "type": "http",
                "url": "https://api.githubcopilot.com/mcp/",
                "headers": {"Authorization": "Bearer ${GH}"},
            },
            "local": {"command": "npx", "args": ["-y", "x"], "projects": ["{PROJECT}"]},
        },
    ),
    Sample(
        client="claude-desktop",
        file=".config/Claude/claude_desktop_config.json",
        sample="claude-desktop.json",
        servers={"files": {"command": "npx", "args": ["fs", "/tmp"], "env": {"A": "b"}}},
    ),
    Sample(
        client="cursor",
        file=".cursor/mcp.json",
        sample="cursor.json",
        servers={"api": {"url": "http://localhost:3000/mcp", "headers": {"X-Key": "${API_KEY}"}}},
    ),
    Sample(
        client="windsurf",
        file=".codeium/windsurf/mcp_config.json",
        sample="windsurf.json",
        servers={"remote": {"url": "https://h/sse", "disabled_tools": ["rm"]}},
    ),
    Sample(
        client="gemini",
        file=".gemini/settings.json",
        sample="gemini.json",
        servers={
            "a": {"url": "https://h/mcp", "type": "http", "timeout": 30},
            "b": {"type": "sse", "url": "https://h/sse", "enabled_tools": ["x"]},
        },
        notices=[("notice", "`trust` (b) has no effect here")],
    ),
    Sample(
        client="vscode",
        file=".config/Code/User/mcp.json",
        sample="vscode.jsonc",
        servers={
            "gh": {
                "type": "stdio",
                "command": "docker",
                "args": ["run", "{HOME}"],
                "env": {"TOKEN": "${input:gh-token}", "B": "${B}"},
            }
        },
    ),
    Sample(
        client="codex",
        file=".codex/config.toml",
        sample="codex.toml",
        servers={
            "docs": {
                "command": "npx",
                "args": ["-y", "docs"],
                "enabled_tools": ["read"],
                "env": {"DOCS_KEY": "${DOCS_KEY}", "LEVEL": "1"},
                "timeout": 90,
            },
            "web": {
                "url": "https://h/mcp",
                "headers": {"X-Org": "${ORG}", "Authorization": "Bearer ${WEB_TOKEN}"},
            },
        },
    ),
    Sample(
        client="opencode",
        file=".config/opencode/opencode.json",
        sample="opencode.jsonc",
        servers={
            "a": {"type": "local", "command": ["bun", "x", "srv"], "enabled": False, "env": {"K": "${KEY}"}},
            "b": {"type": "remote", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOK}"}},
        },
    ),
    Sample(
        client="goose",
        file=".config/goose/config.yaml",
        sample="goose.yaml",
        servers={
            "fetch": {
                "type": "stdio",
                "command": "uvx",
                "args": ["mcp-server-fetch"],
                "env": {"FETCH_TOKEN": "${FETCH_TOKEN}", "A": "b"},
                "timeout": 300,
                "enabled": True,
            },
            "web": {"type": "streamable_http", "url": "https://h/mcp"},
        },
    ),
    Sample(
        client="mcporter",
        file=".mcporter/mcporter.json",
        sample="mcporter.json",
        servers={
            "a": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${A_TOKEN}"}, "description": "x"},
            "b": {"command": ["node", "b.js"]},
        },
    ),
    Sample(
        client="zed",
        file=".config/zed/settings.json",
        sample="zed.jsonc",
        servers={
            "local": {"command": "npx", "args": ["-y", "srv@1.0.0"], "env": {"A": "b"}},
            "remote": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOK}"}},
        },
    ),
    Sample(
        client="kiro",
        file=".kiro/settings/mcp.json",
        sample="kiro.json",
        servers={
            "web": {
                "command": "npx",
                "args": ["-y", "search"],
                "env": {"KEY": "${SEARCH_KEY}"},
                "disabled": False,
                "disabled_tools": ["drop"],
            }
        },
        notices=[("notice", "`autoApprove` (web) has no effect here")],
    ),
    Sample(
        client="copilot",
        file=".copilot/mcp-config.json",
        sample="copilot.json",
        servers={
            "a": {
                "type": "local",
                "command": "uvx",
                "args": ["srv"],
                "enabled_tools": ["*"],
                "env": {"K": "${KEY}"},
            },
            "b": {"type": "http", "url": "https://h/mcp", "enabled_tools": ["read", "list"]},
        },
    ),
    Sample(
        client="lm-studio",
        file=".lmstudio/mcp.json",
        sample="lm-studio.json",
        servers={"hf": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer abc"}}},
    ),
    Sample(
        client="junie",
        file=".junie/mcp/mcp.json",
        sample="junie.json",
        servers={"files": {"command": "npx", "args": ["-y", "files", "/tmp"]}},
    ),
    Sample(
        client="amp",
        file=".config/amp/settings.json",
        sample="amp.json",
        servers={
            "a": {"command": "npx", "args": ["-y", "a"], "env": {"T": "${TOKEN}"}},
            "b": {"url": "https://h/sse", "headers": {"X": "y"}},
        },
    ),
    Sample(
        client="warp",
        file=".warp/.mcp.json",
        sample="warp.json",
        servers={"a": {"command": "npx", "args": ["-y", "a"], "cwd": "/srv/a"}},
    ),
    Sample(
        client="cline",
        file=".cline/data/settings/cline_mcp_settings.json",
        sample="cline.json",
        servers={
            "local-server": {
                "command": "node",
                "args": ["/path/to/server.js"],
                "env": {"API_KEY": "${API_KEY}"},
                "disabled": False,
                "timeout": 60,
            },
            "remote": {"type": "streamableHttp", "url": "https://h/mcp", "disabled": False},
        },
        notices=[("notice", "`autoApprove` (local-server) has no effect here")],
    ),
    Sample(
        client="cline-vscode",
        file=".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        sample="lm-studio.json",
        servers={"hf": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer abc"}}},
    ),
    Sample(
        client="continue",
        file=".continue/mcpServers/mcp.json",
        sample="warp.json",
        servers={"a": {"command": "npx", "args": ["-y", "a"], "cwd": "/srv/a"}},
    ),
]

by_client = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.client)

INHERITED = ("claude-code", "gemini", "vscode", "opencode", "goose", "mcporter", "zed")
"""Clients whose servers get all of their environment."""

ENTRY = ("/bin/toolcrib", ["serve", "--profile", "adaptive"])


def test_there_is_a_sample_of_every_client() -> None:
    assert [sample.client for sample in SAMPLES] == list(CLIENTS)


@by_client
def test_servers_are_read_in_the_clients_own_shape(tmp_path: Path, sample: Sample) -> None:
    places, _ = _install(tmp_path, sample)

    found = discover(places)

    assert [(problem.code, problem.message) for problem in found.problems] == sample.notices
    inherits = {"inherit_env": True} if sample.client in INHERITED else {}
    expected = _filled(sample.servers, places)
    expected = {name: {**value, **(inherits if "command" in value else {})} for name, value in expected.items()}
    assert {server.name: server.value for server in found.servers} == expected
    assert {server.client.name for server in found.servers} == {sample.client}


@by_client
def test_connecting_and_disconnecting_leaves_every_byte_as_it_was(tmp_path: Path, sample: Sample) -> None:
    places, file = _install(tmp_path, sample)
    client, before = CLIENTS[sample.client], file.read_bytes()
    entry = client.entry(*ENTRY)
    file.chmod(0o640)

    connect(client, file, entry, state=places.directories.state)
    during = entries(client, file.read_bytes(), str(file))
    outcome = disconnect(client, file, state=places.directories.state)

    assert during == {"toolcrib": entry, **entries(client, before, str(file))}
    assert (outcome, file.read_bytes(), file.stat().st_mode & 0o777) == ("restored", before, 0o640)
    assert connections(places.directories.state) == []


@by_client
def test_only_our_entry_makes_the_difference(tmp_path: Path, sample: Sample) -> None:
    places, file = _install(tmp_path, sample)
    client = CLIENTS[sample.client]
    before = file.read_text().splitlines()

    connect(client, file, client.entry(*ENTRY), state=places.directories.state)

    after = file.read_text().splitlines()
    added = len(after) - len(before)
    without_a_block = (after[:place] + after[place + added :] for place in range(len(before) + 1))
    assert sample.client == "cursor" or before in without_a_block


@by_client
def test_a_file_that_changed_since_is_not_overwritten_and_loses_only_our_entry(tmp_path: Path, sample: Sample) -> None:
    places, file = _install(tmp_path, sample)
    client, state = CLIENTS[sample.client], places.directories.state
    before = entries(client, file.read_bytes(), str(file))
    names = [name for name, value in before.items() if value.get("type") != "builtin"]
    connect(client, file, client.entry(*ENTRY), Moved(servers=names), state=state)
    alone = entries(client, file.read_bytes(), str(file))
    file.write_text(file.read_text() + "\n")

    outcome = disconnect(client, file, state=state)

    assert set(alone) == {"toolcrib", *before} - set(names)
    assert (outcome, entries(client, file.read_bytes(), str(file))) == ("removed", before)


_CODEX = """\
model = "gpt-5" # favourite
approval_policy = "never"

[mcp_servers.time] # the clock
command = "clock" # from pip

[mcp_servers.maps]
command = "maps"

# a git server
[mcp_servers.code]
args = ["serve"] # the project
command = "code"

[mcp_servers.code.env]
TOKEN = "secret" # rotated

[tui] # colours
theme = "dark"
"""


def test_tables_come_back_as_they_stood_although_the_client_or_its_user_wrote_other_lines_since(tmp_path: Path) -> None:
    places, client = _places(tmp_path), CLIENTS["codex"]
    file, state = _write(client.user_file(places), _CODEX), places.directories.state
    connect(client, file, client.entry(*ENTRY), Moved(servers=["time", "maps", "code"]), state=state)
    edits = {'"gpt-5"': '"gpt-6"', "[tui]": '[mcp_servers.new]\ncommand = "new" # mine\n\n[tui]'}
    expected = _CODEX
    for old, new in edits.items():
        file.write_text(file.read_text().replace(old, new))
        expected = expected.replace(old, new)

    outcome = disconnect(client, file, state=state)

    assert (outcome, file.read_text()) == ("removed", expected)


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_record_of_the_first_version_puts_the_file_back(tmp_path: Path, *, has_changed: bool) -> None:
    places, client = _places(tmp_path), CLIENTS["cursor"]
    before = '{"mcpServers": {"a": {"command": "x"}}}'
    file, state = _write(client.user_file(places), before), places.directories.state
    connect(client, file, client.entry(*ENTRY), Moved(servers=["a"]), state=state)
    (record,) = (state / "connections").iterdir()
    known = json.loads(record.read_bytes())
    record.write_text(
        json.dumps({name: known[name] for name in ("client", "file", "before", "existed", "after", "moved")})
    )
    if has_changed:
        file.write_text(file.read_text() + "\n")

    outcome = disconnect(client, file, state=state)

    assert outcome == ("removed" if has_changed else "restored")
    assert json.loads(file.read_text()) == json.loads(before)


@by_client
def test_a_file_that_was_put_back_by_hand_is_connected_and_restored_as_at_first(tmp_path: Path, sample: Sample) -> None:
    places, file = _install(tmp_path, sample)
    client, state, before = CLIENTS[sample.client], places.directories.state, file.read_bytes()
    outcomes = list[str]()
    for connected in (1, 2):
        for _ in range(connected):
            file.write_bytes(before)
            connect(client, file, client.entry(*ENTRY), state=state)
        if connected == 1:
            file.write_bytes(before)
        outcomes.append(disconnect(client, file, state=state))

    assert (outcomes, file.read_bytes(), connections(state)) == (["restored", "restored"], before, [])


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_without_a_file_gets_one_and_loses_it_again(tmp_path: Path, name: str) -> None:
    places = _places(tmp_path)
    client = CLIENTS[name]
    file = client.user_file(places)

    connect(client, file, client.entry(*ENTRY), state=places.directories.state)
    made = entries(client, file.read_bytes(), str(file))
    outcome = disconnect(client, file, state=places.directories.state)

    assert (made, outcome, file.exists()) == ({"toolcrib": client.entry(*ENTRY)}, "deleted", False)


@pytest.mark.parametrize(
    "form", ["#!{}\n", "#!/bin/sh\n'''exec' {} \"$0\" \"$@\"\n", "#!/bin/sh\n'''exec' \"{}\" \"$0\"\n"]
)
def test_a_script_whose_python_is_gone_cannot_be_started(tmp_path: Path, form: str) -> None:
    python, script = tmp_path / "venv" / "bin" / "python3.11", tmp_path / "venv" / "bin" / "toolcrib"
    _write(script, form.format(python) + "import toolcrib\n")

    without = missing_program([str(script), "serve"])
    python.touch()

    assert (without, missing_program([str(script), "serve"])) == (python, None)
    assert missing_program(["toolcrib"]) is None


def test_a_home_that_was_renamed_has_its_connections_and_what_they_took(tmp_path: Path) -> None:
    places = _places(tmp_path)
    client, before = CLIENTS["cursor"], '{"mcpServers": {"a": {"command": "x"}}}'
    _write(client.user_file(places), before)
    connect(
        client, client.user_file(places), client.entry(*ENTRY), Moved(servers=["a"]), state=places.directories.state
    )
    places.home.rename(tmp_path / "other")
    environ = {"HOME": str(tmp_path / "other")}
    state, file = Directories.of(environ).state, tmp_path / "other" / ".cursor" / "mcp.json"
    connect(client, file, client.entry("/bin/newer", []), state=state)

    found = [Path(done.file) for done in connections(state)]
    outcome = disconnect(client, file, state=state)

    assert (found, outcome, file.read_text(), connections(state)) == ([file], "restored", before, [])


def test_a_byte_order_mark_and_a_symbolic_link_survive(tmp_path: Path) -> None:
    places = _places(tmp_path)
    client = CLIENTS["cursor"]
    real, file = tmp_path / "dotfiles.json", client.user_file(places)
    real.write_bytes(b'\xef\xbb\xbf{"mcpServers": {}}')
    file.parent.mkdir(parents=True)
    file.symlink_to(real)

    connect(client, file, client.entry(*ENTRY), state=places.directories.state)
    during = real.read_bytes()
    disconnect(client, file, state=places.directories.state)

    assert during.startswith(b"\xef\xbb\xbf{")
    assert (file.is_symlink(), real.read_bytes()) == (True, b'\xef\xbb\xbf{"mcpServers": {}}')


def test_files_of_a_project_are_marked_as_its_and_ours_are_left_out(tmp_path: Path) -> None:
    places = _places(tmp_path)
    servers = {"a": {"command": "x"}, "toolcrib": {"command": "/v/bin/toolcrib", "args": ["serve"]}}
    (places.project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))

    found = discover(places).servers

    expected = FoundServer(
        name="a",
        client=CLIENTS["claude-code"],
        file=places.project / ".mcp.json",
        scope="project",
        value={"command": "x", "projects": [str(places.project)], "cwd": str(places.project)},
        base=str(places.project),
        line=1,
    )
    assert found == (expected,)


def test_a_broken_file_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    places = _places(tmp_path)
    _write(places.home / ".cursor" / "mcp.json", '{"mcpServers": {"a": {"command": "x"}}}')
    _write(places.home / ".codex" / "config.toml", "[broken")

    found = discover(places)

    assert [server.name for server in found.servers] == ["a"]
    assert [(problem.source, problem.code) for problem in found.problems] == [("codex", "bad_config")]


def test_servers_and_entries_of_another_kind_are_problems_with_their_lines(tmp_path: Path) -> None:
    places = _places(tmp_path)
    text = '{"mcpServers": {\n"a": {"command": "x"},\n"//": "a comment",\n"b": ["x"],\n"c": {"comand": "x"}}}'
    some = _write(places.home / ".cursor" / "mcp.json", text)
    none = _write(places.home / ".gemini" / "settings.json", '{\n"mcpServers": [{"command": "x"}]}')

    found = discover(places)

    assert [(server.name, server.line) for server in found.servers] == [("a", 2)]
    assert [(problem.source, problem.message.partition(": ")[0]) for problem in found.problems] == [
        ("b", f"{some}:4"),
        ("c", f"{some}:5"),
        ("gemini", f"{none}:2"),
    ]


def _places(tmp_path: Path) -> Places:
    project = tmp_path / "project"
    project.mkdir()
    environ = {"HOME": str(tmp_path / "home")}
    return Places(directories=Directories.of(environ), environ=environ, project=project, platform="linux")


def _install(tmp_path: Path, sample: Sample) -> tuple[Places, Path]:
    places = _places(tmp_path)
    text = (Path(__file__).parent / "samples" / sample.sample).read_text().replace("{PROJECT}", str(places.project))
    return places, _write(places.home / sample.file, text)


def _filled(value: Any, places: Places) -> Any:
    text = json.dumps(value).replace("{PROJECT}", str(places.project)).replace("{HOME}", str(places.home))
    return json.loads(text)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
