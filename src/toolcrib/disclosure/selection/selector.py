"""Selection of tools for one interaction, with reasons: core, then capabilities, then the whitelist.

Pure: the same session state gives the same selection. Never empty, unless the caller's own whitelist is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...catalog.names import fold
from ...catalog.skill_groups import ALWAYS
from ...core.tool import PLAIN, Tool
from ..base import VisibleCatalog
from .requirements import SelectableTools, Wanted, selectable_tools, wanted, words
from .state import SelectionState

__all__ = ["FAILING", "SIMPLE_TASK_TOOLS", "Selection", "priority", "select", "unavailable"]

SIMPLE_TASK_TOOLS: Final = ("nodes", "knowledge_search", "hitl", "memory_recall")
"""Tools of a simple task (seed 004); the profile's `simple_task_tools` replaces them."""

FAILING: Final = "it failed repeatedly in this session"
"""Reason for leaving out a tool that stays callable: only a success brings it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
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


def select(scene: VisibleCatalog) -> Selection:
    """Return the tools for the session's interaction."""
    selectable = selectable_tools(scene)
    exact = scene.session.scope.exact
    if exact is not None:
        given = tuple(selectable.tools[name] for name in exact if name in selectable.tools)
        return Selection(base_tools=given, reason="the exact set of this interaction")
    if not selectable.tools:
        return Selection(reason="no tool is in scope")
    want = wanted(selectable)
    if want.whitelist is not None and not want.whitelist:
        return Selection(reason="the whitelist is empty", warnings=tuple(want.warnings))
    choice = _Choice(selectable=selectable, want=want)
    selection = (choice.simple() if _is_simple(scene) else None) or choice.leveled()
    return _with_floor(_without_failing(scene, selection), selection, choice)


def priority(scene: VisibleCatalog, tool: Tool) -> int:
    """Return the priority of `tool`, 0 to 100: the catalog's, adjusted by past calls."""
    return max(0, min(100, tool.capability.priority + scene.session.history.learned.get(tool.name, 0)))


def unavailable(scene: VisibleCatalog, tool: Tool) -> str:
    """Return the requirement of a tool that is not met here; empty when it can work.

    The session's own values decide; without one the profile's `available` does, and else the requirement counts as met.
    """
    there: Mapping[str, Any] = {
        **scene.profile.options.get("available", {}),
        **scene.session.scope.available,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """One selection in the making."""

    selectable: SelectableTools
    want: Wanted
    left_out: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def scene(self) -> VisibleCatalog:
        return self.selectable.scene

    def core(self) -> tuple[Tool, ...]:
        """Level 1: the override, or the profile's list and what marks itself core."""
        override = words(self.scene.profile.options.get("core_tools_override"))
        named = [name for word in (override or self.scene.profile.core) for name in self.selectable.by_name(word)]
        marked = [] if override else [tool for tool in self.selectable.tools.values() if tool.core]
        marked.sort(key=lambda tool: -tool.capability.priority)
        return tuple(self.selectable.tools[name] for name in dict.fromkeys((*named, *(tool.name for tool in marked))))

    def simple(self) -> Selection | None:
        """The few tools of a simple task, and those that the intent names; None if none of them exists."""
        listed = words(self.scene.profile.options.get("simple_task_tools", SIMPLE_TASK_TOOLS))
        base = [name for word in listed for name in self.selectable.by_name(word)]
        asked = [
            name
            for word in words(self.scene.session.state_of(SelectionState).intent.get("required_tools"))
            for name in self._meant(word)
        ]
        few = tuple(self.selectable.tools[name] for name in dict.fromkeys(base))
        more = tuple(self.selectable.tools[name] for name in dict.fromkeys(asked) if name not in base)
        made = self._finished(few, self.all_sorted(self._able(more)), "a simple task")
        return made if made.tools else None

    def leveled(self) -> Selection:
        """Core tools, tools with the wanted capabilities, and those that the chosen skills bring."""
        core = self.core()
        tags, names = dict(self.want.tags), dict(self.want.names)
        reason = _reasons(tags, names)
        if not reason:
            if self.scene.profile.options.get("unknown_task", "core") == "all":
                names = dict.fromkeys(self.selectable.tools, "all")
                reason = "nothing is known of the task: all tools"
            else:
                known = (tool for tool in core if tool.capability != PLAIN)  # of others, tags are words to search by
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
            reason = unavailable(self.scene, tool)
            if reason:
                self.left_out[tool.name] = reason
            else:
                able.append(tool)
        return tuple(able)

    def all_sorted(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return each once, the preferred first, in the catalog's order among equals."""
        places = {name: place for place, name in enumerate(self.selectable.tools)}
        unique = {tool.name: tool for tool in tools}
        return tuple(sorted(unique.values(), key=lambda tool: (-priority(self.scene, tool), places[tool.name])))

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

    def _meant(self, word: str) -> tuple[str, ...]:
        return self.selectable.by_name(word) or self.selectable.tagged(word) or self.selectable.in_category(word)


def _is_simple(scene: VisibleCatalog) -> bool:
    """Whether the intent describes the task as simple, without signs of a larger one."""
    session = scene.session
    intent = session.state_of(SelectionState).intent
    is_more = bool(session.state_of(SelectionState).plan) or intent.get("needs_plan") or intent.get("is_follow_up")
    return str(intent.get("complexity", "")).lower() == "simple" and not is_more


def _reasons(tags: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Return the origins of the wanted tools, in one line; empty if every task has them."""
    sources = dict.fromkeys(who for who in (*tags.values(), *names.values()) if who != ALWAYS)
    return f"core, and tools wanted by {', '.join(sources)}" if sources else ""


def _without_failing(scene: VisibleCatalog, selection: Selection) -> Selection:
    """Leave out what failed time after time, until it works again; where the list stands still, it stays."""
    broken = scene.session.history.failing if scene.session.audience.grows else ()
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
    able = tuple(tool for tool in left if not unavailable(choice.scene, tool))
    return Selection(
        dynamic_tools=choice.all_sorted(able or left),
        reason=f"{selection.reason}; that is nothing, so all that may be used".strip("; "),
        warnings=selection.warnings,
        left_out={name: why for name, why in selection.left_out.items() if name not in {tool.name for tool in left}},
    )
