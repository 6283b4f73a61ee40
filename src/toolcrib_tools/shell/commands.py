"""`run_command` and `run_tests`: commands in the foreground or the background, and processes that outlive a call."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

import anyio
from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import (
    SHELL_FOLDER,
    Command,
    Context,
    Finished,
    Running,
    ToolFailure,
    ToolResult,
    Workspace,
    as_mapping,
    tool,
)

from .._workspace.place import entry_at, folder_at, workspace_of
from .kept_shell import KeptShell, shell_of
from .processes import (
    MOST_SECONDS,
    OutputBuffer,
    command_of,
    ending,
    follow,
    notes_of,
    plain,
    run,
    sandbox_of,
    seconds_of,
    status_of,
)

__all__ = ["BackgroundProcess", "ProcessRegistry", "describe_process", "processes_of", "run_command", "run_tests"]

_MOST: Final = 8
"""At a time in one session."""
_REMEMBERED: Final = 32
"""Ended processes that are remembered."""
_KEPT: Final = 256 * 1024
"""Characters of unread output that are kept."""
_KEY: Final = "shell.processes"

_SECONDS: Final = 120
"""Default time limit of a command."""
_FIRST: Final = 1.0
"""Seconds that a command in the background is watched: one that fails does so at once."""
_QUIET: Final = 0.2

_MANIFEST: Final = 1024 * 1024
"""Bytes of a file that says what a project is made of."""

_command_tool = partial(
    tool,
    category="shell",
    kind="destructive",
    idempotent=False,
    needs=["shell", "workspace"],
    timeout=MOST_SECONDS,
    streaming=True,
    background_after=10,
    metadata={"result": "output"},
)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class BackgroundProcess:
    """One process, and its unread output."""

    id: str
    title: str
    command: Command
    seconds: float = float("inf")
    """Time limit."""
    started: float = 0.0
    finished: Finished | None = None
    """None while it runs, and when its time was up."""
    failure: ToolFailure | None = None
    """Reason why it could not be started."""
    notes: list[str] = dataclasses.field(default_factory=list[str])
    """Operations that the sandbox refused; set once it has ended."""
    was_stopped: bool = False
    _output: OutputBuffer = dataclasses.field(default_factory=lambda: OutputBuffer(_KEPT), repr=False)
    _running: Running | None = None
    _scope: anyio.CancelScope = dataclasses.field(default_factory=anyio.CancelScope, repr=False)
    _began: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    _over: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)
    _news: anyio.Event = dataclasses.field(default_factory=anyio.Event, repr=False)

    @property
    def is_over(self) -> bool:
        """True if it has ended, with all processes that it started."""
        return self._over.is_set()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return anyio.current_time() - self.started

    async def begin(self, ctx: Context) -> None:
        """Start it; return once it runs. Raises `ToolFailure` when it cannot."""
        self.started = anyio.current_time()
        sandbox = sandbox_of(ctx)

        async def live() -> None:
            running: Running | None = None
            try:
                with self._scope, anyio.move_on_after(self.seconds):
                    async with sandbox.open(self.command) as running:
                        self._running = running
                        if self.command.terminal is None:
                            await running.close_input()
                        self._began.set()
                        self.finished = await follow(running, self._take)
            except ToolFailure as failure:
                self.failure = failure
            finally:
                self._running = None
                self.notes = notes_of(running) if running is not None else []
                for event in (self._began, self._over, self._news):
                    event.set()

        await ctx.lent.spawn(live)
        try:
            await self._began.wait()
        except BaseException:
            self._scope.cancel()
            raise
        if self.failure is not None:
            raise self.failure

    async def write(self, data: bytes) -> None:
        """Send input. Raises `ToolFailure("tool_error")` when it has ended."""
        if self._running is None:
            raise ToolFailure("tool_error", f"{self.id} has ended and takes no input any more")
        await self._running.write(data)

    async def read(self, *, seconds: float, quiet: float) -> str:
        """Return new output after at most so many seconds; earlier once the process has been quiet for a while."""
        with anyio.move_on_after(seconds):
            while not self.is_over:
                self._news = anyio.Event()
                with anyio.move_on_after(quiet) as silence:
                    await self._news.wait()
                if silence.cancelled_caught and self._output.is_waiting:
                    break
        text = self._output.take()
        return plain(text) if self.command.terminal else text

    async def wait(self, seconds: float) -> None:
        """Return when it has ended, at the latest after so many seconds."""
        with anyio.move_on_after(seconds):
            await self._over.wait()

    async def aclose(self) -> None:
        """End it, with everything that it has started."""
        self.was_stopped = self.was_stopped or not self.is_over
        self._scope.cancel()
        await self._over.wait()

    async def _take(self, name: Literal["stdout", "stderr"], piece: bytes) -> None:
        self._output.add(piece)
        self._news.set()


class ProcessRegistry(Struct, eq=False):
    """The processes of one session, by their ids."""

    _processes: dict[str, BackgroundProcess] = field(default_factory=dict[str, BackgroundProcess])
    _count: int = 0

    async def start(
        self, ctx: Context, command: Command, title: str, *, seconds: float = float("inf")
    ) -> BackgroundProcess:
        """Start a process. Raises `ToolFailure("overloaded")` when the session has too many."""
        alive = [kept.id for kept in self._processes.values() if not kept.is_over]
        if len(alive) >= _MOST:
            raise ToolFailure(
                "overloaded",
                f"this session runs {_MOST} processes already: {', '.join(alive)}",
                hint="shell_close ends one",
            )
        self._count += 1
        kind = "command" if command.terminal is None else "shell"
        kept = BackgroundProcess(id=f"{kind}_{self._count}", title=title, command=command, seconds=seconds)
        self._processes[kept.id] = kept
        try:
            await kept.begin(ctx)
        except BaseException:
            del self._processes[kept.id]
            raise
        for old in [one.id for one in self._processes.values() if one.is_over][:-_REMEMBERED]:
            del self._processes[old]
        return kept

    def find(self, id: str) -> BackgroundProcess:
        """Return the process of that id. Raises `ToolFailure("not_found")` naming those that there are."""
        if id not in self._processes:
            there = ", ".join(self._processes) or "there is none"
            raise ToolFailure("not_found", f"this session has no process {id!r}", hint=f"those it has: {there}")
        return self._processes[id]

    def all(self) -> list[BackgroundProcess]:
        """Return all that are known, in the order of their start."""
        return list(self._processes.values())

    def forget(self, kept: BackgroundProcess) -> None:
        """Know one no more."""
        self._processes.pop(kept.id, None)

    async def aclose(self) -> None:
        """End all of them: the session is over."""
        async with anyio.create_task_group() as group:
            for kept in self.all():
                group.start_soon(kept.aclose)


def processes_of(ctx: Context) -> ProcessRegistry:
    """Return the processes of the session that makes this call."""
    found = ctx.runtime.get(_KEY)
    if not isinstance(found, ProcessRegistry):
        found = ctx.runtime[_KEY] = ProcessRegistry()
    return found


@_command_tool(
    op="x.shell.run",
    tags=["run", "execute", "command", "bash", "terminal", "shell", "program", "script", "install", "pip", "npm"],
    examples=[
        {"command": "ls -la src && git log --oneline -5"},
        {"command": "npm run dev", "background": True},
        {"command_id": "command_1"},
    ],
    policy={
        "do": ["Use run_tests for the tests of a project, and shell_spawn for a program that asks questions."],
        "dont": ["Use it to read, search or edit files: read_file, grep and edit_file show and undo what they do."],
        "edge_cases": [
            "Nothing carries over to the next command, unless the session keeps its shell. Write cd sub && make.",
            "Only the workspace can be written; home is empty. Only hosts that the operator named are reached.",
            "When a command ends, everything that it has started ends too. Use background for a server.",
        ],
    },
)
async def run_command(
    ctx: Context,
    command: str = "",
    command_id: str = "",
    timeout: Annotated[float | None, Field(gt=0, le=MOST_SECONDS)] = None,
    background: bool = False,
    working_dir: str = "",
    args: list[str] | None = None,
) -> ToolResult:
    """Run a bash command in the workspace, in a sandbox. Returns what it prints, and how it ended if it failed.

    Args:
        command: What to run; pipes, && and redirections work.
        command_id: Instead of a command: one in the background, to see what it has printed since.
        timeout: Seconds, 120 when not given; then it is ended, with everything that it started. With background it may
            run that long, without one until it ends; with command_id its end is waited for that long.
        background: Return at once with a command_id, while the command goes on. It ends with the session.
        working_dir: The folder to run in; the workspace's root when not given.
        args: Words to put behind the command, each as it stands here: no quotes are needed.
    """
    if args:
        if not command.strip():
            raise ToolFailure("invalid_arguments", "args: they belong to a command, and there is none")
        command = f"{command} {shlex.join(args)}"
    if bool(command.strip()) == bool(command_id):
        raise ToolFailure("invalid_arguments", "give either a command to run, or the command_id of one that runs")
    if command_id:
        kept = processes_of(ctx).find(command_id)
        if timeout is not None:
            await kept.wait(seconds_of(ctx, timeout))
        return ToolResult.of_text(await describe_process(kept))
    wanted = await command_of(ctx, command, working_dir)
    shell = shell_of(ctx)
    if not background and shell is not None:
        return await _run_kept(ctx, shell, wanted, seconds_of(ctx, timeout or _SECONDS), moves=bool(working_dir))
    if not background:
        ended = await run(ctx, wanted, seconds_of(ctx, timeout or _SECONDS))
        return await ending(ended, workspace_of(ctx))
    kept = await processes_of(ctx).start(ctx, wanted, command, seconds=timeout or float("inf"))
    await kept.wait(_FIRST)
    return ToolResult.of_text(await describe_process(kept))


async def _run_kept(ctx: Context, shell: KeptShell, wanted: Command, seconds: float, *, moves: bool) -> ToolResult:
    """Run a command in the shell of its session: one at a time, as a person would."""
    workspace = workspace_of(ctx)
    async with shell.turn:
        prepared, fresh = await shell.prepare(wanted, moves=moves)
        try:
            ended = await run(ctx, prepared, seconds)
        except BaseException:
            shell.take(None, workspace)
            raise
        else:
            shell.take(ended, workspace)
        finally:
            ctx.runtime[SHELL_FOLDER] = shell.cwd  # rules read the files that the next command finds there
    try:
        return await ending(ended, workspace, fresh)
    except ToolFailure as failure:
        message = "\n".join(filter(None, (failure.message, fresh)))
        raise ToolFailure(failure.code, message, hint=failure.hint) from None


async def describe_process(kept: BackgroundProcess) -> str:
    """Return the new output of a process, and its state."""
    output = (await kept.read(seconds=_QUIET, quiet=0)).rstrip("\n")
    return "\n".join(filter(None, (output, f"[{_state(kept)}]")))


def _state(kept: BackgroundProcess) -> str:
    if not kept.is_over:
        return f"{kept.id} is running, for {kept.age:.0f} s"
    if kept.finished is None:
        how = "was ended" if kept.was_stopped else "was ended: its time was up"
    elif kept.finished.stopped:
        how = f"was ended: {kept.finished.stopped}"
    else:
        how = f"has ended: {status_of(kept.finished)}"
    return "; ".join([f"{kept.id} {how}", *kept.notes])


@_command_tool(
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
    timeout: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = _SECONDS,
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
