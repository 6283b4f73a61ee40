"""`run_tests`: the tests of a project, by the command that its files tell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, ToolResult, Workspace, as_mapping

from .._workspace.place import entry_at, folder_at, workspace_of
from .commands import SECONDS, command_tool
from .processes import MOST_SECONDS, command_of, ending, run, seconds_of

_MANIFEST: Final = 1024 * 1024
"""Bytes of a file that says what a project is made of."""


@command_tool(
    op="x.shell.test",
    tags=["test", "check", "pytest", "npm", "cargo"],
    examples=[{}, {"file": "tests/test_login.py"}, {"command": "make check", "timeout": 300}],
    policy={
        "do": ["Name a file while you work on one thing, and run all of them at the end."],
        "edge_cases": ["There is no network unless the operator gave one, so nothing can be installed."],
    },
)
async def run_tests(
    ctx: Context,
    command: str = "",
    file: str = "",
    timeout: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = SECONDS,
    working_dir: str = "",
) -> ToolResult:
    """Run the tests of the project, in a sandbox. Returns what they print, and the exit status if they fail.

    Args:
        command: What runs them; found out when not given: pytest, npm, pnpm, yarn, bun, go, cargo, maven, gradle,
            dotnet, mix, rspec, phpunit, deno or make.
        file: Only the tests in this file or folder of the workspace.
        timeout: Seconds; then they are ended.
        working_dir: The project's folder; the workspace's root when not given.
    """
    workspace = workspace_of(ctx)
    folder = (await folder_at(workspace, working_dir or ".")).path
    wanted = await _inside(workspace, folder, file) if file else ""
    text = command.strip()
    if text and wanted:
        text = f"{text} {shlex.quote(wanted)}"
    elif not text:
        text = await _find_command(workspace, folder, wanted)
    ended = await run(ctx, await command_of(ctx, text, working_dir), seconds_of(ctx, timeout))
    return await ending(ended, workspace, f"$ {text}")


async def _inside(workspace: Workspace, folder: str, file: str) -> str:
    """Return a path of the workspace as one in the project's folder. Raises `ToolFailure` for what is not there."""
    await entry_at(workspace, file)
    place, base = workspace.local(file), workspace.local(folder)
    inside = str(place.relative_to(base)) if place.is_relative_to(base) else str(place)
    return f"./{inside}" if inside.startswith("-") else inside


class _Project(Struct, frozen=True, kw_only=True):
    """A folder that may be a project."""

    workspace: Workspace
    folder: str
    names: frozenset[str]

    def has(self, *names: str) -> bool:
        """True if the folder has one of these files."""
        return not self.names.isdisjoint(names)

    def ends(self, *ends: str) -> bool:
        """True if a name has one of these endings."""
        return any(name.endswith(ends) for name in self.names)

    async def read(self, name: str) -> str:
        """Return the text of a file in the folder."""
        content = await self.workspace.read(str(PurePosixPath(self.folder) / name), limit=_MANIFEST)
        return content.decode("utf-8", "replace")


async def _find_command(workspace: Workspace, folder: str, file: str) -> str:
    """Return the test command of a project. Raises `ToolFailure` if its kind is unknown."""
    names = frozenset(entry.path.rpartition("/")[2] for entry in await workspace.list(folder))
    project = _Project(workspace=workspace, folder=folder, names=names)
    for find in _KINDS:
        if (text := await find(project, shlex.quote(file) if file else "")) is not None:
            return text.rstrip()
    raise ToolFailure("tool_error", f"the test runner of {folder!r} is unknown", hint="give the command")


async def _python(project: _Project, file: str) -> str | None:
    is_python = project.has("pytest.ini", "tox.ini", "conftest.py", "setup.py", "setup.cfg", "pyproject.toml")
    if not is_python and not (project.has("tests", "test") and project.ends(".py", "requirements.txt")):
        return None
    own = next((name for name in (".venv", "venv") if project.has(name)), "")
    return f"{f'{own}/bin/python' if own else 'python3'} -m pytest -q {file}"


async def _node(project: _Project, file: str) -> str | None:
    if not project.has("package.json"):
        return None
    try:
        given: Any = json.loads(await project.read("package.json"))
    except (ValueError, RecursionError):
        raise ToolFailure(
            "tool_error", "package.json is not JSON", hint="say with command how the tests are run"
        ) from None
    scripts = as_mapping(given).get("scripts")
    if not isinstance(scripts, dict) or "test" not in scripts:
        return None
    locks = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun run", "bun.lockb": "bun run"}
    program = next((program for lock, program in locks.items() if project.has(lock)), "npm")
    return f"{program} test {f'-- {file}' if file and program in ('npm', 'pnpm') else file}"


async def _go(project: _Project, file: str) -> str | None:
    folder = str(PurePosixPath(file).parent) if file.endswith(".go") else file
    return f"go test ./{f'{folder}/' if folder not in ('', '.') else '...'}" if project.has("go.mod") else None


async def _cargo(project: _Project, file: str) -> str | None:
    if not project.has("Cargo.toml"):
        return None
    path = PurePosixPath(file)
    if path.parts[:1] == ("tests",) and len(path.parts) == 2:
        return f"cargo test --offline --test {path.stem}"
    return f"cargo test --offline {path.stem if file else ''}"


async def _maven(project: _Project, file: str) -> str | None:
    return f"mvn -q -o test {f'-Dtest={PurePosixPath(file).stem}' if file else ''}" if project.has("pom.xml") else None


async def _gradle(project: _Project, file: str) -> str | None:
    if not project.has("build.gradle", "build.gradle.kts"):
        return None
    program = "./gradlew" if project.has("gradlew") else "gradle"
    return f"{program} --offline test {f'--tests {PurePosixPath(file).stem}' if file else ''}"


async def _make(project: _Project, file: str) -> str | None:
    name = next((name for name in ("Makefile", "makefile", "GNUmakefile") if project.has(name)), "")
    is_there = name and any(line.startswith("test:") for line in (await project.read(name)).splitlines())
    return "make test" if is_there and not file else None


def _plain(command: str, *names: str, ends: tuple[str, ...] = ()) -> _Kind:
    """Make the kind of project that has one of these files, and whose command takes a file as it is."""

    async def find(project: _Project, file: str) -> str | None:
        return f"{command} {file}" if project.has(*names) or (ends and project.ends(*ends)) else None

    return find


_Kind = Callable[[_Project, str], Awaitable[str | None]]
_KINDS: Final[tuple[_Kind, ...]] = (
    _python,
    _plain("deno test", "deno.json", "deno.jsonc"),
    _node,
    _go,
    _cargo,
    _maven,
    _gradle,
    _plain("dotnet test", ends=(".sln", ".csproj", ".fsproj")),
    _plain("mix test", "mix.exs"),
    _plain("bundle exec rspec", ".rspec", "spec_helper.rb"),
    _plain("vendor/bin/phpunit", "phpunit.xml", "phpunit.xml.dist"),
    _make,
)
"""Kinds of projects by priority: a project of several kinds is tested as the first."""
