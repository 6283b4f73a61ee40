"""What a plugin is: tools that come and go together, with a configuration, a beginning and an end.

    class Weather(Plugin):
        name = "weather"

        def requirements(self, config):
            return [] if "key" in config else ["config.key: the API key"]

        async def initialize(self, config, services):
            self.client = Client(config["key"], cache=services.data)

        @tool(kind="read")
        async def forecast(self, city: str) -> str: ...

        async def shutdown(self):
            await self.client.aclose()

Functions that need none of this are no plugin: `Toolcrib.add`, or an entry point under `toolcrib.tools`.

Discovery of plugins: installed packages name them, and folders contain them. Discovery runs no plugin code.

    [project.entry-points."toolcrib.plugins"]     a class, an instance, or a module with one of them
    weather = "weather_plugin:Weather"

    FOLDER/weather.py, FOLDER/weather/__init__.py
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final

from ...catalog.catalog import Catalog
from ...core.events import Problem
from ...errors import UsageError

__all__ = ["GROUP", "FoundPlugin", "Plugin", "Services", "discover", "given", "installed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Services for a plugin, from `initialize` to `shutdown`."""

    data: Path
    """A folder of its own, kept over restarts (0700); it is there already."""
    catalog: Callable[[], Catalog]
    """The current catalog."""
    log: logging.Logger
    changed: Callable[[], None]
    """Notifies the crib that `tools` changed."""


class Plugin:
    """Base class of plugins; every member but `name` is optional."""

    name: ClassVar[str] = ""
    """Its name in configurations, before its tools (`weather__forecast`): that of the entry point or the file."""
    instructions: str = ""
    """Advice for the model that is shown where its tools are."""

    def requirements(self, config: Mapping[str, Any]) -> Iterable[str]:
        """Return the missing requirements, in words for the person who installed it; with any, it is not exposed."""
        return ()

    def initialize(self, config: Mapping[str, Any], services: Services) -> Awaitable[None] | None:
        """Initialize; may be `async`. An exception is reported, and the plugin is not exposed."""
        return None

    def tools(self) -> Iterable[object]:
        """Return functions, or objects with `@tool` methods. By default: its own such methods."""
        return (self,)

    def shutdown(self) -> Awaitable[None] | None:
        """End; may be `async`. Comes once for every `initialize`, also after one that failed."""
        return None


GROUP: Final = "toolcrib.plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlugin:
    """One plugin, not loaded yet."""

    name: str
    origin: str
    """Distribution and version, or the file."""
    load: Callable[[], Plugin]
    """Runs its code and returns the plugin; raises the code's exceptions. Blocks: call it in a thread."""


def given(plugin: Plugin) -> FoundPlugin:
    """Return the entry of an existing plugin object. Raises `UsageError` when it has no name."""
    if not plugin.name:
        raise UsageError(f"{type(plugin).__name__} has no name: set `name` in the class")
    kind = type(plugin)
    return FoundPlugin(name=plugin.name, origin=f"{kind.__module__}.{kind.__qualname__}", load=lambda: plugin)


def discover(folders: Iterable[Path]) -> tuple[list[FoundPlugin], list[Problem]]:
    """Return every plugin by entry point, then those of `folders`; of one name the first counts, that is reported."""
    found: dict[str, FoundPlugin] = {}
    problems: list[Problem] = []
    for plugin in (*_installed(), *_in_folders(folders, problems)):
        if (earlier := found.setdefault(plugin.name, plugin)) is not plugin:
            message = f"{plugin.origin}: not used, {earlier.origin} also has a plugin of this name and counts"
            problems.append(Problem(source=plugin.name, code="duplicate", message=message))
    return list(found.values()), problems


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return what installed packages name under `group`, by name.

    Some hundred small files are read for it: once in a process, and again when a package has come or gone.
    """
    return _named(group, tuple((place, _changed(place)) for place in sys.path))


@lru_cache(maxsize=8)
def _named(group: str, places: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=group), key=lambda point: (point.name, point.value)))


def _changed(place: str) -> int:
    """Modification time of a folder of `sys.path`, in nanoseconds; 0 if missing."""
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


def _installed() -> Iterator[FoundPlugin]:
    for point in installed(GROUP):
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "unknown package"
        yield FoundPlugin(name=point.name, origin=f"{package} ({point.value})", load=_loader(point))


def _loader(point: EntryPoint) -> Callable[[], Plugin]:
    return lambda: _plugin_of(point.load(), point.value)


def _in_folders(folders: Iterable[Path], problems: list[Problem]) -> Iterator[FoundPlugin]:
    for folder in folders:
        try:
            entries = sorted(folder.iterdir()) if folder.exists() else []
        except OSError as error:
            problems.append(Problem(source="plugins", code="unavailable", message=f"{folder}: {error}"))
            continue
        for entry in entries:
            file = entry / "__init__.py" if entry.is_dir() else entry
            if file.suffix == ".py" and file.is_file() and not entry.name.startswith(("_", ".")):
                yield FoundPlugin(name=entry.stem, origin=str(entry), load=_file_loader(entry.stem, file))


def _file_loader(name: str, file: Path) -> Callable[[], Plugin]:
    return lambda: _plugin_of(_module(name, file), str(file))


def _module(name: str, file: Path) -> ModuleType:
    """Run the file as a module of its own name, anew each time: a plugin that is exposed again may have changed."""
    known_as = f"toolcrib_plugin_{name}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    places = [str(file.parent)] if file.name == "__init__.py" else None
    spec = spec_from_file_location(known_as, file, submodule_search_locations=places)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} cannot be loaded as Python")
    for loaded in [loaded for loaded in sys.modules if loaded == known_as or loaded.startswith(f"{known_as}.")]:
        del sys.modules[loaded]
    module = sys.modules[known_as] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known_as]
        raise
    return module


def _plugin_of(thing: Any, where: str) -> Plugin:
    """Return the plugin that `thing` is, makes, or holds. Raises `UsageError`."""
    if isinstance(thing, Plugin):
        return thing
    if inspect.isclass(thing) and issubclass(thing, Plugin):
        return thing()
    if isinstance(thing, ModuleType):
        held = [value for value in vars(thing).values() if isinstance(value, Plugin)]
        classes = [
            value
            for value in vars(thing).values()
            if inspect.isclass(value) and issubclass(value, Plugin) and value.__module__ == thing.__name__
        ]
        if len(held or classes) == 1:
            return _plugin_of((held or classes)[0], where)
        raise UsageError(f"{where} holds {len(held or classes)} plugins, and one was expected: derive from Plugin once")
    raise UsageError(f"{where} is a {type(thing).__name__}, and no plugin: derive it from toolcrib.plugin.Plugin")
