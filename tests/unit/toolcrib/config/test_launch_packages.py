"""Installed packages behind a project's server: one pin a tree, held after a change, quiet while nothing changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from toolcrib.mcp.client.launch.pins import changed_files, launch_pins
from toolcrib.mcp.client.spec import ServerSpec

SYSTEM: Final = "/usr/bin:/bin"
SITE: Final = ".venv/lib/python3.13/site-packages"
VENV: Final = {
    ".venv/pyvenv.cfg": "home = /usr/bin\n",
    ".venv/bin/activate": "VIRTUAL_ENV=x\n",
    ".venv/bin/thing": "#!/x/.venv/bin/python\n",
    f"{SITE}/thing/__init__.py": "one = 1\n",
    f"{SITE}/thing-1.dist-info/RECORD": "thing/__init__.py,,\n",
}
MODULES: Final = {
    "node_modules/thing/package.json": "{}",
    "node_modules/thing/index.js": "1\n",
    "node_modules/.bin/thing": "#!/usr/bin/env node\n",
}
OURS: Final = {
    "server.py": "import thing\n",
    "server.js": "require('thing')\n",
    "run.sh": "#!/bin/sh\n. .venv/bin/activate\nexec python server.py\n",
    "Makefile": "include more.mk\nserve:\n\t.venv/bin/python server.py\n\tsh start.sh\n",
    "more.mk": "",
    "start.sh": "true\n",
    "compose.yaml": "services:\n a:\n  build: ./image\n  env_file: a.env\n  volumes: ['./mounted.py:/a.py:ro']\n",
    "image/Dockerfile": "FROM scratch\nCOPY start.sh /\n",
    "image/start.sh": "true\n",
    "a.env": "A=1\n",
    "mounted.py": "import inner\n",
    "inner.py": "",
    "package.json": '{"scripts": {"serve": "node server.js"}}',
}
PYTHON: Final = (".venv/bin/python server.py", "uv run thing", "poetry run thing", "./run.sh", "make serve")
NODE: Final = ("node server.js", "npm run serve", "npx thing", "tsx server.js")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".toolcrib").mkdir(parents=True)
    put(folder, {**VENV, **MODULES, **OURS})
    (folder / ".venv/bin/python").symlink_to("/usr/bin/python3")
    return folder


def put(project: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
        (project / name).chmod(0o755)


def server(project: Path, words: str, **fields: Any) -> ServerSpec:
    command, *args = words.split(" ")
    spec = ServerSpec(name="s", transport="stdio", command=command, args=tuple(args), cwd=str(project), **fields)
    return replace(spec, pinned=launch_pins(spec, SYSTEM))


@pytest.mark.parametrize("words", PYTHON)
@pytest.mark.parametrize(
    "name",
    [f"{SITE}/thing/__init__.py", f"{SITE}/x.pth", f"{SITE}/sitecustomize.py", f"{SITE}/other.so", ".venv/pyvenv.cfg"],
)
def test_a_change_of_a_virtual_environment_is_a_change_of_the_server(project: Path, words: str, name: str) -> None:
    spec = server(project, words)
    assert changed_files(spec, SYSTEM) == []
    put(project, {name: "import evil\n"})
    assert str(project / ".venv") in changed_files(spec, SYSTEM)


@pytest.mark.parametrize("words", NODE)
@pytest.mark.parametrize("name", ["node_modules/thing/index.js", "node_modules/new/index.js"])
def test_a_change_of_node_modules_is_a_change_of_the_server(project: Path, words: str, name: str) -> None:
    spec = server(project, words)
    assert changed_files(spec, SYSTEM) == []
    put(project, {name: "evil\n"})
    assert changed_files(spec, SYSTEM) == [str(project / "node_modules")]


def test_a_file_of_the_same_size_and_time_is_a_change(project: Path) -> None:
    spec = server(project, "node server.js")
    file = project / "node_modules/thing/index.js"
    before = file.stat()
    file.write_text("2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert changed_files(spec, SYSTEM) == [str(project / "node_modules")]


def test_a_workspace_package_that_node_modules_links_to_belongs_to_them(project: Path) -> None:
    put(project, {"packages/inner/index.js": "1\n"})
    (project / "node_modules/inner").symlink_to("../packages/inner")
    spec = server(project, "node server.js")
    assert changed_files(spec, SYSTEM) == []
    put(project, {"packages/inner/index.js": "2\n"})
    assert changed_files(spec, SYSTEM) == [str(project / "node_modules")]


def test_a_tree_that_is_copied_touched_or_run_is_as_it_was(project: Path) -> None:
    spec = server(project, "uv run thing")
    shutil.copytree(project / ".venv", project / "copy", symlinks=True)
    shutil.rmtree(project / ".venv")
    (project / "copy").rename(project / ".venv")
    (project / SITE / "thing/__init__.py").touch()
    put(project, {f"{SITE}/thing/__pycache__/__init__.cpython-313.pyc": "code"})
    assert changed_files(spec, SYSTEM) == []


def test_an_installation_is_one_change_and_quiet_once_it_is_confirmed(project: Path) -> None:
    spec = server(project, "uv run thing")
    put(project, {f"{SITE}/{name}/__init__.py": "" for name in "abc"})
    assert changed_files(spec, SYSTEM) == [str(project / ".venv")]
    assert changed_files(server(project, "uv run thing"), SYSTEM) == []


@pytest.mark.parametrize("words", ["python3 server.py", "npx -y other", "docker run image", "uvx thing"])
def test_a_server_that_loads_nothing_of_them_is_not_asked_about_after_an_installation(
    project: Path, words: str
) -> None:
    spec = server(project, words)
    put(project, {f"{SITE}/new.py": "", "node_modules/new/index.js": ""})
    assert changed_files(spec, SYSTEM) == []


def test_a_tree_that_was_missing_and_one_that_is_gone(project: Path) -> None:
    spec = server(project, "node server.js")
    shutil.move(project / "node_modules", project / "away")
    assert changed_files(spec, SYSTEM) == [str(project / "node_modules")]
    fresh = server(project, "node server.js")
    shutil.move(project / "away", project / "node_modules")
    assert changed_files(fresh, SYSTEM) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        *(("make serve", name) for name in ("server.py", "start.sh", "more.mk", "Makefile")),
        *(("docker compose up a", name) for name in ("image/Dockerfile", "a.env", "mounted.py", "inner.py")),
        *(("docker-compose run a", name) for name in ("compose.yaml", "mounted.py", "image/start.sh", ".env")),
        ("docker run -v .:/w image python /w/server.py", "server.py"),
        ("go run .", "inner/deep/x.go"),
    ],
)
def test_what_recipes_and_services_run_is_pinned(project: Path, words: str, name: str) -> None:
    spec = server(project, words)
    assert changed_files(spec, SYSTEM) == []
    put(project, {name: "evil\n"})
    assert str(project / name) in changed_files(spec, SYSTEM)


@pytest.mark.parametrize(
    "words",
    [
        "uvx --from . thing",
        "uvx --from=. thing",
        "uvx .",
        "uvx --from {project} thing",
        "uvx --with . other",
        "uv tool run --from ./ thing",
        "uv run --with-editable . thing",
        "pipx run --spec . thing",
        "sh -c pip\u00a0install\u00a0.;thing",
    ],
)
@pytest.mark.parametrize("name", ["src/thing/deep/inner.py", "thing/new.py", "hook.py"])
def test_the_sources_of_a_folder_that_is_packed_before_it_runs_are_pinned(project: Path, words: str, name: str) -> None:
    put(project, {"pyproject.toml": "", "src/thing/deep/inner.py": "1\n"})
    command, *args = words.replace("{project}", str(project)).split(" ")
    spec = ServerSpec(
        name="s",
        transport="stdio",
        command=command,
        args=tuple(one.replace("\u00a0", " ") for one in args),
        cwd=str(project),
    )
    spec = replace(spec, pinned=launch_pins(spec, SYSTEM))
    assert changed_files(spec, SYSTEM) == []
    put(project, {name: "evil\n", "build/lib/x.py": "", ".venv/x.py": ""})
    assert str(project / name) in changed_files(spec, SYSTEM)


@pytest.mark.parametrize("words", ["uvx thing", "uv --directory . run server.py", "uv run --project . thing"])
def test_the_sources_beside_a_server_that_packs_none_are_not_pinned(project: Path, words: str) -> None:
    put(project, {"pyproject.toml": ""})
    spec = server(project, words)
    put(project, {"tests/test_thing.py": ""})
    assert changed_files(spec, SYSTEM) == []
