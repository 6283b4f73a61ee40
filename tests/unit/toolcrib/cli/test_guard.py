"""`toolcrib guard`: on and off hold from the next call on, and `status` shows what that makes of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib.config import Directories, bare, load
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib
from toolcrib.testing import ScriptedSource

from .conftest import User

BY_HAND = ["runs", "asks", "asks", "runs", "runs", "asks", "asks", "asks", "asks", "quarantined", "runs", "asks"]
OFF = ["runs", "runs", "runs", "runs", "asks", "asks", "asks", "runs", "runs", "runs", "runs", "asks"]


def outcomes(user: User, where: str) -> list[str]:
    return [row[where]["outcome"] for row in user.reads("guard", "status")["calls"]]


def test_status_shows_twelve_calls_behind_connect_and_by_hand_as_the_switch_is(user: User) -> None:
    before = outcomes(user, "connected")
    on = user.reads("guard", "on")
    strict = outcomes(user, "connected")
    again = user.reads("guard", "on")
    off = user.reads("guard", "off")

    assert (before, strict, outcomes(user, "connected")) == (OFF, BY_HAND, OFF)
    assert outcomes(user, "by_hand") == BY_HAND
    assert [one["changed"] for one in (on, again, off)] == [True, False, True]


def test_status_names_the_sources_of_decisions_and_the_entries_of_clients(user: User) -> None:
    user.has(".config/toolcrib/config.yaml", "mode: manual\nrules: {deny: [a, b], ask: [c]}\n")
    user.has(".cursor/mcp.json", {"mcpServers": {"toolcrib": {"command": "/x/toolcrib", "args": ["serve"]}}})
    off = ["serve", "--profile", "flat", "--guard", "off", "--mode", "connected-gemini"]
    user.has(".gemini/settings.json", {"mcpServers": {"toolcrib": {"command": "/x/toolcrib", "args": off}}})
    user.has(
        ".config/goose/config.yaml",
        "extensions:\n  toolcrib: {type: stdio, cmd: /x/toolcrib, args: [serve, --guard, 'off']}\n",
    )
    user.types("guard", "on")

    status = user.reads("guard", "status")
    shown = user.types("guard")

    assert (status["guard"], status["sources"]["rules"]) == ("on", "2 deny, 1 ask, 0 allow")
    assert [(entry["client"], entry["guard"], entry["mode"]) for entry in status["entries"]] == [
        ("cursor", "on", ""),
        ("gemini", "off", "connected-gemini"),
        ("goose", "off", ""),
    ]
    assert status["calls"][1]["connected"]["rule"].startswith("mode manual")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    table = [line for line in lines if line.startswith("a destructive tool, through call_tool")]
    assert [line.split()[5:] for line in table] == [["asks", "[3]", "asks", "[3]"]]
    assert [line for line in lines if line.startswith("[3] mode manual: a destructive tool")]


def test_status_counts_what_connect_carried_over_and_shows_where_an_entry_decides_otherwise(user: User) -> None:
    mode = {"extends": "autonomous", "destructive": "ask", "rules": {"deny": ["gh__a"], "allow": ["gh__b", "gh__c"]}}
    user.has(".config/toolcrib/config.yaml", {"modes": {"connected-cursor": mode}})
    for file, name in ((".cursor/mcp.json", "connected-cursor"), (".gemini/settings.json", "gone")):
        entry = {"command": "/x/toolcrib", "args": ["serve", "--profile", "flat", "--guard", "off", "--mode", name]}
        user.has(file, {"mcpServers": {"toolcrib": entry}})

    cursor, gemini = user.reads("guard", "status")["entries"]
    shown = user.types("guard").stdout

    assert cursor["rules"] == {"deny": 1, "ask": 0, "allow": 2}
    assert [one["outcome"] for one in cursor["outcomes"]] == [*OFF[:2], "asks", *OFF[3:]]
    assert (gemini["outcomes"], "'gone'" in gemini["problem"]) == ([], True)
    assert "mode connected-cursor (1 deny, 0 ask, 2 allow)" in shown
    assert "Cursor: a destructive tool, by its name: asks [" in shown


async def test_the_switch_holds_from_the_next_call_of_a_crib_that_is_open(user: User) -> None:
    async def run(arguments: Mapping[str, Any], context: Any) -> ToolResult:
        return ToolResult.of_text("done")

    write = Tool(name="write", source="s", local_name="write", annotations=Annotations(destructive=False))
    settings = replace(
        bare().with_values(guard=False, mode="autonomous"), directories=Directories.of({"HOME": str(user.home)})
    )
    codes = list[str]()
    async with Toolcrib(settings, memory=True) as crib:
        await crib.tools.mount_source(ScriptedSource("s", {"write": run}, listed=[write]))
        session = crib.session(for_client=True)
        for action in ("off", "on", "off"):
            user.types("guard", action)
            result = await session.call("s__write", {})
            codes.append(result.error.code if result.error else "ok")

    assert codes == ["ok", "denied", "ok"], "nobody can be asked in memory"


def test_files_with_untrusted_content_are_listed_and_accepted_by_path_and_copies_with_them(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = user.project
    monkeypatch.chdir(project)
    texts = {"notes.md": "Call save now.\n", "gone.md": "It is gone.\n", "changed.md": "It was changed.\n"}

    async def main() -> None:
        settings = load((), {}, {"HOME": str(user.home)}, cwd=project)
        async with Toolcrib(settings) as crib:
            marks = {project / name: text.encode() for name, text in texts.items()}
            await crib.parts.file_marks.put(marks, (project,), "web__page", "a")

    def states() -> dict[str, str]:
        return {Path(one["path"]).name: one["state"] for one in user.reads("guard", "files")}

    assert user.types("guard", "files").stderr == "no file has content that a tainted session wrote unasked\n"
    anyio.run(main)
    (project / "notes.md").write_text(texts["notes.md"])
    (project / "changed.md").write_text("By hand.\n")
    (project / "copy.md").write_text(texts["notes.md"])
    before, shown = states(), user.types("guard", "files")
    accepted = user.reads("guard", "accept", "copy.md")
    wrong = user.types("guard", "accept", "copy.md")
    after = states()
    everything = user.types("guard", "accept", "--all")

    assert before == {"notes.md": "as written", "gone.md": "gone", "changed.md": "changed"}
    assert "web__page" in shown.stdout
    assert "toolcrib pending accept" in shown.stderr
    assert accepted == [str(project / "notes.md")]
    assert (wrong.exit_code != 0, after) == (True, {"gone.md": "gone", "changed.md": "changed"})
    assert (everything.exit_code, states()) == (0, {})
    assert user.types("guard", "accept").exit_code == 2
