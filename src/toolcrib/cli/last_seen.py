"""Last known facts of servers and clients: states of servers that were asked, and what a connected client pays.

One file in the cache folder, written by the commands that ask servers and read by the overview, which asks none.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..core.json import as_mapping, dumps, loads
from ..system.private_files import replace_private

_FILE: Final = "last_seen.json"
_MAX: Final = 1_000
"""Entries of one kind that are kept; the oldest go first."""


def last_seen_file(cache: Path) -> Path:
    """Return the file in the cache folder."""
    return cache / _FILE


def read_last_seen(cache: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return `servers` by the key of their configuration and `clients` by file; both empty when there is nothing."""
    try:
        kept: Any = loads(last_seen_file(cache).read_bytes())
    except (OSError, ValueError):
        kept = {}
    found = as_mapping(kept)
    return {kind: found[kind] if isinstance(found.get(kind), dict) else {} for kind in ("servers", "clients")}


def remember(
    cache: Path, *, servers: Mapping[str, Any] | None = None, clients: Mapping[str, Any] | None = None
) -> None:
    """Add what was seen just now. A cache folder that cannot be written keeps nothing."""
    kept = read_last_seen(cache)
    fresh: dict[str, dict[str, Any]] = {}
    for kind, seen in (("servers", servers or {}), ("clients", clients or {})):
        entries = {key: value for key, value in kept[kind].items() if key not in seen} | dict(seen)
        fresh[kind] = dict(list(entries.items())[-_MAX:])
    with suppress(OSError):
        replace_private(last_seen_file(cache), dumps(fresh))
