"""Imports from the folders of catalogs, from source alone.

A repository may bring byte code in `__pycache__` that claims to fit the source beside it (PEP 552, unchecked): what was
read and confirmed would not be what runs.
"""

from __future__ import annotations

import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from threading import Lock
from typing import Any, Final

__all__ = ["import_from"]

_roots: Final[dict[Path, None]] = {}
_LOCK: Final = Lock()
"""Held for changes of what is global: `sys.path`, and the way from a folder to its modules."""


def import_from(root: Path) -> None:
    """Let modules be imported from `root` and the folders in it, after those of all other places."""
    with _LOCK:
        if not _roots:
            sys.path_hooks.insert(0, _finder)
        if root not in _roots:
            _roots[root] = None
            for known in [place for place in sys.path_importer_cache if _is_ours(place)]:
                del sys.path_importer_cache[known]
        if str(root) not in sys.path:
            sys.path.append(str(root))  # last: nothing that is installed is hidden by a catalog's folder


class _FromSource(SourceFileLoader):
    """Loader that neither reads nor writes byte code."""

    def get_data(self, path: str) -> bytes:
        if path.endswith(tuple(BYTECODE_SUFFIXES)):
            raise OSError(f"{path} is not used")
        return super().get_data(path)

    def set_data(self, *given: Any, **more: Any) -> None:
        pass


def _finder(path: str) -> FileFinder:
    if not _is_ours(path):
        raise ImportError(f"{path} is no folder of a catalog")
    return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES))


def _is_ours(path: str) -> bool:
    return any(Path(path).is_relative_to(root) for root in _roots)
