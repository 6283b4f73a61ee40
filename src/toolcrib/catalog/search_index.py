"""Index of a registry's tools for ranking: opened or built at the first search, and kept up to date from then on.

    nothing searched yet     no index: a process that never searches pays nothing
    `prepare(query)`         built in a thread, or opened from the file, before a search that may wait
    `search` before that     built at once, on the event loop
    the catalog changes      noted, and ranked: up to `_MAX_RANKED_AT_ONCE` tools at once, more in slices
    `keep`                   written to the file when the crib closes, with the stamp of its catalog

Searches see the catalog of now: noted changes are taken in before one answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..core.builds import build_at_once, build_in_slices, build_in_thread, has_loop
from ..core.tool import Tool

if TYPE_CHECKING:
    from .embedding.vectors import Vectors
    from .index import Hit, Index, IndexEntry

_logger = logging.getLogger(__name__)
_MIN_STORED_TOOLS: Final = 1_000
"""Tools. The index of fewer is built sooner than a file is opened and checked: 0.1 ms a tool."""
_MAX_BUILT_AT_ONCE: Final = 200
"""Tools whose index is built in 10 ms; that of more is built in a thread."""
_MAX_RANKED_AT_ONCE: Final = 20
"""Tools that come into the index as they are placed, 0.1 ms each; more come into it in slices."""


class SearchIndex:
    """The index and the vectors of the tools of one registry. Used from one event loop."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        entry: Callable[[Tool], IndexEntry],
        stamp: Callable[[], str],
        *,
        kept: Path | None,
        meanings: Vectors | None,
    ) -> None:
        """`tools` are those of now, `stamp` returns a hash of them, `entry` what of a tool is ranked.

        `kept` is the file where the index outlives a restart, `meanings` the vectors for ranking by meaning.
        """
        self._tools = tools
        self._entry = entry
        self._stamp = stamp
        self._path = kept
        self._vectors = meanings
        self._index: Index | None = None
        self._building: asyncio.Future[None] | None = None
        self._changed_names: dict[str, None] = {}
        """Names that are not yet in the index and among the vectors as they are in the catalog."""
        self._stored_stamp = ""

    def search(
        self,
        query: str,
        k: int,
        *,
        allowed: Callable[[str], bool] | None = None,
        boost: Callable[[str], float] | None = None,
        weak: bool = False,
    ) -> list[Hit]:
        """Return the best `k` tools; what `prepare` would have built is built at once."""
        if self._index is None:
            self._index = self._new_index()
        build_at_once(self._apply_changes())
        near = self._vectors.near(query) if self._vectors is not None else None
        hits = self._index.search(query, k, allowed=allowed, boost=boost, near=near, weak=weak)
        if self._vectors is not None:
            self._vectors.prioritize(hit.name for hit in hits)
        return hits

    @property
    def is_prepared(self) -> bool:
        """Whether a search does not hold the event loop up: the index is there, or made in some milliseconds.

        False also while many changes are waiting.
        """
        if self._index is None:
            return len(self._tools) < _MAX_BUILT_AT_ONCE
        return len(self._changed_names) <= _MAX_RANKED_AT_ONCE

    async def prepare(self, query: str) -> None:
        """Build the index in a thread, unless it is there; what changes meanwhile comes into it at the end, in slices.

        A search that comes first builds it at once: 5 s for 100,000 tools. Where tools are ranked by meaning, the
        vectors of `query` are made in a thread as well.
        """
        while not self.is_prepared:
            if self._building is None:
                self._building = asyncio.ensure_future(self._build())
            await asyncio.shield(self._building)
        if self._vectors is not None:
            await self._vectors.prepare(query)

    def note(self, name: str) -> None:
        """Note that the tool of that name came, went or changed; `update` ranks it as it is then."""
        if self._index is not None or self._vectors is not None or self._building is not None:
            self._changed_names[name] = None

    def update(self) -> None:
        """Rank what was noted: at once if it is little, else in slices beside everything else."""
        if self._building is not None:
            return
        if len(self._changed_names) > _MAX_RANKED_AT_ONCE and has_loop():
            self._building = asyncio.ensure_future(self._apply_changes_in_slices())
        else:
            build_at_once(self._apply_changes())

    def keep(self) -> None:
        """Write the index to its file if it has changed since: for the end of a crib's life. Never raises."""
        if self._index is None or self._path is None or len(self._tools) < _MIN_STORED_TOOLS:
            return
        build_at_once(self._apply_changes())
        if self._stored_stamp == (stamp := self._stamp()):
            return
        try:
            self._index.save(self._path, stamp)
        except OSError as error:
            _logger.warning("the ranking index cannot be kept in %s: %s", self._path, error)
        else:
            self._stored_stamp = stamp

    async def _apply_changes_in_slices(self) -> None:
        try:
            await build_in_slices(self._apply_changes())
        finally:
            self._building = None

    async def _build(self) -> None:
        try:
            if self._index is None:
                index = self._new_index()
                await build_in_thread(index.prepare)
                if self._index is None:  # else a search did not wait
                    self._index = index
            await build_in_slices(self._apply_changes())
        finally:
            self._building = None

    def _new_index(self) -> Index:
        from .index import Index  # it brings the stemmer and word lists: only to search

        self._stored_stamp = self._stamp()
        entries = map(self._entry, tuple(self._tools.values()))
        kept = self._path if len(self._tools) >= _MIN_STORED_TOOLS else None
        return Index(entries, path=kept, stamp=self._stored_stamp)

    def _apply_changes(self) -> Generator[None, None, None]:
        """Bring the tools that changed into the index, if there is one, and among the vectors, in steps of one."""
        while self._changed_names:
            name, _ = self._changed_names.popitem()
            tool = self._tools.get(name)
            entry = self._entry(tool) if tool is not None else None
            if self._index is not None and entry is not None:
                self._index.add(entry)
            elif self._index is not None and name in self._index:
                self._index.remove(name)
            if self._vectors is not None and entry is not None:
                self._vectors.put(entry)
            elif self._vectors is not None:
                self._vectors.drop(name)
            yield
