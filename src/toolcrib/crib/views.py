"""Views of the sessions: the catalog and the view of each, and the bytes that MCP sends of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from ..catalog import names as naming
from ..catalog.catalog import Catalog, PinnedCatalogs
from ..catalog.resources import FeatureRegistry
from ..catalog.skill_groups import SkillGroups
from ..core.bounded_mapping import BoundedMapping
from ..core.context import Context
from ..core.events import Problem
from ..core.json import dumps
from ..core.session import SessionState, SessionTable
from ..core.tool import Annotations, Tool
from ..disclosure import meta_tools, profiles
from ..disclosure.aliases import ToolAliases
from ..disclosure.base import Profile, View, VisibleCatalog
from ..disclosure.formats.reduced_schemas import lean_schema
from ..disclosure.ops import OpMap
from ..disclosure.profiles import gaps, op_problems
from ..disclosure.server_instructions import server_instructions
from ..dispatch.steps.resolve import Surroundings
from ..errors import UsageError
from ..policy.decision import Policy
from ..policy.rules import Rule, intended_tool, named_tool
from .inventory import Inventory
from .needs import held
from .profiles import ProfileRegistry

_NO_COMMANDS: Final = (
    "Commands cannot run here: this machine has no sandbox (`toolcrib doctor` says why), and there is no person to ask"
    " before each of them."
)
_logger = logging.getLogger(__name__)

_KEPT: Final = 64
"""Views in memory; an older one is made again when it is asked for."""
_COMPARED: Final = 1024
"""Names in rules and scopes that were compared with those of tools."""
_ASSUMED: Final = Annotations().to_mcp()
_MAX_ALIASES: Final = 8
"""Sets of aliases, each of which holds on to its catalog."""


class Views:
    """The catalog and the view of every session. One for a crib.

    A view depends on the catalog, the profile, what the policy hides, and the few fields of the session that strategies
    read (`SessionState.shown_by`). `_key` holds exactly these, so that sessions which see the same share one view and
    its bytes. A changed catalog has another version, and old entries fall out of the bounded mappings; a profile is
    replaced under its name, so that `_forget_old` drops everything then.
    """

    def __init__(
        self,
        inventory: Inventory,
        profiles: ProfileRegistry,
        policy: Policy,
        sessions: SessionTable,
        features: FeatureRegistry,
        *,
        guarded: bool,
    ) -> None:
        """`features` says by which URIs the views of tools are read. Without `guarded` listings carry no fences."""
        self._registry = inventory.registry
        self._overlays = inventory.overlays
        self._sources = inventory.sources
        self._features = features
        self._mounted = inventory.mounted
        self._profiles = profiles
        self._policy = policy
        self._sessions = sessions
        self._guarded = guarded
        self._pinned = PinnedCatalogs()
        self._version = profiles.version
        self._aliases = BoundedMapping[tuple[object, ...], tuple[Catalog, ToolAliases]](_MAX_ALIASES)
        self._views = BoundedMapping[tuple[object, ...], View](_KEPT)
        self._bytes = BoundedMapping[tuple[object, ...], bytes](_KEPT)
        self._checked = BoundedMapping[tuple[object, ...], None](_KEPT)
        self._compared = BoundedMapping[str, None](_COMPARED)

    @property
    def skill_groups(self) -> SkillGroups:
        """The skill groups of all catalogs and skills, for a selection by intent."""
        groups = SkillGroups()
        for source in self._sources.values():
            brought = getattr(source, "groups", None)
            if isinstance(brought, SkillGroups):
                groups = groups.joined(brought)
        return groups

    def visible(self, state: SessionState, name: str = "", version: str = "") -> VisibleCatalog:
        """Return the catalog as the session may know of it, with the tool `name` in `version` where one is given."""
        return self._visible(self.catalog_of(state, name, version), state)

    def visible_of(self, context: Context) -> VisibleCatalog:
        """Return the tools that the session of a call can see."""
        return self.visible(self._sessions.get(context))

    def surroundings(self, state: SessionState, name: str = "", version: str = "") -> Surroundings:
        """Return the surroundings by which the calls of a session are resolved."""
        catalog = self.catalog_of(state, name, version)
        visible, verbs = self._visible(catalog, state), self._profiles.verbs(state.profile)
        at = partial(self.surroundings, state)
        return Surroundings(visible=visible, verbs=verbs, view=lambda: self._view(catalog, state), at=at)

    def view(self, state: SessionState) -> View:
        """Return the view of the session's model now."""
        return self._view(self.catalog_of(state), state)

    def listing(self, state: SessionState) -> bytes:
        """Return the shown definitions as a JSON array of MCP tools."""
        catalog = self.catalog_of(state)
        self._forget_old()
        key = (*self._key(catalog, state), self.skill_groups, self._features.ui_owners)
        listed = self._bytes.get(key)
        if listed is None:
            shown = (tool.listed for tool in self._view(catalog, state).tools)
            listed = self._bytes[key] = dumps(list(shown if self._guarded else map(_lean, shown)))
        return listed

    def named(self, state: SessionState, names: Iterable[str]) -> tuple[str, ...]:
        """Return an exact set by catalog names, verbs by their own; raises `UsageError` for what is not in scope.

        The set that the session has now limits nothing.
        """
        visible = self._visible(self.catalog_of(state), replace(state, scope=replace(state.scope, exact=None)))
        verbs = self._profiles.verbs(visible.profile.name)
        found: dict[str, None] = {}
        for name in names:
            tool = None if name in verbs else visible.find(name)
            if tool is None and name not in verbs:
                close = visible.catalog.nearest(name, allowed=visible.admitted)
                meant = f"; did you mean {', '.join(close)}?" if close else ""
                raise UsageError(f"tools: there is no tool {name!r} in the scope of this session{meant}")
            found[tool.name if tool else name] = None
        return tuple(found)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Broken profiles, tools that profiles in use name and the catalog lacks, and ops that tools lost."""
        catalog, waiting = self._registry.catalog, held(self._sources.values())
        found = (gaps(profile, catalog, waiting).problem(profile) for profile in self._profiles.in_use)
        lost = (problem for ops in self._ops(catalog) for problem in op_problems(ops))
        missing = (problem for problem in found if problem is not None)
        return (*self._profiles.problems, *missing, *dict.fromkeys(lost))

    def catalog_of(self, state: SessionState, name: str = "", version: str = "") -> Catalog:
        """Return the catalog of a session, with the tool `name` in `version` where one is given."""
        overlay, versions = self._overlays.get(state.instance) if state.instance else None, state.scope.versions
        catalog = overlay.catalog if overlay else self._registry.snapshot
        if catalog is None:
            catalog = self._registry.catalog
        return self._pinned.at(catalog, versions, name, version) if version or versions else catalog

    def _ops(self, catalog: Catalog) -> Iterator[OpMap]:
        """Yield the ops of each profile in use that calls tools by them; without one, the ops that tools declare."""
        used = [profile for profile in self._profiles.in_use if profile.strategy == "gateway"]
        for profile in used:
            yield self._aliases_of(profile, catalog).ops
        if not used:
            yield OpMap(tool for tool in catalog.tools.values() if tool.op)

    def _visible(self, catalog: Catalog, state: SessionState) -> VisibleCatalog:
        profile, hiding = self._profiles.get_or_load(state.profile), self._policy.hiding(state)
        visible = VisibleCatalog(
            profile=profile,
            catalog=catalog,
            session=state,
            aliases=self._aliases_of(profile, catalog),
            skill_groups=lambda: self.skill_groups,
            sources=self._mounted,
            aids=self._guarded,
            denies=hiding and hiding.denies_always,
        )
        self._check_names(visible)
        return visible

    def misspelt(self, state: SessionState) -> tuple[str, ...]:
        """Return a message for each name in `allowed_tools` and in rules that is not a tool but nearly one.

        Misspelt, it does nothing. It is not an error: a tool may come later, from a source that starts or is down.
        Patterns are compared with every tool here, and not in the check at each view, which that would slow down.
        """
        visible = self.visible(state)
        tools = visible.catalog.tools.values()
        meant = ((rule, intended_tool(rule, tools)) for rule in self._policy.rules_of(state))
        patterns = (f"rule {rule}: it matches no tool; did you mean {one.name!r}?" for rule, one in meant if one)
        names = (_correction(visible, *missing) for missing in self._missing(visible))
        return (*filter(None, names), *patterns)

    def _check_names(self, visible: VisibleCatalog) -> None:
        """Log what is `misspelt`: each name is compared once, with the first catalog that should have it.

        A name is compared in milliseconds, and every change of a tool makes another catalog.
        """
        catalog, state = visible.catalog, visible.session
        allowed, rules = state.scope.allowed or frozenset(), tuple(self._policy.rules_of(state))
        key = (catalog.version, allowed, *map(id, rules))
        if not (allowed or rules) or key in self._checked or not catalog.tools:
            return
        self._checked[key] = None
        for place, name, rule in self._missing(visible):
            if place not in self._compared:
                self._compared[place] = None
                if message := _correction(visible, place, name, rule):
                    _logger.warning("%s", message)

    def _missing(self, visible: VisibleCatalog) -> Iterator[tuple[str, str, Rule | None]]:
        """Yield place, name and rule of each name that no tool has, nor one that may come or is kept back."""
        allowed, rules = visible.session.scope.allowed or (), self._policy.rules_of(visible.session)
        names = [(f"allowed_tools {name}", name, None) for name in sorted(allowed)]
        named = [*names, *((f"rule {rule}", named_tool(rule), rule) for rule in rules)]
        missing = [one for one in named if one[1] and one[1] not in visible.catalog.tools]
        if missing:
            verbs = self._profiles.verbs(visible.profile.name)
            elsewhere = (visible.catalog.withheld, verbs, held(self._sources.values()))
            for place, name, rule in missing:
                if not (any(name in names for names in elsewhere) or visible.starting(name) or visible.down(name)):
                    yield place, name, rule

    def _aliases_of(self, profile: Profile, catalog: Catalog) -> ToolAliases:
        """Return the aliases of exactly this catalog, which stays while they do; sessions of instances take turns."""
        self._forget_old()
        key = (profile.name, id(catalog))
        known = self._aliases.get(key)
        if known is None:
            aliases = ToolAliases(catalog, profile.naming, profile.options.get("ops"), profile.verbs.values())
            known = self._aliases[key] = (catalog, aliases)
        return known[1]

    def _view(self, catalog: Catalog, state: SessionState) -> View:
        self._forget_old()
        prompt = self._policy.mode(state.mode).prompt
        key = (*self._key(catalog, state), self.skill_groups, self._features.ui_owners, prompt)
        view = self._views.get(key)
        if view is None:
            visible = self._visible(catalog, state)
            view = _planning(visible) or _exact(visible) or profiles.strategy_of(visible.profile).view(visible)
            view = replace(view, tools=tuple(map(self._declared, view.tools)))
            of_servers = ""
            if state.audience.is_client and not profiles.strategy_of(visible.profile).tells_sources:
                of_servers = server_instructions(visible, view)
            missing = _NO_COMMANDS if _lacks_shell(visible) else ""
            if of_servers or prompt or missing:
                parts = (view.instructions, prompt, missing, of_servers)
                view = replace(view, instructions="\n\n".join(filter(None, parts)))
            self._views[key] = view
        return view

    def _key(self, catalog: Catalog, session: SessionState) -> tuple[object, ...]:
        return (session.profile, catalog.version, catalog.words, self._policy.hiding(session), *session.shown_by)

    def _declared(self, tool: Tool) -> Tool:
        """Return a shown tool as a client declares it: under its name for clients, with a link to its view to read."""
        meta = self._features.linked(tool.source, tool.meta) if tool.meta else tool.meta
        tool = tool if meta is tool.meta else replace(tool, meta=meta)
        return tool.renamed(naming.declared(tool.name, tool.source, tool.local_name))

    def _forget_old(self) -> None:
        """Drop what was made of profiles that were replaced since."""
        if self._version != self._profiles.version:
            self._version = self._profiles.version
            self._aliases.clear()
            self._views.clear()
            self._bytes.clear()


def _lean(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a definition without what is of no use to a model: hints that MCP assumes anyway, marks of generators."""
    definition = {**definition, "inputSchema": lean_schema(definition["inputSchema"])}
    hints = {
        name: value for name, value in definition.get("annotations", {}).items() if _ASSUMED.get(name) is not value
    }
    rest = {key: value for key, value in definition.items() if key != "annotations"}
    return {**rest, "annotations": hints} if hints else rest


