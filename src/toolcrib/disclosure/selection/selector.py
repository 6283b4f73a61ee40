"""Selection of tools for one interaction, with reasons: core, then capabilities, then the whitelist.

Pure: the same session state gives the same selection. Never empty, unless the caller's own whitelist is.

Routing: the one capability for a request, by a score from the catalog's own record, and the next best.

  score = priority + 5 x type + 5 x subtype + quality + context - cost

The weights are those of the original (checklist 004): an explicit name outweighs everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct, field

from ...catalog.catalog import BUILTIN_SOURCES
from ...catalog.skill_groups import ALWAYS
from ...core.patterns import regex
from ...core.similar import fold
from ...core.tool import PLAIN, Tool
from ..base import VisibleCatalog
from .requirements import SelectableTools, SelectionState, Wanted, selectable_tools, wanted, words

_SIMPLE_TASK_TOOLS: Final = ("nodes", "knowledge_search", "hitl", "memory_recall")
"""Tools of a simple task (seed 004); the profile's `simple_task_tools` replaces them."""

FAILING: Final = "it failed repeatedly in this session"
"""Reason for leaving out a tool that stays callable: only a success brings it back."""

EXPLICIT: Final = 10_000
_ALTERNATIVES: Final = 3

_TYPES: Final[Mapping[str, int]] = MappingProxyType({"SKILL": 10, "TOOL": 8, "CODE": 4})
_SUBTYPES: Final[Mapping[str, int]] = MappingProxyType(
    {"CUSTOM": 15, "PREBUILT": 10, "NATIVE": 8, "EXTERNAL": 5, "DYNAMIC": 3}
)
_TIME: Final[Mapping[str, int]] = MappingProxyType({"fast": 0, "medium": 5, "slow": 15, "variable": 10})
_MONEY: Final[Mapping[str, int]] = MappingProxyType({"free": 0, "low": 5, "medium": 15, "high": 30})
_QUALITIES: Final = ("low", "medium", "high")
"""Values of `metadata.quality`, and of the requested quality."""
_SEARCHED: Final = 10
"""Tools that a search in words brings in."""
_QUOTED: Final = regex(r"[`'\"“”‘’]([^`'\"“”‘’]+)[`'\"“”‘’]")
_BETWEEN: Final = regex(r"[-_\s]+")


class Selection(Struct, frozen=True, kw_only=True):
    """The tools of one interaction."""

    base_tools: tuple[Tool, ...] = ()
    """Level 1, in an order that stands still: the profile's list, then by the catalog's priority."""
    dynamic_tools: tuple[Tool, ...] = ()
    """Level 2, the preferred first."""
    reason: str = ""
    warnings: tuple[str, ...] = ()
    """Wanted names that do not exist."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Catalog name → why a tool that was wanted is not there."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All of them, in the order in which they are shown."""
        return (*self.base_tools, *self.dynamic_tools)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names in the catalog."""
        return tuple(tool.name for tool in self.tools)


def select(visible: VisibleCatalog) -> Selection:
    """Return the tools for the session's interaction.

        exact set of the interaction?      that, and nothing else
        simple task?                       the few tools of the profile, and those that the intent names
        else                               core, tools wanted by schema, plan, intent and caller, then the whitelist
        without tools that keep failing; never empty, unless the whitelist is

    `Selection` carries the reasons.
    """
    selectable = selectable_tools(visible)
    exact = visible.session.scope.exact
    if exact is not None:
        given = tuple(selectable.tools[name] for name in exact if name in selectable.tools)
        return Selection(base_tools=given, reason="the exact set of this interaction")
    if not selectable.tools:
        return Selection(reason="no tool is in scope")
    want = wanted(selectable)
    if want.whitelist is not None and not want.whitelist:
        return Selection(reason="the whitelist is empty", warnings=tuple(want.warnings))
    choice = _Choice(selectable=selectable, want=want)
    selection = (choice.simple() if is_simple(visible) else None) or choice.leveled()
    return _with_floor(_without_failing(visible, selection), selection, choice)


def priority(visible: VisibleCatalog, tool: Tool) -> int:
    """Return the priority of `tool`, 0 to 100: the catalog's, adjusted by past calls."""
    return max(0, min(100, tool.capability.priority + visible.session.history.learned.get(tool.name, 0)))


