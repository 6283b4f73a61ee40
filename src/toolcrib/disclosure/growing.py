"""A list that grows: core tools and verbs first, in a fixed order, then what a verb loaded, in the order of loading.

What strategies share whose verbs add tools to the list. Where the list must stand still (MCP 2026-07-28) they show
the verbs that reach everything else instead; the profile names those under `standing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..core.tool import Tool
from .base import Scene, View

__all__ = ["OPTIONS", "STANDS_STILL", "core_tools", "grown", "load", "loaded_tools", "whole"]

OPTIONS: Final[Mapping[str, type | tuple[type, ...]]] = {"standing": list}
"""`standing`: verbs that are declared only where the list stands still; `read` also once there is a long result."""

STANDS_STILL: Final = "The list of tools stands still here: run what is not in it with {call}."
"""What the model is told besides the profile's instructions where nothing can be added to its list."""


def core_tools(scene: Scene) -> tuple[Tool, ...]:
    """Return the profile's core in its order, under catalog names, then what marks itself core.

    What is switched off is left out, and so is a tool whose name a verb has.
    """
    taken = frozenset(scene.profile.verbs.values())
    named = (scene.find(name) for name in scene.profile.core if name not in taken)
    marked = (tool for tool in scene.tools() if tool.core)
    found = {tool.name: tool for tool in (*named, *marked) if tool is not None}
    return tuple(tool for tool in found.values() if scene.is_offered(tool))


def loaded_tools(scene: Scene) -> tuple[Tool, ...]:
    """Return what was loaded and is still there, under catalog names, in the order of loading; no core tool."""
    tools, known = scene.catalog.tools, {tool.name for tool in core_tools(scene)}
    loaded = (tools[name] for name in scene.session.loaded if name in tools and name not in known)
    return tuple(tool for tool in loaded if scene.session.admits(tool) and scene.is_offered(tool))


def load(scene: Scene, tools: Iterable[Tool]) -> list[str]:
    """Add `tools` to the list of this session; return those that were not in it, as the model knows them.

    Core tools are there already, and what is switched off is not added.
    """
    core = {tool.name for tool in core_tools(scene)}
    new = [tool for tool in tools if tool.name not in core and tool.name not in scene.session.loaded]
    added = [tool for tool in new if scene.is_offered(tool)]
    scene.session.loaded.update((tool.name, None) for tool in added)
    return [scene.labels.name(tool) for tool in added]


def grown(scene: Scene, declared: Mapping[str, Tool], instructions: str) -> View:
    """Return the view of a growing list; `declared` are the profile's verbs by shown name."""
    core = core_tools(scene)
    loaded = loaded_tools(scene)
    shown = [*_at_first(scene, declared, core), *(_later(scene, declared, loaded) if scene.session.grows else ())]
    return View(
        tools=tuple(shown),
        instructions=_told(scene, instructions),
        callable=frozenset(tool.name for tool in (*core, *loaded)),
    )


def whole(scene: Scene, declared: Mapping[str, Tool], instructions: str = "") -> View:
    """Return the view of a profile that is not progressive: everything, then the verbs that still have a use."""
    idle = _standing(scene) - {scene.profile.verbs.get("read", "")}
    tools = [scene.labels.shown(tool) for tool in scene.tools() if scene.is_offered(tool)]
    left = [tool for name, tool in declared.items() if name not in idle]
    return View(tools=(*tools, *left), instructions=instructions)


def _at_first(scene: Scene, declared: Mapping[str, Tool], core: Iterable[Tool]) -> Iterator[Tool]:
    """Yield what stands in the list from the start: the profile's core, verbs in their places, then the others."""
    left = {tool.name: scene.labels.shown(tool) for tool in core}
    waiting = _standing(scene) if scene.session.grows else frozenset[str]()
    verbs_left = {name: tool for name, tool in declared.items() if name not in waiting}
    for name in scene.profile.core:
        found = None if name in declared else scene.find(name)
        tool = left.pop(found.name, None) if found else verbs_left.pop(name, None)
        if tool is not None:
            yield tool
    yield from left.values()
    yield from verbs_left.values()


def _later(scene: Scene, declared: Mapping[str, Tool], loaded: Iterable[Tool]) -> Iterator[Tool]:
    """Yield what was loaded, in the order of loading, and the verb that reads long results once there is one."""
    reading = {scene.profile.verbs.get("read", "")} & _standing(scene)
    by_name = {tool.name: scene.labels.shown(tool) for tool in loaded} | {name: declared[name] for name in reading}
    for name in scene.session.loaded:
        if name in by_name:
            yield by_name[name]


def _standing(scene: Scene) -> frozenset[str]:
    profile = scene.profile
    return frozenset(profile.verbs[verb] for verb in profile.options.get("standing", ()) if verb in profile.verbs)


def _told(scene: Scene, instructions: str) -> str:
    if scene.session.grows or "call" not in scene.profile.verbs:
        return instructions
    return f"{instructions}\n{STANDS_STILL.format(**scene.profile.verbs)}".strip()
