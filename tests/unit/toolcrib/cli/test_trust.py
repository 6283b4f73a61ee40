"""`toolcrib trust` also confirms catalogs and skills, exactly as they are."""

import json
from pathlib import Path

import pytest

from toolcrib.config import Directories, load
from toolcrib.config.confirmation import confirm
from toolcrib.config.trust import Trust
from toolcrib.crib import Toolcrib
from toolcrib.server.backend import CribBackend
from unit.toolcrib.cli.conftest import User

CATALOG = "- name: say_hello\n  implementation: {command: [echo, hello]}\n"
SKILL = "---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"


def test_a_projects_catalog_and_skills_are_there_once_each_of_them_is_confirmed(user: User) -> None:
    user.has("project/.toolcrib/config.yaml", "catalogs: [office.yaml]\nskills: {project: true}\nbuiltins: false\n")
    user.has("project/.toolcrib/office.yaml", CATALOG)
    user.has("project/.agents/skills/greet/SKILL.md", SKILL)
    script = user.has("project/.agents/skills/greet/scripts/run.sh", "echo hello\n")
    assert user.types("trust").exit_code == 0

    before = user.types("tools")
    trusted = user.types("trust", ".toolcrib/office.yaml", ".agents/skills")
    shown = user.reads("trust", "--show", ".toolcrib/office.yaml", ".agents/skills")
    after = user.types("tools")
    script.write_text("rm -rf /\n")
    changed = user.types("tools")

    assert ("say_hello" in before.stdout, "greet" in before.stdout) == (False, False)
    assert (trusted.exit_code, "Say hello." in trusted.stdout, "scripts/run.sh" in trusted.stdout) == (0, True, True)
    assert (shown["confirmed"], [(one["text"], "run.sh" in one["files"]) for one in shown["files"]]) == (
        False,
        [(CATALOG, False), (SKILL, True)],
    )
    assert ("say_hello" in after.stdout, "greet" in after.stdout) == (True, True)
    assert ("say_hello" in changed.stdout, "greet" in changed.stdout) == (True, False)


def test_code_and_programs_that_a_confirmed_catalog_runs_are_confirmed_with_it(user: User) -> None:
    user.has("project/.toolcrib/config.yaml", "catalogs: [c.yaml]\nbuiltins: false\n")
    user.has(
        "project/.toolcrib/c.yaml",
        "- {name: by_code, implementation: {module: mine, function: run}}\n"
        "- {name: by_script, implementation: {path: run.sh}}\n"
        "- {name: by_command, implementation: {command: [sh, ./run.sh]}}\n"
        "- {name: by_nothing, implementation: {command: [echo, hello]}}\n",
    )
    user.has("project/.toolcrib/mine.py", "import helper\ndef run() -> str:\n    return helper.word\n")
    code = user.has("project/.toolcrib/helper.py", "word = 'hello'\n")
    script = user.has("project/.toolcrib/run.sh", "echo '\"hello\"'\n")
    names = ("by_code", "by_script", "by_command", "by_nothing")
    user.types("trust")
    shown = user.types("trust", ".toolcrib/c.yaml")

    before = user.types("tools")
    code.write_text("word = 'changed'\n")
    by_code = user.types("tools")
    code.write_text("word = 'hello'\n")
    script.write_text("echo changed\n")
    by_script = user.types("tools")

    assert ("helper.py" in shown.stdout, "run.sh" in shown.stdout) == (True, True)
    listed = [[name in seen.stdout for name in names] for seen in (before, by_code, by_script)]
    assert listed == [[True] * 4, [False] * 4, [False] * 4]


def test_a_profile_that_a_project_names_by_its_path_is_confirmed_with_it_and_counts_as_it_was(user: User) -> None:
    user.has("project/.toolcrib/config.yaml", "profile: ./mine.yaml\n")
    profile = user.has("project/.toolcrib/mine.yaml", "extends: flat\n")

    confirmed = user.types("trust")
    before = user.reads("policy", "list")
    profile.write_text("extends: flat\nrules: {allow: ['*']}\n")
    changed = user.types("policy", "list")

    assert (confirmed.exit_code, "extends: flat" in confirmed.stdout, before) == (0, True, [])
    assert (changed.exit_code, "toolcrib trust" in changed.stderr, changed.stdout) == (2, True, "")


def test_the_doctor_names_what_is_not_found_in_a_renamed_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = User(tmp_path / "old")
    servers = {"notes": {"command": "x", "projects": [str(user.project)]}}
    user.has(".config/toolcrib/config.yaml", {"servers": servers, "builtins": False})
    user.has("project/.toolcrib/config.yaml", "mode: plan\n")
    monkeypatch.chdir(user.project)
    assert user.types("trust").exit_code == 0
    user = User(user.home.rename(tmp_path / "new"))
    monkeypatch.chdir(user.home)

    before = json.loads(user.types("doctor", "--json").stdout)
    monkeypatch.chdir(user.project)
    assert user.types("trust").exit_code == 0
    after = json.loads(user.types("doctor", "--json").stdout)

    named = f"server notes, project {user.project}"
    assert ", ".join(row["check"] for row in before if str(tmp_path / "old") in row["detail"]) == named
    assert [row["check"] for row in after if str(tmp_path / "old") in row["detail"]] == ["server notes"]


def test_what_is_not_there_cannot_be_confirmed(user: User) -> None:
    refused = user.types("trust", "nothing.yaml")

    assert refused.exit_code == 2
    assert "there is neither a file nor a skill" in refused.stderr


def test_what_was_shown_is_confirmed_and_not_what_the_file_has_become_since(tmp_path: Path) -> None:
    directories, path = Directories.of({"HOME": str(tmp_path)}), tmp_path / "project" / ".toolcrib" / "config.yaml"
    path.parent.mkdir(parents=True)
    (tmp_path / "project" / "run.sh").write_text("")
    shown, later = (f"servers: {{{name}: {{command: ./run.sh}}}}\n".encode() for name in ("shown", "later"))
    path.write_bytes(later)

    confirm(directories, [(path, shown)], {})

    trust = Trust(directories)
    assert [trust.covers(path, content) for content in (shown, later)] == [True, False]
    assert [bool(trust.pins(path, name)) for name in ("shown", "later")] == [True, False]


async def test_a_client_learns_that_its_user_has_not_confirmed_the_project(user: User) -> None:
    file = user.has("project/.toolcrib/config.yaml", "builtins: false\n")
    environ = {"HOME": str(user.home)}
    told: list[bool] = []
    for _ in range(2):
        async with Toolcrib(load(environ=environ, cwd=user.project), memory=True) as crib:
            told.append("toolcrib doctor" in CribBackend(crib).serve(crib.session()).instructions)
        confirm(Directories.of(environ), [(file, file.read_bytes())], environ)

    assert told == [True, False]
