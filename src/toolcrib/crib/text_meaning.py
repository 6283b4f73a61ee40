"""What texts mean, for records and tools: the embedder that also ranks tools, asked in a thread.

An embedder that fails is reported once; from then on everything is found by words, as where there is none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import anyio
from anyio import to_thread

from ..catalog.embedding import open_texts
from ..catalog.embedding.embedder import SharedEmbedder, Texts
from ..core.host import Embedded, Nearest
from ..errors import ToolFailure
from ..store.records import SearchText

__all__ = ["Meaning", "mixed", "near"]

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

_LEAST: Final = 0.25
"""Minimum similarity of a match without common words. Cosines of MiniLM; other models' are higher."""
_OF_BEST: Final = 0.6
"""Neither does one that is less near than this share of the nearest."""
_CLEAR: Final = 0.6
"""What is as near as this is as near as can be."""
_MEANING: Final = 0.65
"""How much of a score is nearness in meaning; the rest is words."""
_OF_BEST_SCORE: Final = 0.3
"""What scores less than this share of the best is left out: it has a common word of a long question."""
_SECONDS: Final = 5.0
"""How long `nearest` makes vectors that are missing, a call."""
_TURN_SECONDS: Final = 1.0
"""How long `fill` works before others have their turn."""
_HINT: Final = "the operator can turn one on: `ranking: {embedder: minilm}`, with the extra `toolcrib[embed]`"


class Meaning:
    """One a crib. Belongs to its event loop."""

    def __init__(self, embedder: SharedEmbedder | None, path: Callable[[], Path]) -> None:
        """Without an embedder nothing has a meaning. `path` is asked for the file of vectors when one is wanted."""
        self._open = None if embedder is None else lambda: open_texts(embedder, path())
        self._texts: Texts | None = None
        self._turn: anyio.CapacityLimiter | None = None

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of texts. Raises `ToolFailure("unavailable")` where there is no embedder that works."""
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
        """Return what a search for a record goes by: its words, and its vectors where there are any."""
        words = f"{title} {title} {title} {text}" if title else text
        made = await self._ask(lambda held: (held.model, held.packed(text, title))) if words.strip() else None
        return SearchText(text=words) if made is None else SearchText(text=words, model=made[0], vectors=made[1])

    async def model(self) -> str:
        """Return the id of the embedder; empty where there is none."""
        return await self._ask(lambda held: held.model) or ""

    async def cosines(self, query: str, held: Sequence[tuple[str, bytes]]) -> dict[str, float]:
        """Return how near the records with these vectors are to a query."""
        return await self._ask(lambda texts: texts.cosines(query, held)) or {}

    async def _ask(self, work: Callable[[Texts], T]) -> T | None:
        """Return what `work` does with the vectors, in a thread, one at a time; None where there are none."""
        if self._open is None:
            return None
        self._turn = self._turn or anyio.CapacityLimiter(1)
        try:
            return await to_thread.run_sync(self._asked, self._open, work, limiter=self._turn)
        except Exception:  # noqa: BLE001 - a foreign embedder may raise anything; the search by words remains
            self._open = None
            _LOG.exception("finding by meaning is off: the embedder failed; records are found by their words")
            return None

    def _asked(self, opened: Callable[[], Texts], work: Callable[[Texts], T]) -> T:
        self._texts = self._texts or opened()
        return work(self._texts)


def near(cosines: Mapping[str, float], limit: int) -> dict[str, float]:
    """Return the keys that are near enough to be meant, best first."""
    least = max(_LEAST, _OF_BEST * max(cosines.values(), default=0.0))
    meant = [key for key, nearness in cosines.items() if nearness >= least]
    return {key: cosines[key] for key in sorted(meant, key=lambda key: (-cosines[key], key))[:limit]}


def mixed(shares: Mapping[str, float], cosines: Mapping[str, float], limit: int) -> dict[str, float]:
    """Return how well texts fit by words and meaning together, best first.

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
