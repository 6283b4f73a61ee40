"""What clients allowed, asked and denied before `connect` holds after it, in their own settings and in ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.catalog.names import qualify
from toolcrib.config import Directories, bare
from toolcrib.config.clients.connections import Moved, connect, disconnect, rewrite
from toolcrib.config.clients.permissions.claude_code import rename_claude_rules
from toolcrib.config.clients.permissions.entries import entry_extras, entry_permissions
from toolcrib.config.clients.permissions.modes import carried_mode, mode_of, remove_mode, write_mode
from toolcrib.config.clients.permissions.permission import Permission
from toolcrib.config.clients.permissions.setting_keys import rename_keys
from toolcrib.config.clients.permissions.setting_lists import allow_in_gemini
from toolcrib.config.clients.permissions.settings import (
    client_permissions,
    disconnect_settings,
    original_names,
    rename_settings,
)
from toolcrib.config.clients.table import CLIENTS
from toolcrib.config.directories import Places
from toolcrib.config.files import parse_json
from toolcrib.core.call import Call, Route
from toolcrib.core.permission import Effect
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Audience, SessionState
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib
from toolcrib.policy.decision import Policy
from toolcrib.policy.modes import ModeSettings, resolve_modes
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.taint import Taint
from toolcrib.testing import ScriptedSource

CALL_TOOL = "mcp__toolcrib__call_tool"
NAMES = {"db": "db-cursor"}
RUN = {"command": "db"}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A client whose settings allow `look`, deny `wipe` where they can, and ask about `drop`, `call_tool` apart."""

    files: Mapping[str, str]
    denies: bool = False


