"""References inside one description. Nothing outside of it is ever read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

from .document import mapping

__all__ = ["Refs"]

_MAX_HOPS: Final = 32


class Refs:
    """The places that references of one description point to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._found: dict[str, Any] = {}

    def find(self, reference: str) -> Any:
        """Return what stands at `reference`. Raises `ValueError` for what is elsewhere or nowhere."""
        if reference not in self._found:
            self._found[reference] = self._look(reference)
        return self._found[reference]

    def resolve(self, node: object) -> Mapping[str, Any]:
        """Return `node`, or what its `$ref` stands for in the end. Raises `ValueError`."""
        found = mapping(node)
        for _ in range(_MAX_HOPS):
            reference = found.get("$ref")
            if not isinstance(reference, str):
                return found
            found = mapping(self.find(reference))
        raise ValueError(f"{found.get('$ref')} leads from one reference to the next without end")

    def _look(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise ValueError(f"{reference[:200]} is outside of the description, which is not followed")
        found: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = cast("Mapping[str, Any]", found)[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(cast("list[Any]", found)):
                found = cast("list[Any]", found)[int(key)]
            else:
                raise ValueError(f"{reference[:200]} points to nothing")
        return found
