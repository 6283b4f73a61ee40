"""Files that the programs of a project's server load, or that come before what they would load: pinned as they are."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from toolcrib.mcp.client.launch.pins import changed_files, launch_pins
from toolcrib.mcp.client.spec import ServerSpec
from unit.toolcrib.config.test_launch_packages import put

SYSTEM: Final = "/usr/bin:/bin"
SERVE: Final = '[project.scripts]\nserve = "app.main:run"\n'
HATCH: Final = "[tool.hatch.envs.default.scripts]\nserve = 'python a.py'\n"
SOURCE: Final = "tool.uv.sources.lib = {path = './lib', editable = true}\n"
MEMBER: Final = '{"name": "a", "scripts": {"serve": "node s.js"}}'
POETRY: Final = '[tool.poetry.scripts]\nserve = "app.main:run"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".toolcrib").mkdir(parents=True)
    (folder / "sub").mkdir()
    return folder


def server(project: Path, words: str, *, cwd: str = ".", **fields: Any) -> ServerSpec:
    command, *args = words.replace("{project}", str(project)).split(" ")
    spec = ServerSpec(name="s", transport="stdio", command=command, args=tuple(args), cwd=str(project / cwd), **fields)
    return replace(spec, pinned=launch_pins(spec, SYSTEM))


def changes(project: Path, spec: ServerSpec, name: str) -> bool:
    """Change a file of the project; return whether the server would not start then, for that file alone."""
    assert changed_files(spec, SYSTEM) == []
    put(project, {name: "evil\n"})
    found = changed_files(spec, SYSTEM)
    assert found in ([], [str(project / name)], ["command"])
    return bool(found)


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ({"server.py": "import helper\n", "helper.py": ""}, "helper.py"),
        ({"server.py": "try: import a, helper as h\nexcept ImportError: pass\n", "helper.py": ""}, "helper.py"),
        (
            {"server.py": "if 1:\n    from one.two import (\n        helper,\n    )\n", "one/two/helper.py": ""},
            "one/two/helper.py",
        ),
        ({"server.py": "import one.helper\n", "one/__init__.py": "", "one/helper.py": ""}, "one/__init__.py"),
        ({"server.py": "import a\n", "a.py": "import b\n", "b.py": "import c\n", "c.py": ""}, "c.py"),
        ({"server.py": "import one\n", "one/__init__.py": "from .core import x\n", "one/core.py": ""}, "one/core.py"),
        ({"server.py": "importlib.import_module('helper')\n", "helper.py": ""}, "helper.py"),
        ({"server.py": "runpy.run_path('lib/helper.py')\n", "lib/helper.py": ""}, "lib/helper.py"),
        ({"server.py": "sys.path.insert(0, 'lib')\nimport helper\n", "lib/helper.py": ""}, "lib/helper.py"),
        ({"server.py": "import helper\n", "src/helper.py": ""}, "src/helper.py"),
        ({"server.py": "import helper\n", "helper.py": ""}, "helper/__init__.py"),
        ({"server.py": "import helper\n", "helper.py": ""}, "helper.abi3.so"),
        ({"server.py": "import helper\n"}, "helper.pyc"),
        ({"server.py": "import helper\n"}, "helper.py"),
        ({"server.py": "import asyncio\n"}, "asyncio.py"),
        ({"server.py": "import asyncio\n"}, "selectors.py"),
        ({"server.py": "import asyncio\n"}, "random/__init__.py"),
    ],
)
def test_a_module_that_a_program_imports_is_pinned_and_so_is_one_that_comes_before_it(
    project: Path, files: Mapping[str, str], changed: str
) -> None:
    put(project, files)
    assert changes(project, server(project, "python3 server.py"), changed)


@pytest.mark.parametrize(
    ("words", "files", "changed"),
    [
        ("node server.js", {"server.js": "const h = require('./lib/h')\n", "lib/h.js": ""}, "lib/h.js"),
        ("node server.js", {"server.js": "require('./lib')\n", "lib/index.js": ""}, "lib/index.js"),
        ("node server.mjs", {"server.mjs": "import {x} from './h.mjs'\n", "h.mjs": ""}, "h.mjs"),
        ("node server.mjs", {"server.mjs": "import './h.mjs'\n", "h.mjs": ""}, "h.mjs"),
        ("node server.mjs", {"server.mjs": 'await import("./h.mjs")\n', "h.mjs": ""}, "h.mjs"),
        (
            "node server.mjs",
            {"server.mjs": "export * from `./h.mjs`\n", "h.mjs": "import './i.mjs'", "i.mjs": ""},
            "i.mjs",
        ),
        ("node server.mjs", {"server.mjs": "new Worker('./w.js')\n", "w.js": ""}, "w.js"),
        ("tsx server.ts", {"server.ts": "import {x} from './h.js'\n", "h.ts": ""}, "h.ts"),
        ("./run.sh", {"run.sh": "#!/bin/sh\n. ./env\n", "env": ""}, "env"),
        ("sh run.sh", {"run.sh": "exec python3 server.py\n", "server.py": ""}, "server.py"),
        ("sh run.sh", {"run.sh": "exec python3 server.py\n", "server.py": "import h\n", "h.py": ""}, "h.py"),
        ("sub/run.sh", {"sub/run.sh": '#!/bin/sh\nexec "$(dirname "$0")/x.py"\n', "sub/x.py": ""}, "sub/x.py"),
        ("sub/run.sh", {"sub/run.sh": "#!/usr/bin/env bash\nexec ${HERE}/x.py\n", "sub/x.py": ""}, "sub/x.py"),
        ("php server.php", {"server.php": "<?php require __DIR__.'/lib/a.php';", "lib/a.php": ""}, "lib/a.php"),
        ("ruby server.rb", {"server.rb": "require_relative './a'\n", "a.rb": ""}, "a.rb"),
        ("bundle exec ruby server.rb", {"server.rb": "require_relative 'a'\n", "a.rb": ""}, "a.rb"),
        ("uv run serve", {"pyproject.toml": SERVE, "src/app/main.py": "import x\n"}, "src/app/main.py"),
        ("uv run serve", {"pyproject.toml": SERVE, "app/main.py": "from . import x\n", "app/x.py": ""}, "app/x.py"),
        ("poetry run serve", {"pyproject.toml": POETRY, "app/main.py": ""}, "app/main.py"),
        ("cargo run", {"Cargo.toml": "", "src/main.rs": "mod a;\n", "src/a.rs": ""}, "src/a.rs"),
        ("go run .", {"go.mod": "", "main.go": "", "other.go": ""}, "other.go"),
        ("dotnet run", {"app.csproj": "", "Program.cs": ""}, "Program.cs"),
        ("./gradlew run", {"gradlew": "", "build.gradle": ""}, "build.gradle"),
        ("mvn exec:java", {"pom.xml": ""}, ".mvn/jvm.config"),
        (
            "./run",
            {"run": "#!/usr/bin/env -S node --import ./h.mjs\n", "h.mjs": "import './i.mjs'", "i.mjs": ""},
            "i.mjs",
        ),
        ("./run", {"run": "#!./sub/interpreter\n", "sub/interpreter": "#!/bin/sh\n"}, "sub/interpreter"),
        (
            "node a.mjs",
            {"a.mjs": "import '#x'", "package.json": '{"imports": {"#x": "./x.mjs"}}', "x.mjs": ""},
            "x.mjs",
        ),
        ("tsx a.ts", {"a.ts": "import {x} from '@/lib/h'\n", "src/lib/h.ts": ""}, "src/lib/h.ts"),
        ("lua a.lua", {"a.lua": "require 'lib.h'\n", "lib/h.lua": ""}, "lib/h.lua"),
        ("npm start", {"package.json": "{}", "server.js": ""}, "server.js"),
        ("pnpm --filter a serve", {"p/a/package.json": MEMBER, "p/a/s.js": ""}, "p/a/s.js"),
        ("yarn workspace a serve", {"p/a/package.json": MEMBER, "p/a/s.js": ""}, "p/a/s.js"),
        ("bun run a.ts", {"a.ts": "", "bunfig.toml": "preload = ['./p.ts']\n", "p.ts": ""}, "p.ts"),
        ("deno task serve", {"deno.json": '{"tasks": {"serve": "deno run a.ts"}}', "a.ts": ""}, "a.ts"),
        ("deno run a.ts", {"a.ts": "import 'x'", "deno.json": '{"imports": {"x": "./x.ts"}}', "x.ts": ""}, "x.ts"),
        ("fastmcp run", {"fastmcp.json": '{"source": {"path": "a.py"}}', "a.py": "import h\n", "h.py": ""}, "h.py"),
        ("pdm run serve", {"pyproject.toml": "[tool.pdm.scripts]\nserve = 'python a.py'\n", "a.py": ""}, "a.py"),
        ("uv run poe serve", {"pyproject.toml": "[tool.poe.tasks.serve]\ncmd = 'python a.py'\n", "a.py": ""}, "a.py"),
        ("hatch run serve", {"pyproject.toml": HATCH, "a.py": ""}, "a.py"),
        ("uv run serve", {"pyproject.toml": SOURCE, "lib/setup.py": "", "lib/a.py": ""}, "lib/a.py"),
        ("uv run a.py", {"a.py": f"# /// script\n# {SOURCE}# ///\n", "lib/setup.py": "", "lib/b.py": ""}, "lib/b.py"),
        ("java -cp lib/* Main", {"lib/a.jar": ""}, "lib/a.jar"),
        ("cargo run -p a", {"Cargo.toml": "", "crates/a/src/main.rs": ""}, "crates/a/src/main.rs"),
        ("mix run", {"mix.exs": "", "lib/a/b.ex": ""}, "lib/a/b.ex"),
    ],
)
def test_a_file_that_a_script_loads_or_a_runner_builds_is_pinned(
    project: Path, words: str, files: Mapping[str, str], changed: str
) -> None:
    put(project, files)
    assert changes(project, server(project, words), changed)


@pytest.mark.parametrize(
    ("words", "env", "changed"),
    [
        ("node a.js", {"NODE_PATH": "lib"}, "lib/h.js"),
        ("uv run serve", {"UV_PROJECT": "sub"}, "sub/app/main.py"),
        ("uv run a.py", {"UV_ENV_FILE": "sub/.env"}, "sub/.env"),
    ],
)
def test_a_file_that_a_variable_of_the_entry_leads_to_is_pinned(
    project: Path, words: str, env: Mapping[str, str], changed: str
) -> None:
    put(project, {"a.js": "require('h')\n", "lib/h.js": "", "sub/pyproject.toml": SERVE, "sub/app/main.py": ""})
    put(project, {"a.py": "", "sub/.env": ""})
    assert changes(project, server(project, words, env=env), changed)


@pytest.mark.parametrize(
    "name", ["x/../a b.mjs", "file:./a b.mjs", "file://{project}/a%20b.mjs", "file://localhost{project}/a%20b.mjs"]
)
def test_a_file_is_pinned_in_every_spelling_of_its_address(project: Path, name: str) -> None:
    put(project, {"a b.mjs": ""})
    spec = ServerSpec(
        name="s",
        transport="stdio",
        command="node",
        args=("--import", name.replace("{project}", str(project))),
        cwd=str(project),
    )
    assert changes(project, replace(spec, pinned=launch_pins(spec, SYSTEM)), "a b.mjs")


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("../bin/python3 server.py", "bin/python3"),
        ("{project}/bin/node server.js", "bin/node"),
        ("uv run thing", "uv.lock"),
        ("npx thing", ".npmrc"),
        ("cargo run", ".cargo/config.toml"),
        ("deno run server.ts", "deno.json"),
    ],
)
def test_files_of_the_project_above_the_working_directory_are_pinned(project: Path, words: str, changed: str) -> None:
    put(project, {"bin/python3": "", "bin/node": "", "uv.lock": "", "sub/server.py": ""})
    assert changes(project, server(project, words, cwd="sub"), changed)


@pytest.mark.parametrize(
    ("words", "name"), [("env python3 server.py", "python3"), ("sh -c exec\tjust\tserve", "just"), ("./run", "node")]
)
def test_a_program_that_a_path_of_the_entry_finds_in_the_project_is_pinned(
    project: Path, words: str, name: str
) -> None:
    put(project, {"run": "#!/usr/bin/env node\n"})
    assert changes(project, server(project, words, env={"PATH": f"tools:{SYSTEM}"}), f"tools/{name}")


@pytest.mark.process
def test_of_what_a_runner_installs_at_its_first_start_only_what_the_repository_brought_counts(project: Path) -> None:
    spec = server(project, "uv run thing")
    put(project, {".venv/bin/thing": "one\n", ".venv/pyvenv.cfg": "home = /usr\n"})
    assert changed_files(spec, SYSTEM) == []
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "-f", ".venv/bin/thing"], cwd=project, check=True)
    assert changed_files(spec, SYSTEM) == [str(project / ".venv/bin/thing")]


@pytest.mark.parametrize("words", ["npx thing", "npx -y @scope/thing@1.2.0", "sh -c npx\tthing"])
def test_a_program_that_comes_before_the_one_that_is_fetched_is_a_change(project: Path, words: str) -> None:
    put(project, {"node_modules/other/index.js": ""})
    spec = server(project, words)
    put(project, {"node_modules/other/index.js": "new\n", "node_modules/.bin/other": "new\n"})
    assert changed_files(spec, SYSTEM) == []
    put(project, {"node_modules/.bin/thing": "one\n"})
    assert changed_files(spec, SYSTEM) == [str(project / "node_modules/.bin/thing")]


def test_what_no_program_loads_is_not_pinned(project: Path) -> None:
    put(
        project,
        {
            "server.py": "import helper  # other\n",
            "helper.py": "",
            "other.py": "",
            "notes.md": "",
            "node_modules/thing/index.js": "",
        },
    )
    spec = server(project, "sh -c python3\tserver.py")
    put(project, dict.fromkeys(("other.py", "notes.md", "node_modules/thing/index.js", "new.py"), "new\n"))
    assert changed_files(spec, SYSTEM) == []


def test_programs_that_import_one_another_or_cannot_be_read_end(project: Path) -> None:
    put(project, {"server.py": "import a\n", "a.py": "import b, server\n", "b.py": "from . import a\n"})
    (project / "b.py").write_bytes(b"import a\n\xff\xfe import \x00 from (((")
    assert changes(project, server(project, "python3 server.py"), "a.py")


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    [
        "from x import (",
        ";from",
        "from ",
        ".",
        "import x;",
        "import ",
        "'",
        "require(",
        "require",
        " ",
        "\n",
        "from .",
        "$a/",
        "'a.py' ",
    ],
)
def test_a_hostile_program_of_a_mebibyte_is_read_in_seconds(project: Path, unit: str) -> None:
    for name, begin in (("server.py", "from "), ("server.js", "from"), ("server.sh", "")):
        put(project, {name: begin + unit * (1024 * 1024 // len(unit))})
        began = time.process_time()
        server(project, f"python3 {name}")
        assert time.process_time() - began < 5
