"""Check of every edit: the intended change was made, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.document_tree import without
from ..errors import ConfigError

__all__ = ["checked"]


def checked(before: str, after: str, path: tuple[str, ...], file: str, read: Callable[[str], Any]) -> str:
    """Return `after` if it says the same as `before` everywhere but at `path`; raises `ConfigError` if it does not."""
    try:
        same = without(read(before), path) == without(read(after), path)
    except ConfigError:
        same = False
    if not same:
        raise ConfigError("cannot be changed without touching the rest: edit it by hand", file=file, key=".".join(path))
    return after
