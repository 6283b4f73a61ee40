"""Mounted sources whose tools cannot be had now: they start or are down. Whose tool a name may be, and waiting."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import anyio

from ..catalog.names import fold
from ..core.events import SourceState
from ..errors import ToolFailure
from .source import Source

__all__ = ["MountedSource", "MountedSources", "is_starting", "still_starting", "unavailable"]

_GAP: Final = r"[\W_]*"
"""Separators between two letters of a name, which any spelling may leave out."""
_BEFORE: Final = ("", "x")
"""Words before the source in the spellings of a name: none, and the group of ops that go by their source."""


def is_starting(state: SourceState) -> bool:
    """Whether a source has neither listed nor failed; one that connects again has its tools meanwhile."""
    return state.state == "connecting" and not state.tools


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedSource:
    """A mounted source, and how its tools are named."""

    source: Source
    prefix: bool = True
    """Whether the names of its tools in the catalog begin with its own."""

    @property
    def name(self) -> str:
        """The configured name."""
        return self.source.name

    def may_list(self, name: str, before: Iterable[str] = ()) -> bool:
        """Whether the tool `name`, in any spelling, can be one of this source.

        `before` are further words that a spelling may have before the source's name.
        """
        if not self.prefix:
            return True
        own = _GAP.join(map(re.escape, fold(self.name)))
        lead = "|".join(_GAP.join(map(re.escape, fold(word))) for word in (*_BEFORE, *before))
        return bool(own) and re.match(rf"(?:{lead}){_GAP}{own}[\W_]", name, re.IGNORECASE) is not None


@dataclass(slots=True)
class MountedSources:
    """The mounted sources, as far as they may lack tools. One for a crib, used from its event loop."""

    _sources: dict[str, MountedSource] = field(default_factory=dict[str, MountedSource])

    def add(self, source: Source, *, prefix: bool) -> None:
        """Follow a source that was just opened."""
        self._sources[source.name] = MountedSource(source=source, prefix=prefix)

    def remove(self, name: str) -> None:
        """Forget a source that was unmounted."""
        self._sources.pop(name, None)

    @property
    def starting(self) -> Iterator[MountedSource]:
        """The sources that are starting now, in the order in which they were mounted."""
        return (one for one in self._sources.values() if is_starting(one.source.state))

    @property
    def down(self) -> Iterator[MountedSource]:
        """The sources whose tools cannot be called now, in the order in which they were mounted."""
        return (one for one in self._sources.values() if one.source.state.outage)

    async def wait(self, timeout: float, names: Collection[str] | None = None, *, fresh: bool = False) -> None:
        """Return when every source, or each of `names`, has listed or failed once; at the latest after `timeout` s.

        A list from the cache counts, unless `fresh`. An unknown name is a source that has listed.
        """
        if timeout <= 0:
            return
        waiting = ("connecting", "cached") if fresh else ("connecting",)
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as group:
                for name, one in self._sources.items():
                    if (names is None or name in names) and one.source.state.state in waiting:
                        group.start_soon(one.source.ready)

    async def wait_first(self, timeout: float, names: Collection[str]) -> str:
        """Return the first of `names` that has listed or failed; empty where none has after `timeout` seconds."""
        first = ""

        async def wait(name: str) -> None:
            nonlocal first
            if (one := self._sources.get(name)) is not None:
                await one.source.ready()
            first = first or name
            group.cancel_scope.cancel()

        with anyio.move_on_after(max(0.0, timeout)):
            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(wait, name)
        return first


def still_starting(source: str) -> ToolFailure:
    """Return the failure of a call that waited for the start of `source` as long as it may."""
    return ToolFailure(
        "unavailable",
        f"source {source!r} is still starting; the call was not sent to it",
        hint="starting",
        details={"starting": [source]},
    )


def unavailable(state: SourceState) -> ToolFailure:
    """Return the failure of a call of a tool whose source is down."""
    return ToolFailure("unavailable", state.outage, hint=state.hint, details={"down": [state.source]})
