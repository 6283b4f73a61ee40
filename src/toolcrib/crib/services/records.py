"""Records of tools: kept for their owners, found by their words and by what they mean.

Meaning comes from the embedder that also ranks tools, asked in a thread. An embedder that fails is reported once; from
then on everything is found by words, as without one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from ...catalog.embedding import open_texts
from ...catalog.embedding.embedder import SharedEmbedder
from ...core.intent import Intent
from ...core.json import dumps
from ...core.services.records import Embedded, Nearest, Record
from ...core.taint import StoredTaint
from ...errors import ToolFailure
from ...store.records import MAX_RECORDS, RecordRows, SearchText

if TYPE_CHECKING:  # numpy, of the extra `embed`
    from ...catalog.embedding.vectors import TextVectors

T = TypeVar("T")
_Records = list[Record]

_logger = logging.getLogger(__name__)

_LEAST: Final = 0.25
"""Minimum similarity of a match without common words. Cosines of MiniLM; other models' are higher."""
_OF_BEST: Final = 0.6
"""Minimum similarity of such a match, as a share of the nearest one's."""
_CLEAR: Final = 0.6
"""Similarity that counts as the highest."""
_MEANING: Final = 0.65
"""Weight of the similarity in meaning; the rest is words."""
_OF_BEST_SCORE: Final = 0.3
"""Lowest score, as a share of the best: a lower one has a common word of a long question."""
_SECONDS: Final = 5.0
"""Seconds of a call in which `nearest` makes missing vectors."""
_TURN_SECONDS: Final = 1.0
"""Seconds that `fill` works before others have their turn."""
_HINT: Final = "the operator can turn one on: `ranking: {embedder: minilm}`, with the extra `toolcrib[embed]`"

_NAME_BYTES: Final = 2000
"""Of an id or a group: PostgreSQL's indexes hold 2,704 bytes, with the owner and the collection."""

_VALUE_BYTES: Final = 1 << 20
"""Of a record as JSON."""

_CANDIDATES: Final = 50
"""Records that share words with a query and are weighed by their meaning, at least."""

_TEXT: Final = 1 << 20
"""Characters that a search goes by."""


