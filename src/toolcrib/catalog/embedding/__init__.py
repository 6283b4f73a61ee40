"""Ranking by meaning, optional: a small local model turns texts into vectors, and near vectors mean alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .embedder import SharedEmbedder, optional_extra

if TYPE_CHECKING:  # numpy, of the extra `embed`
    from .vectors import TextVectors, Vectors

__all__ = ["open_meanings", "open_texts"]


def open_meanings(embedder: str | SharedEmbedder, path: Path | None = None) -> Vectors:
    """Return the vectors of tools that an embedder makes, kept in the SQLite file `path`; nothing is loaded yet.

    Raises `ConfigError` when the extra `embed` is not installed.
    """
    opener = SharedEmbedder(embedder) if isinstance(embedder, str) else embedder
    with optional_extra():
        from .vectors import Vectors  # needs numpy, of the extra `embed`

    return Vectors(opener, path)


def open_texts(embedder: SharedEmbedder, path: Path | None) -> TextVectors:
    """Return the vectors of texts that an embedder makes; as `open_meanings`."""
    with optional_extra():
        from .vectors import TextVectors  # needs numpy, of the extra `embed`

    return TextVectors(embedder, path)
