"""Inventory of a crib: the mounted sources, and the registry that names and ranks their tools."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
from msgspec import Struct, field

from ..catalog.embedding import open_meanings
from ..catalog.embedding.embedder import SharedEmbedder
from ..catalog.overlay import Overlay
from ..catalog.registry import Registry
from ..config import Settings
from ..config.directories import Directories
from ..disclosure import meta_tools
from ..sources.source import MountedSources, Source


class Ranking:
    """The registry of tools and its ranking index. Made with the crib, and opened with it."""

    def __init__(self, settings: Settings, home: Directories | None) -> None:
        """Without a `home` nothing is kept. Raises `ConfigError` when the extra that the embedder needs is missing."""
        cache = home.cache if home else None
        self.embedder = (
            SharedEmbedder(settings.disclosure.ranking.embedder) if settings.disclosure.ranking.embedder else None
        )
        self._meanings = (
            open_meanings(self.embedder, cache / "vectors.db" if cache else None) if self.embedder else None
        )
        self.registry = Registry(
            reserved=meta_tools.RESERVED, kept=cache / "ranking.index" if cache else None, meanings=self._meanings
        )

    async def open(self, stack: AsyncExitStack) -> None:
        """Begin to make vectors beside everything else; when `stack` closes, stop that and keep the index."""
        if self._meanings is not None:
            making = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(making.cancel_scope.cancel)
            making.start_soon(self._meanings.keep_filled)
        stack.callback(self.registry.index.keep)


class Inventory(Struct, frozen=True, kw_only=True):
    """Contents of a crib: tables that the parts that add, show and call tools share."""

    ranking: Ranking
    sources: dict[str, Source] = field(default_factory=dict[str, Source])
    """The mounted sources by name."""
    overlays: dict[str, Overlay] = field(default_factory=dict[str, Overlay])
    """The tools of instances, by instance."""
    mounted: MountedSources = field(default_factory=MountedSources)
    """Mounted sources: the names of their tools, and which are starting or down."""
    disabled: dict[str, None] = field(default_factory=dict[str, None])
    """The tools that are off for all sessions."""

    @property
    def registry(self) -> Registry:
        """The registry of the tools of all sources."""
        return self.ranking.registry
