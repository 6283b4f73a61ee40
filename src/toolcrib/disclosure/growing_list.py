"""A list that grows: core tools and meta-tools first, in a fixed order, then loaded tools, in the order of loading.

It grows at its end alone: definitions stand first in a request, and the caches of model APIs hold while two requests
are alike. Shared by strategies whose meta-tools add tools to the list. Where the list is fixed (MCP 2026-07-28) they
show the meta-tools that reach everything else instead; the profile names those under `fixed_list`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ..core.tool import Tool
from .base import View, VisibleCatalog

OPTIONS: Final[Mapping[str, type | tuple[type, ...]]] = {"fixed_list": list}
"""`fixed_list`: verbs (meta-tools) that are listed only where the list is fixed; `read` also after a long result."""

_FIXED_LIST_NOTE: Final = "The list of tools stands still here: run what is not in it with {call}."
"""Instructions added to the profile's where the list is fixed."""


def core_names(visible: VisibleCatalog) -> dict[str, Tool]:
    """Return the profile's core in its order, then tools marked as core: tools of the catalog by shown name.

    Disabled tools are left out, and so are tools whose name a meta-tool has.
    """
    taken = frozenset(visible.profile.verbs.values())
    named = ((name, visible.find(name)) for name in visible.profile.core if name not in taken)
    found = {visible.aliases.name_used(name, tool): tool for name, tool in named if tool is not None}
    known = {tool.name for tool in found.values()}
    found |= {visible.aliases.name(tool): tool for tool in visible.tools() if tool.core and tool.name not in known}
    return {name: tool for name, tool in found.items() if visible.is_offered(tool)}


def core_tools(visible: VisibleCatalog) -> tuple[Tool, ...]:
    """Return the core under catalog names."""
    return tuple({tool.name: tool for tool in core_names(visible).values()}.values())


def _loaded_names(visible: VisibleCatalog) -> dict[str, Tool]:
    """Return the loaded tools that still exist, in the order of loading: tools of the catalog by shown name.

    Core tools are not among them, unless under another of their names.
    """
    core = core_names(visible)
    found = {shown: tool for name in visible.session.history.loaded for shown, tool in _entries_named(visible, name)}
    return {
        shown: tool
        for shown, tool in found.items()
        if shown not in core and visible.session.admits(tool) and visible.is_offered(tool)
    }


def loaded_tools(visible: VisibleCatalog) -> tuple[Tool, ...]:
    """Return those of `_loaded_names` that are not core, under catalog names."""
    core = {tool.name for tool in core_tools(visible)}
    return tuple({tool.name: tool for tool in _loaded_names(visible).values() if tool.name not in core}.values())


def _entries_named(visible: VisibleCatalog, name: str) -> list[tuple[str, Tool]]:
    """Return the entries of a session's list for `name`: a tool under its first name, or under another one."""
    tools, rename = visible.catalog.tools, visible.aliases.rename_of(name)
    if name in tools and (rename is None or rename.tool == name):
        return [(visible.aliases.name(tools[name]), tools[name])]
    return [(name, tools[rename.tool])] if rename is not None else []


def load(visible: VisibleCatalog, tools: Mapping[str, Tool]) -> list[str]:
    """Add `tools`, by shown name, to the list of this session; return the names of the new ones.

    Core tools are listed already, and disabled ones are not added.

    Keeps the order of loading; a tool that is loaded again stays in its place.
    """
    known = {*core_names(visible), *_loaded_names(visible)}
    added = {name: tool for name, tool in tools.items() if name not in known and visible.is_offered(tool)}
    for name, tool in added.items():
        other = visible.aliases.rename_of(tool.name)  # in this profile the catalog's name may mean another tool
        is_first = name == visible.aliases.name(tool) and (other is None or other.tool == tool.name)
        visible.session.history.loaded[tool.name if is_first else name] = None
    return list(added)


def growing_view(visible: VisibleCatalog, declared: Mapping[str, Tool], instructions: str) -> View:
    """Return the view of a growing list; `declared` are the profile's meta-tools by shown name.

    `callable` has the tools behind all names that are listed: other tools are not loaded, for the profile's `on_miss`.
    """
    core, loaded = core_names(visible), _loaded_names(visible)
    shown = [
        *_initial_tools(visible, declared, core),
        *(_appended_tools(visible, declared, loaded) if visible.session.audience.grows else ()),
    ]
    behind = (visible.aliases.tools_meant(name, tool) for name, tool in (*core.items(), *loaded.items()))
    return View(
        tools=tuple(shown),
        instructions=_with_fixed_note(visible, instructions),
        callable=frozenset(name for names in behind for name in names),
    )


def whole_view(visible: VisibleCatalog, declared: Mapping[str, Tool], instructions: str = "") -> View:
    """Return the view of a profile that is not progressive: all tools, then the meta-tools that are still useful."""
    idle = _fixed_list_names(visible) - {visible.profile.verbs.get("read", "")}
    tools = [face for tool in visible.tools() if visible.is_offered(tool) for face in visible.presentations(tool)]
    left = [tool for name, tool in declared.items() if name not in idle]
    return View(tools=(*tools, *left), instructions=instructions)


def _initial_tools(visible: VisibleCatalog, declared: Mapping[str, Tool], core: Mapping[str, Tool]) -> Iterator[Tool]:
    """Yield the initial list: the profile's core, meta-tools in their places, then the others."""
    left = {name: visible.declared(visible.aliases.present(tool, name)) for name, tool in core.items()}
    waiting = _fixed_list_names(visible) if visible.session.audience.grows else frozenset[str]()
    verbs_left = {name: tool for name, tool in declared.items() if name not in waiting}
    for name in visible.profile.core:
        found = None if name in declared else visible.find(name)
        tool = left.pop(visible.aliases.name_used(name, found), None) if found else verbs_left.pop(name, None)
        if tool is not None:
            yield tool
    yield from left.values()
    yield from verbs_left.values()


def _appended_tools(
    visible: VisibleCatalog, declared: Mapping[str, Tool], loaded: Mapping[str, Tool]
) -> Iterator[Tool]:
    """Yield the loaded tools, in the order of loading, and the meta-tool that reads long results once one exists."""
    reading = {visible.profile.verbs.get("read", "")} & _fixed_list_names(visible)
    for name in visible.session.history.loaded:
        if name in reading:
            yield declared[name]
        yield from (
            visible.aliases.present(tool, shown) for shown, tool in _entries_named(visible, name) if shown in loaded
        )


def _fixed_list_names(visible: VisibleCatalog) -> frozenset[str]:
    profile = visible.profile
    return frozenset(profile.verbs[verb] for verb in profile.options.get("fixed_list", ()) if verb in profile.verbs)


def _with_fixed_note(visible: VisibleCatalog, instructions: str) -> str:
    if visible.session.audience.grows or "call" not in visible.profile.verbs:
        return instructions
    return f"{instructions}\n{_FIXED_LIST_NOTE.format(**visible.profile.verbs)}".strip()
