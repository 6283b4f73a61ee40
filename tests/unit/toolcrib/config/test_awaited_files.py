"""Packages and build outputs that come after `toolcrib trust`: the user's are taken, an agent's are asked about."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import Any, Final

import pytest

from rig.sandbox import needs_sandbox
from toolcrib import Toolcrib
from toolcrib.config import files as disk
from toolcrib.config.confirmation import confirm
from toolcrib.config.directories import Directories
from toolcrib.config.loader import load
from toolcrib.core.awaited_files import AWAITED, AwaitedFiles
from toolcrib.core.sandbox import Command
from toolcrib.mcp.client.launch.awaited_pins import awaited_files
from toolcrib.mcp.client.launch.pins import changed_files, made_by_agents
from toolcrib.mcp.client.spec import ServerSpec
from toolcrib.sandbox.comparison import Comparison
from toolcrib.sandbox.detection import find_sandbox
from unit.toolcrib.config.test_launch_packages import put

SYSTEM: Final = "/usr/bin:/bin"
SITE: Final = ".venv/lib/python3.13/site-packages"
SOURCES: Final = {
    "package.json": '{"dependencies": {"thing": "1"}}',
    "pyproject.toml": "[project.scripts]\nthing = 'pkg.cli:main'\n",
    "pkg/__init__.py": "",
    "pkg/cli.py": "import pkg.inner\n",
    "pkg/inner.py": "",
    "server.js": "require('thing')\n",
    "config.js": "1\n",
}
VENV: Final = {
    ".venv/pyvenv.cfg": "home = /usr/bin\n",
    ".venv/bin/thing": "#!/x/.venv/bin/python\nfrom pkg.cli import main\n",
    f"{SITE}/thing/__init__.py": "one = 1\n",
}
MODULES: Final = {
    "node_modules/thing/index.js": "1\n",
    "node_modules/.bin/thing": "#!/usr/bin/env node\n",
}
DIST: Final = {"dist/server.js": "require('./lib'); require('../config.js')\n", "dist/lib.js": "1\n"}
LATE: Final = [
    (".venv/bin/thing", VENV),
    (".venv/bin/python -m pkg.cli", VENV),
    ("sh -c exec\u00a0.venv/bin/thing", VENV),
    ("uv run thing", VENV),
    ("node_modules/.bin/thing", MODULES),
    ("node server.js", MODULES),
    ("npx thing", MODULES),
    ("npm exec thing", MODULES),
    ("node dist/server.js", DIST),
    ("target/debug/thing", {"target/debug/thing": "binary\n"}),
    ("bin/thing --stdio", {"bin/thing": "binary\n"}),
    ("./thing", {"thing": "binary\n"}),
    ("java -jar build/libs/thing.jar", {"build/libs/thing.jar": "binary\n"}),
]
"""Commands of servers, and what the user installs or builds for them after `toolcrib trust`."""


class Project:
    """A project with one server, and its user."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.environ = {"HOME": str(home), "PATH": SYSTEM}
        self.directories = Directories.of(self.environ)
        put(folder, SOURCES)

    def serve(self, words: str) -> None:
        command, *args = (word.replace("\u00a0", " ") for word in words.split(" "))
        text = dumps({"servers": {"s": {"command": command, "args": args}}})
        put(self.folder, {".toolcrib/config.yaml": text})
        self.trust()

    def trust(self) -> None:
        file = self.folder / ".toolcrib" / "config.yaml"
        confirm(self.directories, [(file, disk.read(file))], self.environ, anew=True)

    @property
    def server(self) -> ServerSpec:
        return load(environ=self.environ, cwd=self.folder).sources.servers[0]

    @property
    def record(self) -> AwaitedFiles:
        return awaited_files(self.directories.state / AWAITED)

    def changes(self) -> list[str]:
        """Return what holds a start of the server, with that of agents marked."""
        server = self.server
        found = changed_files(server, SYSTEM)
        by_agents = made_by_agents(server, found)
        return [f"{'agent: ' if one in by_agents else ''}{os.path.relpath(one, self.folder)}" for one in found]

    def install(self, files: Mapping[str, str]) -> None:
        put(self.folder, files)
        if ".venv/pyvenv.cfg" in files:
            (self.folder / ".venv/bin/python").symlink_to("/usr/bin/python3")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project", tmp_path / "home")


@pytest.fixture(params=LATE, ids=[words for words, _ in LATE])
def late(request: pytest.FixtureRequest, project: Project) -> tuple[Project, Mapping[str, str]]:
    """A confirmed project, and what is not there yet."""
    words, files = request.param
    project.serve(words)
    return project, files


def test_what_the_user_installs_or_builds_after_the_confirmation_is_not_asked_about(
    late: tuple[Project, Mapping[str, str]],
) -> None:
    project, files = late
    assert project.changes() == []
    project.record.begin([project.folder])()  # a command of an agent that makes nothing of it
    project.install(files)
    assert (project.changes(), project.changes()) == ([], [])


