"""Interface of a source of tools (list, call, publish changes, close), and the mounted sources that start or are down.

The contract that every kind passes (`tests/contract/`):

* `open` returns at once; it never waits for something slow or broken. Listings are published when they are known,
  the cached one first, and again whenever they change.
* `call` runs one tool and returns its result, or raises `ToolFailure`; it ends by the context's deadline, and when it
  is cancelled it tells the far end. It never runs a tool twice, unless the tool says that this is harmless. While it
  waits for its own start, `context.signal.is_starting` is true: a deadline that passes then says that nothing ran.
* One bad entry is a `Problem` in the listing; it never hides the good ones.
* `close` leaves no task and no process.

A source may also have `describe(tool, arguments) -> str | None`: what a call would send, for a dry run, without
secrets. And `check(tool, arguments, context)`: raises the `ToolFailure` of a call that would fail after any
answer. It changes nothing, and runs before an approver is asked. And `find_defect(tool) -> ToolFailure | None`: the
failure of every call of the tool as it is defined, known without arguments. And `file_of(tool, arguments) -> str`: the
path of the file that a call of a tool with the trait `file_reader` reads, for the rules about files; empty for none.
And `implementation_of(tool) -> str`: a hash over what a call of the tool would run now beyond its definition (command,
address, code, files); empty for a tool that is gone. It may block, and runs in a thread: when a person is asked about a
call, and before that call runs, which it does not where the two differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, runtime_checkable

import anyio
from msgspec import Struct, field

from ..core.context import Context
from ..core.events import Problem, SourceState
from ..core.result import ToolResult
from ..core.server_features import NO_FEATURES, ServerFeatures
from ..core.similar import fold
from ..core.tool import Tool
from ..errors import ToolFailure
from .listing_queue import ListingQueue

_GAP: Final = r"[\W_]*"
"""Separators between two letters of a name, which any spelling may leave out."""
_BEFORE: Final = ("", "x")
"""Words before the source in the spellings of a name: none, and the group of ops that go by their source."""


class Listing(Struct, frozen=True, kw_only=True):
    """Whole listing of one source. A later listing of the same source replaces it."""

    tools: tuple[Tool, ...]
    """With `name` equal to `local_name`: the registry gives them their names in the catalog."""
    problems: tuple[Problem, ...] = ()
    instructions: str = ""
    """The source's own advice to the model; untrusted text."""
    title: str = ""
    description: str = ""
    server: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Introduction of an MCP server, for clients (`Implementation`: name, title, version, websiteUrl, icons)."""
    features: ServerFeatures = NO_FEATURES
    """Resources and prompts; a source with any has a property `features` (`core.server_features.WithFeatures`)."""
    is_cached: bool = False
    """Whether it is that of an earlier run: the source may list something else by now."""


class Amendment(Struct, frozen=True, kw_only=True):
    """Change since the last listing of a trusted source: for one that changes tool by tool."""

    added: tuple[Tool, ...] = ()
    """New tools, and those that are defined otherwise now."""
    removed: tuple[str, ...] = ()
    """Names as the source has them."""


Publish = Callable[[Listing], None]
"""Hands a listing to the registry; called on the event loop, never blocks."""


class Source(Protocol):
    """One place that tools come from. Opened once, closed once, used from one event loop.

    `ToolRegistry.mount_source` opens it, with the function that takes its listings; the execute step calls it, with
    arguments that are valid by the schema it listed, several calls at a time.
    """

    @property
    def name(self) -> str:
        """The configured name: unique in a crib, and the namespace of its tools."""
        ...

    @property
    def state(self) -> SourceState:
        """Present state."""
        ...

    async def open(self, publish: Publish) -> None:
        """Start; `publish` is called for the first listing and for every change until `close` returns."""
        ...

    async def ready(self) -> None:
        """Return when the first fresh listing was published or failed for good. The caller sets its own time limit."""
        ...

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run `tool` with validated `arguments`. What it raises as `ToolFailure` the model reads, and nothing else."""
        ...

    async def close(self) -> None:
        """Stop, wait for what must be waited for, and end every process that was started."""
        ...


@runtime_checkable
class Delegating(Protocol):
    """A source with tools that call tools of MCP servers."""

    def target_of(self, tool: Tool) -> tuple[str, str] | None:
        """Return the server and its tool that a call of `tool` is passed to; None for other tools."""
        ...


class BaseSource:
    """Base of a source that has nothing to start: `offer` lists its tools, now or later. Subclasses have `call`."""

    def __init__(self, name: str, kind: str, tools: tuple[Tool, ...] = ()) -> None:
        """`kind` is a word for what it is, for people. `tools` are listed from the beginning."""
        self._name = name
        self._kind = kind
        self._listed = tools
        self._publish: Publish | None = None

    @property
    def name(self) -> str:
        """Always the same."""
        return self._name

    @property
    def state(self) -> SourceState:
        """Ready, once it is open."""
        state = "ready" if self._publish else "closed"
        return SourceState(source=self._name, kind=self._kind, state=state, tools=len(self._listed))

    async def open(self, publish: Publish) -> None:
        """List the tools that are wanted already."""
        self._publish = publish
        if self._listed:
            publish(Listing(tools=self._listed))

    def offer(self, *tools: Tool, problems: tuple[Problem, ...] = ()) -> None:
        """List these tools and no others from now on, or from `open` on."""
        if tools != self._listed:
            self._listed = tools
            if self._publish is not None:
                self._publish(Listing(tools=tools, problems=problems))

    async def ready(self) -> None:
        """Return at once."""

    async def close(self) -> None:
        """List nothing any more."""
        self._publish = None


