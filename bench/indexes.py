"""Full-text libraries as indexes of tools, for `bench/search.py` and `bench/retrieval.py`.

Both are given what a careful user would give them: names split at `_` and capitals, stop words dropped, the English
stemmer, a weight for each field (name 4, parameters 1, description 1), any word of a query.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

import tantivy

from toolcrib.catalog.index import IndexEntry

__all__ = ["Fts5Index", "TantivyIndex"]

_STOP_WORDS: Final = frozenset(
    "a an and are as at be by for from has have how i in is it its me my of on or our please so that the their them"
    " then there these this to use want was we what when which who will with would you your".split()
)
_FIELDS: Final = ("name", "parameters", "description")
_WEIGHTS: Final = (4.0, 1.0, 1.0)


class Fts5Index:
    """SQLite's FTS5 in memory, ranked by its `bm25`."""

    def __init__(self, entries: Iterable[IndexEntry]) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE tools USING fts5(id UNINDEXED, name, parameters, description, tokenize='porter')"
        )
        self._database.executemany(
            "INSERT INTO tools VALUES (?, ?, ?, ?)", ((entry.name, *_texts(entry)) for entry in entries)
        )
        self._database.commit()

    def search(self, query: str, limit: int = 10) -> list[str]:
        """Return the names of the best tools."""
        words = " OR ".join(f'"{word}"' for word in _words(query))
        weights = ", ".join(str(weight) for weight in (0.0, *_WEIGHTS))
        rows = self._database.execute(
            f"SELECT id FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, {weights}) LIMIT ?",
            (words, limit),
        )
        return [row[0] for row in rows] if words else []

    def add(self, entry: IndexEntry) -> None:
        """Add a tool, committed."""
        self._database.execute("INSERT INTO tools VALUES (?, ?, ?, ?)", (entry.name, *_texts(entry)))
        self._database.commit()


class TantivyIndex:
    """tantivy in memory, one writer thread, ranked by its BM25."""

    def __init__(self, entries: Iterable[IndexEntry]) -> None:
        schema = tantivy.SchemaBuilder().add_text_field("id", stored=True, tokenizer_name="raw")
        for field in _FIELDS:
            schema = schema.add_text_field(field, tokenizer_name="en_stem")
        self._index = tantivy.Index(schema.build())
        self._writer = self._index.writer(num_threads=1)
        for entry in entries:
            self._writer.add_document(self._document(entry))
        self._commit()

    def search(self, query: str, limit: int = 10) -> list[str]:
        """Return the names of the best tools."""
        words = _words(query)
        if not words:
            return []
        boosts = dict(zip(_FIELDS, _WEIGHTS, strict=True))
        parsed = self._index.parse_query(" ".join(words), list(_FIELDS), field_boosts=boosts)
        searcher = self._index.searcher()
        return [searcher.doc(address)["id"][0] for _, address in searcher.search(parsed, limit).hits]

    def add(self, entry: IndexEntry) -> None:
        """Add a tool, committed."""
        self._writer.add_document(self._document(entry))
        self._commit()

    def _document(self, entry: IndexEntry) -> tantivy.Document:
        return tantivy.Document(id=entry.name, **dict(zip(_FIELDS, _texts(entry), strict=True)))

    def _commit(self) -> None:
        self._writer.commit()
        self._index.reload()


def _texts(entry: IndexEntry) -> tuple[str, str, str]:
    parameters = entry.schema.get("properties") or {}
    described = " ".join(
        f"{name} {one.get('description', '')}" if isinstance(one, dict) else name for name, one in parameters.items()
    )
    texts = (f"{entry.source} {entry.leaf}", described, entry.description)
    return tuple(" ".join(_words(text)) for text in texts)  # pyright: ignore[reportReturnType]


def _words(text: str) -> Sequence[str]:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word for word in re.findall(r"[a-z0-9]+", split.lower()) if word not in _STOP_WORDS]