class MeaningSearch:
    """Search by meaning, for records and texts. One a crib; belongs to its event loop.

    The embedder and its file of vectors are opened by the first use, in a thread; one thread at a time asks them.
    """

    def __init__(self, embedder: SharedEmbedder | None, path: Callable[[], Path]) -> None:
        """Without an embedder nothing has a meaning. `path` is asked for the file of vectors when one is wanted."""
        self._open = None if embedder is None else lambda: open_texts(embedder, path())
        self._texts: TextVectors | None = None
        self._turn: anyio.CapacityLimiter | None = None

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of texts. Raises `ToolFailure("unavailable")` if there is no embedder that works."""
        given = list(texts)
        made = await self._ask(lambda held: (held.model, held.rows(given)))
        if made is None:
            raise ToolFailure("unavailable", "there is no embedder here that tells what texts mean", hint=_HINT)
        return Embedded(model=made[0], vectors=tuple(map(tuple, made[1])))

    @property
    def embeds(self) -> bool:
        """Whether there is an embedder, as far as is known without opening it."""
        return self._open is not None

    async def nearest(self, query: str, texts: Mapping[str, str], limit: int) -> Nearest:
        """Return which texts mean what a query asks for."""
        found = await self._ask(lambda held: held.nearest(query, texts, _SECONDS)) if texts else None
        return Nearest() if found is None else Nearest(found=near(found, limit), unread=len(texts) - len(found))

    async def fill(self, texts: Mapping[str, str]) -> None:
        """Embed all texts without a vector, and yield to other work in between."""
        while await self._ask(lambda held: held.fill(texts, _TURN_SECONDS)):
            pass

    async def search_text(self, text: str, title: str) -> SearchText:
        """Return the search text of a record: its words, and its vectors, if any."""
        words = f"{title} {title} {title} {text}" if title else text
        made = await self._ask(lambda held: (held.model, held.packed(text, title))) if words.strip() else None
        return SearchText(text=words) if made is None else SearchText(text=words, model=made[0], vectors=made[1])

    async def model(self) -> str:
        """Return the id of the embedder; empty if there is none."""
        return await self._ask(lambda held: held.model) or ""

    async def cosines(self, query: str, held: Sequence[tuple[str, bytes]]) -> dict[str, float]:
        """Return the similarity of the records with these vectors to a query."""
        return await self._ask(lambda texts: texts.cosines(query, held)) or {}

    async def _ask(self, work: Callable[[TextVectors], T]) -> T | None:
        """Return the result of `work` on the vectors, in a thread, one at a time; None without vectors."""
        if self._open is None:
            return None
        self._turn = self._turn or anyio.CapacityLimiter(1)
        try:
            return await to_thread.run_sync(self._asked, self._open, work, limiter=self._turn)
        except Exception:  # a foreign embedder may raise anything; the search by words remains
            self._open = None
            _logger.exception("finding by meaning is off: the embedder failed; records are found by their words")
            return None

    def _asked(self, opened: Callable[[], TextVectors], work: Callable[[TextVectors], T]) -> T:
        self._texts = self._texts or opened()
        return work(self._texts)


def near(cosines: Mapping[str, float], limit: int) -> dict[str, float]:
    """Return the keys that are near enough to be meant, best first."""
    least = max(_LEAST, _OF_BEST * max(cosines.values(), default=0.0))
    meant = [key for key, nearness in cosines.items() if nearness >= least]
    return {key: cosines[key] for key in sorted(meant, key=lambda key: (-cosines[key], key))[:limit]}


def mixed(shares: Mapping[str, float], cosines: Mapping[str, float], limit: int) -> dict[str, float]:
    """Return the scores of texts by words and meaning together, best first.

    `shares` say how much of the query's words they have; one without its vector is as near as its words are.
    """
    scores: dict[str, float] = {}
    for key in {**shares, **near(cosines, limit)}:
        share = shares.get(key, 0.0)
        nearness = min(max(cosines[key], 0.0) / _CLEAR, 1.0) if key in cosines else share
        scores[key] = _MEANING * nearness + (1 - _MEANING) * share
    least = _OF_BEST_SCORE * max(scores.values(), default=0.0)
    kept = [key for key, score in scores.items() if score >= least]
    return {key: scores[key] for key in sorted(kept, key=lambda key: (-scores[key], key))[:limit]}


class RecordCollection:
    """One collection of one owner. As long as the store is open.

    Writes mask secrets first, and record the intent of the call before they change anything; reads report the marks of
    untrusted records to the call's taint.
    """

    def __init__(
        self,
        rows: RecordRows,
        key: tuple[str, str],
        mask: Callable[[Any], Any],
        meaning: MeaningSearch,
        taint: StoredTaint | None = None,
        intent: Intent | None = None,
    ) -> None:
        """`key` is the owner with the collection's name; `mask` takes secrets out.

        `taint` and `intent` are those of the call which uses the collection; without a taint records are stored
        unmarked.
        """
        self._taint = taint
        self._intent = intent
        self._rows = rows
        self._key = key
        self._mask = mask
        self._meaning = meaning

    async def add(self, value: Mapping[str, Any], *, group: str = "", text: str = "", title: str = "") -> Record:
        """Keep a new one; see `core.services.records`. Raises `ToolFailure` for what is over a limit."""
        group = self._name(group, "group")
        kept, search_text = await self._content(value, text, title)
        await self._begin()
        return await self._rows.add(self._key, kept, group=group, text=search_text, tainted=self._mark)

    async def put(
        self,
        id: str,
        value: Mapping[str, Any],
        *,
        group: str = "",
        text: str = "",
        title: str = "",
        revision: int | None = None,
    ) -> Record:
        """Keep one in the place of what has the id."""
        named, group = self._name(id, "id"), self._name(group, "group")
        kept, search_text = await self._content(value, text, title)
        await self._begin()
        return await self._rows.put(
            self._key, named, kept, group=group, text=search_text, revision=revision, tainted=self._mark
        )

    async def get(self, id: str) -> Record | None:
        """Return one."""
        found = await self._rows.get(self._key, self._name(id, "id"))
        return found and self._noted([found])[0]

    async def remove(self, id: str) -> bool:
        """Forget one."""
        name = self._name(id, "id")
        await self._begin()
        return await self._rows.remove(self._key, name)

    async def list(self, *, group: str | None = None, limit: int = 1000) -> list[Record]:
        """Return those of a group, or all."""
        return self._noted(await self._rows.list(self._key, group=self._group(group), limit=_within(limit)))

    async def search(self, query: str, *, group: str | None = None, limit: int = 10) -> list[Record]:
        """Return those that share words with the query, or mean the same."""
        group, limit = self._group(group), _within(limit)
        model = await self._meaning.model()
        if not model or not limit:
            return self._noted(await self._rows.search(self._key, query, group=group, limit=limit))
        wide = max(limit, _CANDIDATES)
        found = await self._rows.search(self._key, query, group=group, limit=wide)
        shares = {record.id: min(record.score, 1.0) for record in found}
        held = await self._rows.vectors(self._key, group=group, model=model)
        scores = mixed(shares, await self._meaning.cosines(query, held), limit)
        records = self._noted(await self._rows.some(self._key, list(scores)))
        return [replace(record, score=scores[record.id]) for record in records]

    async def meant(self, *, group: str | None = None) -> int | None:
        """Return the number of records that are found by meaning; None without an embedder."""
        group, model = self._group(group), await self._meaning.model()
        return await self._rows.count_vectors(self._key, group=group, model=model) if model else None

    async def _begin(self) -> None:
        """Record the intent of a call that has recorded none yet."""
        if self._intent is not None:
            await self._intent.record()

    @property
    def _mark(self) -> str:
        return "" if self._taint is None else self._taint.mark

    def _noted(self, records: _Records) -> _Records:
        if self._taint is not None:
            self._taint.note(record.tainted for record in records)
        return records

    async def _content(self, value: Mapping[str, Any], text: str, title: str) -> tuple[Mapping[str, Any], SearchText]:
        size = _size(value)
        if size > _VALUE_BYTES:
            raise _too_large(f"it has {size:,} bytes as JSON, {_VALUE_BYTES:,} is the most")
        if len(text) + len(title) > _TEXT:
            raise _too_large(f"its text has {len(text) + len(title):,} characters, {_TEXT:,} is the most")
        return self._mask(value), await self._meaning.search_text(self._mask(text), self._mask(title))

    def _group(self, group: str | None) -> str | None:
        return None if group is None else self._name(group, "group")

    def _name(self, name: str, what: str) -> str:
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise _cannot_hold(f"its {what} is not Unicode text") from error
        if "\0" in name:
            raise _cannot_hold(f"its {what} has a NUL character, which not every database takes")
        if size > _NAME_BYTES:
            raise _too_large(f"its {what} has {size:,} bytes, {_NAME_BYTES:,} is the most")
        return self._mask(name)


def _size(value: Mapping[str, Any]) -> int:
    try:
        return len(dumps(value))
    except TypeError as error:
        raise _cannot_hold(str(error.__cause__ or error)) from error


def _within(limit: int) -> int:
    return max(0, min(limit, MAX_RECORDS))


def _too_large(why: str) -> ToolFailure:
    return ToolFailure("too_large", f"this cannot be kept: {why}", hint="keep a shorter one, or several")


def _cannot_hold(why: str) -> ToolFailure:
    return ToolFailure("invalid_arguments", f"this cannot be kept: {why}")