def unavailable(visible: VisibleCatalog, tool: Tool) -> str:
    """Return the requirement of a tool that is not met here; empty when it can work.

    The session's own values decide; without one the profile's `available` does, and else the requirement counts as met.
    """
    there: Mapping[str, Any] = {
        **visible.profile.options.get("available", {}),
        **visible.session.scope.available,
    }
    needs = tool.capability.constraints
    if needs.get("requires_network") is True and there.get("network") is False:
        return "it needs the network"
    if needs.get("requires_auth") is True and there.get("auth") is False:
        return "it needs a signed-in user"
    name = needs.get("api_name") or ""
    if needs.get("requires_api") is True and "apis" in there:
        apis = [fold(api) for api in words(there["apis"])]
        if not apis or (name and fold(str(name)) not in apis):
            return f"it needs the API {name}" if name else "it needs an API"
    return ""


class _Choice(Struct, frozen=True, kw_only=True):
    """One selection in the making.

    One `select` in the making; `left_out` collects reasons as tools are dropped.
    """

    selectable: SelectableTools
    want: Wanted
    left_out: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def visible(self) -> VisibleCatalog:
        return self.selectable.visible

    def core(self) -> tuple[Tool, ...]:
        """Level 1: the override, or the profile's list and what marks itself core."""
        override = words(self.visible.profile.options.get("core_tools_override"))
        named = [name for word in (override or self.visible.profile.core) for name in self.selectable.by_name(word)]
        marked = [] if override else [tool for tool in self.selectable.tools.values() if tool.core]
        marked.sort(key=lambda tool: -tool.capability.priority)
        return tuple(self.selectable.tools[name] for name in dict.fromkeys((*named, *(tool.name for tool in marked))))

    def simple(self) -> Selection | None:
        """The few tools of a simple task, and those that the intent names; None if none of them exists."""
        state = self.visible.session.state_of(SelectionState)
        listed = words(self.visible.profile.options.get("simple_task_tools", _SIMPLE_TASK_TOOLS))
        base = [name for word in listed for name in self.selectable.by_name(word)]
        tools = self.selectable
        asked = [
            name
            for word in (*words(state.intent.get("required_tools")), *state.selected)
            for name in tools.by_name(word) or tools.tagged(word) or tools.in_category(word)
        ]
        few = tuple(self.selectable.tools[name] for name in dict.fromkeys(base))
        more = tuple(self.selectable.tools[name] for name in dict.fromkeys(asked) if name not in base)
        made = self._finished(few, self.all_sorted(self._able(more)), "a simple task")
        return made if made.tools else None

    def leveled(self) -> Selection:
        """Core tools, tools with the wanted capabilities, and those that the chosen skills bring."""
        core = self.core()
        tags, names = dict(self.want.tags), dict(self.want.names)
        sources = dict.fromkeys(who for who in (*tags.values(), *names.values()) if who != ALWAYS)
        reason = f"core, and tools wanted by {', '.join(sources)}" if sources else ""
        if not reason:
            if self.visible.profile.options.get("unknown_task", "core") == "all":
                names = dict.fromkeys(self.selectable.tools, "all")
                reason = "nothing is known of the task: all tools"
            else:
                declared = (tool for tool in core if tool.capability != PLAIN)
                known = (tool for tool in declared if tool.source not in BUILTIN_SOURCES)  # ours are words to search by
                tags |= {fold(tag): "core" for tool in known for tag in tool.tags}
                reason = "nothing is known of the task: the capabilities of the core tools"
        matched = dict.fromkeys((*names, *(name for tag in tags for name in self.selectable.tagged(tag))))
        chosen = self._able(self.selectable.tools[name] for name in matched)
        return self._finished(core, self.all_sorted((*chosen, *self._brought(chosen))), reason)

    def _brought(self, chosen: Iterable[Tool]) -> tuple[Tool, ...]:
        """Tools that chosen skills bring: their fallback tools, and the tools that share their capabilities."""
        skills = [tool for tool in chosen if tool.capability.type == "SKILL"]
        fallbacks = [name for skill in skills for name in self.selectable.by_name(skill.capability.fallback_tool)]
        sharing = [name for skill in skills for tag in skill.tags for name in self.selectable.tagged(tag)]
        tools = [name for name in sharing if self.selectable.tools[name].capability.type == "TOOL"]
        return self._able(self.selectable.tools[name] for name in dict.fromkeys((*fallbacks, *tools)))

    def _able(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        able: list[Tool] = []
        for tool in tools:
            reason = unavailable(self.visible, tool)
            if reason:
                self.left_out[tool.name] = reason
            else:
                able.append(tool)
        return tuple(able)

    def all_sorted(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return each once, the preferred first, in the catalog's order among equals."""
        places = {name: place for place, name in enumerate(self.selectable.tools)}
        unique = {tool.name: tool for tool in tools}
        return tuple(sorted(unique.values(), key=lambda tool: (-priority(self.visible, tool), places[tool.name])))

    def _finished(self, base: tuple[Tool, ...], dynamic: tuple[Tool, ...], reason: str) -> Selection:
        """Level 3: the whitelist, over core and capabilities alike."""
        allowed = self.want.whitelist
        known = {tool.name for tool in base}
        more = tuple(tool for tool in dynamic if tool.name not in known)
        if allowed is not None:
            for tool in (*base, *more):
                if tool.name not in allowed:
                    self.left_out[tool.name] = "the whitelist does not name it"
            base = tuple(tool for tool in base if tool.name in allowed)
            more = tuple(tool for tool in more if tool.name in allowed)
            reason = f"{reason}, limited to the whitelist"
        return Selection(
            base_tools=base,
            dynamic_tools=more,
            reason=reason,
            warnings=tuple(self.want.warnings),
            left_out=dict(self.left_out),
        )


def is_simple(visible: VisibleCatalog) -> bool:
    """Whether the intent describes the task as simple, without signs of a larger one."""
    state = visible.session.state_of(SelectionState)
    intent = state.intent
    is_more = bool(state.current_plan) or intent.get("needs_plan") or intent.get("is_follow_up")
    return str(intent.get("complexity", "")).lower() == "simple" and not is_more


def _without_failing(visible: VisibleCatalog, selection: Selection) -> Selection:
    """Leave out what failed time after time, until it works again; where the list stands still, it stays."""
    broken = visible.session.history.failing if visible.session.audience.grows else ()
    if not broken:
        return selection
    left_out = {name: FAILING for name in selection.names if name in broken}
    return Selection(
        base_tools=tuple(tool for tool in selection.base_tools if tool.name not in broken),
        dynamic_tools=tuple(tool for tool in selection.dynamic_tools if tool.name not in broken),
        reason=selection.reason,
        warnings=selection.warnings,
        left_out={**selection.left_out, **left_out},
    )


def _with_floor(pruned: Selection, selection: Selection, choice: _Choice) -> Selection:
    """Return the selection without what fails, else with it, else everything that may be: an agent needs some tool."""
    if pruned.tools:
        return pruned
    if selection.tools:
        return selection
    allowed = choice.want.whitelist
    left = tuple(tool for name, tool in choice.selectable.tools.items() if allowed is None or name in allowed)
    able = tuple(tool for tool in left if not unavailable(choice.visible, tool))
    return Selection(
        dynamic_tools=choice.all_sorted(able or left),
        reason=f"{selection.reason}; that is nothing, so all that may be used".strip("; "),
        warnings=selection.warnings,
        left_out={name: why for name, why in selection.left_out.items() if name not in {tool.name for tool in left}},
    )


class Candidate(Struct, frozen=True, kw_only=True):
    """One capability and the parts of its score."""

    tool: Tool
    score: int


class Route(Struct, frozen=True, kw_only=True):
    """The answer: the best one, and up to three others, best first."""

    best: Candidate | None = None
    alternatives: tuple[Candidate, ...] = ()

    @property
    def tool(self) -> Tool | None:
        """The capability to use; None when nothing fits."""
        return self.best.tool if self.best else None


def route(visible: VisibleCatalog, query: str = "", *, capability: str = "", quality: str = "") -> Route:
    """Return the capability for `query`, in words, or for a `capability` tag; `quality` is low, medium or high.

    Tools that cannot work here (API, network, sign-in) are not candidates.

    A tool that the query names, in quotes or in full, comes before every score.
    """
    selectable = selectable_tools(visible)
    named = _named(selectable, query) if query else ()
    names = dict.fromkeys((*named, *_fitting(selectable, query, capability)))
    found = [
        Candidate(tool=tool, score=EXPLICIT if name in named else score(visible, tool, quality=quality))
        for name in names
        if not unavailable(visible, tool := selectable.tools[name])
    ]
    found.sort(key=lambda candidate: -candidate.score)
    return Route(best=found[0], alternatives=tuple(found[1 : 1 + _ALTERNATIVES])) if found else Route()


def score(visible: VisibleCatalog, tool: Tool, *, quality: str = "") -> int:
    """Return the score of `tool` for a query that does not name it."""
    record = tool.capability
    weights = 5 * _TYPES[record.type] + 5 * _SUBTYPES.get(record.subtype.upper(), 0)
    cost = _TIME.get(record.cost.get("time", ""), 0) + _MONEY.get(record.cost.get("money", ""), 0)
    return priority(visible, tool) + weights + _quality(tool, quality) + _context(visible, tool) - cost


def _quality(tool: Tool, wanted: str) -> int:
    """20 for the quality that is wanted, 10 for one step beside it."""
    given = str(tool.capability.metadata.get("quality", ""))
    if wanted not in _QUALITIES or given not in _QUALITIES:
        return 0
    return {0: 20, 1: 10}.get(abs(_QUALITIES.index(given) - _QUALITIES.index(wanted)), 0)


def _context(visible: VisibleCatalog, tool: Tool) -> int:
    """15 for a tool that this conversation has used, 10 for one that shares a capability with such a tool."""
    used = visible.session.history.activated
    if tool.name in used:
        return 15
    tags = {tag for name in used if (other := visible.catalog.get(name)) for tag in other.tags}
    return 0 if tags.isdisjoint(tool.tags) else 10


def _named(selectable: SelectableTools, query: str) -> tuple[str, ...]:
    """The tools whose names occur in the query: alone, in quotes, or a name of several words anywhere.

    A name of one word (`plan`) is a word of the language too, and names the tool only by itself or in quotes.
    """
    quoted = {fold(query), *map(fold, _QUOTED.findall(query))}
    text = f" {_spaced(query)} "
    found: list[str] = []
    for tool in selectable.tools.values():
        names = {tool.name, tool.local_name, selectable.visible.aliases.name(tool)}
        several = [spaced for name in names if " " in (spaced := _spaced(name))]
        if not quoted.isdisjoint(map(fold, names)) or any(f" {name} " in text for name in several):
            found.append(tool.name)
    return tuple(found)


def _fitting(selectable: SelectableTools, query: str, capability: str) -> Iterable[str]:
    if capability:
        yield from selectable.tagged(capability)
    if query:
        text = f" {_spaced(query)} "
        for tool in selectable.tools.values():
            if any(f" {_spaced(tag)} " in text for tag in tool.tags):
                yield tool.name
        catalog, boost = selectable.visible.catalog, selectable.visible.boost
        for hit in catalog.search(query, _SEARCHED, allowed=lambda name: name in selectable.tools, boost=boost):
            yield hit.name


def _spaced(text: str) -> str:
    return _BETWEEN.sub(" ", "".join(sign if sign.isalnum() or sign in "-_" else " " for sign in text.lower())).strip()
