"""The source of Python functions. Functions may be added and removed at any time; every change is published.

A function passes through up to three states before it is called:

    waiting    of a guest, with requirements that no session has met: not read at all
    kept       of a static package (`static_tools`): listed by what the last start has kept, its module not imported
    read       signature and schema are known; `call` binds the arguments and runs it on the loop or in a thread
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from ...core.context import Context
from ...core.events import Problem, SourceState
from ...core.result import ToolResult
from ...core.tool import Tool
from ...core.versions import stacked
from ...errors import ToolFailure, UsageError
from ...results.library_values import is_picture
from ...system.tasks import Threads
from ..function_run import raise_as_failure
from ..source import Amendment, Listing, Publish
from .declaration import Due, Found, FoundFunction, KeptFunction, Setting, find
from .function_tool import Body, Entry, make_entry, read_body

_logger = logging.getLogger(__name__)


def _no_setting(name: str) -> None:
    """Settings of a source without any."""


class PythonSource:
    """Functions of this process as tools. Changed on the event loop alone once it is open."""

    def __init__(self, name: str = "python", setting: Setting = _no_setting) -> None:
        """`name` is the namespace that a registry may put before the functions' names.

        `setting` gives the operator's settings to the functions that tell what their tool lacks.
        """
        self._name = name
        self._setting = setting
        self._entries: dict[str, dict[str, Entry]] = {}
        """By name and version."""
        self.amend: Callable[[Amendment], None] | None = None
        """Receives single changes if the crib supports it; else every change is a whole listing."""
        self._waiting: dict[str, Found] = {}
        """Guests' functions with requirements, unread until a session meets them."""
        self._problems: dict[str, Problem] = {}
        self._publish: Publish | None = None
        self._provided = frozenset[str]()
        self._withheld: Collection[str] = frozenset[str]()
        self._threads = Threads()
        self._listed_count: int | None = None
        """Tools that are listed; None after a change. States are read at every search, tools change seldom."""

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def state(self) -> SourceState:
        """Ready, once it is open: functions are always there."""
        state = "closed" if self._publish is None else "ready"
        if self._listed_count is None:
            entries = self._entries.values()
            self._listed_count = sum(any(self._is_listed(one.tool) for one in named.values()) for named in entries)
        return SourceState(source=self._name, kind="python", state=state, tools=self._listed_count)

    def add(self, *things: object) -> tuple[str, ...]:
        """Add functions, modules, lists of them, and objects with `@tool` methods; return the names of the new tools.

        A single function that cannot be a tool raises `UsageError`. Among several it is a `Problem`, and the others
        are added.
        """
        found = [function for thing in things for function in find(thing)]
        if len(found) == 1:
            self._take(found[0])
            added = [found[0].name]
        else:
            added = [function.name for function in found if self._try(function)]
        self._tell_of(added)
        return tuple(added)

    def offer(self, thing: object, origin: str, chosen: Collection[str] | None = None) -> Mapping[str, str]:
        """Add a guest's tools, those alone whose category or name is `chosen`; unusable ones become problems.

        Returns the category of each of its tools, chosen or not, by the tool's name.
        """
        try:
            every = find(thing)
        except UsageError as error:
            self.report(Problem(source=self._name, code="bad_tool", message=f"{origin}: {error}"))
            return {}
        categories = {one.name: _category(one) for one in every}
        found = [one for one in every if chosen is None or one.name in chosen or categories[one.name] in chosen]
        for function in found:
            if self._provided.issuperset(_needs(function)):
                self._try(function)
            else:
                self._waiting[function.name] = function
        self._tell()
        return categories

    def remove(self, name: str) -> None:
        """Remove a tool; raises `UsageError` for an unknown name. Running calls are not disturbed."""
        if self._entries.pop(name, None) is None:
            raise UsageError(f"unknown function {name!r}")
        self._tell_of([name])

    def report(self, *problems: Problem) -> None:
        """Publish problems of a caller that found functions: a plugin that could not be loaded, say."""
        self._problems.update((f"{problem.source} {problem.tool} {problem.message}", problem) for problem in problems)
        self._tell()

    @property
    def every_tool(self) -> tuple[Tool, ...]:
        """All tools that were read, listed or not."""
        return tuple(entry.tool for named in self._entries.values() for entry in named.values())

    @property
    def held(self) -> Mapping[str, Sequence[str]]:
        """Requirements of the unlisted tools, by name: no session meets them yet."""
        entries = ((name, entry) for name, same in self._entries.items() for entry in same.values())
        needs = ((name, wanted) for name, entry in entries if (wanted := entry.tool.availability.needs))
        own = {name: wanted for name, wanted in needs if not self._provided.issuperset(wanted)}
        return own | {name: _needs(found) for name, found in self._waiting.items()}

    def category(self, name: str) -> str:
        """Return the category of a tool that was read, listed or not; empty for one that has none."""
        waiting = self._waiting.get(name)
        if waiting is not None:
            return _category(waiting)
        return next((entry.tool.category for entry in self._entries.get(name, {}).values()), "")

    def provide(self, there: frozenset[str]) -> None:
        """List from now on tools whose requirements are in `there` or were provided before."""
        if there <= self._provided:
            return
        self._provided |= there
        for name, found in list(self._waiting.items()):
            if self._provided.issuperset(_needs(found)):
                del self._waiting[name]
                self._try(found)
        self._tell()

    def withhold(self, categories: Collection[str]) -> None:
        """List from now on no tools of these categories, and the others again."""
        if frozenset(categories) != frozenset(self._withheld):
            self._withheld = frozenset(categories)
            self._tell()

    async def open(self, publish: Publish) -> None:
        """Publish the listing, now and at every change."""
        self._publish = publish
        self._tell()

    async def ready(self) -> None:
        """Return at once."""

    async def load(self) -> None:
        """Import in a thread what is only imported at its first use: a process that stays keeps its code in an update.

        A module that cannot be imported now is tried again at its first use.
        """
        every = [*self._waiting.values(), *(one.body for named in self._entries.values() for one in named.values())]
        modules = dict.fromkeys(one.module for one in every if isinstance(one, KeptFunction))
        if modules:
            await self._threads.run(partial(_import_all, modules))

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run the function; raises `ToolFailure` for each of its exceptions."""
        entry = self._entry_of(tool)
        if entry is None:
            raise ToolFailure("not_found", f"{tool.name} is not there any more")
        body = entry.body if isinstance(entry.body, Body) else await self._body_of(entry, context)
        prepared, run = body.signature.arguments(arguments, context), body.run
        try:
            if run is None:
                value = await body.function(**prepared)
                if inspect.iscoroutine(value):  # an `await` was forgotten
                    value = await value
            else:
                value = await run(partial(body.function, **prepared), context, self._threads)
        except BaseException as error:  # noqa: BLE001 - it is raised again, as a failure or as it is
            raise_as_failure(error, entry.name, context, is_awaited=run is None)
        if type(value).__module__ != "builtins" and is_picture(value):  # drawing one would stop the loop
            return await self._threads.run(partial(body.signature.result, value), context.signal)
        return body.signature.result(value)

    async def check(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> None:
        """Raise the `ToolFailure` of arguments that a type refuses, or that the tool's own `check` foresees."""
        entry = self._entry_of(tool)
        if entry is None:
            return
        body = entry.body if isinstance(entry.body, Body) else await self._body_of(entry, context)
        body.signature.arguments(arguments, context)
        if body.check is not None:
            await body.check(arguments, context)

    def due(self, tool: Tool) -> Due | None:
        """Return the function that decides whether a call of the tool has anything to do; None if unknown."""
        entry = self._entry_of(tool)
        if entry is None:
            return None
        body = entry.body
        return (self._put(entry, body, body.loaded()) if isinstance(body, KeptFunction) else body).due

    async def close(self) -> None:
        """Let the threads go. A function that still runs in one is left to end by itself."""
        self._publish = None
        self._threads.close()

    def _entry_of(self, tool: Tool) -> Entry | None:
        return self._entries.get(tool.local_name, {}).get(tool.version_info.version)

    async def _body_of(self, entry: Entry, context: Context) -> Body:
        """Import a kept function at its first use, in a thread: that may take long. Raises `ToolFailure`."""
        kept = entry.body
        if not isinstance(kept, KeptFunction):
            return kept
        try:
            found = await self._threads.run(kept.loaded, context.signal)
        except BaseException as error:  # noqa: BLE001 - it is raised again, as a failure or as it is
            raise_as_failure(error, entry.name, context, is_awaited=False)
        return self._put(entry, kept, found)

    def _put(self, entry: Entry, kept: KeptFunction, found: FoundFunction) -> Body:
        """Take what was imported. Raises `ToolFailure` where it is defined otherwise than it was listed."""
        tool, body = read_body(found, self._name)
        is_same = tool == replace(kept.tool, source=self._name)
        entry = replace(entry, body=body) if is_same else make_entry(found, self._name, self._setting)
        self._entries[found.name] = {**self._entries.get(found.name, {}), tool.version: entry}
        if is_same:
            return body
        self._tell_of([found.name])
        raise ToolFailure(
            "definition_changed",
            f"{found.name} is defined in another way than it was listed; it did not run",
            hint="look at the tool again, then call it anew",
        )

    def _tell(self) -> None:
        self._listed_count = None
        if self._publish is not None:
            tools = tuple(tool for name in self._entries for tool in self._listed(name))
            self._publish(Listing(tools=tools, problems=tuple(self._problems.values())))

    def _tell_of(self, names: Iterable[str]) -> None:
        """Publish these tools alone, if single changes are supported; problems go with a whole listing."""
        self._listed_count = None
        if self._publish is None or self.amend is None or self._problems:
            self._tell()
            return
        now = {name: self._listed(name) for name in names}
        added = tuple(tool for tools in now.values() for tool in tools)
        self.amend(Amendment(added=added, removed=tuple(name for name, tools in now.items() if not tools)))

    def _listed(self, name: str) -> tuple[Tool, ...]:
        """Return the tool that has the name, with its other versions; nothing while it is not to be listed."""
        same = [entry.tool for entry in self._entries.get(name, {}).values() if self._is_listed(entry.tool)]
        return stacked(same)

    def _is_listed(self, tool: Tool) -> bool:
        return tool.category not in self._withheld and self._provided.issuperset(tool.availability.needs)

    def _try(self, found: Found) -> bool:
        try:
            self._take(found)
        except UsageError as error:
            _logger.warning("%s", error)
            self._problems[found.origin] = Problem(
                source=self._name, code="bad_tool", message=str(error), tool=found.name
            )
            return False
        return True

    def _take(self, found: Found) -> None:
        """Make the entry; raises `UsageError` naming the function."""
        version = found.declaration.options.get("version", "")
        known = self._entries.get(found.name, {}).get(version)
        if known is not None and getattr(known.body, "function", known.body) == getattr(found, "function", found):
            return
        if known is not None:
            of = f" of version {version}" if version else ""
            raise UsageError(
                f"{found.origin}: there is a tool {found.name!r}{of} already; give one of them @tool(name=…)"
            )
        try:
            entry = make_entry(found, self._name, self._setting)
        except (UsageError, ValueError) as error:
            raise UsageError(f"{found.origin}: {error}") from None
        self._entries.setdefault(found.name, {})[version] = entry
        self._problems.pop(found.origin, None)


def _import_all(modules: Iterable[str]) -> None:
    for module in modules:
        with suppress(Exception, SystemExit):
            import_module(module)


def _category(found: Found) -> str:
    return found.declaration.options.get("category", "")


def _needs(found: Found) -> tuple[str, ...]:
    return tuple(found.declaration.options.get("needs", ()))
