"""Entry points of installed packages: found without running their code. Loads the standard library only."""

from __future__ import annotations

import ast
import sys
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Final, cast

AGENT_TOOLS: Final = "toolcrib.agent_tools"
"""Group of tools that run agents: `crib.agents.AgentToolset`."""
COMMANDS: Final = "toolcrib.commands"
"""Group of commands: `toolcrib NAME`."""
PROGRAM_SESSIONS: Final = "toolcrib.program_sessions"
"""Group of the package that serves tools to programs in the sandbox: `crib.lifecycle.ProgramSessions`."""
RESOURCES: Final = "toolcrib.resources"
"""Group of REST resources: `/v1/NAME/…`."""
SERVICES: Final = "toolcrib.services"
"""Group of services that run beside the tools, supervised."""
SKILLS: Final = "toolcrib.skills"
"""Group of skills: a package, in whose folder they are."""
VIEWS: Final = "toolcrib.views"
"""Group of views of the console: `/console/views/NAME`."""


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of installed packages in `group`, by name.

    Some hundred small files are read for it: once in a process, and again when a package has come or gone.

    The key of the cache is `sys.path` with the modification time of each folder: an installation changes one of them.
    """
    return _in_group(group, tuple((place, _changed(place)) for place in sys.path))


@lru_cache(maxsize=32)
def _in_group(group: str, places: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(sorted(_every(places).select(group=group), key=lambda point: (point.name, point.value)))


@lru_cache(maxsize=2)
def _every(_: tuple[tuple[str, int], ...]) -> EntryPoints:
    return cast("EntryPoints", entry_points())  # before Python 3.12 another class, with the same `select`


def _changed(place: str) -> int:
    """Modification time of a folder of `sys.path`, in nanoseconds; 0 if missing."""
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


def origin_of(point: EntryPoint) -> str:
    """Return distribution, version and entry point: `weather-tools 1.2 (weather)`."""
    package = _package(point.dist) if point.dist is not None else "unknown package"
    return f"{package} ({point.name})"


@lru_cache(maxsize=256)
def _package(distribution: Distribution) -> str:
    """Return name and version, of one reading of the metadata: it takes a millisecond for a long description."""
    metadata = distribution.metadata
    return f"{metadata['Name']} {metadata['Version']}"


def summary_of(point: EntryPoint) -> str:
    """Return the first sentence of the docstring of a target, read from its file; else who brings it."""
    try:
        text = _docstring(point)
    except (OSError, SyntaxError, UnicodeDecodeError):
        text = ""
    first = " ".join(text.split("\n\n")[0].split())
    return first or f"Brought by {origin_of(point)}."


def folder_of(point: EntryPoint) -> Path | None:
    """Return the folder of the package that is the target; None where it is missing, or a module in one file."""
    spec = _spec_of(point)
    return next(map(Path, (spec.submodule_search_locations or ()) if spec is not None else ()), None)


def _spec_of(point: EntryPoint) -> ModuleSpec | None:
    """Return the spec of the target's module; no code of its packages runs."""
    path: list[str] | None = None
    spec, names = None, point.module.split(".")
    for count in range(len(names)):
        spec = PathFinder.find_spec(".".join(names[: count + 1]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


def _docstring(point: EntryPoint) -> str:
    """Return the docstring of a function or class; for any other target that of its module."""
    spec = _spec_of(point)
    if spec is None or not spec.origin:
        return ""
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    for node in tree.body:
        is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if is_definition and node.name == point.attr:
            return ast.get_docstring(node) or ""
    return ast.get_docstring(tree) or ""