def test_what_was_taken_at_a_start_is_pinned(late: tuple[Project, Mapping[str, str]]) -> None:
    project, files = late
    project.install(files)
    assert project.changes() == []
    put(project.folder, {list(files)[-1]: "evil\n"})
    assert len(project.changes()) > 0
    project.trust()
    assert project.changes() == []


def test_what_comes_while_a_command_of_an_agent_runs_is_asked_about_once(
    late: tuple[Project, Mapping[str, str]],
) -> None:
    project, files = late
    end = project.record.begin([project.folder])
    project.install(files)
    running = project.changes()
    end()
    assert any(one.startswith("agent: ") for one in running)
    assert project.changes() == running
    project.trust()
    assert project.changes() == []


def test_what_a_command_of_an_agent_changes_before_the_first_start_is_asked_about(
    late: tuple[Project, Mapping[str, str]],
) -> None:
    project, files = late
    project.install(files)
    end = project.record.begin([project.folder])
    put(project.folder, {list(files)[-1]: "evil\n"})
    end()
    assert len(project.changes()) > 0


def test_a_command_of_an_agent_in_another_folder_does_not_count(late: tuple[Project, Mapping[str, str]]) -> None:
    project, files = late
    end = project.record.begin([project.folder.parent / "other"])
    project.install(files)
    end()
    assert project.changes() == []


def test_a_trace_of_a_killed_process_holds_until_the_user_has_confirmed(project: Project) -> None:
    project.serve("node_modules/.bin/thing")
    project.record.begin([project.folder])
    entries = list((project.directories.state / AWAITED).iterdir())
    for trace in [one for entry in entries for one in entry.iterdir() if one.name != "path"]:
        trace.rename(trace.with_name(f"{2**22 + 1}-0a"))
    project.trust()
    project.install(MODULES)
    assert project.changes() == []


def test_a_confirmation_during_a_command_of_an_agent_forgives_nothing_that_it_makes_later(project: Project) -> None:
    project.serve("node_modules/.bin/thing")
    end = project.record.begin([project.folder])
    project.trust()
    project.install(MODULES)
    end()
    assert "agent: node_modules" in project.changes()


def test_packages_that_come_before_installed_ones_are_awaited(project: Project) -> None:
    put(project.folder, {"src/server.js": "require('thing')\n"})
    project.install(MODULES)
    project.serve("node src/server.js")
    end = project.record.begin([project.folder])
    put(project.folder, {"src/node_modules/thing/index.js": "evil\n"})
    end()
    assert project.changes() == ["agent: src/node_modules"]


@pytest.mark.process
def test_a_source_that_only_an_awaited_file_loads_counts_as_it_was_at_the_confirmation(project: Project) -> None:
    project.serve("node dist/server.js")
    project.install(DIST)
    put(project.folder, {"config.js": "evil\n"})
    subprocess.run(["git", "init", "-q"], cwd=project.folder, check=True)
    subprocess.run(["git", "add", "config.js"], cwd=project.folder, check=True)
    assert project.changes() == ["config.js"]


@pytest.mark.process
@pytest.mark.parametrize(("words", "files"), [LATE[0], LATE[4], LATE[8], LATE[9]])
def test_what_the_repository_brings_later_is_a_change(project: Project, words: str, files: Mapping[str, str]) -> None:
    project.serve(words)
    project.install(files)
    subprocess.run(["git", "init", "-q"], cwd=project.folder, check=True)
    subprocess.run(["git", "add", "-f", *files], cwd=project.folder, check=True)
    assert len(project.changes()) > 0


@needs_sandbox
@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "is_held"),
    [("mkdir -p node_modules/.bin; cp server.js node_modules/.bin/thing", True), ("ls; touch made", False)],
)
async def test_a_command_in_the_sandbox_leaves_a_trace_where_it_makes_what_a_server_runs(
    project: Project, text: str, is_held: bool
) -> None:
    project.serve("node_modules/.bin/thing")
    sandbox, why = find_sandbox(os.environ, comparison=Comparison(awaited=project.record))
    assert sandbox is not None, why
    command = Command(argv=("/bin/sh", "-c", text), cwd=project.folder, folders=(project.folder,))
    async with sandbox.open(command) as running:
        await running.close_input()
        await running.wait()
    shutil.rmtree(project.folder / "made", ignore_errors=True)
    if not is_held:
        project.install(MODULES)
    assert any(one.startswith("agent: ") for one in project.changes()) is is_held


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "node_modules/.bin/thing", "content": "evil\n"}),
        ("move_file", {"source": "other", "destination": "node_modules"}),
        ("copy_file", {"source": "other/.bin/thing", "destination": "node_modules/.bin/thing"}),
    ],
)
async def test_a_file_tool_leaves_a_trace_where_it_makes_what_a_server_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, arguments: Mapping[str, Any]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(project.directories.state.parent))
    put(project.folder, {"other/.bin/thing": "evil\n"})
    project.serve("node_modules/.bin/thing")
    async with Toolcrib(workspace=str(project.folder), builtins=True, mode="autonomous", store=None) as crib:
        result = await crib.session().call(name, arguments)
    assert result.error is None, result.error
    assert (project.folder / "node_modules/.bin/thing").read_text() == "evil\n"
    assert "agent: node_modules" in project.changes()
