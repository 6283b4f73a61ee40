"""Language servers of one session: started on first use, restarted after a crash, ended with the session.

They run in the sandbox, where they read the workspace and write nothing: servers propose changes, tools make them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
from msgspec import Struct

from toolcrib.plugin import Command, Context, Sandbox, ToolFailure, Workspace

from .._workspace.place import workspace_of, workspace_tool
from .protocol import ErrorResponse, RequestTimeout, ServerEnded
from .running_server import RunningServer
from .settings import HINT, KEY, ServerSpec, read_settings

_NAMES: Final = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg", "share")

T = TypeVar("T")

_IDLE: Final = 900.0
"""Seconds without a question after which a server is ended: some take gigabytes."""
_GOODBYE: Final = 1.0
_GRACE: Final = 3.0
"""Seconds in which a server that was late has to answer anything at all, else it hangs and is ended."""

_Work = Callable[[RunningServer], Awaitable[T]]

_SECONDS: Final = 180.0
"""Time limit of the tools: a server may read a large project first."""

lsp_tool = partial(workspace_tool, category="code", needs=["language_server", "workspace"], timeout=_SECONDS)

_KEY: Final = "lsp.servers"


def parts(program: Path) -> tuple[Path, ...]:
    """Return the folders that a program needs, as far as known: its own and those of its link targets.

    Never the folder above them itself: that of `~/bin` is a home.
    """
    above = dict.fromkeys((program.parent.parent, program.resolve().parent.parent))
    return tuple(folder / name for folder in above for name in _NAMES)


class Server:
    """A server that may run. One question at a time: what it knows of the files belongs to that.

    Started by the first question, and anew after an end, or for other folders. Its process is held by a task of the
    crib's (`ctx.lent.spawn`), which no call that asked for it can cancel.
    """

    def __init__(self, spec: ServerSpec, *, idle: float = _IDLE) -> None:
        """`idle` is after how many seconds without a question it is ended."""
        self.spec = spec
        self._idle = idle
        self._live: RunningServer | None = None
        self._turn = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self._used = 0.0
        self._was_mute = False
        self._roots: tuple[Path, ...] = ()
        """The folders that it was started for."""
        self._is_closed = False

    @property
    def name(self) -> str:
        """Name in the configuration."""
        return self.spec.name

    @property
    def pid(self) -> int | None:
        """Its process id on this machine, while it runs."""
        return self._live.pid if self._live is not None else None

    async def ask(self, ctx: Context, work: _Work[T], *, again: bool = True) -> T:
        """Return the result of the work with the running server; one that dies is started anew once, and asked again.

        `again` says that it may be. Raises `ToolFailure`: `unavailable` for a server that is not installed or keeps
        dying, `timeout`, `tool_error` for what it refuses.
        """
        async with self._turn:
            try:
                try:
                    return await self._request(ctx, work)
                except ServerEnded:
                    if not again:
                        raise
                    return await self._request(ctx, work)
            except ServerEnded as ended:
                await self._stop()
                raise ToolFailure(
                    "unavailable",
                    f"the language server {self.name!r} does not run: {ended}",
                    hint=f"the operator looks at {KEY}.{self.name}; other tools (grep, find_references) work without",
                ) from None
            except ErrorResponse as refused:
                raise ToolFailure("tool_error", f"the language server {self.name!r} refuses: {refused}") from None
            except RequestTimeout as late:
                await self._wake()
                raise ToolFailure(
                    "timeout",
                    f"the language server {self.name!r} gave {late}",
                    hint=f"ask again: it may be reading the project; {KEY}.{self.name}.seconds gives it more time",
                ) from None
            finally:
                self._used = anyio.current_time()

    async def _request(self, ctx: Context, work: _Work[T]) -> T:
        live = await self._alive(ctx)
        live.deadline = ctx.deadline
        found = await work(live)
        self._was_mute = False
        return found

    async def aclose(self) -> None:
        """End it for good."""
        self._is_closed, live = True, self._live
        if live is not None and not live.ended:
            with anyio.move_on_after(_GOODBYE), suppress(ServerEnded, RequestTimeout, ErrorResponse):
                await live.leave(_GOODBYE)
        await self._stop()

    async def _stop(self) -> None:
        if self._live is not None:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._over.wait()
            self._live = None

    async def _wake(self) -> None:
        """End a server that twice in a row answered no probe; a single miss may be load."""
        is_mute = self._live is not None and not await self._live.is_awake(_GRACE)
        if is_mute and self._was_mute:
            await self._stop()
        self._was_mute = is_mute and not self._was_mute

    async def _alive(self, ctx: Context) -> RunningServer:
        """Return the running server; start it first if need be. Raises `ServerEnded` and `RequestTimeout`."""
        workspace = workspace_of(ctx)
        if self._live is not None and not self._live.ended and self._roots == workspace.roots:
            return self._live
        await self._stop()
        if self._is_closed:
            raise ToolFailure("unavailable", "this session is over")
        sandbox = ctx.sandbox
        if sandbox is None:
            raise ToolFailure(
                "unavailable", "language servers run in a sandbox, and this machine has none", hint="install bubblewrap"
            )
        command = self._command(workspace)
        self._roots = workspace.roots
        live = self._live = RunningServer(self.spec, self._roots)
        self._scope, self._over, self._used = anyio.CancelScope(), anyio.Event(), anyio.current_time()
        await ctx.lent.spawn(lambda: self._run(sandbox, command, live))
        try:
            live.deadline = ctx.deadline
            await live.begin()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stop()
            raise
        return live

    async def _run(self, sandbox: Sandbox, command: Command, live: RunningServer) -> None:
        """Hold the process until it ends or has been idle for long."""
        over = self._over
        try:
            with self._scope as scope:
                async with sandbox.open(command) as running, anyio.create_task_group() as group:
                    group.start_soon(self._watch, scope)
                    await live.serve(running)
                    group.cancel_scope.cancel()
        except ToolFailure as failure:
            live.fail(failure)
        finally:
            live.end("it was stopped")
            over.set()

    async def _watch(self, scope: anyio.CancelScope) -> None:
        while (left := self._used + self._idle - anyio.current_time()) > 0:
            await anyio.sleep(left)
            if self._turn.locked():
                self._used = anyio.current_time()
        scope.cancel()

    def _command(self, workspace: Workspace) -> Command:
        """Raises `ToolFailure("unavailable")` for a program that is not installed."""
        name, *arguments = self.spec.command
        local = str(workspace.root / name) if "/" in name else name
        found = shutil.which(local)
        if found is None:
            raise ToolFailure(
                "unavailable",
                f"the language server {self.name!r} is not installed: there is no program {name!r}",
                hint=f"install it, or name another one under {KEY}.{self.name}.command",
            )
        program = Path(found)
        places = dict.fromkeys([str(program.parent), *os.defpath.split(os.pathsep)])
        return Command(
            argv=(found, *arguments),
            cwd=workspace.root,
            folders=workspace.roots,
            environment={"PATH": os.pathsep.join(places), **self.spec.environment},
            readable=(*parts(program), *self.spec.readable),
            read_only=not self.spec.writes,
        )


async def first_of(
    ctx: Context,
    servers: Sequence[Server],
    method: str,
    work: Callable[[RunningServer], Awaitable[T]],
    notes: list[str],
) -> T | None:
    """Return the first non-empty answer; None if all are empty.

    A failing server is reported in `notes` if another one answers. Raises `ToolFailure` if all fail.
    """
    failures: list[ToolFailure] = []
    answers: list[T] = []

    async def ask(live: RunningServer) -> bool:
        if live.can(method):
            answers.append(await work(live))
            return True
        return False

    has_answered = False
    for server in servers:
        try:
            has_answered |= await server.ask(ctx, ask)
        except ToolFailure as failure:
            failures.append(failure)
        if answers and answers[-1]:
            break
    if not has_answered:
        raise failures[0] if failures else _unable(servers, method)
    notes += [failure.message for failure in failures]
    return answers[-1] or None


def _unable(servers: Sequence[Server], method: str) -> ToolFailure:
    names = ", ".join(server.name for server in servers)
    return ToolFailure("tool_error", f"no language server of this file ({names}) answers {method}")


class Fleet(Struct, eq=False):
    """All servers that the configuration names. Kept with the session, and ended with it."""

    servers: Sequence[Server]
    problems: Sequence[str] = ()
    """Problems of configuration entries."""

    def for_file(self, name: str) -> Sequence[Server]:
        """Return the servers for a file, in the order of the configuration. Raises `ToolFailure` where none is."""
        found = [server for server in self.servers if server.spec.takes(name)]
        if not found:
            there = ", ".join(
                f"{one.name} ({' '.join(glob.pattern for glob in one.spec.files)})" for one in self.servers
            )
            raise ToolFailure(
                "tool_error",
                "; ".join([f"no language server is configured for {name!r}", *self.problems]),
                hint=f"those there are: {there or 'none'}; the operator names others under {KEY}",
            )
        return found

    async def aclose(self) -> None:
        """End all of them: the session is over."""
        async with anyio.create_task_group() as group:
            for server in self.servers:
                group.start_soon(server.aclose)


def is_configured(ctx: Context) -> bool:
    """True if the configuration has an entry for language servers, valid or not."""
    return ctx.host is not None and bool(ctx.host.setting("lsp"))


def fleet_of(ctx: Context) -> Fleet:
    """Return the servers of the session that makes this call. Raises `ToolFailure("unavailable")` where none is."""
    found = ctx.runtime.get(_KEY)
    if isinstance(found, Fleet):
        return found
    specs = read_settings(ctx.lent.setting("lsp"))
    if not specs.servers:
        what = "; ".join(specs.problems) or f"no language server is configured: {KEY} is empty"
        raise ToolFailure("unavailable", what, hint=HINT)
    fleet = ctx.runtime[_KEY] = Fleet([Server(spec) for spec in specs.servers], specs.problems)
    return fleet