def is_starting(state: SourceState) -> bool:
    """Whether a source has neither listed nor failed; one that connects again has its tools meanwhile."""
    return state.state == "connecting" and not state.tools


class MountedSource(Struct, frozen=True, kw_only=True):
    """A mounted source, and how its tools are named."""

    source: Source
    prefix: bool = True
    """Whether the names of its tools in the catalog begin with its own."""

    @property
    def name(self) -> str:
        """The configured name."""
        return self.source.name

    def may_list(self, name: str, before: Iterable[str] = ()) -> bool:
        """Whether the tool `name`, in any spelling, can be one of this source.

        `before` are further words that a spelling may have before the source's name.
        """
        if not self.prefix:
            return True
        own = _GAP.join(map(re.escape, fold(self.name)))
        lead = "|".join(_GAP.join(map(re.escape, fold(word))) for word in (*_BEFORE, *before))
        return bool(own) and re.match(rf"(?:{lead}){_GAP}{own}[\W_]", name, re.IGNORECASE) is not None


class _LeftOut(Struct, frozen=True):
    """A source whose configuration has an error: it has no tools, and nothing of it is open."""

    name: str
    state: SourceState

    async def open(self, publish: Publish) -> None:
        """Never called: it is not mounted."""

    async def ready(self) -> None:
        """Return: it never lists."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Raise `unavailable`."""
        raise unavailable(self.state)

    async def close(self) -> None:
        """Nothing is open."""


class MountedSources(Struct):
    """The mounted sources that may lack tools, and those that an error keeps out. One a crib, used on its loop."""

    _sources: dict[str, MountedSource] = field(default_factory=dict[str, MountedSource])
    _left_out: dict[str, MountedSource] = field(default_factory=dict[str, MountedSource])
    listings: ListingQueue = field(default_factory=ListingQueue)
    """The listings that are not in the catalog yet."""
    file_options: str = ""
    """The options that name the configuration files of the crib to a command of a hint; empty for the usual files."""

    def leave_out(self, problem: Problem) -> None:
        """Take note of a source that does not exist because of `problem`."""
        if problem.outage and problem.source not in self._sources:
            hint = "`toolcrib doctor` names the file and the line; use another tool meanwhile."
            state = SourceState(
                source=problem.source, kind="none", state="failed", outage=problem.outage, hint=problem.hint or hint
            )
            self._left_out[problem.source] = MountedSource(source=_LeftOut(problem.source, state))

    def add(self, source: Source, *, prefix: bool) -> None:
        """Follow a source that was just opened."""
        self._left_out.pop(source.name, None)
        self._sources[source.name] = MountedSource(source=source, prefix=prefix)

    def remove(self, name: str) -> None:
        """Forget a source that was unmounted."""
        self._sources.pop(name, None)

    @property
    def starting(self) -> Iterator[MountedSource]:
        """The sources that are starting now, in the order in which they were mounted."""
        return (
            one for name, one in self._sources.items() if is_starting(one.source.state) or self.listings.is_first(name)
        )

    @property
    def down(self) -> Iterator[MountedSource]:
        """The sources whose tools cannot be called now: the mounted ones, then those that an error keeps out."""
        return (one for one in (*self._sources.values(), *self._left_out.values()) if one.source.state.outage)

    async def wait(self, timeout: float, names: Collection[str] | None = None, *, fresh: bool = False) -> None:
        """Return when every source, or each of `names`, has listed or failed once; at the latest after `timeout` s.

        A list from the cache counts, unless `fresh`. An unknown name is a source that has listed.
        """
        if timeout <= 0:
            return
        waiting = ("connecting", "cached") if fresh else ("connecting",)
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as group:
                for name, one in self._sources.items():
                    if names is not None and name not in names:
                        continue
                    if one.source.state.state in waiting:
                        group.start_soon(self._listed, one)
                    elif name in self.listings:
                        group.start_soon(self.listings.wait, name)

    async def _listed(self, one: MountedSource) -> None:
        """Return when a source has failed, or what it lists is in the catalog."""
        await one.source.ready()
        await self.listings.wait(one.name)

    async def wait_first(self, timeout: float, names: Collection[str]) -> str:
        """Return the first of `names` that has listed or failed; empty where none has after `timeout` seconds."""
        first = ""

        async def wait(name: str) -> None:
            nonlocal first
            if (one := self._sources.get(name)) is not None:
                await self._listed(one)
            first = first or name
            group.cancel_scope.cancel()

        with anyio.move_on_after(max(0.0, timeout)):
            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(wait, name)
        return first


def still_starting(source: str) -> ToolFailure:
    """Return the failure of a call that waited for the start of `source` as long as it may."""
    return ToolFailure(
        "unavailable",
        f"source {source!r} is still starting; the call was not sent to it",
        hint="starting",
        details={"starting": [source]},
    )


def unavailable(state: SourceState) -> ToolFailure:
    """Return the failure of a call of a tool whose source is down."""
    return ToolFailure("unavailable", state.outage, hint=state.hint, details={"down": [state.source]})
