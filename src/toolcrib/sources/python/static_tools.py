"""Tools of static packages: listed from what the last start has kept, without an import of the modules that run them.

To import the modules of the built-in tools and to read their signatures takes as long as all else at the opening of a
crib. A package whose code alone decides on its tools, independent of the environment, the machine and other files,
declares that in its `__init__`: `TOOLS_ARE_STATIC = True`. The definitions of its tools are kept beside its bytecode
(below `PYTHONPYCACHEPREFIX` if that is set), under the rules of bytecode: they are written where bytecode is, are
trusted as bytecode is, and are valid while each file of the code that was loaded then is unchanged. A function is
imported at its first use, and must be defined then as it was listed.
"""

from __future__ import annotations

import os
import pickle
import pkgutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from ...errors import UsageError
from ...system.private_files import replace_private
from .declaration import Declaration, Found, KeptFunction, find
from .function_tool import read_definition

_MARK: Final = "TOOLS_ARE_STATIC"
_BEGUN: Final = time.time_ns()
"""Before this, and hardly earlier, the modules were loaded that were there when a package was."""

Part = tuple[str, object]
"""A module of a package, or empty for the package itself, and what `Toolcrib.add` takes: the tools in it."""
Place = tuple[str, str, int, int]
"""A loaded module, its file, and the file's modification time and size."""

_accepted: dict[Path, Sequence[Part]] = {}
"""By folder, the listings that this process uses: its code stays the same when the files change."""


class Loading(Struct, frozen=True):
    """The loading of a package that has begun now: `Loading.now()` before its code is imported, `parts` after that."""

    began: int
    modules: frozenset[str]

    @classmethod
    def now(cls) -> Loading:
        """Return the state of the process before the package is imported."""
        return cls(time.time_ns(), frozenset(sys.modules))

    def parts(self, package: ModuleType, parts: Sequence[Part]) -> Sequence[Part]:
        """Keep the tools of a package that is static for the next start; return all tools."""
        keeps_bytecode = sys.implementation.cache_tag and not sys.dont_write_bytecode
        if not (keeps_bytecode and getattr(package, _MARK, False)):
            return parts
        folder = Path(package.__path__[0])
        file = _file_of(folder)
        if not os.access(file.parent, os.W_OK):
            return parts
        try:
            places = self._places()
            if places is None:
                return parts
            kept = [(name, [_kept(found) for found in find(thing)]) for name, thing in parts]
            content = pickle.dumps((places, _modules_in(folder))) + pickle.dumps(kept)
        except (UsageError, OSError, pickle.PicklingError, AttributeError, TypeError):
            return parts  # a problem, once they are offered; a function that has no name; a file that is gone
        with suppress(OSError):
            replace_private(file, content)
            file.chmod(0o644)  # as readable as the bytecode
        _accepted[folder] = kept
        return kept

    def _places(self) -> list[Place] | None:
        """Return the files of all code that is loaded; None where one may have been written after it was read."""
        places: list[Place] = []
        for name, module in sys.modules.copy().items():
            spec = getattr(module, "__spec__", None)
            if spec is None or not spec.has_location or name == "__main__":
                continue
            state = os.stat(spec.origin)
            if max(state.st_mtime_ns, state.st_ctime_ns) >= (_BEGUN if name in self.modules else self.began):
                return None
            places.append((name, spec.origin, state.st_mtime_ns, state.st_size))
        return places


def kept_tools(folder: Path, unchanged: set[Place]) -> Sequence[Part] | None:
    """Return the tools that an earlier start has kept of the package in `folder`; None where they may be others now.

    `unchanged` is empty at first, and gets the files that need not be looked at again for the next package.
    """
    if folder not in _accepted:
        try:
            with _file_of(folder).open("rb") as stream:
                places, modules = pickle.load(stream)
                if not (_are_unchanged(places, unchanged) and modules == _modules_in(folder)):
                    return None
                _accepted[folder] = pickle.load(stream)
        except Exception:  # noqa: BLE001 - it is missing or broken: pickle raises anything
            return None
    return _accepted[folder]


def _are_unchanged(places: Iterable[Place], unchanged: set[Place]) -> bool:
    for place in set(places) - unchanged:
        name, path, time_ns, size = place
        module = sys.modules.get(name)
        if module is not None and getattr(module.__spec__, "origin", None) != path:
            return False  # another environment has the same package
        state = os.stat(path)
        if (state.st_mtime_ns, state.st_size) != (time_ns, size):
            return False
        unchanged.add(place)
    return True


def _file_of(folder: Path) -> Path:
    return Path(cache_from_source(str(folder / "__init__.py"))).with_suffix(".tools")


def _modules_in(folder: Path) -> list[str]:
    """A module that is new brings tools."""
    return [info.name for info in pkgutil.iter_modules([str(folder)])]


_KEPT_OPTIONS: Final = ("category", "needs", "version", "lacks")
"""Options that are read from a function before it is called, besides its definition."""


def _kept(found: Found) -> KeptFunction:
    """Return the kept part of a function. Raises `UsageError` for one that is not a tool, or not in its module."""
    if isinstance(found, KeptFunction):
        return found
    module = found.function.__module__
    names = vars(sys.modules[module]).items() if module in sys.modules else ()
    attribute = next((name for name, value in names if value is found.function), None)
    if attribute is None:
        raise UsageError(f"{found.origin} is not in its module")
    options: Any = {key: value for key, value in found.declaration.options.items() if key in _KEPT_OPTIONS}
    return KeptFunction(
        name=found.name,
        declaration=Declaration(options=options),
        origin=found.origin,
        tool=read_definition(found),
        module=module,
        attribute=attribute,
    )
