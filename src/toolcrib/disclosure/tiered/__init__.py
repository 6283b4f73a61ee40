"""Seed 000: a dozen core tools, and categories that the model loads whole when it needs one.

Loading adds definitions to the list of tools and nothing else: every tool in scope runs, loaded or not. A category
holds its tools without the core; every one that `browse` names can be loaded. A tool without a category is in one named
after its source, so that it does not slip into the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from .. import growing_list, meta_tools
from ..base import (
    Strategy,
    Verb,
    VerbContext,
    View,
    VisibleCatalog,
    answer,
    cannot_run,
    object_schema,
    with_absent_sources,
)

__all__ = ["STRATEGY", "categories", "tiered"]

_MAX_TOOLS_NAMED: Final = 3
"""Tools that the description of a category names when the profile has none for it."""
_MAX_SKILLS: Final = 10
"""Skills that a call of a rule tool is redirected to."""
_PLAYBOOK_CATEGORY: Final = "playbooks"
"""Category of the tools that took the place of rules, where a package brings them."""
_TEXT_SCHEMA: Final = {"type": "string"}


def tiered(visible: VisibleCatalog) -> View:
    """Return the core, then the loaded tools of this interaction."""
    return growing_list.growing_view(
        visible,
        {tool.name: tool for tool in meta_tools.definitions(visible.profile, {**meta_tools.VERBS, **_VERBS})},
        meta_tools.instructions(visible.profile),
    )


def _whole_view(visible: VisibleCatalog) -> View:
    """Return every tool in scope: loading is not needed."""
    return growing_list.whole_view(
        visible, {tool.name: tool for tool in meta_tools.definitions(visible.profile, meta_tools.VERBS)}
    )


def categories(visible: VisibleCatalog) -> dict[str, dict[str, Tool]]:
    """Return the tools of every category that has some: what the profile names in its order, then the others.

    They are those of the catalog, by shown name, with those that cannot run here. A core tool is in none, even then.
    """
    core = {*visible.profile.core, *growing_list.core_names(visible)}
    found: dict[str, dict[str, Tool]] = {name: {} for name in visible.profile.naming.categories}
    for tool in visible.tools():
        names = [name for name in visible.aliases.names(tool) if name not in core]
        if names and visible.is_mentioned(tool):
            found.setdefault(visible.category(tool) or tool.source, {}).update(dict.fromkeys(names, tool))
    places = {name: place for place, name in enumerate(visible.profile.naming.names)}
    return {
        category: {name: tools[name] for name in sorted(tools, key=lambda name: places.get(name, len(places)))}
        for category, tools in found.items()
        if tools
    }


async def _browse(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    listed = [
        {"name": name, "description": _description(visible, name, tools), "tool_count": len(tools)}
        for name, tools in _loadable(visible, categories(visible)).items()
    ]
    return answer(with_absent_sources(visible, {"categories": listed}))


def _loadable(visible: VisibleCatalog, found: Mapping[str, Mapping[str, Tool]]) -> dict[str, dict[str, Tool]]:
    """Return of each category the tools that `load` adds; those without one are left out."""
    able = {
        category: {name: tool for name, tool in tools.items() if visible.is_offered(tool)}
        for category, tools in found.items()
    }
    return {category: tools for category, tools in able.items() if tools}


def _description(visible: VisibleCatalog, category: str, tools: Mapping[str, Tool]) -> str:
    """Return the profile's description, else a list of the contents: a source's own description is not reviewed."""
    if category in visible.profile.naming.categories:
        return visible.profile.naming.categories[category]
    named = ", ".join([*tools][:_MAX_TOOLS_NAMED])
    more = len(tools) - _MAX_TOOLS_NAMED
    return f"{named} and {more} more" if more > 0 else named


async def _load(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    if visible.session.scope.exact is not None:
        shown = visible.profile.verbs["load"]
        raise ToolFailure("disabled", f"{shown} is switched off: this interaction has an exact set of tools")
    category, name = arguments.get("category", ""), arguments.get("tool_name", "")
    if category and name:
        raise ToolFailure("invalid_arguments", "Give a category or a tool_name, not both.")
    if name:
        return _load_one(visible, name)
    found = categories(visible)
    if category not in found:
        known = ", ".join(_loadable(visible, found))
        if category in visible.profile.naming.categories and "workspace" not in visible.session.scope.provided:
            message = f"{category} has no tools here: this session has no workspace. Available: {known}"
            raise ToolFailure("unavailable", message, hint="the operator can set one: `workspace: FOLDER`")
        raise ToolFailure("not_found", f"Unknown category: {category[:200]}. Available: {known}")
    growing_list.load(visible, found[category])
    names = [*_loadable(visible, found).get(category, ())]
    needs = {name: tool.availability.missing for name, tool in found[category].items() if tool.availability.missing}
    message = f"{len(names)} {category} tools are now available."
    return answer({"loaded": category, "tools_added": names, "message": message} | ({"needs": needs} if needs else {}))


def _load_one(visible: VisibleCatalog, name: str) -> ToolResult:
    tool = visible.find(name)
    if tool is not None and tool.availability.missing:
        raise cannot_run(visible.aliases.name_used(name, tool), tool)
    if tool is None or not visible.is_offered(tool):
        close = visible.catalog.nearest(name, allowed=visible.admitted)
        meant = f" Did you mean {', '.join(close)}?" if close else ""
        called = name[:200] if name.isprintable() else ascii(name[:200])
        raise ToolFailure("not_found", f"Unknown tool: {called}.{meant}")
    shown = visible.aliases.name_used(name, tool)
    if shown in growing_list.core_names(visible):
        raise ToolFailure("invalid_arguments", f"{shown} is a core tool: it is already loaded.")
    growing_list.load(visible, {shown: tool})
    message = f"{shown} is now available."
    return answer({"loaded": shown, "tools_added": [shown], "message": message, "single_tool": True})


def _deprecated_rule(does: str, nothing: str, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> Verb:
    """Return one of the four meta-tools of the former rules: it points to the replacement, and changes nothing."""

    async def run(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
        message = f"Rules are deprecated: {nothing}. What they held lives in playbooks and skills now."
        query = " ".join(str(value) for value in arguments.values())
        found = {"playbooks": _playbook_tools(visible), "skills": _skills(visible, query)}
        return answer({"deprecated": True, "message": message, **found})

    return Verb(
        description=f"{does} (deprecated: names what took the place of rules).",
        input_schema=object_schema(list(required), **dict.fromkeys((*required, *optional), _TEXT_SCHEMA)),
        run=run,
    )


def _playbook_tools(visible: VisibleCatalog) -> list[dict[str, str]]:
    """Return the tools for playbooks, by name; none where no package brought any."""
    tools = [
        tool
        for tool in visible.tools()
        if tool.category == _PLAYBOOK_CATEGORY and not visible.session.is_disabled(tool.name)
    ]
    names = sorted((visible.aliases.name(tool), tool.summary) for tool in tools)
    return [{"name": name, "description": summary} for name, summary in names]


def _skills(visible: VisibleCatalog, query: str) -> list[dict[str, str]]:
    """Return the skills that fit `query`, best first; some of all for an empty query or one without a match."""
    skills = {tool.name: tool for tool in visible.tools() if tool.capability.type == "SKILL"}
    offered = {name: tool for name, tool in skills.items() if not visible.session.is_disabled(name)}
    hits = visible.catalog.search(query, _MAX_SKILLS, allowed=offered.__contains__) if query and offered else []
    found = [offered[hit.name] for hit in hits] or list(offered.values())[:_MAX_SKILLS]
    return [{"name": visible.aliases.name(tool), "description": tool.summary} for tool in found]


_VERBS: Final[Mapping[str, Verb]] = {
    "browse": Verb(
        description="List the categories of tools that can be loaded: name, description, number of tools.",
        input_schema=object_schema([]),
        run=_browse,
    ),
    "load": Verb(
        description="Load the tools of a category that {browse} names, or one tool by its name; then call them.",
        input_schema=object_schema(
            [],
            category={"type": "string", "description": "A category, from {browse}."},
            tool_name={"type": "string", "description": "One tool, instead of a category."},
        ),
        run=_load,
        loads=True,
    ),
    "browse_rules": _deprecated_rule("List rules", "there are none to list"),
    "load_rule": _deprecated_rule("Load the detail of a rule", "there is none to load", ("id",)),
    "save_rule": _deprecated_rule(
        "Create or update a rule", "nothing was saved", (), ("id", "project_id", "type", "content")
    ),
    "delete_rule": _deprecated_rule("Remove a rule", "nothing was removed", ("id",)),
}

STRATEGY = Strategy(view=tiered, whole=_whole_view, verbs=_VERBS, options=growing_list.OPTIONS)
