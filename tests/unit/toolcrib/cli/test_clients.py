"""`import`, `connect`, `disconnect` and `trust` on real files of clients in a home directory."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from .conftest import NOTES_SERVER, User

NOTES = {"command": sys.executable, "args": [NOTES_SERVER], "env": {"NOTES_TOKEN": "very-secret-token"}}


@pytest.mark.process
def test_import_takes_over_what_clients_have_and_never_shows_a_secret(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": NOTES, "later": {"command": "x", "env": {"A": "${NOPE}"}}}})
    user.has(".gemini/settings.json", {"mcpServers": {"notes": NOTES}})
    user.has("project/.mcp.json", {"mcpServers": {"theirs": {"command": "/nonexistent"}}})

    result = user.types("import", "--json")
    lines = {line["server"]: line for line in json.loads(result.stdout)}
    again = user.types("import")

    assert (lines["notes"]["from"], lines["notes"]["tools"]) == ("Cursor (user), Gemini CLI (user)", 4)
    assert lines["notes"]["state"] == "ready"
    assert "the environment variable NOPE is not set" in lines["later"]["state"]
    assert lines["theirs"]["state"] == "untrusted: it came with the project; --trust takes it"
    assert "very-secret-token" not in result.output + again.output
    assert "theirs" not in user.config.read_text()
    assert user.config.stat().st_mode & 0o777 == 0o600
    assert user.types("call", "notes__search_notes", "query=a").exit_code == 0


@pytest.mark.process
def test_a_dry_run_of_import_writes_nothing(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": NOTES}})

    result = user.types("import", "--dry-run")

    assert (result.exit_code, user.config.exists()) == (0, False)
    assert "dry run: 1 server would be written" in result.stderr


@pytest.mark.process
def test_servers_of_a_project_are_taken_when_the_user_vouches_for_them(user: User) -> None:
    user.has("project/.mcp.json", {"mcpServers": {"theirs": {"command": sys.executable, "args": [NOTES_SERVER]}}})

    lines = user.reads("import", "--trust")

    assert [(line["server"], line["tools"], line["state"]) for line in lines] == [("theirs", 4, "ready")]
    assert f"cwd: {user.project}" in user.config.read_text()


@pytest.mark.process
def test_an_import_after_a_change_in_a_client_names_the_entry_that_it_leaves_behind(user: User) -> None:
    for number in ("1", "2"):
        user.has("project/.mcp.json", {"mcpServers": {"theirs": {"command": "/nonexistent", "args": [number]}}})
        result = user.types("import", "--trust")

    assert (
        "theirs-claude-code is not the theirs that is here and no client has: `toolcrib remove theirs` if it took its"
        " place" in " ".join(result.stderr.split())
    )
    assert "toolcrib remove" not in user.types("import", "--trust").stderr


@pytest.mark.process
def test_two_servers_of_one_name_get_names_of_their_own(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": NOTES}})
    user.has(".gemini/settings.json", {"mcpServers": {"notes": {"command": "/nonexistent", "env": {"A": "$NOPE"}}}})

    lines = user.reads("import")

    assert [line["server"] for line in lines] == ["notes", "notes-gemini"]
    assert "mcpServers.notes.env.A" in lines[1]["state"], "by its name in the file"


def test_a_client_is_connected_with_the_profile_that_suits_it_and_put_back(user: User) -> None:
    cursor = user.has(".cursor/mcp.json", '{"mcpServers": {}} // mine\n')
    codex = user.has(".codex/config.toml", "model = 'x' # mine\n")

    connected = user.types("connect", "cursor", "codex")
    cursor_text, codex_text = cursor.read_text(), codex.read_text()
    twice = user.types("connect", "cursor")
    back = user.types("disconnect", "--all")

    assert connected.exit_code == 0, connected.output
    assert '"--profile",\n      "adaptive"' in cursor_text
    assert 'args = ["serve", "--profile", "adaptive", "--guard", "off"]' in codex_text
    assert 'env_vars = ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",' in codex_text
    assert "has Toolcrib already" in twice.stdout
    assert back.exit_code == 0
    assert (cursor.read_text(), codex.read_text()) == ('{"mcpServers": {}} // mine\n', "model = 'x' # mine\n")


def test_connecting_all_takes_the_clients_that_are_here(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {}})

    result = user.types("connect", "--all")

    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == ["Cursor"]


@pytest.mark.process
def test_a_clients_file_comes_back_although_our_own_is_broken_and_the_command_names_what_stays(user: User) -> None:
    file = user.has(".cursor/mcp.json", json.dumps({"mcpServers": {"notes": NOTES}}))
    before = file.read_bytes()
    user.types("connect", "cursor", "--replace")
    own = file.parent.parent / ".config/toolcrib/config.yaml"
    own.write_text(own.read_text() + "rules: [\n")

    result = user.types("disconnect", "cursor")

    assert (result.exit_code, file.read_bytes()) == (0, before)
    assert str(own) in result.stderr


@pytest.mark.process
def test_the_clients_servers_can_be_moved_behind_toolcrib_and_come_back(user: User) -> None:
    before = json.dumps({"mcpServers": {"notes": NOTES}}, indent=4)
    file = user.has(".cursor/mcp.json", before)

    moved = user.types("connect", "cursor", "--replace")
    during = json.loads(file.read_text())
    works = user.types("call", "notes__search_notes", "query=a")
    user.types("disconnect", "cursor")

    assert moved.exit_code == 0, moved.output
    assert list(during["mcpServers"]) == ["toolcrib"]
    assert works.exit_code == 0, works.output
    assert file.read_text() == before


@pytest.mark.process
def test_a_project_takes_no_name_away_from_a_server_of_the_users_own(user: User) -> None:
    user.has("project/.mcp.json", {"mcpServers": {"notes": {"command": "/nonexistent"}}})
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": NOTES}})

    lines = user.reads("import")

    assert [(line["server"], line["from"]) for line in lines] == [
        ("notes", "Cursor (user)"),
        ("notes-claude-code", "Claude Code (project)"),
    ]


@pytest.mark.process
def test_a_server_that_is_known_under_another_name_is_not_added_again(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": {"command": "/nonexistent"}}})
    user.has(".gemini/settings.json", {"mcpServers": {"notes": NOTES}})
    user.types("import")
    user.types("remove", "notes")
    before = user.config.read_text()

    moved = user.types("connect", "gemini", "--replace")

    assert moved.exit_code == 0, moved.output
    assert user.config.read_text() == before
    assert "notes-gemini" in {tool["source"] for tool in user.reads("tools")}


@pytest.mark.process
def test_connecting_again_in_another_way_is_refused_with_the_way_to_do_it(user: User) -> None:
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": NOTES}})
    user.types("connect", "cursor", "--profile", "flat")

    same = user.types("connect", "cursor", "--profile", "flat")
    others = [user.types("connect", "cursor", *way) for way in (["--replace"], ["--profile", "adaptive"])]

    assert (same.exit_code, [other.exit_code for other in others]) == (0, [2, 2])
    assert all("`toolcrib disconnect cursor" in other.stderr for other in others)
    assert "beside it notes" in others[0].stderr


def test_what_connect_cannot_mean_changes_no_client(user: User) -> None:
    file = user.has(".cursor/mcp.json", '{"mcpServers": {}}')

    profile = user.types("connect", "cursor", "--profile", "flatt")
    both = user.types("connect", "--all", "cursor")

    assert (profile.exit_code, both.exit_code) == (2, 2)
    assert "unknown profile 'flatt'" in profile.stderr
    assert "leave out cursor, or --all" in both.stderr
    assert file.read_text() == '{"mcpServers": {}}'


def test_of_a_file_that_changed_since_only_our_entry_is_taken_out(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.types("connect", "cursor")
    file.write_text(file.read_text().replace('{"mcpServers"', '{"new": 1, "mcpServers"'))

    out = user.types("disconnect", "cursor")

    assert out.exit_code == 0
    assert json.loads(file.read_text()) == {"new": 1, "mcpServers": {}}


def test_a_file_of_which_nothing_is_known_any_more_stays_as_it_is(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.types("connect", "cursor")
    shutil.rmtree(user.home / ".local" / "state")
    connected = file.read_text()

    result, every = user.types("disconnect", "cursor"), user.types("disconnect", "--all")

    assert (result.exit_code, every.exit_code, file.read_text()) == (2, 2, connected)
    assert str(user.home / ".local/state/toolcrib/connections") in result.stderr


@pytest.mark.parametrize("client", ["goose", "opencode", "claude-code"])
def test_an_entry_of_a_program_that_is_gone_is_found_and_gets_the_one_that_is_here(user: User, client: str) -> None:
    approvals = ["--approvals"] if client == "claude-code" else []
    gone = user.has("venv/bin/toolcrib", "")
    gone.chmod(0o755)
    user.types("connect", client, "--command", str(gone), *approvals)
    gone.unlink()

    rows = json.loads(user.types("doctor", "--json").stdout)
    found = [one["subject"] for one in user.reads("overview")["findings"] if one["kind"] == "entry"]
    user.types("connect", client, *approvals)
    after = json.loads(user.types("doctor", "--json").stdout)
    out = user.types("disconnect", client)

    broken = [row["detail"] for row in rows if row["state"] == "failed" and str(gone) in row["detail"]]
    assert len(broken) == len(found) == 1 + len(approvals)
    assert all(f"`toolcrib connect {client}" in detail for detail in broken)
    assert [row for row in after if str(gone) in row["detail"]] == []
    assert (out.exit_code, user.reads("disconnect", "--all")) == (0, [])


@pytest.mark.process
def test_a_project_configuration_starts_nothing_before_it_is_trusted(user: User) -> None:
    user.has(
        "project/.toolcrib/config.yaml",
        f"servers: {{notes: {{command: {sys.executable}, args: [{NOTES_SERVER}]}}}}\naccept: true\n",
    )

    before = user.types("tools")
    trusted = user.types("trust")
    after = user.types("tools")

    assert "notes__search_notes" not in before.stdout
    assert "you have not confirmed it" in before.stderr
    assert trusted.exit_code == 0
    assert "notes__search_notes" in after.stdout


@pytest.mark.process
def test_import_names_what_has_no_effect_once_and_what_stops_an_entry_and_takes_the_others(user: User) -> None:
    entries = {
        "a": {"command": "/nonexistent", "alwaysAllow": ["read"], "timeout": 60},
        "b": {"command": "/nonexistent", "alwaysAllow": ["read"]},
        "wrong": {"command": "/nonexistent", "untrusted": True},
    }
    file = user.has(".cursor/mcp.json", {"mcpServers": entries})

    result = user.types("import", "--json", "--wait", "0")

    assert [line["server"] for line in json.loads(result.stdout)] == ["a", "b"]
    assert result.stderr.count("`alwaysAllow` (a, b) has no effect here") == 1
    assert f"wrong: {file}:1: mcpServers.wrong.untrusted: unknown key" in result.stderr
    assert "wrong" not in user.config.read_text()


@pytest.mark.process
def test_connect_leaves_what_cannot_be_taken_over_or_does_not_answer_where_it_is(user: User) -> None:
    stay = {
        "wrong": {"command": "/nonexistent", "untrusted": True},
        "missing": {"command": "/nonexistent"},
        "unset": {"command": sys.executable, "args": [NOTES_SERVER], "env": {"A": "${NOT_SET_ANYWHERE}"}},
        "off": {"command": sys.executable, "args": [NOTES_SERVER, "other"], "disabled": True},
    }
    file = user.has(".cursor/mcp.json", {"mcpServers": {"notes": NOTES, **stay}})

    result = user.types("connect", "cursor", "--replace")

    assert result.exit_code == 0, result.output
    after = json.loads(file.read_text())["mcpServers"]
    assert {name: value for name, value in after.items() if name != "toolcrib"} == stay
    assert f"Cursor keeps wrong: {file}:1: mcpServers.wrong.untrusted: unknown key" in result.stderr
    to_do = "`toolcrib disconnect cursor && toolcrib connect cursor --replace`"
    kept = [line for line in result.stderr.splitlines() if line.startswith("Cursor keeps ")]
    assert [line.split()[2] for line in kept if line.endswith(to_do)] == ["missing:", "unset:", "off:"]
    assert "missing" not in user.config.read_text()


@pytest.mark.process
def test_a_server_stays_in_the_client_where_a_tool_of_another_has_the_name_of_one_of_its_tools(user: User) -> None:
    servers: dict[str, dict[str, object]] = {}
    for name, tool in (("notes", "delete__note"), ("notes__delete", "note")):
        program = user.home / f"{tool}.py"
        program.write_text(Path(NOTES_SERVER).read_text().replace('"delete_note"', f'"{tool}"'))
        servers[name] = {"command": sys.executable, "args": [str(program)]}
    file = user.has(".cursor/mcp.json", {"mcpServers": servers})

    result = user.types("connect", "cursor", "--replace", "--anyway")

    assert result.exit_code == 0, result.output
    assert set(json.loads(file.read_text())["mcpServers"]) == {"toolcrib", "notes__delete"}
    assert "notes has the name notes__delete__note already" in result.stderr


@pytest.mark.process
def test_a_server_stays_in_the_client_while_one_of_its_tools_has_a_name_that_we_cannot_offer(user: User) -> None:
    program = user.home / "notes.py"
    program.write_text(Path(NOTES_SERVER).read_text().replace('"delete_note"', '"delete note"'))
    servers = {"notes": {"command": sys.executable, "args": [str(program)]}}
    file = user.has(".cursor/mcp.json", {"mcpServers": servers})

    result = user.types("connect", "cursor", "--replace", "--anyway")
    kept = json.loads(file.read_text())["mcpServers"]
    again = result.stderr.partition("To do: ")[2].partition("`")[2].partition("`")[0]
    after = [user.types(*command.split()[1:]).exit_code for command in again.split(" && ")]

    assert result.exit_code == 0, result.output
    assert (set(kept), kept["notes"]) == ({"toolcrib", "notes"}, servers["notes"])
    assert "notes/delete note: 'delete note' is not a tool name" in result.stderr
    assert (after, set(json.loads(file.read_text())["mcpServers"])) == ([0, 0, 0], {"toolcrib"})


@pytest.mark.process
def test_one_server_of_two_clients_is_one_behind_toolcrib_although_a_third_has_another_of_its_name(user: User) -> None:
    other = {"command": sys.executable, "args": [NOTES_SERVER, str(user.home / "journal")]}
    for file, server in ((".cursor", NOTES), (".codeium/windsurf", other), (".gemini", other)):
        name = {".cursor": "mcp.json", ".gemini": "settings.json"}.get(file, "mcp_config.json")
        user.has(f"{file}/{name}", {"mcpServers": {"notes": server}})

    rows = user.reads("connect", "cursor", "windsurf", "gemini", "--replace", "--anyway")

    assert [row["moved"] for row in rows] == [["notes"]] * 3
    assert list(yaml.safe_load(user.config.read_text())["servers"]) == ["notes", "notes-windsurf"]


@pytest.mark.process
def test_a_server_that_does_not_answer_is_asked_once_for_all_clients(user: User) -> None:
    """It would answer the second time."""
    script = f"test -e seen && exec {sys.executable} {NOTES_SERVER}; touch seen; exit 1"
    late = {"command": "sh", "args": ["-c", script], "cwd": str(user.home)}
    for file in (".cursor/mcp.json", ".codeium/windsurf/mcp_config.json"):
        user.has(file, {"mcpServers": {"late": late}})

    rows = user.reads("connect", "cursor", "windsurf", "--replace", "--anyway")

    assert [(row["moved"], row["tokens"]["unanswered"]) for row in rows] == [([], ["late"])] * 2


@pytest.mark.process
def test_a_connection_that_cannot_be_finished_leaves_nothing_and_can_be_made_later(user: User) -> None:
    servers = {"mcpServers": {"notes": {**NOTES, "autoApprove": ["search_notes"]}}}
    long = user.has("x" * 250, servers)  # beside which no file with a longer name can be made
    file = user.home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.symlink_to(long)
    user.has(".claude.json", {"mcpServers": {"notes": NOTES}})
    settings = user.has(".claude/settings.json", "{")

    failed = [user.types("connect", client, "--replace") for client in ("cursor", "claude-code")]
    left = [user.config.exists(), *(user.home / ".local/state/toolcrib/connections").glob("*")]
    file.unlink()
    before = long.rename(file).read_bytes()
    settings.write_text("{}")
    again = user.types("connect", "cursor", "claude-code", "--replace")
    user.types("disconnect", "--all")

    assert [(result.exit_code, "mcp.json" in result.stderr) for result in failed] == [(2, True), (2, False)]
    assert left == [False]
    assert again.exit_code == 0, again.output
    assert (file.read_bytes(), settings.read_text(), user.config.exists()) == (before, "{}", False)


@pytest.mark.process
def test_of_a_client_those_servers_are_not_counted_that_are_on_and_list_nothing(user: User) -> None:
    """One that works in the folder that is open is started there, as its client starts it."""
    shutil.copy(NOTES_SERVER, user.project / "here.py")
    servers = {
        "here": {"command": sys.executable, "args": ["./here.py"]},
        "missing": {"command": "/nonexistent"},
        "unset": {"command": sys.executable, "args": [NOTES_SERVER], "env": {"A": "${NOT_SET_ANYWHERE}"}},
        "off": {"command": sys.executable, "args": [NOTES_SERVER, "other"], "disabled": True},
    }
    user.has(".cursor/mcp.json", {"mcpServers": servers})

    (beside,) = user.reads("connect", "cursor", "--anyway")
    user.types("disconnect", "cursor")
    (instead,) = user.reads("connect", "cursor", "--replace", "--anyway")

    assert [row["tokens"]["unanswered"] for row in (beside, instead)] == [["missing", "unset"], ["missing", "unset"]]
    assert beside["tokens"]["before"] > 100
    assert instead["moved"] == []


@pytest.mark.process
def test_a_secret_is_set_from_input_listed_by_name_used_and_removed(user: User) -> None:
    user.has(".config/toolcrib/config.yaml", "servers: {a: {command: x, env: {T: '${keyring:db}'}}}\nbuiltins: false\n")

    before = user.types("doctor", "--json", "--wait", "0")
    kept = user.types("secret", "set", "db", stdin="hunter-two\n")
    listed = user.reads("secret")
    after = user.types("doctor", "--json", "--wait", "0")
    removed = user.types("secret", "remove", "db")
    again = user.types("secret", "remove", "db")

    failed = {row["check"]: row["detail"] for row in json.loads(before.stdout) if row["state"] == "failed"}
    assert "servers.a.env.T: no secret 'db' is kept here" in failed["configuration of a"]
    assert "configuration of a" not in [row["check"] for row in json.loads(after.stdout)]
    assert (kept.exit_code, listed, removed.exit_code, again.exit_code) == (0, ["db"], 0, 2)
    assert "hunter-two" not in kept.output + after.output
    assert user.types("secret", "set", "db", stdin="").exit_code == 2
    assert user.types("secret", "sett", "db").exit_code == 2


def test_doctor_names_an_older_copy_of_the_program_only_while_a_client_starts_it(user: User) -> None:
    copy = user.has(".local/share/toolcrib/environments/older/bin/toolcrib", "")
    (user.home / ".local/share/toolcrib/environment").symlink_to(Path("environments", "older"))
    unused = json.loads(user.types("doctor", "--json").stdout)
    entry = {"command": str(copy), "args": ["serve"]}
    user.has(".cursor/mcp.json", {"mcpServers": {"toolcrib": entry}})
    used = json.loads(user.types("doctor", "--json").stdout)

    found = [[row["check"] for row in rows].count("program of clients") for rows in (unused, used)]
    assert found == [0, 1]


def test_doctor_shows_a_key_without_effect_as_no_failure(user: User) -> None:
    file = user.has("mcp.json", {"mcpServers": {"a": {"command": "x", "disabled": True, "trust": True}}})

    rows = json.loads(user.types("doctor", "--config", str(file), "--json").stdout)

    row = next(row for row in rows if row["check"] == f"configuration of {file}")
    assert row["state"] == "ok"
    assert row["detail"].startswith("`trust` (a) has no effect here; rules decide here")


def test_servers_are_the_same_whatever_the_spelling_and_two_names_both_stay(user: User) -> None:
    there = {"command": "/nonexistent", "args": ["-v"]}
    user.has(".cursor/mcp.json", {"mcpServers": {"notes": there, "memos": {**there, "env": {}}}})
    user.has(".gemini/settings.json", {"mcpServers": {"notes": {**there, "type": "stdio", "timeout": 5000}}})
    user.has(".kiro/settings/mcp.json", {"mcpServers": {"notes": {**there, "disabled": False}}})
    listed = {"type": "local", "command": ["/nonexistent", "-v"], "enabled": True}
    user.has(".config/opencode/opencode.json", {"mcp": {"notes": listed}})
    user.has(".copilot/mcp-config.json", {"mcpServers": {"notes": {**there, "type": "local", "tools": ["*"]}}})
    user.has(".warp/.mcp.json", {"mcpServers": {"notes": {**there, "env": {"LEVEL": "1"}}}})

    facts = user.reads("overview")

    servers = sorted(finding["subject"] for finding in facts["findings"] if finding["kind"] == "unknown")
    assert servers == ["memos", "notes", "notes-warp"]
    alike = [finding["detail"] for finding in facts["findings"] if finding["kind"] == "duplicate"]
    assert [detail.split(":")[0] for detail in alike] == ["configured 6 times"]
