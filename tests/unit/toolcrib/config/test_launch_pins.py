"""Files behind a server of a project: pinned when the user confirms the project, compared before each start."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.config import Directories, load
from toolcrib.config import files as disk
from toolcrib.config.confirmation import confirm
from toolcrib.core.json import dumps
from toolcrib.mcp.client.launch.pins import changed_files, launch_pins
from toolcrib.mcp.client.spec import ServerSpec

SYSTEM = "/usr/bin:/bin"
FILES = (
    "server.py",
    "server.js",
    "tool/__main__.py",
    "src/pkg/__init__.py",
    "src/pkg/cli.py",
    "run.sh",
    "bin/python3",
    "data.json",
    "package.json",
    "package-lock.json",
    "uv.lock",
    "sub/pyproject.toml",
    "sub/app.py",
    ".env",
    "other.py",
    "lib/hook.js",
    "two/__init__.py",
    "two/deep/__init__.py",
    "two/deep/m.py",
    "sub/run.sh",
    "args.txt",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    for name in ("run.sh", "bin/python3"):
        (folder / name).chmod(0o755)
    return folder


def server(project: Path, command: str, *args: str, **fields: Any) -> ServerSpec:
    spec = ServerSpec(name="s", transport="stdio", command=command, args=args, cwd=str(project), **fields)
    return replace(spec, pinned=launch_pins(spec, SYSTEM))


@pytest.mark.parametrize(
    ("command", "args", "file"),
    [
        ("python3", ("server.py",), "server.py"),
        ("python3", ("./server.py", "--port", "1"), "server.py"),
        ("python3", ("-u", "sub/../server.py"), "server.py"),
        ("python3", ("tool",), "tool/__main__.py"),
        ("python3", ("-m", "tool"), "tool/__main__.py"),
        ("python3", ("-m", "pkg.cli"), "src/pkg/cli.py"),
        ("uvicorn", ("sub/app.py:app",), "sub/app.py"),
        ("node", ("server",), "server.js"),
        ("node", ("--require=./server.js", "-e", "1"), "server.js"),
        ("node", ("-rserver.js",), "server.js"),
        ("node", ("--import=file://{project}/server.js",), "server.js"),
        ("{project}/run.sh", (), "run.sh"),
        ("./run.sh", (), "run.sh"),
        ("bin/python3", (), "bin/python3"),
        ("sh", ("-c", "x", "run.sh"), "run.sh"),
        ("x", ("--config=data.json",), "data.json"),
        ("npx", ("-y", "thing"), "package.json"),
        ("npx", ("-y", "thing"), "package-lock.json"),
        ("npm", ("run", "serve"), "package.json"),
        ("uv", ("run", "thing"), "uv.lock"),
        ("uv", ("run", "--directory", "sub", "app"), "sub/pyproject.toml"),
        ("uv", ("run", "--project=sub", "app"), "sub/pyproject.toml"),
        ("python3", ("sub/app.py",), "sub/pyproject.toml"),
        ("sh", ("-c", "exec ./run.sh"), "run.sh"),
        ("sh", ("-c", "cd sub && ./run.sh"), "sub/run.sh"),
        ("sh", ("-c", "true;./run.sh"), "run.sh"),
        ("sh", ("-c", "$PWD/run.sh"), "run.sh"),
        ("sh", ("-c", '"${PWD}"/run.sh'), "run.sh"),
        ("sh", ("-c", "(./run.sh)>x"), "run.sh"),
        ("bash", ("-lc", "python3 server.py --x"), "server.py"),
        ("bash", ("-c", "node 'server.js'"), "server.js"),
        ("env", ("-S", "python3 server.py"), "server.py"),
        ("python3", ("-m", "two.deep.m"), "two/__init__.py"),
        ("python3", ("-m", "two.deep.m"), "two/deep/__init__.py"),
        ("python3", ("-m", "pkg"), "src/pkg/__init__.py"),
        ("python3", ("-mtwo.deep.m",), "two/deep/m.py"),
        ("python3", ("-Im", "two.deep.m"), "two/deep/m.py"),
        ("uv", ("run", "--module=two.deep.m"), "two/deep/m.py"),
        ("uvicorn", ("two.deep.m:app",), "two/deep/m.py"),
        ("docker", ("run", "-v", "./run.sh:/x:ro", "image"), "run.sh"),
        ("docker", ("run", "--mount", "type=bind,source=./run.sh,target=/x", "image"), "run.sh"),
        ("java", ("-javaagent:args.txt=x", "-jar", "b.jar"), "args.txt"),
        ("java", ("@args.txt",), "args.txt"),
        ("sub/run.sh", (), "sub/pyproject.toml"),
    ],
)
def test_a_file_that_is_named_or_that_pins_what_is_installed_is_pinned(
    project: Path, command: str, args: tuple[str, ...], file: str
) -> None:
    words = [word.replace("{project}", str(project)) for word in (command, *args)]
    spec = server(project, *words)
    assert changed_files(spec, SYSTEM) == []
    (project / file).write_text("evil\n")
    assert changed_files(spec, SYSTEM) in ([str(project / file)], ["command"])


@pytest.mark.parametrize(
    ("variable", "value", "file"),
    [
        ("NODE_OPTIONS", "--require ./lib/hook.js", "lib/hook.js"),
        ("NODE_OPTIONS", "--import=./lib/hook.js", "lib/hook.js"),
        ("LD_PRELOAD", "./args.txt", "args.txt"),
        ("BASH_ENV", "run.sh", "run.sh"),
        ("JAVA_TOOL_OPTIONS", "-javaagent:args.txt", "args.txt"),
        ("CLASSPATH", ".:args.txt", "args.txt"),
        ("PYTHONPATH", "two:sub", "sub/app.py"),
        ("PYTHONPATH", "lib", "lib/sitecustomize.py"),
        ("PERL5DB", "BEGIN{require './run.sh'}", "run.sh"),
        ("npm_config_userconfig", "args.txt", "args.txt"),
    ],
)
def test_a_file_that_a_variable_makes_an_interpreter_load_is_pinned(
    project: Path, variable: str, value: str, file: str
) -> None:
    spec = server(project, "thing", "-m", "app", env={variable: value})
    assert changed_files(spec, SYSTEM) == []
    (project / file).write_text("evil\n")
    assert changed_files(spec, SYSTEM) == [str(project / file)]


def test_a_file_that_a_server_keeps_its_state_in_is_not_pinned_for_its_variable(project: Path) -> None:
    spec = server(project, "npx", "-y", "memory", env={"MEMORY_FILE_PATH": "./data.json"})
    (project / "data.json").write_text("changed by the server\n")
    assert changed_files(spec, SYSTEM) == []


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("npm", "start"), ["server.js"]),
        (("npm", "run", "serve"), ["lib/hook.js", "run.sh"]),
        (("sh", "-c", "npm run serve"), ["lib/hook.js", "run.sh"]),
        (("node", "."), ["other.py"]),
        (("npx", "-y", "thing"), []),
    ],
)
def test_of_a_manifest_only_what_the_command_starts_is_pinned(
    project: Path, words: tuple[str, ...], changed: list[str]
) -> None:
    scripts = {
        "start": "node server.js",
        "preserve": "./run.sh",
        "serve": "node -r ./lib/hook.js x",
        "lint": "lint tool",
    }
    (project / "package.json").write_bytes(dumps({"main": "other.py", "scripts": scripts}))
    spec = server(project, *words)
    for name in ("server.js", "run.sh", "lib/hook.js", "other.py", "sub/app.py"):
        (project / name).write_text("evil\n")
    assert changed_files(spec, SYSTEM) == [str(project / name) for name in changed]


@pytest.mark.parametrize(
    "name",
    [
        ".npmrc",
        ".pnp.cjs",
        ".pnpmfile.cjs",
        ".cargo/config.toml",
        "docker-compose.yaml",
        "Makefile",
        "bunfig.toml",
        "sub/.npmrc",
        "server.mjs",
    ],
)
def test_a_file_that_was_not_there_is_a_change(project: Path, name: str) -> None:
    spec = server(project, "node", "server", "sub/app.py")
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("evil\n")
    assert changed_files(spec, SYSTEM) == [str(project / name)]


@pytest.mark.parametrize(
    ("words", "is_pinned"),
    [
        (("uvx", "mcp-server-sqlite", "--db-path", "x.db"), False),
        (("uvx", "mcp-server-sqlite", "--db-path=x.db"), False),
        (("python3", "server.py", "x.db"), False),
        (("./run.sh", "x.db"), False),
        (("node", "server.js", "--log-file", "x.db"), False),
        (("python3", "x.db"), True),
        (("python3", "-u", "x.db"), True),
        (("node", "--require", "x.db", "server.js"), True),
        (("node", "--import=x.db", "server.js"), True),
        (("node", "-r", "x.db", "server.js"), True),
        (("thing", "--load-config", "x.db"), True),
        (("java", "--class-path", "x.db", "Main"), True),
        (("env", "python3", "x.db"), True),
        (("sh", "-c", "exec python3 x.db"), True),
        (("bun", "run", "x.db"), True),
        (("sh", "-c", "./run.sh --db x.db"), False),
        (("sh", "-c", "python3 server.py x.db"), False),
        (("python3", "server.py", "x.json"), True),
    ],
)
def test_a_database_is_pinned_only_where_it_could_be_a_program(
    project: Path, words: tuple[str, ...], is_pinned: bool
) -> None:
    for name in ("x.db", "x.json"):
        (project / name).write_text("one")
    spec = server(project, *words)
    for name in ("x.db", "x.json"):
        (project / name).write_text("two")
    assert bool(changed_files(spec, SYSTEM)) == is_pinned


def test_a_word_that_is_too_long_for_the_name_of_a_file_names_none(project: Path) -> None:
    spec = server(project, "python3", "-c", "x" * 300, f"{'y' * 300}.py:app", "server.py")
    assert changed_files(spec, SYSTEM) == []
    (project / "server.py").write_text("evil\n")
    assert changed_files(spec, SYSTEM) == [str(project / "server.py")]


def test_a_file_that_is_gone_or_a_link_to_another_one_is_a_change(project: Path) -> None:
    spec = server(project, "python3", "server.py")
    (project / "server.py").unlink()
    assert changed_files(spec, SYSTEM) == [str(project / "server.py")]
    (project / "server.py").symlink_to("other.py")
    assert changed_files(spec, SYSTEM) == [str(project / "server.py")]


def test_the_environment_file_and_a_program_on_a_path_into_the_project_are_pinned(project: Path) -> None:
    spec = server(project, "python3", env_file=str(project / ".env"), env={"PATH": f"bin:{SYSTEM}"})
    (project / ".env").write_text("NODE_OPTIONS=evil\n")
    (project / "bin" / "python3").write_text("evil\n")
    assert changed_files(spec, SYSTEM) == [str(project / ".env"), "command"]


def test_an_interpreter_of_the_machine_counts_by_its_name(project: Path, tmp_path: Path) -> None:
    spec = server(project, "python3", "server.py")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python3").write_text(folder)
        (tmp_path / folder / "python3").chmod(0o755)
        assert changed_files(spec, str(tmp_path / folder)) == []
    assert changed_files(spec, str(project / "bin")) == ["command"]


def test_files_that_nothing_names_and_servers_at_a_url_are_not_pinned(project: Path) -> None:
    spec = server(project, "python3", "server.py")
    (project / "other.py").write_text("new\n")
    assert changed_files(spec, SYSTEM) == []
    assert launch_pins(ServerSpec(name="s", transport="http", url="http://x"), SYSTEM) == {}


@pytest.fixture
def trusted(project: Path, tmp_path: Path) -> Callable[..., list[ServerSpec]]:
    environ = {"HOME": str(tmp_path / "home"), "PATH": SYSTEM}
    file = project / ".toolcrib" / "config.yaml"
    file.parent.mkdir()

    def reload(*names: str, anew: bool | None = None) -> list[ServerSpec]:
        if names:
            servers = {name: {"command": sys.executable, "args": ["server.py"]} for name in names}
            file.write_bytes(dumps({"servers": servers}))
        if anew is not None:
            confirm(Directories.of(environ), [(file, disk.read(file))], environ, anew=anew)
        return list(load(environ=environ, cwd=project).sources.servers)

    return reload


def test_a_confirmed_project_pins_its_servers_and_a_change_of_its_file_blesses_no_other_change(
    project: Path, trusted: Callable[..., list[ServerSpec]]
) -> None:
    script = str(project / "server.py")
    assert [changed_files(spec, SYSTEM) for spec in trusted("a", anew=True)] == [[]]
    (project / "server.py").write_text("evil\n")
    assert [changed_files(spec, SYSTEM) for spec in trusted()] == [[script]]
    found = {spec.name: changed_files(spec, SYSTEM) for spec in trusted("a", "b", anew=False)}
    assert found == {"a": [script], "b": []}
    assert [changed_files(spec, SYSTEM) for spec in trusted(anew=True)] == [[], []]


def test_a_server_that_was_removed_leaves_no_pin(project: Path, trusted: Callable[..., list[ServerSpec]]) -> None:
    trusted("a", "b", anew=True)
    trusted("b", anew=False)
    (project / "server.py").write_text("new\n")
    found = {spec.name: bool(changed_files(spec, SYSTEM)) for spec in trusted("a", "b", anew=False)}
    assert found == {"a": False, "b": True}


def test_a_server_without_a_pin_is_not_started(project: Path, trusted: Callable[..., list[ServerSpec]]) -> None:
    spec = trusted("a", anew=True)[0]
    assert changed_files(replace(spec, pinned={}), SYSTEM) != []
    assert changed_files(replace(spec, pinned=None), SYSTEM) == []
