"""All tools and one way to run them.

    async with Toolcrib() as crib:
        crib.add(my_function)
        await crib.mount({"mcpServers": {...}})
        async with crib.session() as session:
            result = await session.call("my_function", {"x": 1})

A `Toolcrib` lives as long as its tools do; sessions live inside it, one a conversation. Both belong to one event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

import anyio

from ..errors import UsageError
from ..system.memory import without_collection

if TYPE_CHECKING:  # loaded with the first crib
    from inspect import Signature

    from ..catalog.catalog import Catalog
    from ..config import Settings
    from ..core.events import Problem
    from ..core.result import ToolResult
    from ..dispatch.steps.custom import AfterStep, BeforeStep
    from ..sources.source import Source
    from .assembly import Slice
    from .options import ApiOptions, CallOptions, CribOptions, SessionOptions
    from .session import Session

_Slice = TypeVar("_Slice", bound="Slice")

T = TypeVar("T")


@cache
def _list_options() -> None:
    """Give the methods signatures that list their options; with the first crib, as `options` loads late."""
    from ..core.option_signatures import with_options
    from .options import ApiOptions, CallOptions, SessionOptions

    for method, options in (
        (Toolcrib.call, CallOptions),
        (Toolcrib.load, ApiOptions),
        (Toolcrib.session, SessionOptions),
    ):
        vars(method)["__signature__"] = with_options(method, options)


class _Signature:
    """Signature of `Toolcrib(…)` with every key of the configuration; made on request, as `options` loads late."""

    def __get__(self, _: object, owner: Any) -> Signature:
        from ..core.option_signatures import with_options
        from .options import CribOptions

        return with_options(partial(owner.__init__, None), CribOptions)


class Toolcrib:
    """All tools of a program, and one way to run them.

    Opened and closed once, by `async with`. All that it starts ends with it: processes of servers, connections,
    threads, the store. It belongs to the event loop that opened it; a thread hands work to that loop
    (`asyncio.run_coroutine_threadsafe`), and code without one uses `toolcrib.run`. A program needs one for all of its
    users: each conversation is a `session`, of a principal with its own rules, records and budgets.

    Calls may run concurrently, in one session and in many. What cannot be used (a server, an entry, a tool) is in
    `problems` and leaves everything else as it is.

    Its parts are attributes: `tools` (sources), `profiles`, `policy`, `calls`, `approvals`, `jobs`, `schedules`,
    `changes` (of files), `resources`, `artifacts`, `plugins`, `store` (records) and others.
    """

    __signature__ = _Signature()

    def __init__(
        self,
        settings: Settings | str | Path | None = None,
        *,
        before: Iterable[BeforeStep] = (),
        after: Iterable[AfterStep] = (),
        memory: bool | Mapping[str, Any] = False,
        **keywords: Unpack[CribOptions],
    ) -> None:
        """Take the path of a configuration file, its keys as keywords (`mode=`, `rules=`, `servers=` …), or settings.

        Keywords win over the file. Without a file no other file is read and installed guests are left out
        (`builtins=True` takes them); without a file and a `store` everything is kept in memory. `memory` keeps records,
        pins and artifacts in memory and temporary files, regardless of the settings; a mapping is the key `memory`.

        `before` and `after` are steps of the program (`BeforeStep`, `AfterStep`): they get each validated call, and
        each result before it is redacted. Raises `ConfigError`, with file and key, for what cannot be taken, and
        `UsageError` for keywords beside settings.
        """
        with without_collection():
            from .assembly import Slices  # all parts are loaded with the first crib of a process, not with the class
            from .lifecycle import make_parts
            from .session import Session
        _list_options()
        self.parts = parts = make_parts(settings, keywords, before, after, memory)
        """All parts, for slices; the attributes below are the public ones."""
        self.settings = parts.settings
        self.tools = parts.tools
        """Sources and tools: mount, unmount, review, switch on and off."""
        self.profiles = parts.profiles
        """Every profile by name; `add` takes another."""
        self.policy = parts.policy
        """Rules and modes: `decide(tool, arguments, session.state)` returns the decision of the pipeline."""
        self.sessions = parts.sessions
        """The sessions that live: `find`."""
        self.views = parts.views
        """The catalog and the view of each session."""
        self.calls = parts.calls
        """The one door: `on_finished`, `on_job`, `enrich`."""
        self.approvals = parts.approvals
        """Questions whether calls may run: list, answer, watch."""
        self.deferred_calls = parts.deferred_calls
        """Calls whose questions outlived them: `resume`."""
        self.explainer = parts.explainer
        """Explanations why a call would run or not: `why`, `decide`."""
        self.jobs = parts.jobs
        """Calls that run in the background: `get`, `result`, `cancel` and `list`, each for one principal."""
        self.schedules = parts.schedules
        """Calls that are made later: `scheduler` for the operator, `start` to fire due ones in this process."""
        self.changes = parts.workspaces.changes
        """File changes that wait for review: list, diff, accept, reject."""
        self.shadows = parts.workspaces.shadows
        """The git worktrees of tasks: list, diff, merge, discard."""
        self.resources = parts.resources
        """Resources and prompts of servers; a session has its own view as `Session.resources`."""
        self.artifacts = parts.artifacts
        """Large outputs, kept whole."""
        self.plugins = parts.plugins
        """The plugins: their origin and state, `expose` and `unexpose`."""
        self.store = parts.storage.store
        """The records of this crib: calls, pins, approvals."""
        self._slices = Slices(parts)
        self._new_session = Session
        self._exit = AsyncExitStack()
        self._was_opened = False

    @classmethod
    def open(cls, *files: str | Path) -> Toolcrib:
        """Return the crib that several configuration `files` describe, or the user's own files when none are named.

        Raises `ConfigError` naming the file and the key.
        """
        with without_collection():
            from ..config import load  # as above

        return cls(load(files))

    async def __aenter__(self) -> Self:
        """Open the store, the sources and the guests.

        Returns when each source has listed, is in the cache or has failed, at the latest after `ready_timeout`. Raises
        `UsageError` for the second time.
        """
        from .lifecycle import open_parts  # there since `__init__`

        if self._was_opened:
            raise UsageError("this Toolcrib was opened before, and is opened once: make another with `Toolcrib()`")
        self._was_opened = True
        async with AsyncExitStack() as stack:
            await open_parts(self.parts, self._slices, stack)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every source, and write what waits to be written."""
        try:
            await self._exit.aclose()
        finally:
            self.calls.close()  # last: a job that ends above may have calls of its own to make

    def __repr__(self) -> str:
        """Return state and size, for the screen."""
        state = "open" if self.calls.is_open else "closed" if self._was_opened else "not open yet"
        return f"<Toolcrib, {state}: {len(self.catalog)} tools, {len(self.problems)} problems>"

    @overload
    def add(self, thing: T, /) -> T: ...

    @overload
    def add(self, first: Any, second: Any, /, *others: Any) -> None: ...

    def add(self, *things: Any) -> Any:
        """Add functions, modules or objects with `@tool` methods, before or after the crib is opened.

        A single thing is returned as it is, so that `@crib.add` is a decorator too.

        A plain function is a tool as it is: its name, its docstring and its annotations describe it (`toolcrib.tool`
        for all else), `async` ones run on the event loop, others in a thread. Of a module the functions marked with
        `@tool` are added (without one, those of its `__all__`), of an object the marked methods.

        Raises `UsageError` when a thing holds no tool, or when a name is taken; nothing is added then.
        """
        self.tools.add(*things)
        return things[0] if len(things) == 1 else None

    async def mount(
        self,
        servers: Mapping[str, Any] | str | Any,
        *,
        name: str | None = None,
        accept: bool = True,
        through: Callable[[Source], Source] = lambda one: one,
    ) -> None:
        """Mount MCP servers: `{"mcpServers": {...}}`, the URL of one, or the object of one in this process.

        An object (`FastMCP`, or `MCPServer` and `Server` of the SDK) is run in memory until the crib closes. It counts
        as code of this process: its definitions need no review, and its results are trusted unless a tool declares
        `openWorldHint: true`. `name` names one server; else its URL or the object does. A server that cannot be reached
        is a problem, not an error.

        Returns when each of them has listed, is in the cache or has failed, at the latest after `ready_timeout`.
        `accept` takes definitions that were never seen before as reviewed; changed ones are withheld either way.
        `through` gets each server's source and returns what is mounted in its place: `lambda s: prefixed(s, "crm_")`.
        Raises `UsageError` when the crib is not open, for a name that is taken, and for anything else.
        """
        await self.tools.mount(servers, name=name, accept=accept, through=through)

    async def load(
        self, path: str | Path | Mapping[str, Any] | Any, *, name: str | None = None, **api: Unpack[ApiOptions]
    ) -> None:
        """Mount the content of `path`: a YAML catalog, skills, an OpenAPI description (or its URL) or MCP servers.

        The content determines the kind; tools of catalogs and skills keep their names. Returns once it was read. An
        OpenAPI description may also be given as a mapping, and so may an application of this process that makes one
        (FastAPI): its operations are then called in memory. `ApiOptions` explains the options of an API.

        Entries that are wrong are in `problems`; raises `UsageError` for a content of no known kind, or when `name` is
        taken, and `ConfigError` for an option.
        """
        await self.parts.loader.load(path, name, api)

    @property
    def catalog(self) -> Catalog:
        """The current catalog, without the tools of instances."""
        return self.tools.catalog

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every entry, definition and profile that could not be used, with its reason."""
        return self.tools.problems

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """Open a conversation; `SessionOptions` explains each option, and what is not given comes from the settings.

        With a `key` the conversation lasts: what it has loaded, learnt and been allowed is kept for its principal, and
        the same key continues it, after a restart too; its options, its shell and its commands in the background last
        as long as a reference to a session of that key. Without a key it is new, and gone with the last reference. A
        session takes 0.1 ms and 4 KiB, so that each request may have its own.

        Raises `UsageError` for an option, a profile or a mode that does not exist.
        """
        return self._new_session(self.parts, self.sessions.open(options))

    def slice(self, kind: type[_Slice]) -> _Slice:
        """Return this crib's feature of that class, such as `toolcrib.workflows.Workflows`.

        It is made at first use and closed with the crib. Raises `UsageError` for anything but such a class.
        """
        return self._slices.get(kind)

    async def start_background_work(self) -> None:
        """Fire due schedules and run the services of guests from now on, unless `jobs.work` is off.

        Sessions of clients have the tools that run agents from now on, if a model is configured.
        """
        from .lifecycle import start_services  # there since `__init__`

        await start_services(self.parts, self._slices)

    async def call(self, name: str, arguments: Any = None, **options: Unpack[CallOptions]) -> ToolResult:
        """Run one tool in a conversation of its own, for a program that calls a tool by itself.

        As `Session.call`, which the calls of a model need: it remembers what is loaded, allowed and untrusted, and has
        the `approver` of questions. Raises `UsageError` as that does.
        """
        return await self.session().call(name, arguments, **options)


def run(awaitable: Awaitable[T]) -> T:
    """Run `awaitable` from synchronous code and return its value.

    Raises `UsageError` in a running event loop, and for anything that cannot be awaited.
    """
    if not isinstance(cast("Any", awaitable), Awaitable):  # such as `main` without brackets
        raise UsageError(f"run takes what can be awaited, `run(main())`, not {type(awaitable).__name__}")
    from ..core.builds import has_loop  # it loads asyncio, slowly, as `anyio.run` does

    async def main() -> T:
        return await awaitable

    if not has_loop():  # not in an `except` here: its error would begin every traceback of the program
        return anyio.run(main)
    if isinstance(awaitable, Coroutine):
        awaitable.close()  # else Python warns that it was never awaited
    raise UsageError("an event loop runs here already, as in a notebook: write `await main()`, not `run(main())`")
