"""Installed guests and plugins of a crib: found, exposed, taken back, exposed again with another configuration.

Guests, the built-in tools among them, are all mounted, or those of the chosen categories that no server covers. One is
left out while a server does the same work: it has the category's name (`git`, `filesystem` for files), or tools of the
same names, words for the category and for the server aside (`fetch` and `web_fetch`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal, cast

from msgspec import Struct

from ..catalog.catalog import Catalog
from ..core.call import Call
from ..core.events import Problem
from ..core.result import ToolResult
from ..core.similar import did_you_mean, nearest
from ..core.tool import Tool
from ..errors import UsageError
from ..plugin import Guest, load_entry_points
from ..sources.plugins import Enrichment, FoundPlugin, Plugin, PluginSource, discover, given
from ..sources.python import PythonSource, Setting
from ..sources.settings import PluginSettings
from ..system.memory import without_collection
from .agents import toolsets
from .calls import CallRunner
from .storage import Folders
from .tools import ToolRegistry

GUESTS: Final = "builtin"
"""The source of the tools that installed packages bring."""
_SERVERS: Final = frozenset({"mcp", "openapi"})
"""Origins of the tools of servers."""
_SPELLINGS: Final[Mapping[str, str]] = {"filesystem": "files", "browser": "web"}
"""Names of servers, and the category that each means."""
_EMPTY_WORDS: Final = frozenset({"get", "tool"})
_ENOUGH: Final = 2
"""Tools of the same names that make a server one for the same work; half of its tools are enough, too."""


class PluginState(Struct, frozen=True, kw_only=True):
    """One plugin as it is now."""

    name: str
    origin: str
    """Origin: distribution and version, or the file."""
    state: Literal["found", "disabled", "connecting", "ready", "failed", "closed"]
    tools: int = 0
    error: str = ""


class Plugins:
    """All plugins of one crib. Used from its event loop."""

    def __init__(self, settings: PluginSettings, tools: ToolRegistry, calls: CallRunner, folders: Folders) -> None:
        """Each plugin gets a folder of its own in `folders`; results of `calls` are shown to those that enrich them."""
        self._settings = settings
        self._tools = tools
        self._calls = calls
        self._folders = folders
        self._found: dict[str, FoundPlugin] = {}
        self._exposed: dict[str, PluginSource] = {}

    @property
    def all(self) -> tuple[PluginState, ...]:
        """Every discovered plugin by name, in any state."""
        return tuple(self._state(self._found[name]) for name in sorted(self._found))

    async def open(self, *, every: bool) -> None:
        """Find the installed plugins and those of the folders, and expose what is not disabled. Waits for none.

        Without `every` only what the configuration names counts: its `folders`, and the plugins in its `config`.
        """
        settings = self._settings
        if not (every or settings.folders or settings.config):
            return
        found = self._find(every=every)
        for plugin in found:
            if plugin.name not in settings.disabled:
                try:
                    await self._mount(plugin.name, None)
                except UsageError as error:
                    self._tools.report(
                        Problem(source=plugin.name, code="unavailable", message=f"{plugin.origin}: {error}")
                    )

    def _find(self, *, every: bool) -> list[FoundPlugin]:
        settings, own = self._settings, self._folders.own_plugins
        found, problems = discover((*((own,) if own else ()), *settings.folders))
        if not every:
            found = [one for one in found if one.name in settings.config or one.is_below(settings.folders)]
        self._found = {plugin.name: plugin for plugin in found}
        named = (*(settings.disabled if every else ()), *settings.config)
        wrong = [f"plugins.folders: there is no folder {folder}" for folder in settings.folders if not folder.exists()]
        wrong += [
            f"plugins: there is no plugin {name!r}{self._meant(name)}" for name in named if name not in self._found
        ]
        problems += [Problem(source="plugins", code="bad_config", message=message) for message in wrong]
        for problem in problems:
            self._tools.report(problem)
        return found

    async def expose(self, plugin: str | Plugin, config: Mapping[str, Any] | None = None) -> PluginState:
        """Expose a plugin by its name, or one that you hold; one that is exposed begins anew with `config`.

        `config` None takes what the settings say of it. Returns once it is exposed or has failed, which is in the
        result. Raises `UsageError` for a name that there is not, or that another source has.
        """
        source = await self._mount(plugin, config)
        await source.ready()
        return self._state(source.found)

    async def settle(self, name: str) -> PluginState:
        """Return the state of a plugin once it is known: exposed, failed, or not to be exposed.

        Raises `UsageError` for a name that there is not.
        """
        if name not in self._found:
            raise UsageError(f"there is no plugin {name!r}{self._meant(name)}")
        if name in self._exposed:
            await self._exposed[name].ready()
        return self._state(self._found[name])

    async def unexpose(self, name: str) -> None:
        """Shut a plugin down and take its tools away. Raises `UsageError` for one that is not exposed."""
        if self._exposed.pop(name, None) is None:
            raise UsageError(f"the plugin {name!r} is not exposed{self._meant(name)}")
        await self._tools.unmount(name)

    async def _mount(self, plugin: str | Plugin, config: Mapping[str, Any] | None) -> PluginSource:
        name = await self._take_back(plugin)
        values = self._settings.config.get(name, {}) if config is None else config
        source = PluginSource(
            self._found[name],
            values,
            functions=PythonSource,
            catalog=lambda: self._tools.catalog,
            subscribe=self._subscribe,
            data=self._folders.plugins,
        )
        await self._tools.mount_source(source, prefix=True, trusted=True)
        self._exposed[name] = source
        return source

    def _subscribe(self, enrichment: Enrichment, priority: int) -> Callable[[], None]:
        async def enrich(call: Call, result: ToolResult) -> ToolResult:
            return await enrichment(call.target, call.arguments, result)

        return self._calls.enrich(enrich, priority=priority)

    async def _take_back(self, plugin: str | Plugin) -> str:
        if isinstance(plugin, Plugin):
            found = given(plugin)
            self._found[found.name] = found
            name = found.name
        elif isinstance(cast("Any", plugin), str):
            name = plugin
        else:  # such as the class
            raise UsageError(f"expose takes the name of a plugin or an instance of it, not {plugin!r:.60}")
        if name not in self._found:
            raise UsageError(f"there is no plugin {name!r}{self._meant(name)}")
        if name in self._exposed:
            await self.unexpose(name)
        return name

    def _state(self, found: FoundPlugin) -> PluginState:
        source = self._exposed.get(found.name)
        if source is None:
            is_off = found.name in self._settings.disabled
            return PluginState(name=found.name, origin=found.origin, state="disabled" if is_off else "found")
        state: Any = source.state
        return PluginState(
            name=found.name, origin=found.origin, state=state.state, tools=state.tools, error=state.detail
        )

    def _meant(self, name: str) -> str:
        return did_you_mean(name, self._found) or f"; there are {', '.join(self._found) or 'none'}"


def load_guests(chosen: bool | tuple[str, ...], setting: Setting, *own: object) -> PythonSource:
    """Load the tools that installed packages bring, chosen by category or name; an unknown word is a problem.

    `setting` gives the operator's settings for tools by the name of their section, `own` has tools of a slice.
    """
    source = PythonSource(GUESTS, setting)
    words = None if isinstance(chosen, bool) else frozenset(chosen)
    known: dict[str, str] = {}
    with without_collection():
        guests, problems = load_entry_points()
        for guest in (*guests, *(Guest(origin="toolcrib", thing=thing) for thing in own)):
            known |= source.offer(guest.thing, guest.origin, words)
    if words is not None and not words <= {*known, *known.values()}:
        for toolset in toolsets():
            known |= toolset.categories
    unknown = sorted((words or frozenset[str]()) - {*known, *known.values()})
    source.report(*problems, *(_unknown(name, known) for name in unknown))
    return source


def categories_of_guests() -> Mapping[str, str]:
    """Return the category of every tool that installed packages bring, switched on or not, by the tool's name."""
    source, known = PythonSource(GUESTS), dict[str, str]()
    for guest in load_entry_points()[0]:
        known |= source.offer(guest.thing, guest.origin, frozenset())
    return known


