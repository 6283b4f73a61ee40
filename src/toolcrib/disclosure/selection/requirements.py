"""The task of an interaction, and its requirements: from the schema, the plan, the intent and the caller.

A word may be a capability tag, a category (all its tools), a tool's name or a group of skills. An unknown word is a
warning and has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from msgspec import Struct, field

from ...catalog.skill_groups import ALWAYS, SkillGroup, SkillGroups
from ...core.json import canonical
from ...core.similar import fold, nearest
from ...core.tool import Tool
from ..base import VisibleCatalog

_NAMED: Final = 6
"""Names of a skill group that a warning lists."""

_INTENT: Final = (
    "allowed_tools",
    "complexity",
    "is_follow_up",
    "needs_plan",
    "relevant_skill_groups",
    "required_capabilities",
    "required_skills",
    "required_tools",
    "skill_groups",
    "task_type",
)
"""Keys of an intent. `relevant_skill_groups` is the seed document's word for `skill_groups`."""

_OPEN: Final = ("created", "active")
"""States of a plan that is worked on."""
_PLAN: Final = ("required_capabilities", "required_skills", "required_tools")
"""Both words that the original had for it: it met only one of them, and a plan then silently chose nothing."""


class SelectionState(Struct, kw_only=True):
    """State of `selection` in one session: see `SessionState.state_of`.

    `required`, `intent`, `plan` and `selected` are of one interaction; `own_plan` lasts until the plan ends.
    """

    required: tuple[str, ...] = ()
    """Capability tags that this interaction needs."""
    intent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The caller's knowledge of the task: `complexity`, `needs_plan`, `skill_groups`, `required_tools` …"""
    plan: Mapping[str, Any] | None = None
    """The plan that the caller says the interaction works on; None leaves it to `own_plan`."""
    own_plan: Mapping[str, Any] | None = None
    """The open plan that the session's own tools made: its title and needs. It lasts beyond an interaction."""
    selected: tuple[str, ...] = ()
    """Catalog names that the model added to the selection of this interaction."""

    @property
    def shown_by(self) -> object:
        """The task as canonical JSON; empty without one."""
        plan = self.current_plan
        if not (self.required or self.intent or plan or self.selected):
            return b""
        return canonical([self.required, self.intent, plan, self.selected])

    @property
    def current_plan(self) -> Mapping[str, Any]:
        """The plan of the caller, else the session's own; empty without one."""
        return (self.plan if self.plan is not None else self.own_plan) or {}

    def note_plan(self, view: Mapping[str, Any]) -> None:
        """Take the needs of a plan that a tool returned; one that has ended needs nothing."""
        is_open = view.get("status") in _OPEN
        needs = {key: [*words(view.get(key))] for key in _PLAN if key in view}
        self.own_plan = {"title": view.get("title"), **needs} if is_open else None


class SelectableTools(Struct, frozen=True, kw_only=True):
    """The selectable tools, with lookup by name, tag and category."""

    visible: VisibleCatalog
    tools: Mapping[str, Tool]
    """By catalog name, in the catalog's order."""
    tags: Mapping[str, tuple[str, ...]]
    """Folded tag → names of the tools that have it."""
    categories: Mapping[str, tuple[str, ...]]
    """Folded category → names of its tools."""

    def by_name(self, word: str) -> tuple[str, ...]:
        """Return the tool that `word` names, if it is selectable."""
        tool = self.visible.find(word)
        return (tool.name,) if tool is not None and tool.name in self.tools else ()

    def tagged(self, tag: str) -> tuple[str, ...]:
        """Return the names of the tools with the tag, in any spelling."""
        return self.tags.get(fold(tag), ())

    def in_category(self, category: str) -> tuple[str, ...]:
        """Return the names of the tools of the category, in any spelling."""
        return self.categories.get(fold(category), ())


