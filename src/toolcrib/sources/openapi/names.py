"""Names of tools: the operation's own id, else its method and path; the same for the same description, always."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["Names", "argument_name", "from_path"]

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_ARGUMENT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_ARGUMENT: Final = 64
_MAX_NAME: Final = 120
_BY: Final = re.compile(r"\{([^{}]*)\}")


class Names:
    """The names of one API's tools. Operations with a unique id keep it, independent of the others."""

    def __init__(self, ids: Iterable[str]) -> None:
        """`ids` are the operation ids as they are written, empty ones included, in order."""
        counted: dict[str, int] = {}
        for name in map(_clean, ids):
            counted[name] = counted.get(name, 0) + 1
        self._counted = counted
        self._taken = {name for name, count in counted.items() if name and count == 1}

    def give(self, identity: str, method: str, path: str) -> tuple[str, bool]:
        """Return the name of an operation, and whether several operations have its id."""
        wanted = _clean(identity)
        if wanted and self._counted.get(wanted) == 1:
            return wanted, False
        base = from_path(method, path)
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name, bool(wanted)


def from_path(method: str, path: str) -> str:
    """Return a name for an operation without an id: `GET /users/{id}/posts` is `get_users_posts_by_id`."""
    fixed = _BY.sub("", path)
    given = [_clean(name) for name in _BY.findall(path)]
    words = [method.lower(), *filter(None, map(_clean, fixed.split("/")))]
    name = "_".join(words if len(words) > 1 else [*words, "root"])
    return f"{name}_by_{'_'.join(filter(None, given))}" if any(given) else name


def argument_name(name: str) -> str:
    """Return `name` as every model API takes it: `filter[status]` is `filter_status`."""
    return _ARGUMENT.sub("_", name).strip("_")[:_MAX_ARGUMENT] or "value"


def _clean(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("_")[:_MAX_NAME]
