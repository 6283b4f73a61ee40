"""`toolcrib work`: lists, trees and files of a user's projects, by the command line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from toolcrib.cli.main import app

Typed = Callable[..., Any]

ISSUES = [
    {"number": 1, "title": 'Crash <on> "start" & more', "state": "OPEN", "milestone": {"title": "v1"}},
    {"number": 2, "title": "\x1b[31mRed\x00 " + "long " * 40, "state": "closed", "body": "# Text\r\n"},
]


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["work", *words])


def at_home(patch: pytest.MonkeyPatch, home: Path) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        patch.setenv(name, str(home / name))
    patch.setenv("HOME", str(home))
    patch.setenv("COLUMNS", "80")
    patch.chdir(home)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with a project of two issues, to be copied."""
    home = tmp_path_factory.mktemp("imported")
    (home / "issues.json").write_text(json.dumps(ISSUES), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        at_home(patch, home)
        denied = run("Issues", "--import", "issues.json")
        assert (denied.exit_code, "`--yes` says yes to it" in denied.stderr) == (5, True), "nobody is there to ask"
        assert run("Issues", "--import", "issues.json", "--yes").exit_code == 0
    return home


@pytest.fixture
def typed(tmp_path: Path, imported: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Return a command line in a home of its own, with the project."""
    shutil.copytree(imported, tmp_path, dirs_exist_ok=True)
    at_home(monkeypatch, tmp_path)
    return run


@pytest.mark.slow
def test_events_of_several_zones_are_printed_in_the_time_of_this_machine_or_of_the_setting(
    typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "tokyo.yaml").write_text("builtins: [onto, cal]\ntools: {calendar: {timezone: Asia/Tokyo}}\n")
    tomorrow = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}"
    for title, hour, zone in (("Early", "20:00", "Asia/Tokyo"), ("Late", "12:00", "UTC")):
        given = (f"title={title}", f"start_at={tomorrow}T{hour}", f"timezone={zone}", "--yes")
        assert CliRunner().invoke(app, ["call", "create_calendar_event", *given]).exit_code == 0

    lines, in_tokyo = typed().stdout.splitlines()[-2:], typed("--config", "tokyo.yaml").stdout.splitlines()[-2:]

    assert [line.split()[-1] for line in lines] == ["Early", "Late"]
    times = [datetime.fromisoformat(line.strip()[:16]) for line in lines]
    assert times[1] - times[0] == timedelta(hours=1)
    assert [line.split()[1:] for line in in_tokyo] == [["20:00", "Early"], ["21:00", "Late"]]


@pytest.mark.slow
def test_projects_are_listed_and_one_is_a_tree(typed: Typed) -> None:
    listed, tree = typed(), typed("issues")
    shown = json.loads(typed("--json").stdout)
    whole = json.loads(typed("issues", "--json").stdout)

    assert re.match(r"PROJECT +STATE +TYPE +ID\nIssues +planning +technical.issues +[0-9a-f]{16}\n", listed.stdout)
    assert tree.stdout.splitlines()[:1] == ["Issues (planning)"]
    assert [line for line in tree.stdout.splitlines() if "Crash" in line] == [
        '      task: Crash <on> "start" & more (todo)'
    ]
    assert not {"\x1b", "\0"} & set(tree.stdout)
    assert (shown["total"], shown["projects"][0]["name"]) == (1, "Issues")
    assert {task["state_key"] for task in whole["nodes"]["tasks"]} == {"todo", "done"}
    assert typed(shown["projects"][0]["id"][:8]).stdout == tree.stdout


@pytest.mark.slow
def test_a_name_of_two_lines_is_printed_in_one(typed: Typed) -> None:
    document = {"temp_id": "d", "kind": "document", "title": "Plan\nof May", "content": ""}
    project = {"name": "Launch\nof the shop", "type_key": "project.business.launch"}
    made = {"project": project, "entities": [document], "relationships": []}
    event = {"title": "Party\nat noon", "start_at": f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}"}
    for name, given in (("create_onto_project", made), ("create_calendar_event", event)):
        assert CliRunner().invoke(app, ["call", name, json.dumps(given), "--yes"]).exit_code == 0
    listed = typed()
    id = listed.stdout.splitlines()[1].split()[-1]

    assert [line[:18] for line in listed.stdout.splitlines()[1:3]] == ["Launch of the shop", "Issues            "]
    assert listed.stdout.splitlines()[-1] == f"  {event['start_at']}        Party at noon"
    assert typed(id).stdout.splitlines()[1:3] == ["documents:", "  Plan of May"]


@pytest.mark.slow
def test_files_with_a_byte_order_mark_are_imported_without_it(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "may.md").write_text("# Plan of May\n", encoding="utf-8-sig")
    (tmp_path / "marked.json").write_text(json.dumps(ISSUES), encoding="utf-8-sig")

    assert [typed("--import", name, "-y").exit_code for name in ("notes", "marked.json")] == [0, 0]
    assert "  Plan of May\n" in typed("notes").stdout


@pytest.mark.slow
def test_a_project_is_written_as_svg_and_as_mermaid(typed: Typed, tmp_path: Path) -> None:
    picture = typed("Issues", "--format", "svg")
    diagram = typed("Issues", "--format", "mermaid", "--output", "graph.mmd")

    assert (picture.exit_code, picture.stdout) == (0, "Wrote Issues.svg\n")
    titles = [one.text for one in ElementTree.parse(tmp_path / "Issues.svg").iter("{http://www.w3.org/2000/svg}title")]
    assert 'task: Crash <on> "start" & more (todo)' in titles
    assert len(titles) == 5
    assert diagram.exit_code == 0
    lines = (tmp_path / "graph.mmd").read_text().splitlines()
    assert lines[0] == "flowchart TD"
    assert sum("-->" in line for line in lines) == 4
    assert '  n1["task: ' in lines[2]
    assert "Crash &lt;on&gt; &quot;start&quot; &amp; more (todo)" in "\n".join(lines)


@pytest.mark.slow
def test_a_project_goes_to_files_and_back(typed: Typed, tmp_path: Path) -> None:
    assert typed("Issues", "--format", "json").stdout == "Wrote Issues.json\n"
    assert typed("Issues", "--format", "markdown", "-o", "folder").stdout == "Wrote folder\n"
    again = typed("Again", "--import", "Issues.json", "-y", "--json")
    folder = typed("--import", "folder", "-y")

    assert json.loads(again.stdout)["counts"] == {"tasks": 2, "milestones": 1, "goals": 1, "edges": 4}
    assert re.fullmatch(
        r"Imported project 'Issues'\. [0-9a-f]{16}; 2 projects have this name now: an import makes a new one\n",
        folder.stdout,
    )
    assert len(list((tmp_path / "folder").rglob("*.md"))) == 5
    assert [one["name"] for one in json.loads(typed("--json").stdout)["projects"]] == ["Issues", "Again", "Issues"]


WRONG_LINES: list[tuple[list[str], int]] = [
    (["nothing"], 3),
    (["--format", "svg"], 2),
    (["Issues", "--output", "x"], 2),
    (["Issues", "--format", "gif"], 2),
    (["Issues", "--format", "svg", "--output", "no/such/folder.svg"], 2),
    (["Issues", "--format", "markdown", "--output", "."], 2),
    (["--import", "missing.json"], 2),
    (["--import", "issues.json", "--format", "svg"], 2),
]


@pytest.mark.slow
def test_a_wrong_command_line_says_so_and_writes_nothing(typed: Typed, tmp_path: Path) -> None:
    before = sorted(one.name for one in tmp_path.iterdir())
    for words, status in WRONG_LINES:
        done = typed(*words)
        assert (words, done.exit_code, done.stdout) == (words, status, "")
        assert sorted(one.name for one in tmp_path.iterdir()) == before


@pytest.mark.slow
def test_a_mistyped_name_of_a_project_is_answered_with_the_nearest(typed: Typed) -> None:
    typed("Weekly release of the garden", "--import", "issues.json", "--yes")

    said = {name: typed(name) for name in ("Isues", "weekly relese", "Xyzzy")}

    assert [(done.exit_code, done.stderr.strip()) for done in said.values()] == [
        (3, "toolcrib: not_found: there is no project 'Isues'; did you mean Issues?"),
        (3, "toolcrib: not_found: there is no project 'weekly relese'; did you mean Weekly release of the garden?"),
        (3, "toolcrib: not_found: there is no project 'Xyzzy'; there are Weekly release of the garden, Issues"),
    ]