class Wanted(Struct, kw_only=True):
    """Wanted tools, each with its origin; filled while the sources are read."""

    tags: dict[str, str] = field(default_factory=dict[str, str])
    """Folded tag → who asked for it."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Catalog name → who asked for it."""
    whitelist: frozenset[str] | None = None
    """Catalog names; None lets everything pass."""
    warnings: list[str] = field(default_factory=list[str])

    def restrict(self, names: Iterable[str]) -> None:
        """Let only these names pass, of those that passed before."""
        given = frozenset(names)
        self.whitelist = given if self.whitelist is None else self.whitelist & given


def selectable_tools(visible: VisibleCatalog) -> SelectableTools:
    """Return the tools that the session may get: in scope, enabled, and not for internal use only."""
    in_scope = (tool for tool in visible.offered() if tool.capability.constraints.get("internal_use_only") is not True)
    tools = {tool.name: tool for tool in in_scope}
    tags: dict[str, list[str]] = {}
    categories: dict[str, list[str]] = {}
    for tool in tools.values():
        for tag in {fold(tag) for tag in tool.tags}:
            tags.setdefault(tag, []).append(tool.name)
        if tool.category:
            categories.setdefault(fold(tool.category), []).append(tool.name)
    return SelectableTools(visible=visible, tools=tools, tags=_frozen(tags), categories=_frozen(categories))


