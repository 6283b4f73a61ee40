"""Vectors of texts other than tools: records that outlast a conversation, sections of documents, single texts.

    texts = TextVectors(lambda: open_minilm())
        held = texts.packed("Releases are cut on Thursdays.", "Day of releases")     # kept by the owner of the text
    texts.cosines("when do we ship?", [("3", held)])                             # {"3": 0.41}

A long text is read by its passages, and is as near to a question as the nearest of them. Everything here blocks and is
for threads; nothing is locked. Needs the extra `embed` (numpy): `embedding.open_texts` imports this module.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Final

import numpy as np

from .embedder import Embedder
from .vectors import Floats, connected, keys_of, read, through, unit

__all__ = ["TextVectors", "passages"]

_PASSAGE: Final = 700
"""Characters of a passage: about the part of a text that a model reads."""
_PASSAGES: Final = 16
"""Passages of one text; later ones are found by their words only."""
_QUERY: Final = 2_000
"""Characters of a query that count."""
_QUERIES_KEPT: Final = 64
_BATCH: Final = 32
"""Texts whose vectors are made in one go: about half a second."""
_READ: Final = 500
"""Vectors that one statement reads."""
_MOST_KEPT: Final = 200_000
"""Vectors on disk (MiniLM: 150 MB): with more the file is begun anew."""
_PARAGRAPH: Final = re.compile(r"\n\s*\n")


class TextVectors:
    """Lives as long as its embedder."""

    def __init__(self, opener: Callable[[], Embedder], path: Path | None = None) -> None:
        """`opener` loads the embedder when it is wanted; what `nearest` needs again is kept in the file `path`."""
        self._opener = opener
        self._path = path
        self._queries: dict[str, Floats] = {}

    @property
    def model(self) -> str:
        """The id of the embedder."""
        return self._opener().id

    def rows(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text."""
        return [[round(float(number), 6) for number in row] for row in self._made(texts)]

    def packed(self, text: str, title: str) -> bytes:
        """Return the vectors of the passages of a text, as 16-bit floats."""
        titled = [f"{title}: {part}" if title else part for part in passages(text)] or [title]
        return self._made(titled).astype("<f2").tobytes()

    def cosines(self, query: str, held: Sequence[tuple[str, bytes]]) -> dict[str, float]:
        """Return the cosine of the nearest passage of each. Vectors of another size are left out."""
        size = 2 * self._opener().dim
        fitting = [(key, content) for key, content in held if content and len(content) % size == 0]
        if not fitting:
            return {}
        counts = [len(content) // size for _, content in fitting]
        matrix = np.frombuffer(b"".join(content for _, content in fitting), "<f2").reshape(sum(counts), -1)
        cosines = matrix.astype(np.float32) @ self._asked(query[:_QUERY])
        best = np.maximum.reduceat(cosines, np.cumsum([0, *counts[:-1]]))
        return {key: float(value) for (key, _), value in zip(fitting, best, strict=True)}

    def nearest(self, query: str, texts: Mapping[str, str], seconds: float) -> dict[str, float]:
        """Return the cosine of each text whose vector is known, or made within the time."""
        known, _ = self._vectors(texts, seconds)
        if not known:
            return {}
        cosines = np.stack(list(known.values())) @ self._asked(query[:_QUERY])
        return {key: float(value) for key, value in zip(known, cosines, strict=True)}

    def fill(self, texts: Mapping[str, str], seconds: float) -> bool:
        """Make vectors of the texts, for so long; return whether some are left. Without a file nothing is kept."""
        return bool(self._vectors(texts, seconds)[1]) if self._path is not None else False

    def _vectors(self, texts: Mapping[str, str], seconds: float) -> tuple[dict[str, Floats], list[str]]:
        """Return the vectors that are known or made within the time, and the keys of the texts that are left."""
        end = time.monotonic() + seconds
        kept = self._kept()
        with closing(kept) if kept is not None else nullcontext():
            known = dict(self._known(kept, texts))
            missing = [key for key in texts if key not in known]
            while missing and time.monotonic() < end:
                batch, missing = missing[:_BATCH], missing[_BATCH:]
                known.update(zip(batch, through(kept, self._opener(), [texts[key] for key in batch]), strict=True))
        return known, missing

    def _known(self, kept: sqlite3.Connection | None, texts: Mapping[str, str]) -> Iterator[tuple[str, Floats]]:
        names = list(texts)
        for at in range(0, len(names), _READ) if kept is not None else ():
            some = names[at : at + _READ]
            keys = keys_of([texts[name] for name in some])
            found = read(kept, self._opener(), keys)
            yield from (
                (name, found[key].astype(np.float32)) for name, key in zip(some, keys, strict=True) if key in found
            )

    def _asked(self, query: str) -> Floats:
        """Return the vector of a query: the same one is often asked of several groups, one after the other."""
        known = self._queries.pop(query, None)
        self._queries[query] = made = self._made([query])[0] if known is None else known
        if len(self._queries) > _QUERIES_KEPT:
            del self._queries[next(iter(self._queries))]
        return made

    def _made(self, texts: Sequence[str]) -> Floats:
        embedder = self._opener()
        return unit(embedder.encode(texts), embedder.dim)

    def _kept(self) -> sqlite3.Connection | None:
        connection = connected(self._path) if self._path is not None else None
        if connection is not None and connection.execute("select count(*) from vectors").fetchone()[0] > _MOST_KEPT:
            with connection:
                connection.execute("delete from vectors")
        return connection


def passages(text: str) -> list[str]:
    """Return the beginning of a text in pieces that a model reads whole: paragraphs, short ones together."""
    pieces: list[str] = []
    for paragraph in _PARAGRAPH.split(text[: _PASSAGE * _PASSAGES]):
        rest = " ".join(paragraph.split())
        while rest:
            cut = len(rest) if len(rest) <= _PASSAGE else rest.rfind(" ", 1, _PASSAGE) + 1 or _PASSAGE
            piece, rest = rest[:cut].strip(), rest[cut:]
            if pieces and len(pieces[-1]) + len(piece) < _PASSAGE:
                pieces[-1] = f"{pieces[-1]} {piece}"
            else:
                pieces.append(piece)
    return pieces[:_PASSAGES]
