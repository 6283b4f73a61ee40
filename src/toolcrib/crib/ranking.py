"""A crib's registry and what its ranking lives on: the index kept on disk, and vectors when they are turned on."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio

from ..catalog.embedding.embedder import SharedEmbedder, open_meanings
from ..catalog.registry import Registry
from ..config.directories import Directories
from ..config import Settings
from ..disclosure import meta_tools

__all__ = ["Ranking"]


class Ranking:
    """Made with the crib, and opened with it."""

    def __init__(self, settings: Settings, home: Directories | None) -> None:
        """Without a `home` nothing is kept. Raises `ConfigError` when the extra that the embedder needs is missing."""
        cache = home.cache if home else None
        self.embedder = SharedEmbedder(settings.embedder) if settings.embedder else None
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
        stack.callback(self.registry.keep)
