"""Slices: features above the root, handed a crib and absent where nothing asks for them.

A slice is a package of its own above `crib`. Programs and ways in reach it by `Toolcrib.slice`; what a configuration or
a store asks for is opened here, the one place of the root that names slices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from ..core.events import Problem
from ..errors import ToolFailure

if TYPE_CHECKING:
    from .toolcrib import Toolcrib  # its module imports this one

__all__ = ["Slice", "Slices", "mount_workflows", "restore_registrations"]


class Slice:
    """Base of a feature above the root: one object a crib, made at first use and closed with the crib."""

    def __init__(self, crib: Toolcrib) -> None:
        """`crib` need not be open yet."""
        self.crib = crib

    async def aclose(self) -> None:
        """Release what the slice holds; by default nothing."""


_Kind = TypeVar("_Kind", bound=Slice)


class Slices:
    """The slices of one crib, by their class."""

    def __init__(self) -> None:
        self._made: dict[type[Slice], Slice] = {}

    def get(self, kind: type[_Kind], crib: Toolcrib) -> _Kind:
        """Return the slice of this class, made now if it is the first use."""
        made = self._made.get(kind)
        if made is None:
            made = self._made[kind] = kind(crib)
        return cast("_Kind", made)

    async def aclose(self) -> None:
        """Close every slice; a later use makes a new one."""
        while self._made:
            _, made = self._made.popitem()
            await made.aclose()


async def mount_workflows(crib: Toolcrib) -> None:
    """Mount the workflows of the configuration. Raises `UsageError` where what they need is not installed."""
    if not (given := crib.settings.sources.workflows):
        return
    from ..workflows import Workflows  # a slice: loaded where the configuration has workflows

    await crib.slice(Workflows).add_all(given)


async def restore_registrations(crib: Toolcrib) -> None:
    """Offer again the registered tools that the store keeps."""
    try:
        rows = await crib.store.registrations.all()
    except ToolFailure as failure:
        crib.tools.report(Problem(source="registrations", code=failure.code, message=failure.message))
        return
    if not rows:
        return
    from ..registration import Registrations  # a slice: loaded where the store has registrations

    await crib.slice(Registrations).restore(rows)