def _lacks_shell(visible: VisibleCatalog) -> bool:
    """Whether the session lacks `run_command` for no other reason than that it may run no commands."""
    session, tool = visible.session, visible.catalog.tools.get("run_command")
    if tool is None or "shell" in session.scope.provided or "shell" not in tool.availability.needs:
        return False
    needs = tuple(need for need in tool.availability.needs if need != "shell")
    return session.admits(replace(tool, availability=replace(tool.availability, needs=needs)))


def _correction(visible: VisibleCatalog, place: str, name: str, rule: Rule | None) -> str:
    """Return the message for a name without a tool that is nearly the name of one; empty for any other."""
    close = visible.catalog.nearest(name, 1)
    is_found = bool(close) and rule is not None and rule.concerns(visible.catalog.tools[close[0]])
    return f"{place}: there is no tool {name!r}; did you mean {close[0]!r}?" if close and not is_found else ""


def _planning(visible: VisibleCatalog) -> View | None:
    """Return the view of a session whose plan was not approved yet: what asks the user, and nothing else."""
    if not visible.session.scope.planning:
        return None
    asking = (tool for tool in visible.offered() if "asks_user" in tool.traits)
    return View(tools=tuple(presented for tool in asking for presented in visible.presentations(tool)))


def _exact(visible: VisibleCatalog) -> View | None:
    """Return the view of an interaction with an exact set of tools, in its order; None without one."""
    session, tools = visible.session, visible.catalog.tools
    if session.scope.exact is None:
        return None
    declared = {tool.name: tool for tool in meta_tools.definitions(visible.profile, profiles.VERBS)}
    shown: list[Tool] = []
    for name in session.scope.exact:
        if name in declared:
            shown.append(declared[name])
        elif name in tools and session.admits(tools[name]) and visible.is_offered(tools[name]):
            shown.extend(visible.presentations(tools[name]))
    return View(tools=tuple(shown))
