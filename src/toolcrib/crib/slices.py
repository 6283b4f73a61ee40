"""Slices: features made of the parts of a crib, and absent where nothing asks for them.

A slice is a package of its own above `crib`. Programs and ways in reach it by `Toolcrib.slice`; what a configuration or
a store asks for is opened with the crib.
"""

from __future__ import annotations

from typing import TypeVar, cast

from .assembly import Parts

__all__ = ["Slice", "Slices"]


class Slice:
    """Base of a feature beside the parts of a crib: one object a crib, made at first use and closed with the crib."""

    def __init__(self, parts: Parts) -> None:
        """The crib of the `parts` need not be open yet."""
        self.parts = parts

    async def aclose(self) -> None:
        """Release what the slice holds; by default nothing."""


_Kind = TypeVar("_Kind", bound=Slice)


class Slices:
    """The slices of one crib, by their class."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._made: dict[type[Slice], Slice] = {}

    def get(self, kind: type[_Kind]) -> _Kind:
        """Return the slice of this class, made now if it is the first use."""
        made = self._made.get(kind)
        if made is None:
            made = self._made[kind] = kind(self._parts)
        return cast("_Kind", made)

    async def aclose(self) -> None:
        """Close every slice; a later use makes a new one."""
        while self._made:
            _, made = self._made.popitem()
            await made.aclose()
