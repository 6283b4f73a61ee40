"""The ranking index of a catalog: add, remove, search.

    index = Index(entries)                      # nothing happens yet
    index.search("open an issue")               # built here, then kept up to date in place
    [Hit(name="github__create_issue", score=…, exact=False), …]

Tools whose name equals the query come first, in any case and with any separators; then tools that the query names,
then the others by rank. A query that fits nothing gets nothing. An index changed in place answers like one built anew.

Lifetime: as long as its registry. One thread at a time. `bench/search` has the figures: a search takes about a
millisecond, and a few in a hundred thousand tools.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from ..errors import UsageError
from .ranking.postings import Frozen, Postings, SourceIndex, Stored, load, save
from .ranking.query import plan
from .ranking.score import Corpus, SearchOptions, Similarities, rank
from .ranking.terms import Document, Hit, IndexEntry, document, squash

__all__ = ["Hit", "Index", "IndexEntry"]

_NUMBER_BITS = 24
_MAX_TOOLS = 1 << _NUMBER_BITS
_KEY_BYTES = 5
_HIGHEST_BYTE = _NUMBER_BITS + 8 * (_KEY_BYTES - 1)
_NAMES_PER_STEP = 4_000
"""Names that are numbered without letting other threads run."""


class Index:
    """Search index over the tools of a catalog.

    With a `path`, the index is stored in that file under `stamp`, the version of its catalog: if the file holds that
    version it is opened and `entries` are not read, else it is written after building. A failing disk costs only the
    time of building again.

    Not for two threads at a time: `SearchIndex` builds one in a thread and uses it on the event loop afterwards.
    """

    def __init__(self, entries: Iterable[IndexEntry] = (), *, path: Path | None = None, stamp: str = "") -> None:
        """`entries` are read at the first use; of several with one name the last counts."""
        if path is not None and not stamp:
            raise UsageError(f"an index kept in {path} needs a stamp: the version of the catalog that it is of")
        self._unread_entries: Iterable[IndexEntry] | None = entries
        self._path = path
        self._stamp = stamp
        self._use_stored(Stored(Postings([], Frozen()), SourceIndex(), [], array("I"), array("Q"), array("Q")))

    def __len__(self) -> int:
        """Return the number of tools, after building the index if needed."""
        self.build()
        return self._corpus.size

    def __contains__(self, name: object) -> bool:
        """Whether a tool of exactly this name is there, building first if need be."""
        self.build()
        return name in self._corpus.number_of

    def build(self) -> None:
        """Open the file or read the entries, unless that has been done; else the first use does it."""
        if self._unread_entries is None:
            return
        waiting, self._unread_entries = self._unread_entries, None
        stored = load(self._path, self._stamp) if self._path else None
        if stored is not None:
            self._use_stored(stored)
            return
        stored, again = _index_entries(waiting)
        self._use_stored(stored)
        self.update(again)
        if self._path:
            with contextlib.suppress(OSError):
                self.save(self._path, self._stamp)

    def prepare(self) -> None:
        """Build, and compute what the first search would wait for.

        That is word lists, 15 ms, and a look at every word for the first one that no tool has: 0.2 s for 100,000 tools.
        """
        self.search("first")
        self._corpus.postings.similar_terms("")

    def add(self, entry: IndexEntry) -> None:
        """Add a tool, or read it anew if its name is known."""
        self.build()
        if entry.name in self._corpus.number_of:
            self.remove(entry.name)
        corpus = self._corpus
        number = self._free.pop() if self._free else len(corpus.names)
        if number == len(corpus.names):
            if number == _MAX_TOOLS:
                raise UsageError(f"{entry.name}: an index holds at most {_MAX_TOOLS:,} tools")
            corpus.names.append("")
            corpus.source_of.append(0)
            self._keys_of.extend((0, 0))
        corpus.names[number] = entry.name
        corpus.source_of[number] = corpus.sources.join(entry)
        corpus.postings.add(number, document(entry))
        for at, key in enumerate(_keys(entry, number)):
            self._keys_of[2 * number + at] = key
            insort(self._keys, key)
        corpus.number_of[entry.name] = number
        corpus.count_changed(1, len(corpus.postings.pairs(number)))

    def remove(self, name: str) -> None:
        """Remove a tool; raises `UsageError` when the name is unknown."""
        self.build()
        number = self._corpus.number_of.pop(name, None)
        if number is None:
            raise UsageError(f"{name}: no such tool in the index")
        corpus = self._corpus
        terms = len(corpus.postings.pairs(number))
        corpus.postings.remove(number)
        corpus.sources.leave(corpus.source_of[number])
        corpus.names[number] = ""
        for key in self._keys_of[2 * number : 2 * number + 2]:
            del self._keys[bisect_left(self._keys, key)]
        self._free.append(number)
        corpus.count_changed(-1, terms)

    def update(self, added: Iterable[IndexEntry] = (), removed: Iterable[str] = ()) -> None:
        """Remove, then add; each as its own method does."""
        for name in removed:
            self.remove(name)
        for entry in added:
            self.add(entry)

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        allowed: Callable[[str], bool] | None = None,
        boost: Callable[[str], float] | None = None,
        near: Similarities | None = None,
        weak: bool = False,
    ) -> list[Hit]:
        """Return the best `k` tools at most, best first: only `allowed` ones, and none without a match.

        `boost` gives a factor by name, limited to a half and two, from other knowledge than the words. `near` is the
        similarity in meaning of the tools to the query. `weak` also returns matches that are too weak for an answer:
        the nearest categories are computed from them.
        """
        self.build()
        intent, names = plan(query), self._corpus.names
        exact = self._numbers_named(intent.whole)
        mentioned = {number for word in intent.mentioned for number in self._numbers_named(word)}
        also = {names[number]: number for number in exact | mentioned}
        options = SearchOptions(allowed=allowed, boost=boost, near=near, weak=weak)
        ranked = rank(self._corpus, intent, k, also=also, options=options)
        ranked.sort(key=lambda one: (one.number not in exact, one.number not in mentioned))
        return [Hit(name=names[one.number], score=one.score, exact=one.number in exact) for one in ranked[: max(k, 0)]]

    def save(self, path: Path, stamp: str) -> None:
        """Write the index as it is now to `path`; raises `OSError` when that cannot be done."""
        self.build()
        corpus = self._corpus
        if not corpus.postings.changed:
            now = Stored(corpus.postings, corpus.sources, corpus.names, corpus.source_of, self._keys, self._keys_of)
        else:
            now = self._compacted()
        save(path, stamp, now)

    def _use_stored(self, stored: Stored) -> None:
        names, numbers = stored.names, dict[str, int]()
        for start in range(0, len(names), _NAMES_PER_STEP):
            numbers.update(zip(names[start : start + _NAMES_PER_STEP], range(start, len(names)), strict=False))
        self._corpus = Corpus(
            postings=stored.postings,
            sources=stored.sources,
            names=stored.names,
            source_of=stored.source_of,
            number_of=numbers,
            size=len(stored.names),
            terms=len(stored.postings.frozen.pairs),
        )
        self._keys = stored.keys
        self._keys_of = stored.keys_of
        self._free: list[int] = []

    def _compacted(self) -> Stored:
        """Return the same without the numbers that are free.

        Numbers of removed tools are free for new ones while the index lives; a file has none.
        """
        corpus, mask = self._corpus, _MAX_TOOLS - 1
        live = [number for number, name in enumerate(corpus.names) if name]
        keys_of = array("Q")
        for fresh, number in enumerate(live):
            keys_of.extend(key & ~mask | fresh for key in self._keys_of[2 * number : 2 * number + 2])
        return Stored(
            corpus.postings.compacted(live),
            corpus.sources,
            [corpus.names[number] for number in live],
            array("I", (corpus.source_of[number] for number in live)),
            _sort_keys(keys_of),
            keys_of,
        )

    def _numbers_named(self, squashed: str) -> set[int]:
        """Return the numbers of the tools with this full or leaf name.

        Names are found by a hash of their squashed form: the upper 40 bits of a key; the lower 24 are the tool's
        number.
        """
        if not squashed:
            return set()
        key, keys = _name_hash(squashed), self._keys
        found: set[int] = set()
        for at in range(bisect_left(keys, key), min(bisect_left(keys, key + _MAX_TOOLS), len(keys))):
            found.add(keys[at] & _MAX_TOOLS - 1)
        return found


def _index_entries(entries: Iterable[IndexEntry]) -> tuple[Stored, list[IndexEntry]]:
    """Return the index of `entries`, each let go once it is read, and those of a name that was there before."""
    sources, postings, names, again = SourceIndex(), Postings([], Frozen()), dict[str, None](), list[IndexEntry]()
    keys_of, source_of = array("Q"), array("I")

    def documents() -> Iterator[Document]:
        for entry in entries:
            if entry.name in names:
                again.append(entry)
                continue
            keys_of.extend(_keys(entry, len(names)))
            names[entry.name] = None
            source_of.append(sources.join(entry))
            yield document(entry)

    postings.fill(documents())
    return Stored(postings, sources, list(names), source_of, _sort_keys(keys_of), keys_of), again


def _sort_keys(keys: array[int]) -> array[int]:
    """Return keys in order: by their highest byte first, since sorting 200,000 at once holds other threads up."""
    shares: list[list[int]] = [[] for _ in range(256)]
    for key in keys:
        shares[key >> _HIGHEST_BYTE].append(key)
    found = array("Q")
    for share in shares:
        share.sort()
        found.extend(share)
    return found


def _keys(entry: IndexEntry, number: int) -> tuple[int, int]:
    """Return the keys of the full and the leaf name: a hash above, the tool's number below."""
    leaf = _name_hash(squash(entry.leaf)) | number
    return leaf if entry.name == entry.leaf else _name_hash(squash(entry.name)) | number, leaf


def _name_hash(squashed: str) -> int:
    """Return a hash in the upper bits. Two names of one hash would count as one: at 40 bits, once in 10^12 pairs."""
    return int.from_bytes(blake2b(squashed.encode(), digest_size=_KEY_BYTES).digest()) << _NUMBER_BITS
