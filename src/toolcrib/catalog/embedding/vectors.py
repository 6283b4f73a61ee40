"""Vectors of tools and other texts: computed once, kept on disk by embedder and text, compared in one product.

Texts other than tools are records that outlast a conversation, sections of documents, single texts:

    texts = TextVectors(lambda: open_minilm())
    held = texts.packed("Releases are cut on Thursdays.", "Day of releases")     # kept by the owner of the text
    texts.cosines("when do we ship?", [("3", held)])                             # {"3": 0.41}

A long text is read by its passages, and is as near to a question as the nearest of them. Everything here blocks and is
for threads; nothing is locked. Needs the extra `embed` (numpy): `embedding.open_texts` imports this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from itertools import accumulate, islice
from pathlib import Path
from typing import Final, cast

import anyio
import anyio.to_thread
import numpy as np
import numpy.typing as npt

from ...core.bounded_mapping import BoundedMapping
from ...core.files import make_private_folder
from ..ranking.query import saves_file
from ..ranking.terms import IndexEntry
from .embedder import Embedder

Floats = npt.NDArray[np.float32]

_SCHEMA: Final = """
create table if not exists vectors (
    embedder text not null, text blob not null, vector blob not null, primary key (embedder, text)
) without rowid
"""

_logger = logging.getLogger(__name__)

_MAX_BATCH: Final = 128
_MAX_BATCH_CHARACTERS: Final = 8_000
"""Of the texts whose vectors are made in one go: about half a second, after which others may run."""
_SORTED_WINDOW: Final = 1_024
"""Tools of which those with the shortest texts come next: the texts of a batch are of like length, so that little of
what is computed is padding (5,000 tools: 107 s without, 44 s with it, on two busy cores)."""
_MIN_ROWS: Final = 64
"""The least that memory is taken for."""
_SHORT_DESCRIPTION: Final = 40
"""Characters. A tool with a shorter description is also represented by the names of its arguments."""
_MAX_ARGUMENTS: Final = 8
_MAX_DESCRIPTION_LENGTH: Final = 2_000
_MAX_CACHED_QUERIES: Final = 256
_MAX_QUERY_LENGTH: Final = 2_000
"""Characters of a query that count."""
_MAX_SENTENCES: Final = 4
_MIN_SENTENCE_WORDS: Final = 3
_SENTENCE_SHARE: Final = 0.5
"""Share of the nearest sentence in the similarity of a request of several sentences."""

_WRITE_FILE_TEXT: Final = "Write a file."
"""Text added to a request that ends in saving to a path."""

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|[\u3002\uff01\uff1f\uff1b\n]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DASHES = re.compile(r"[_\-]+")

_PASSAGE_LENGTH: Final = 700
"""Characters of a passage: about the part of a text that a model reads."""
_MAX_PASSAGES: Final = 16
"""Passages of one text; later ones are found by their words only."""

_TEXTS_BATCH: Final = 32
"""Texts whose vectors are made in one go: about half a second."""
_KEYS_PER_STATEMENT: Final = 500
"""Vectors that one statement reads."""
_MAX_STORED_VECTORS: Final = 200_000
"""Vectors on disk (MiniLM: 150 MB): with more the file is begun anew."""
_PARAGRAPH: Final = re.compile(r"\n\s*\n")

_MAX_CACHED_TEXT_QUERIES: Final = 64


def unit_rows(rows: object, dim: int) -> Floats:
    """Return the rows with length 1; raises `ValueError` when they are not rows of `dim` finite numbers."""
    made = np.asarray(rows, np.float32)
    if made.ndim != 2 or made.shape[1] != dim or not np.isfinite(made).all():
        raise ValueError(f"an embedder of {dim} dimensions returned an array of shape {made.shape}, or not numbers")
    return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), np.float32(1e-12))


def open_vector_file(path: Path) -> sqlite3.Connection | None:
    """Open the file, anew if it is damaged; None when the disk refuses.

    A damaged file is removed and begun anew: everything in it can be computed again.
    """
    for _ in range(2):
        connection: sqlite3.Connection | None = None
        try:
            make_private_folder(path.parent)
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


def embed_cached(kept: sqlite3.Connection | None, embedder: Embedder, texts: list[str]) -> Floats:
    """Return the vectors of `texts`: those that are kept, and the others made and kept.

    Vectors are stored in half precision; the same text of two tools is computed once.
    """
    keys = keys_of(texts)
    known = read_vectors(kept, embedder, keys)
    missing = list({key: text for key, text in zip(keys, texts, strict=True) if key not in known}.items())
    if missing:
        made = unit_rows(embedder.encode([text for _, text in missing]), embedder.dim).astype(np.float16)
        fresh = {key: vector for (key, _), vector in zip(missing, made, strict=True)}
        known |= fresh
        if kept is not None:
            with contextlib.suppress(sqlite3.Error), kept:
                kept.executemany(
                    "insert or replace into vectors values (?, ?, ?)",
                    [(embedder.id, key, vector.tobytes()) for key, vector in fresh.items()],
                )
    return unit_rows([known[key] for key in keys], embedder.dim)


def keys_of(texts: Sequence[str]) -> list[bytes]:
    """Return the key of each text on disk."""
    return [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]


def read_vectors(
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


class Vectors:
    """One row a tool. Lifetime: as long as its index; used from one thread.

        put ──► _waiting ── keep_filled (a task of the crib) ── _made (a thread) ──► _place ──► a row of the matrix
        near(query) ──► cosines of all rows, in one product

    A search does not wait for vectors of tools: tools without one keep the score of their words. The embedder that
    fails once is not tried again in this process.
    """

    def __init__(self, opener: Callable[[], Embedder], path: Path | None = None) -> None:
        """`opener` loads the embedder, in a worker thread, when the first vector is made."""
        self._opener = opener
        self._path = path
        self._embedder: Embedder | None = None
        self._failed = False
        self._texts: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._matrix: Floats = np.zeros((0, 0), np.float32)
        self._unembedded: dict[str, None] = {}
        self._prioritized: dict[str, None] = {}
        """Waiting tools that a search has found: they come first."""
        self._queries = BoundedMapping[str, Floats](_MAX_CACHED_QUERIES)
        self._wake: anyio.Event | None = None

    def __len__(self) -> int:
        """Return the number of tools with a vector."""
        return len(self._names)

    def put(self, entry: IndexEntry) -> None:
        """Add or update a tool; an old vector is dropped."""
        text = text_of(entry)
        if self._texts.get(entry.name) == text:
            return
        self.drop(entry.name)
        self._texts[entry.name] = text
        self._unembedded[entry.name] = None
        if self._wake is not None:
            self._wake.set()

    def drop(self, name: str) -> None:
        """Remove a tool; unknown names are ignored.

        The last row takes the place of the removed one, so that the rows stay contiguous.
        """
        self._texts.pop(name, None)
        self._unembedded.pop(name, None)
        self._prioritized.pop(name, None)
        row = self._rows.pop(name, None)
        if row is None:
            return
        last = self._names.pop()
        if last != name:
            self._matrix[row] = self._matrix[len(self._names)]
            self._names[row] = last
            self._rows[last] = row

    def prioritize(self, names: Iterable[str]) -> None:
        """Make the vectors of these tools before others."""
        if self._unembedded:
            self._prioritized |= {name: None for name in names if name in self._unembedded}

    async def prepare(self, query: str) -> None:
        """Make the vectors of `query` in a worker thread, for `near`: 10 ms, more while vectors of tools are made."""
        embedder = self._embedder
        if embedder is None or self._failed or not self._names or query in self._queries or not query.strip():
            return
        asked = await anyio.to_thread.run_sync(self._embed_query, embedder, query)
        if asked is not None:
            self._queries[query] = asked

    def near(self, query: str) -> _QuerySimilarities | None:
        """Compare `query`, as a whole and by its sentences, with all tools; None without vectors."""
        embedder = self._embedder
        if embedder is None or self._failed or not self._names or not query.strip():
            return None
        asked = self._queries.get(query)
        if asked is None and (asked := self._embed_query(embedder, query)) is None:
            return None
        self._queries[query] = asked
        return _QuerySimilarities(self._names, self._rows, self._matrix[: len(self._names)] @ asked.T)

    def _embed_query(self, embedder: Embedder, query: str) -> Floats | None:
        """Return a row of length 1 for the query and each of its sentences; None when the embedder fails."""
        try:
            return unit_rows(embedder.encode(_query_parts(query)), embedder.dim)
        except Exception as error:  # noqa: BLE001 - a foreign embedder may raise anything; search continues by words
            self._give_up(error)
            return None

    def fill(self) -> None:
        """Make all vectors that are missing, in this thread."""
        while (batch := self._next_batch()) and not self._failed:
            self._store_rows(batch, self._embed([text for _, text in batch]))

    async def keep_filled(self) -> None:
        """Make missing vectors in a worker thread until this is cancelled, or the embedder fails."""
        while not self._failed:
            self._wake = anyio.Event()
            while (batch := self._next_batch()) and not self._failed:
                made = await anyio.to_thread.run_sync(self._embed, [text for _, text in batch])
                self._store_rows(batch, made)
            if not self._failed:
                await self._wake.wait()

    def _next_batch(self) -> list[tuple[str, str]]:
        names = self._prioritized or islice(self._unembedded, _SORTED_WINDOW)
        by_length = sorted(((name, self._texts[name]) for name in names), key=lambda item: len(item[1]))[:_MAX_BATCH]
        ends = accumulate(len(text) for _, text in by_length)
        return [
            item
            for item, end in zip(by_length, ends, strict=True)
            if item is by_length[0] or end <= _MAX_BATCH_CHARACTERS
        ]

    def _store_rows(self, batch: Sequence[tuple[str, str]], made: Floats | None) -> None:
        """Store the computed vectors, unless the tool was removed or changed meanwhile."""
        if made is None:
            return
        for (name, text), vector in zip(batch, made, strict=True):
            if self._texts.get(name) != text or name not in self._unembedded:
                continue
            del self._unembedded[name]
            self._prioritized.pop(name, None)
            row = len(self._names)
            if row >= len(self._matrix):
                grown = np.zeros((max(_MIN_ROWS, 2 * row), len(vector)), np.float32)
                if row:
                    grown[:row] = self._matrix
                self._matrix = grown
            self._matrix[row] = vector
            self._names.append(name)
            self._rows[name] = row

    def _embed(self, texts: list[str]) -> Floats | None:
        """Return a row of length 1 for each text, from disk if known; None when the embedder fails."""
        try:
            if self._embedder is None:
                self._embedder = self._opener()
            with self._open_file() as kept:
                return embed_cached(kept, self._embedder, texts)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        self._failed = True
        _logger.error("ranking by meaning is off: the embedder failed; search goes on by words", exc_info=error)

    @contextlib.contextmanager
    def _open_file(self) -> Generator[sqlite3.Connection | None]:
        connection = open_vector_file(self._path) if self._path is not None else None
        try:
            yield connection
        finally:
            if connection is not None:
                connection.close()


class _QuerySimilarities:
    """The cosines of one query, settled at once: vectors that come later do not change it.

    The first column is the whole query, the others its sentences.
    """

    def __init__(self, names: Sequence[str], rows: dict[str, int], cosines: Floats) -> None:
        self._names = names
        self._rows = rows
        self.most = float(cosines[:, 0].max())
        low, high = cosines.mean(axis=0), cosines.max(axis=0)
        shares = (cosines - low) / np.maximum(high - low, 1e-6)
        if shares.shape[1] > 1:
            nearest = shares[:, 1:].max(axis=1)
            self._shares = (1.0 - _SENTENCE_SHARE) * shares[:, 0] + _SENTENCE_SHARE * nearest
        else:
            self._shares = shares[:, 0]

    def best(self, count: int) -> list[str]:
        """Return the names of the nearest tools, nearest first."""
        shares = self._shares
        some = np.argpartition(-shares, count)[:count] if count < len(shares) else np.arange(len(shares))
        found = [(-float(shares[row]), self._names[row]) for row in some.tolist()]
        return [name for _, name in sorted(found)]

    def of(self, name: str) -> float | None:
        """Return 1.0 for the nearest tool and 0.0 for an average one."""
        row = self._rows.get(name)
        return None if row is None else max(0.0, float(self._shares[row]))


def text_of(entry: IndexEntry) -> str:
    """Return the embedded text of a tool: its name in words, its description, its source.

    Ends with the source in brackets, which separates tools of one name.
    """
    description = " ".join(entry.description[:_MAX_DESCRIPTION_LENGTH].split())
    parts = [f"{_words_of_name(entry.title or entry.leaf)}: {description}".rstrip()]
    if len(description) < _SHORT_DESCRIPTION:
        properties: object = entry.schema.get("properties")
        names = list(map(str, cast("Mapping[str, object]", properties))) if isinstance(properties, Mapping) else []
        parts.append(", ".join(map(_words_of_name, names[:_MAX_ARGUMENTS])))
    whose = entry.source_title or _words_of_name(entry.source)
    if whose:
        parts.append(f"({whose})")
    return " ".join(filter(None, parts))


def _words_of_name(name: str) -> str:
    return _DASHES.sub(" ", _CAMEL.sub(" ", name)).strip()


def _query_parts(query: str) -> list[str]:
    """Return the query, then its sentences if there are several, and that a file is to be written."""
    whole = query[:_MAX_QUERY_LENGTH]
    sentences = [part for part in _SENTENCE_END.split(whole) if len(part.split()) >= _MIN_SENTENCE_WORDS]
    parts = sentences[:_MAX_SENTENCES] if len(sentences) > 1 else []
    return [whole, *parts, *([_WRITE_FILE_TEXT] if saves_file(whole) else [])]


class TextVectors:
    """Lives as long as its embedder."""

    def __init__(self, opener: Callable[[], Embedder], path: Path | None = None) -> None:
        """`opener` loads the embedder when it is wanted; what `nearest` needs again is kept in the file `path`."""
        self._opener = opener
        self._path = path
        self._queries = BoundedMapping[str, Floats](_MAX_CACHED_TEXT_QUERIES)

    @property
    def model(self) -> str:
        """The id of the embedder."""
        return self._opener().id

    def rows(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text."""
        return [[round(float(number), 6) for number in row] for row in self._embed(texts)]

    def packed(self, text: str, title: str) -> bytes:
        """Return the vectors of the passages of a text, as 16-bit floats."""
        titled = [f"{title}: {part}" if title else part for part in passages(text)] or [title]
        return self._embed(titled).astype("<f2").tobytes()

    def cosines(self, query: str, held: Sequence[tuple[str, bytes]]) -> dict[str, float]:
        """Return the cosine of the nearest passage of each. Vectors of another size are left out."""
        size = 2 * self._opener().dim
        fitting = [(key, content) for key, content in held if content and len(content) % size == 0]
        if not fitting:
            return {}
        counts = [len(content) // size for _, content in fitting]
        matrix = np.frombuffer(b"".join(content for _, content in fitting), "<f2").reshape(sum(counts), -1)
        cosines = matrix.astype(np.float32) @ self._embed_query(query[:_MAX_QUERY_LENGTH])
        best = np.maximum.reduceat(cosines, np.cumsum([0, *counts[:-1]]))
        return {key: float(value) for (key, _), value in zip(fitting, best, strict=True)}

    def nearest(self, query: str, texts: Mapping[str, str], seconds: float) -> dict[str, float]:
        """Return the cosine of each text whose vector is known, or made within the time."""
        known, _ = self._embed_within(texts, seconds)
        if not known:
            return {}
        cosines = np.stack(list(known.values())) @ self._embed_query(query[:_MAX_QUERY_LENGTH])
        return {key: float(value) for key, value in zip(known, cosines, strict=True)}

    def fill(self, texts: Mapping[str, str], seconds: float) -> bool:
        """Make vectors of the texts, for so long; return whether some are left. Without a file nothing is kept."""
        return bool(self._embed_within(texts, seconds)[1]) if self._path is not None else False

    def _embed_within(self, texts: Mapping[str, str], seconds: float) -> tuple[dict[str, Floats], list[str]]:
        """Return the vectors that are known or made within the time, and the keys of the texts that are left."""
        end = time.monotonic() + seconds
        kept = open_vector_file(self._path) if self._path is not None else None
        if kept is not None and kept.execute("select count(*) from vectors").fetchone()[0] > _MAX_STORED_VECTORS:
            with kept:
                kept.execute("delete from vectors")
        with closing(kept) if kept is not None else nullcontext():
            known = dict(self._read_known(kept, texts))
            missing = [key for key in texts if key not in known]
            while missing and time.monotonic() < end:
                batch, missing = missing[:_TEXTS_BATCH], missing[_TEXTS_BATCH:]
                known.update(zip(batch, embed_cached(kept, self._opener(), [texts[key] for key in batch]), strict=True))
        return known, missing

    def _read_known(self, kept: sqlite3.Connection | None, texts: Mapping[str, str]) -> Iterator[tuple[str, Floats]]:
        names = list(texts)
        for at in range(0, len(names), _KEYS_PER_STATEMENT) if kept is not None else ():
            some = names[at : at + _KEYS_PER_STATEMENT]
            keys = keys_of([texts[name] for name in some])
            found = read_vectors(kept, self._opener(), keys)
            yield from (
                (name, found[key].astype(np.float32)) for name, key in zip(some, keys, strict=True) if key in found
            )

    def _embed_query(self, query: str) -> Floats:
        """Return the vector of a query: the same one is often asked of several groups, one after the other."""
        known = self._queries.get(query)
        self._queries[query] = made = self._embed([query])[0] if known is None else known
        return made

    def _embed(self, texts: Sequence[str]) -> Floats:
        embedder = self._opener()
        return unit_rows(embedder.encode(texts), embedder.dim)


def passages(text: str) -> list[str]:
    """Return the beginning of a text in pieces that a model reads whole: paragraphs, short ones together."""
    pieces: list[str] = []
    for paragraph in _PARAGRAPH.split(text[: _PASSAGE_LENGTH * _MAX_PASSAGES]):
        rest = " ".join(paragraph.split())
        while rest:
            cut = (
                len(rest)
                if len(rest) <= _PASSAGE_LENGTH
                else rest.rfind(" ", 1, _PASSAGE_LENGTH) + 1 or _PASSAGE_LENGTH
            )
            piece, rest = rest[:cut].strip(), rest[cut:]
            if pieces and len(pieces[-1]) + len(piece) < _PASSAGE_LENGTH:
                pieces[-1] = f"{pieces[-1]} {piece}"
            else:
                pieces.append(piece)
    return pieces[:_MAX_PASSAGES]
