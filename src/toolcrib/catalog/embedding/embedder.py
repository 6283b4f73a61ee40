"""Embedder interface, its lookup by name, and its use in ranking; nothing here needs numpy.

An embedder is named in the settings: `minilm`, an entry point of the group `toolcrib.embedders`, or the folder of a
BERT model. An entry point is a callable without arguments that returns an `Embedder`:

    [project.entry-points."toolcrib.embedders"]
    mine = "my_package:open_embedder"
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from ...errors import ConfigError

if TYPE_CHECKING:
    from ..ranking.score import Near
    from ..ranking.terms import IndexEntry

__all__ = [
    "GROUP",
    "Embedder",
    "Meanings",
    "SharedEmbedder",
    "Texts",
    "open_embedder",
    "optional_extra",
    "unknown_embedder",
]

GROUP: Final = "toolcrib.embedders"

_OWN: Final = ("minilm",)


class Embedder(Protocol):
    """Turns texts into vectors. May be called from any thread, and from several at the same time."""

    @property
    def id(self) -> str:
        """Names the model and its settings: vectors of equal ids are comparable, also after a restart."""
        ...

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        ...

    def encode(self, texts: Sequence[str]) -> object:
        """Return one row of `dim` numbers for each text: an array, or anything that numpy converts to one."""
        ...


class Meanings(Protocol):
    """The vectors of all tools of an index."""

    def put(self, entry: IndexEntry) -> None:
        """Add or update a tool; its vector follows when it has been computed."""
        ...

    def drop(self, name: str) -> None:
        """Forget a tool."""
        ...

    def want(self, names: Iterable[str]) -> None:
        """Make the vectors of these tools before others."""
        ...

    async def prepare(self, query: str) -> None:
        """Return when `near(query)` does not hold the event loop up any more."""
        ...

    def near(self, query: str) -> Near | None:
        """Compare `query` with all tools; None while no vector is there."""
        ...

    def fill(self) -> None:
        """Make all vectors that are missing, now; takes about 12 ms a tool that was never seen before."""
        ...

    async def keep_filled(self) -> None:
        """Make missing vectors in a worker thread, now and whenever tools come; returns when it is cancelled."""
        ...


def unknown_embedder(name: str) -> str:
    """Return why `name` is no embedder; empty for one that can be opened, as far as its name says."""
    points = {point.name for point in entry_points(group=GROUP)}
    if name in {*_OWN, *points} or Path(name).expanduser().is_dir():
        return ""
    return f"no embedder and no folder is named {name!r}; there are: {', '.join(sorted({*_OWN, *points}))}"


def open_embedder(name: str) -> Embedder:
    """Return the embedder `name`; raises `ConfigError` with the known names, or the package to install."""
    folder = Path(name).expanduser()
    if name in _OWN or folder.is_dir():
        with optional_extra():
            from .bert import Bert, open_minilm  # needs numpy, of the extra `embed`

        return open_minilm() if name in _OWN else Bert(folder)
    if unknown := unknown_embedder(name):
        raise ConfigError(unknown, key="ranking.embedder")
    points = {point.name: point for point in entry_points(group=GROUP)}
    try:
        made: object = points[name].load()()
    except Exception as error:
        raise ConfigError(f"embedder {name} cannot be opened: {error!r}", key="ranking.embedder") from error
    return cast("Embedder", made)


class Texts(Protocol):
    """Vectors of any texts. Every method blocks, and raises the embedder's exceptions: call it in a thread."""

    @property
    def model(self) -> str:
        """The id of the embedder."""
        ...

    def rows(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text."""
        ...

    def packed(self, text: str, title: str) -> bytes:
        """Return the vectors of the passages of a text, one behind the other, for `cosines`."""
        ...

    def cosines(self, query: str, held: Sequence[tuple[str, bytes]]) -> dict[str, float]:
        """Return how near each is to a query: the cosine of its nearest passage."""
        ...

    def nearest(self, query: str, texts: Mapping[str, str], seconds: float) -> dict[str, float]:
        """Return how near each text is to a query; those whose vectors are not made after `seconds` are left out."""
        ...

    def fill(self, texts: Mapping[str, str], seconds: float) -> bool:
        """Make vectors of the texts for `nearest`, for so long; return whether some are left to make."""
        ...


class SharedEmbedder:
    """The named embedder, opened at first use and shared."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._opened: Embedder | None = None

    def __call__(self) -> Embedder:
        """Return it. Raises what `open_embedder` does, every time."""
        with self._lock:
            if self._opened is None:
                self._opened = open_embedder(self._name)
            return self._opened


@contextmanager
def optional_extra() -> Generator[None]:
    """Turn a missing library into a `ConfigError` with the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"ranking by meaning needs {error.name}; install the extra `embed`", key="ranking.embedder"
        ) from None