def claude_name(name: str) -> str:
    """Return a name as Claude Code writes it in its rules."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name)


def servers(**entry: Any) -> str:
    return json.dumps({"mcpServers": {"db": {**RUN, **entry}}})


SAMPLES = {
    "claude-code": Sample(
        files={
            ".claude.json": servers(),
            ".claude/settings.json": json.dumps(
                {"permissions": {"allow": ["Bash(ls)", "mcp__db__look", CALL_TOOL], "deny": ["mcp__db__wipe"]}}
            ),
        },
        denies=True,
    ),
    "claude-desktop": Sample(files={".config/Claude/claude_desktop_config.json": servers(autoApprove=["look"])}),
    "cursor": Sample(files={".cursor/mcp.json": servers(autoApprove=["look"])}),
    "windsurf": Sample(files={".codeium/windsurf/mcp_config.json": servers(alwaysAllow=["look"])}),
    "gemini": Sample(files={".gemini/settings.json": servers(autoApprove=["look"])}),
    "vscode": Sample(
        files={".config/Code/User/mcp.json": json.dumps({"servers": {"db": {**RUN, "autoApprove": ["look"]}}})}
    ),
    "codex": Sample(
        files={
            ".codex/config.toml": (
                '[mcp_servers.db]\ncommand = "db"\ndefault_tools_approval_mode = "prompt"\n'
                '[mcp_servers.db.tools.look]\napproval_mode = "approve"\n'
            )
        }
    ),
    "opencode": Sample(
        files={
            ".config/opencode/opencode.json": json.dumps(
                {
                    "mcp": {"db": {"type": "local", "command": ["db"]}},
                    "permission": {"*": "ask", "db_look": "allow", "db_wipe": "deny"},
                }
            )
        },
        denies=True,
    ),
    "goose": Sample(
        files={
            ".config/goose/config.yaml": (
                "GOOSE_MODE: approve\nextensions:\n  db: {type: stdio, cmd: db, autoApprove: [look]}\n"
            )
        }
    ),
    "mcporter": Sample(files={".mcporter/mcporter.json": servers()}),
    "zed": Sample(
        files={
            ".config/zed/settings.json": json.dumps(
                {
                    "context_servers": {"db": RUN},
                    "agent": {
                        "tool_permissions": {
                            "default": "allow",
                            "tools": {
                                "mcp:db:drop": {"default": "confirm"},
                                "mcp:db:wipe": {"default": "deny"},
                                "mcp:x:look": {"default": "deny"},
                            },
                        }
                    },
                }
            )
        },
        denies=True,
    ),
}


def places(home: Path) -> Places:
    environ = {"HOME": str(home)}
    return Places(directories=Directories.of(environ), environ=environ, project=home / "project")


def carried(client: str, home: Path) -> dict[str, Any]:
    """Return the mode that is made of the settings of `client`."""
    for name, text in SAMPLES[client].files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    where = places(home)
    found = client_permissions(CLIENTS[client], CLIENTS[client].user_file(where), where, ["db"], project=False)
    mode, lost = carried_mode(found, NAMES)
    assert lost == []
    return mode


def source() -> ScriptedSource:
    async def run(arguments: Mapping[str, Any], context: Any) -> ToolResult:
        return ToolResult.of_text("done")

    tools = [
        Tool(
            name=name,
            source="db-cursor",
            local_name=name,
            origin="mcp",
            annotations=Annotations(destructive=True),
        )
        for name in ("look", "drop", "wipe")
    ]
    return ScriptedSource("db-cursor", {tool.name: run for tool in tools}, listed=tools)


@pytest.mark.parametrize("client", SAMPLES)
async def test_what_the_client_asked_about_before_is_still_asked_about_through_call_tool(
    tmp_path: Path, client: str
) -> None:
    name = mode_of(CLIENTS[client], project=False)
    mode = carried(client, tmp_path)
    modes = resolve_modes({name: ModeSettings.model_validate(mode)}) if mode else resolve_modes({})
    marks = Taint(ask=False)  # as `guard: off` sets it
    settings = bare().with_values(guard=False, modes=modes, mode=name if mode else "autonomous", untrusted=marks)
    async with Toolcrib(settings, memory=True) as crib:
        await crib.tools.mount_source(source())
        session = crib.session(for_client=True)
        results = {
            tool: await session.call("call_tool", {"name": f"db-cursor__{tool}", "arguments": {}})
            for tool in ("look", "drop", "wipe")
        }
        by_name = await session.call("db-cursor__drop", {})

    why = {tool: result.error.details.get("reason", "rule") for tool, result in results.items() if result.error}
    asked = {"drop": "no_approver", "wipe": "rule" if SAMPLES[client].denies else "no_approver"}
    assert why == ({} if client == "mcporter" else asked), "mcporter never asked"
    assert by_name.error is None, "its own prompt was about this tool"


def test_the_mode_extends_the_one_that_the_user_works_in() -> None:
    denied = [Permission("deny", "db", "wipe"), Permission("ask", "db", "*")]

    assert carried_mode(denied, NAMES, extends="manual") == (
        {"extends": "manual", "rules": {"deny": ["db-cursor__wipe"]}},
        [],
    )
    assert carried_mode([Permission("ask", "db", "*")], NAMES) == ({}, [])


def test_an_entry_says_of_our_names_what_the_moved_entries_said_of_theirs() -> None:
    names = {"a": "a", "b": "b2"}
    both = {"trust": True, "autoApprove": ["x"]}

    every, codex = {"alwaysAllow": ["*"]}, {"default_tools_approval_mode": "approve"}

    def extras(first: Any, second: Any, *, whole: bool = True, allow: Any = ()) -> Any:
        listed = {"a": ["x", "y"], "b2": ["z"]}
        return entry_extras({"a": first, "b": second}, names, whole=whole, listed=listed, allow=allow)

    assert extras(both, both) == {"trust": True, "autoApprove": ["a__x", "b2__x"]}
    assert extras(both, {"trust": False}) == {"autoApprove": ["a__x"]}
    assert extras(every, every) == {"alwaysAllow": ["*"]}
    assert extras({"tools": {"x": {"approval_mode": "prompt"}}}, {}, allow=["call_tool"]) == {
        "tools": {"call_tool": {"approval_mode": "approve"}, "a__x": {"approval_mode": "prompt"}}
    }
    assert extras(codex, codex) == codex
    assert entry_extras({}, {}, whole=True) == {}
    # Behind us is another server, which none of them trusts: a list has the tools of these, a switch is left out.
    assert extras(both, both, whole=False) == {"autoApprove": ["a__x", "b2__x"]}
    assert extras(every, every, whole=False) == {"alwaysAllow": ["a__x", "a__y", "b2__z"]}
    assert extras(every, {}, whole=False) == {"alwaysAllow": ["a__x", "a__y"]}
    assert extras(codex, {}, whole=False) == {
        "tools": {"a__x": {"approval_mode": "approve"}, "a__y": {"approval_mode": "approve"}}
    }
    assert extras(codex, {"default_tools_approval_mode": "prompt"}, whole=False) == {
        "default_tools_approval_mode": "prompt",
        "tools": {"a__x": {"approval_mode": "approve"}, "a__y": {"approval_mode": "approve"}},
    }


def tool_of(server: str, local: str) -> Tool:
    return Tool(name=qualify(server, local), source=server, local_name=local, origin="mcp")


def outcome(mode: Mapping[str, Any], tool: Tool, *, verb: str = "") -> str:
    """Return the decision of a carried-over mode on a call of a client whose own prompts stand before us."""
    modes = resolve_modes({"carried": ModeSettings.model_validate(mode)})
    policy = Policy(RuleLayers(modes={name: one.rules for name, one in modes.items()}), modes=modes, behind_client=True)
    session = SessionState(key="k", mode="carried", audience=Audience(is_client=True))
    call = Call(id="c", name=tool.name, arguments={}, session=session, tool=tool, route=Route(verb=verb))
    return policy.decide_call(call).effect


NAME_TEXTS = st.text(alphabet="ab_.- 9é/", min_size=1, max_size=50).map(lambda text: f"x{text}")


@pytest.mark.slow
@given(server=NAME_TEXTS, tool=NAME_TEXTS, effect=st.sampled_from(["deny", "ask"]))
def test_a_tool_of_any_name_that_was_kept_back_is_kept_back_however_its_name_is_shortened(
    server: str, tool: str, effect: Any
) -> None:
    settings = {effect: [f"mcp__{claude_name(server)}__{claude_name(tool)}"], "allow": [f"mcp__{claude_name(server)}"]}
    renamed = json.loads(rename_claude_rules(json.dumps({"permissions": settings}), {server: server}))["permissions"]
    found = [Permission(effect, server, claude_name(tool)), Permission("allow", server, "*")]

    mode, lost = carried_mode(found, {server: server})
    kept, plain = tool_of(server, tool), tool_of(server, "other")

    assert lost == []
    assert outcome(mode, kept, verb="call") == effect
    assert outcome(mode, kept) == "deny" or effect == "ask"
    assert outcome(mode, kept) == effect or f"mcp__toolcrib__{kept.name}" in renamed[effect]
    assert outcome(mode, plain, verb="call") == "allow" or "__" in claude_name(server), "its rules may be another's"


def test_what_no_rule_can_deny_is_not_allowed_with_the_rest_of_its_server() -> None:
    denied, every = Permission("deny", "db", "wipe(all:*)"), Permission("allow", "db", "*")
    look, other = Permission("allow", "db", "look"), Permission("allow", "x", "*")

    mode, lost = carried_mode([denied, every, look, other], {"db": "db", "x": "x"})

    assert mode["rules"] == {"allow": ["call_tool(name=db__look)", "call_tool(name=mcp__x)"]}
    assert lost == [denied, every]
    assert outcome(mode, tool_of("db", "wipe"), verb="call") == "ask"


def test_a_server_that_is_added_behind_a_trusted_entry_is_asked_about_here() -> None:
    found = [Permission("allow", "db", "*"), Permission("ask", "db", "drop")]
    mode, _ = carried_mode(found, NAMES, trusts_entry=True)
    decisions = {
        (tool.name, verb): outcome(mode, tool, verb=verb)
        for tool in (tool_of("db-cursor", "look"), tool_of("db-cursor", "drop"), tool_of("later", "look"))
        for verb in ("", "call")
    }

    assert decisions == {
        ("db-cursor__look", ""): "allow",
        ("db-cursor__look", "call"): "allow",
        ("db-cursor__drop", ""): "allow",  # the client has its own mode for it
        ("db-cursor__drop", "call"): "ask",
        ("later__look", ""): "ask",
        ("later__look", "call"): "ask",
    }


def test_the_rules_of_claude_code_get_the_new_names_and_nothing_else_changes() -> None:
    before = (
        "{ // mine\n"
        '  "permissions": {\n'
        '    "allow": ["Bash(ls)", "mcp__git_hub__get", "mcp__git_hub_two__x"],\n'
        '    "ask": ["mcp__git_hub"], "deny": ["mcp__git_hub__*"]\n'
        "  }\n}\n"
    )
    names = {"git hub": "git", "git hub two": "two"}

    after = rename_claude_rules(before, names, allow=[CALL_TOOL])

    assert after == (
        "{ // mine\n"
        '  "permissions": {\n'
        f'    "allow": ["{CALL_TOOL}", "Bash(ls)", "mcp__toolcrib__git__get", "mcp__toolcrib__two__x"],\n'
        '    "ask": ["mcp__toolcrib__git__*"], "deny": ["mcp__toolcrib__git__*"]\n'
        "  }\n}\n"
    )
    assert rename_claude_rules(after, names, allow=[CALL_TOOL]) == after
    assert json.loads(rename_claude_rules("", {}, allow=[CALL_TOOL])) == {"permissions": {"allow": [CALL_TOOL]}}


def test_the_permissions_of_opencode_get_the_new_names() -> None:
    before = '{"permission": {"*": "ask", "db_look": "allow", "dbx_look": "ask"}, "tools": {"db_*": false}} // mine\n'

    assert rename_keys("opencode", before, NAMES) == (
        '{"permission": {"*": "ask", "toolcrib_db-cursor__look": "allow", "dbx_look": "ask"},'
        ' "tools": {"toolcrib_db-cursor__*": false}} // mine\n'
    )


@pytest.mark.parametrize(
    ("client", "before"),
    [
        ("opencode", {"permission": {"*": "ask", "db_look": "allow"}, "tools": {"db_*": False}, "mcp": {"db": RUN}}),
        ("gemini", {"mcp": {"allowed": ["db"]}, "mcpServers": {"db": RUN}}),
        (
            "zed",
            {
                "agent": {"tool_permissions": {"tools": {"mcp:db:wipe": {"default": "deny"}}}},
                "context_servers": {"db": RUN},
            },
        ),
    ],
)
def test_permissions_beside_the_servers_are_put_back_in_a_file_that_changed_since(
    tmp_path: Path, client: str, before: Any
) -> None:
    file, state, one = tmp_path / "settings.json", tmp_path / "state", CLIENTS[client]
    file.write_text(json.dumps(before))

    def renamed(text: str) -> str:
        return allow_in_gemini(text) if client == "gemini" else rename_keys(client, text, NAMES)

    connect(one, file, one.entry("toolcrib", ["serve"]), Moved(servers=["db"], names=NAMES), also=renamed, state=state)
    during = json.loads(file.read_text())
    file.write_text(json.dumps({"model": "x", **during}))
    outcome = disconnect(one, file, state=state, also=lambda text, done: original_names(one, text, done, str(file)))

    assert (outcome, json.loads(file.read_text())) == ("removed", {"model": "x", **before})
    assert during != before


@pytest.mark.parametrize("lists", [{"excluded": ["db"]}, {"allowed": ["other"]}, {"allowed": ["db"]}])
def test_a_server_that_gemini_does_not_start_stays_off_and_we_are_started(tmp_path: Path, lists: Any) -> None:
    where = places(tmp_path)
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"mcpServers": {"db": RUN}, "mcp": lists}))

    found = client_permissions(CLIENTS["gemini"], file, where, ["db"], project=False)
    after = json.loads(allow_in_gemini(file.read_text()))

    off = [Permission("deny", "db", "*")]
    assert found == ([] if "db" in lists.get("allowed", []) else off)
    assert after["mcp"] == ({"allowed": ["toolcrib", *lists["allowed"]]} if "allowed" in lists else lists)


@pytest.mark.parametrize("changed", [False, True])
def test_settings_are_put_back_byte_for_byte_or_without_what_changed_since(tmp_path: Path, changed: bool) -> None:
    file, state = tmp_path / "settings.json", tmp_path / "state"
    before = '{"permissions": {"allow": ["Bash(ls)", "mcp__db__look"]}}\n'
    file.write_text(before)
    for _ in range(2):  # twice, as for rules and a hook
        rewrite(
            "claude-code",
            file,
            lambda text: rename_claude_rules(text, NAMES, allow=[CALL_TOOL]),
            Moved(names=NAMES),
            state=state,
        )
    if changed:
        file.write_text(file.read_text().replace("{", '{"model": "x", ', 1))

    outcome = disconnect_settings(file, state=state)

    expected = before.replace("{", '{"model": "x", ', 1) if changed else before
    assert (outcome, json.loads(file.read_text())) == ("removed" if changed else "restored", json.loads(expected))
    assert changed or file.read_text() == before


def test_the_mode_is_taken_out_of_our_configuration_again(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("profile: flat # mine\n")
    write_mode(file, "connected-cursor", {"extends": "autonomous", "rules": {"allow": ["call_tool(name=a__b)"]}})
    written = file.read_text()
    write_mode(file, "connected-gemini", {"extends": "autonomous"})
    remove_mode(file, "connected-gemini")
    between = file.read_text()
    remove_mode(file, "connected-cursor")
    remove_mode(file, "connected-cursor")

    assert "call_tool(name=a__b)" in written
    assert (between, file.read_text()) == (written, "profile: flat # mine\n")


def opencode(home: Path, server: str = "db", **settings: Any) -> list[Permission]:
    """Return what a configuration of OpenCode says of `server`."""
    file = home / "opencode.json"
    file.write_text(json.dumps({"mcp": {server: {"type": "local", "command": ["db"]}}, **settings}))
    return client_permissions(CLIENTS["opencode"], file, places(home), [server], project=False)


@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        ({"db_wipe": "allow", "*": "ask"}, [("ask", "*")]),
        ({"db_wipe": "allow", "db_w*": "ask"}, [("allow", "wipe"), ("ask", "w*"), ("allow", "*")]),
        ({"*": "allow", "*_wipe": "deny"}, [("deny", "wipe"), ("deny", "*_wipe"), ("allow", "*")]),
        ({"d?_wipe": "deny"}, [("deny", "wipe"), ("allow", "*")]),
        ({"db_wipe": {"*": "deny"}}, [("deny", "wipe"), ("allow", "*")]),
        ({"db_*": {"*": "allow", "x": "ask"}}, [("ask", "*")]),
    ],
)
def test_a_permission_of_opencode_allows_no_tool_that_another_of_its_patterns_keeps_back(
    tmp_path: Path, permission: Any, expected: list[tuple[Any, str]]
) -> None:
    found = opencode(tmp_path, permission=permission)

    assert found == [Permission(effect, "db", tool) for effect, tool in expected]


def test_opencode_writes_the_name_of_a_server_with_underscores_in_its_permissions(tmp_path: Path) -> None:
    renamed = rename_keys("opencode", '{"permission": {"my_db_wipe": "ask"}}', {"my.db": "db"})

    assert renamed == '{"permission": {"toolcrib_db__wipe": "ask"}}'
    assert opencode(tmp_path, "my.db", permission={"my_db_*": "ask"}) == [Permission("ask", "my.db", "*")]


def claude(home: Path, file: str, **permissions: Any) -> list[Permission]:
    """Return what Claude Code allows, asks and denies of the server `db` with these settings in `file`."""
    (home / ".claude.json").write_text(servers())
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(json.dumps({"permissions": permissions}))
    where = places(home)
    return client_permissions(
        CLIENTS["claude-code"], CLIENTS["claude-code"].user_file(where), where, ["db"], project=False
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("mcp__*__wipe", "wipe"), ("mcp__*", "*"), ("mcp__d*__wi*", "wi*"), ("mcp__db__wi*", "wi*"), ("mcp__x*", "")],
)
def test_a_pattern_of_claude_code_denies_and_asks_about_tools_of_every_server_and_allows_none(
    tmp_path: Path, rule: str, expected: str
) -> None:
    found = claude(tmp_path, ".claude/settings.json", deny=[rule])
    allowed = claude(tmp_path, ".claude/settings.json", allow=["mcp__*__wipe"])

    assert (Permission("deny", "db", expected) in found) is bool(expected)
    assert allowed == []


CURSOR = """{ // mine
  "mcpAllowlist": ["db:look", "other:*", "db:*", "*:wipe"], "terminalAllowlist": ["git"]
}
"""


def test_what_cursor_and_its_command_line_allow_and_deny_is_read(tmp_path: Path) -> None:
    where, cursor = places(tmp_path), tmp_path / ".cursor"
    (where.project / ".cursor").mkdir(parents=True)
    cursor.mkdir()
    (cursor / "mcp.json").write_text(servers())
    (cursor / "permissions.json").write_text(CURSOR)
    (cursor / "cli-config.json").write_text(
        json.dumps({"permissions": {"allow": ["Shell(ls)", "Mcp(db:read)"], "deny": ["Mcp(db, drop)", "Mcp(*:burn)"]}})
    )
    (where.project / ".cursor" / "permissions.json").write_text('{"mcpAllowlist": ["db:shared"]}')

    def found(*, project: bool) -> list[Permission]:
        file = cursor / "mcp.json"
        return client_permissions(CLIENTS["cursor"], file, where, ["db"], project=project)

    everywhere: list[tuple[Effect, str]] = [("allow", "look"), ("allow", "*"), ("allow", "wipe")]
    command_line: list[tuple[Effect, str]] = [("allow", "read"), ("deny", "drop"), ("deny", "burn")]
    assert found(project=False) == [Permission(effect, "db", tool) for effect, tool in (*everywhere, *command_line)]
    assert Permission("allow", "db", "shared") in found(project=True)


def test_the_list_of_cursor_gets_the_new_names_and_its_old_ones_back(tmp_path: Path) -> None:
    file, state, listed = tmp_path / "permissions.json", tmp_path / "state", {"db-cursor": ["look", "drop"]}
    file.write_text(CURSOR)

    def change() -> str:
        rewrite(
            "cursor",
            file,
            lambda text: rename_settings(CLIENTS["cursor"], text, NAMES, listed=listed, allow=["call_tool"]),
            Moved(names=NAMES),
            state=state,
        )
        return file.read_text()

    after = change()
    restored = disconnect_settings(file, state=state, client="cursor"), file.read_text()
    change()
    file.write_text(file.read_text().replace("git", "hg"))
    removed = disconnect_settings(file, state=state, client="cursor"), file.read_text()

    assert after == CURSOR.replace('"db:look"', '"toolcrib:call_tool", "toolcrib:db-cursor__look"').replace(
        '"db:*"', '"toolcrib:db-cursor__look", "toolcrib:db-cursor__drop"'
    )
    assert restored == ("restored", CURSOR)
    assert removed[0] == "removed"
    assert parse_json(removed[1]).plain() == {
        "mcpAllowlist": ["db:look", "db:*", "other:*", "*:wipe"],
        "terminalAllowlist": ["hg"],
    }
    assert rename_settings(CLIENTS["cursor"], "{}", NAMES, listed={}, allow=["call_tool"]) == "{}", (
        "a list would hide another"
    )


def test_a_switch_of_vs_code_that_approves_everything_is_carried_over(tmp_path: Path) -> None:
    file = tmp_path / ".config/Code/User/mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"servers": {"db": RUN}}))

    def found() -> list[Permission]:
        return client_permissions(CLIENTS["vscode"], file, places(tmp_path), ["db"], project=False)

    before = found()
    file.with_name("settings.json").write_text('{"chat.tools.global.autoApprove": true, }')

    assert (before, found()) == ([], [Permission("allow", "db", "*")])


def test_an_ask_of_claude_code_about_a_server_comes_before_an_allow_of_one_of_its_tools(tmp_path: Path) -> None:
    found = claude(tmp_path, ".claude/settings.json", ask=["mcp__db"], allow=["mcp__db__look"])

    assert carried_mode(found, NAMES) == ({}, [])


def test_what_claude_code_allows_in_one_project_is_not_allowed_in_all(tmp_path: Path) -> None:
    local = "project/.claude/settings.local.json"

    assert claude(
        tmp_path, local, allow=["mcp__db__look"], deny=["mcp__db__wipe"], defaultMode="bypassPermissions"
    ) == [Permission("deny", "db", "wipe")]


def test_a_tool_that_codex_decides_on_by_itself_is_asked_about_where_its_server_is_approved() -> None:
    entry = {"default_tools_approval_mode": "approve", "tools": {"wipe": {"approval_mode": "auto"}}}

    assert entry_permissions("db", entry) == [Permission("allow", "db", "*"), Permission("ask", "db", "wipe")]


def test_a_name_in_a_list_of_an_entry_is_no_pattern() -> None:
    assert entry_permissions("db", {"autoApprove": ["look", "w*", "w?pe"]}) == [Permission("allow", "db", "look")]
    assert entry_permissions("db", {"autoApprove": ["*"]}) == [Permission("allow", "db", "*")]