def guest_packages(catalog: Catalog) -> Mapping[str, tuple[PluginState, Collection[str]]]:
    """Return the installed packages that bring tools without a plugin, with the names of those in `catalog`; not ours.

    One whose tools `builtins` leaves out is `found`.
    """
    packages: dict[str, tuple[PluginState, Collection[str]]] = {}
    guests, problems = load_entry_points()
    for guest in guests:
        name = guest.origin.partition(" ")[0]
        if name != "toolcrib":
            brought = PythonSource(GUESTS).offer(guest.thing, guest.origin)
            names = (*packages.get(name, (None, ()))[1], *(tool for tool in brought if tool in catalog.tools))
            state = "ready" if names else "found"
            packages[name] = (PluginState(name=name, origin=guest.origin, state=state, tools=len(names)), names)
    for problem in problems:
        origin, _, error = problem.message.partition(" cannot be loaded: ")
        name = origin.partition(" ")[0]
        packages[name] = (PluginState(name=name, origin=origin, state="failed", error=error), ())
    return packages


def _unknown(name: str, known: Mapping[str, str]) -> Problem:
    """Return the problem of a word that is neither a tool nor a category of `known` (tool → category)."""
    categories = sorted({*known.values()} - {""})
    close = nearest(name, categories, 1) or nearest(name, sorted(known), 1)
    meant = f"; did you mean {close[0]}?" if close else f"; categories: {', '.join(categories)}"
    message = f"there is no category and no tool {name!r}{meant}"
    return Problem(source="builtins", code="bad_config", message=message)


def follow_servers(source: PythonSource, tools: ToolRegistry) -> None:
    """Leave out what servers do already, now and at every change of the catalog."""

    def look(_: object = None) -> None:
        source.withhold(_covered_categories(tools.catalog, source.every_tool))

    tools.on_change(look)
    look()


def _covered_categories(catalog: Catalog, mine: Iterable[Tool]) -> frozenset[str]:
    """Return the categories of the tools `mine` whose work a server of the catalog does."""
    categories: dict[str, list[Tool]] = defaultdict(list)
    for tool in mine:
        categories[tool.category].append(tool)
    servers: dict[str, list[Tool]] = defaultdict(list)
    for tool in catalog.tools.values():
        if tool.origin in _SERVERS:
            servers[tool.source].append(tool)
    return frozenset(
        category
        for category, own in categories.items()
        if any(_does_work(category, own, source, theirs) for source, theirs in servers.items())
    )


def _does_work(category: str, own: Iterable[Tool], source: str, theirs: Iterable[Tool]) -> bool:
    of_category, named = _words(category), _words(source)
    if _words(_SPELLINGS.get(source.lower(), source)) >= of_category:
        return True

    def action(tool: Tool) -> frozenset[str]:
        words = _words(tool.local_name) - of_category - _EMPTY_WORDS
        return words - named or words

    actions = set(map(action, own)) - {frozenset[str]()}
    listed = list(map(action, theirs))
    same = sum(action in actions for action in listed)
    return same >= _ENOUGH or (same > 0 and same * 2 >= len(listed))


def _words(name: str) -> frozenset[str]:
    from ..catalog.ranking.terms import terms  # it brings the stemmer: only where servers stand beside plugins

    found = frozenset(terms(name, joined=False))
    return found or frozenset({name.lower()})  # `onto` is a word that a search leaves out
