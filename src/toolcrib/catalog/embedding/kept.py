"""Vectors on disk, by the embedder and the text that they were made of: what can be made again, and need not be.

On disk a vector is 16-bit floats (MiniLM: 768 bytes). A file that is damaged or refused costs only time. Needs the
extra `embed` (numpy).
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from .base import Embedder

__all__ = ["Floats", "connected", "keys_of", "read", "through", "unit"]

Floats = npt.NDArray[np.float32]

_SCHEMA: Final = """
create table if not exists vectors (
    embedder text not null, text blob not null, vector blob not null, primary key (embedder, text)
) without rowid
"""


def unit(rows: object, dim: int) -> Floats:
    """Return the rows with length 1; raises `ValueError` when they are not rows of `dim` finite numbers."""
    made = np.asarray(rows, np.float32)
    if made.ndim != 2 or made.shape[1] != dim or not np.isfinite(made).all():
        raise ValueError(f"an embedder of {dim} dimensions returned an array of shape {made.shape}, or not numbers")
    return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), np.float32(1e-12))


def connected(path: Path) -> sqlite3.Connection | None:
    """Open the file, anew if it is damaged; None when the disk refuses."""
    for _ in range(2):
        connection: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=5.0)
            connection.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, (OSError, sqlite3.OperationalError)):
                return None
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            return connection
    return None


def through(kept: sqlite3.Connection | None, embedder: Embedder, texts: list[str]) -> Floats:
    """Return the vectors of `texts`: those that are kept, and the others made and kept."""
    keys = keys_of(texts)
    known = read(kept, embedder, keys)
    missing = list({key: text for key, text in zip(keys, texts, strict=True) if key not in known}.items())
    if missing:
        made = unit(embedder.encode([text for _, text in missing]), embedder.dim).astype(np.float16)
        fresh = {key: vector for (key, _), vector in zip(missing, made, strict=True)}
        known |= fresh
        if kept is not None:
            with contextlib.suppress(sqlite3.Error), kept:
                kept.executemany(
                    "insert or replace into vectors values (?, ?, ?)",
                    [(embedder.id, key, vector.tobytes()) for key, vector in fresh.items()],
                )
    return unit([known[key] for key in keys], embedder.dim)


def keys_of(texts: Sequence[str]) -> list[bytes]:
    """Return what stands for each text on disk."""
    return [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]


def read(
    kept: sqlite3.Connection | None, embedder: Embedder, keys: Sequence[bytes]
) -> dict[bytes, npt.NDArray[np.float16]]:
    """Return the vectors that are kept of some hundreds of texts, by their keys."""
    if kept is None:
        return {}
    marks = ", ".join("?" * len(keys))
    try:
        rows = kept.execute(
            f"select text, vector from vectors where embedder = ? and text in ({marks})", (embedder.id, *keys)
        ).fetchall()
    except sqlite3.Error:
        return {}
    return {key: np.frombuffer(blob, "<f2") for key, blob in rows if len(blob) == 2 * embedder.dim}
