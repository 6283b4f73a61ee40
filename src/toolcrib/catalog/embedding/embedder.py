"""Embedder interface, its lookup by name, and its use in ranking; nothing here needs numpy.

An embedder is named in the settings: `minilm`, an entry point of the group `toolcrib.embedders`, or the folder of a
BERT model. An entry point is a callable without arguments that returns an `Embedder`:

    [project.entry-points."toolcrib.embedders"]
    mine = "my_package:open_embedder"
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, cast

from ...core.entry_points import installed
from ...core.extras import install_extra
from ...errors import ConfigError

GROUP: Final = "toolcrib.embedders"

_BUILTIN: Final = ("minilm",)


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


def unknown_embedder(name: str) -> str:
    """Return the reason why `name` is not an embedder; empty for one that can be opened, as far as its name says."""
    points = {point.name for point in installed(GROUP)}
    if name in {*_BUILTIN, *points} or Path(name).expanduser().is_dir():
        return ""
    return f"no embedder and no folder is named {name!r}; there are: {', '.join(sorted({*_BUILTIN, *points}))}"


def open_embedder(name: str) -> Embedder:
    """Return the embedder `name`; raises `ConfigError` with the known names, or the package to install."""
    folder = Path(name).expanduser()
    if name in _BUILTIN or folder.is_dir():
        with optional_extra():
            from .bert import Bert, open_minilm  # needs numpy, of the extra `embed`

        return open_minilm() if name in _BUILTIN else Bert(folder)
    if unknown := unknown_embedder(name):
        raise ConfigError(unknown, key="ranking.embedder")
    points = {point.name: point for point in installed(GROUP)}
    try:
        made: object = points[name].load()()
    except Exception as error:
        raise ConfigError(f"embedder {name} cannot be opened: {error!r}", key="ranking.embedder") from error
    return cast("Embedder", made)


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
            f"ranking by meaning needs {error.name}; {install_extra('embed')}", key="ranking.embedder"
        ) from None
