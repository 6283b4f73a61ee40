"""The store that a configuration describes: which place, which key, how long records are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..config import Settings
from ..store.store import Store
from ..store.vault import Vault

__all__ = ["open_store", "place_of", "store_of"]


def place_of(settings: Settings) -> Path | str:
    """Return the file or the URL of the store."""
    return settings.store.url or settings.directories.data / "toolcrib.db"


def store_of(settings: Settings, *, memory: bool = False, redact: Callable[[Any], Any] | None = None) -> Store:
    """Return the store of `settings`, or one in memory, not started yet. Raises what `Store.at` raises."""
    if memory:
        return Store.at(None, redact=redact)
    vault = Vault(settings.store.key or None, file=settings.directories.data / "key")
    return Store.at(place_of(settings), redact=redact, vault=vault, retention=settings.records)


def open_store(settings: Settings, *, redact: Callable[[Any], Any] | None = None) -> Store:
    """Open the store of `settings`. Raises what `Store.open` raises."""
    store = store_of(settings, redact=redact)
    store.start()
    return store
