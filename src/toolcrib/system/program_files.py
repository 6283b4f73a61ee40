"""Files of Toolcrib's packages and of guests beside them: as this process found them, and whether they have changed.

The version alone does not tell: an editable install changes under one version, and so does a reinstall from git.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]

_State = tuple[int, int]
"""Time of the last change in nanoseconds, and size."""


@cache
def program_digest() -> str:
    """Return a digest over the names, times and sizes of the files, as they were at the first use of this module."""
    return hashlib.sha256(repr(sorted(_files().items())).encode()).hexdigest()


def changed_since_start() -> bool:
    """Whether a file that a module was loaded from has changed since the first use of this module.

    Then `program_digest` of a process that starts now is another one. About a millisecond: it looks at loaded modules
    only.
    """
    known = _files()
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if (state := known.get(file)) is not None:
            try:
                if state != _state(os.stat(file)):
                    return True
            except OSError:
                return True
    return False


@cache
def _files() -> Mapping[str, _State]:
    found: dict[str, _State] = {}
    folders = [str(path) for path in _ROOT.glob("toolcrib*") if path.is_dir()]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if not entry.is_dir():
                    found[entry.path] = _state(entry.stat())
                elif entry.name != "__pycache__":  # written as modules are loaded
                    folders.append(entry.path)
    return found


def _state(stat: os.stat_result) -> _State:
    return stat.st_mtime_ns, stat.st_size