def wanted(selectable: SelectableTools) -> Wanted:
    """Return the combined requirements of schema, plan, intent and caller."""
    session, options = selectable.visible.session, selectable.visible.profile.options
    intent, plan = session.state_of(SelectionState).intent, session.state_of(SelectionState).current_plan
    found = Wanted()
    _schema(selectable, words(options.get("tools")), found)
    require(selectable, session.state_of(SelectionState).required, "the caller", found)
    for key in _PLAN:
        by_name = key != "required_capabilities"
        require(selectable, words(plan.get(key)), "the plan", found, by_name=by_name)
        require(selectable, words(intent.get(key)), "the intent", found, by_name=by_name)
    expand_groups(selectable, (*words(intent.get("skill_groups")), *words(intent.get("relevant_skill_groups"))), found)
    found.names |= dict.fromkeys((name for name in session.state_of(SelectionState).selected), "the model")
    if "allowed_tools" in intent:
        _restrict(selectable, words(intent["allowed_tools"]), "the intent", found)
    for key in intent:
        if key not in _INTENT:
            close = nearest(key, _INTENT, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            found.warnings.append(f"the intent has the unknown key {key!r}{meant}")
    return found


def with_earlier_tools(visible: VisibleCatalog, intent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the intent; that of a follow-up also requires the tools that the interaction before it required."""
    if not intent["is_follow_up"]:
        return intent
    before = words(visible.session.state_of(SelectionState).intent.get("required_tools"))
    return {**intent, "required_tools": [*dict.fromkeys((*before, *intent["required_tools"]))]}


def words(given: Any) -> tuple[str, ...]:
    """Return the words that `given` holds: a list of them, or one."""
    if isinstance(given, str):
        return (given,) if given.strip() else ()
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        return ()
    return tuple(word for word in cast("Iterable[Any]", given) if isinstance(word, str) and word.strip())


def _schema(selectable: SelectableTools, listed: tuple[str, ...], found: Wanted) -> None:
    """The agent's own list of tools: its entries are wanted, and a list that is not empty excludes all others."""
    if not listed:
        return
    names = _restrict(selectable, listed, "the schema", found)
    found.names |= dict.fromkeys(names, "the schema")


def _restrict(selectable: SelectableTools, listed: tuple[str, ...], who: str, found: Wanted) -> tuple[str, ...]:
    names: list[str] = []
    for word in listed:
        meant = selectable.by_name(word) or selectable.tagged(word) or selectable.in_category(word)
        if not meant:
            found.warnings.append(_unknown(selectable, word, who))
        names += meant
    if names or not listed:
        found.restrict(names)
    return tuple(names)


def require(
    selectable: SelectableTools, listed: Iterable[str], who: str, found: Wanted, *, by_name: bool = False
) -> None:
    """Take every word as a tag and a category, else as a name or a group; `by_name` looks for the name first.

    A tag does not hide the category of the same name: any tool of a user may have it.

    Words that mean nothing become warnings: a wrong name must not make the selection empty.
    """
    for word in listed:
        named = selectable.by_name(word) if by_name else ()
        is_tag = not named and bool(selectable.tagged(word))
        names = named or selectable.in_category(word) or (() if is_tag else selectable.by_name(word))
        if is_tag:
            found.tags.setdefault(fold(word), who)
        if names:
            found.names = dict.fromkeys(names, who) | found.names
        if is_tag or names:
            continue
        if not (groups := all_groups(selectable)).expand((word,)).unknown:
            expand_groups(selectable, (word,), found, groups)
        else:
            found.warnings.append(_unknown(selectable, word, who))


def expand_groups(
    selectable: SelectableTools, chosen: tuple[str, ...], found: Wanted, groups: SkillGroups | None = None
) -> None:
    """Add the skills, tools and capabilities of groups, by their names; `groups` are all there are.

    The name of a group is a capability, too.
    """
    groups = groups or all_groups(selectable)
    expansion = groups.expand(chosen)
    tagged = [name for name in chosen if selectable.tagged(name)]
    found.tags = dict.fromkeys(map(fold, tagged), "a skill group") | found.tags
    for name in expansion.unknown:
        if name in tagged:
            continue
        known = nearest(name, [group.name for group in groups.groups if group.name != ALWAYS])
        meant = f"; did you mean {', '.join(known)}?" if known else ""
        found.warnings.append(f"the intent chose the skill group {name!r}, which does not exist{meant}")
    always = groups.expand(())
    for skill in (*expansion.skills, *expansion.tools):
        who = ALWAYS if skill in (*always.skills, *always.tools) else "a skill group"
        found.names = dict.fromkeys(selectable.by_name(skill), who) | found.names
    for tag in expansion.capabilities:
        if selectable.tagged(tag):
            found.tags.setdefault(fold(tag), ALWAYS if tag in always.capabilities else "a skill group")
    for name in chosen:
        own = {fold(group.name): group for group in groups.groups}.get(fold(name))
        names = (*own.skills, *own.tools) if own else ()
        tags = (name, *own.capabilities) if own else ()
        if own and not any(map(selectable.by_name, names)) and not any(map(selectable.tagged, tags)):
            wants = ", ".join((*names, *own.capabilities)[:_NAMED]) or "nothing"
            found.warnings.append(f"the skill group {name!r} brings no tool: it wants {wants}, which no tool here is")


def all_groups(selectable: SelectableTools) -> SkillGroups:
    """Return the groups of the sources and of the profile, and those that the skills themselves are in."""
    configured = SkillGroups.of(selectable.visible.profile.options.get("skill_groups", {}))
    own: dict[str, tuple[str, ...]] = {}
    for tool in selectable.tools.values():
        if tool.capability.type == "SKILL" and tool.category:
            own[tool.category] = (*own.get(tool.category, ()), tool.name)
    of_skills = SkillGroups(groups=tuple(SkillGroup(name=name, skills=names) for name, names in own.items()))
    return selectable.visible.skill_groups().joined(configured).joined(of_skills)


def _frozen(names: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(listed) for key, listed in names.items()}


def _unknown(selectable: SelectableTools, word: str, who: str) -> str:
    tags = [tag for tool in selectable.tools.values() for tag in tool.tags]
    known = [*tags, *(tool.category for tool in selectable.tools.values()), *selectable.tools]
    close = nearest(word, known)
    meant = f"; did you mean {', '.join(close)}?" if close else ""
    return f"{who} asks for {word!r}, which no tool here offers{meant}"
