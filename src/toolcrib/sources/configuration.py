"""Sources that a configuration names under `sources.KIND.NAME`: an entry, and its kind."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ..core.settings import Section
from .source import Source


class ConfiguredSource(Section):
    """One entry of `sources.KIND.NAME` of a configuration: the source that it makes, not made yet."""

    kind: str
    name: str
    settings: Section
    """The keys of the entry."""
    folder: Path
    """The folder that its relative paths count from."""


class SourceKind(Struct, frozen=True, kw_only=True):
    """A kind of source whose entries stand under `sources.KIND.NAME` of a configuration; `sources.kinds` lists them."""

    settings: type[Section]
    """The keys of one entry."""
    make: Callable[[ConfiguredSource], Source]
    """Returns the source of an entry, not opened. Raises `UsageError` for one that cannot be made."""
