"""A lock: what was reviewed, in a file that goes with the project. Definitions by source, and what runs behind them.

Where a lock is in force nothing else counts as reviewed: a definition that is not in it word for word is withheld,
and a source whose program or files changed is not started. Pure: whoever calls it reads and writes the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from ..core.json import canonical, read_json
from ..errors import ConfigError
from .pins import difference

__all__ = ["Lock", "LockedSource", "compare", "read_lock", "write_lock"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedSource:
    """One source as it was reviewed."""

    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Definitions by the source's own names, as `pins.seen_of` gives them."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """SHA-256 in hexadecimal of what decides what runs: files by path, programs as `program:WORD`."""

    @property
    def pins(self) -> dict[str, bytes]:
        """The pin of every tool, by local name."""
        return {name: hashlib.sha256(canonical(tool)).digest() for name, tool in self.tools.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """All sources, by name."""

    sources: Mapping[str, LockedSource] = field(default_factory=dict[str, LockedSource])


def write_lock(lock: Lock) -> bytes:
    """Return the text of the file: JSON, the same for the same lock, with a line for every value."""
    sources = {name: {"files": source.files, "tools": source.tools} for name, source in lock.sources.items()}
    text = json.dumps({"toolcrib_lock": _VERSION, "sources": sources}, indent=2, sort_keys=True, ensure_ascii=True)
    return f"{text}\n".encode()


def read_lock(content: bytes, file: str) -> Lock:
    """Return the lock that `file` holds. Raises `ConfigError`: a lock that cannot be read lets nothing pass."""
    try:
        given: Any = read_json(content, limit=len(content), strict=True)
    except ValueError as error:
        raise ConfigError(f"no JSON: {error}", file=file) from None
    root = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    if root.get("toolcrib_lock") != _VERSION:
        raise ConfigError(f"no lock of version {_VERSION}; `toolcrib lock` writes one", file=file, key="toolcrib_lock")
    sources: dict[str, LockedSource] = {}
    for name, source in _mapping(root.get("sources"), file, "sources").items():
        said = _mapping(source, file, f"sources.{name}")
        tools = _mapping(said.get("tools"), file, f"sources.{name}.tools")
        files = _mapping(said.get("files"), file, f"sources.{name}.files")
        sources[name] = LockedSource(
            tools={tool: _mapping(seen, file, f"sources.{name}.tools.{tool}") for tool, seen in tools.items()},
            files={path: str(digest) for path, digest in files.items()},
        )
    return Lock(sources=sources)


def compare(locked: Lock, found: Lock) -> Iterator[str]:
    """Yield how what was found differs from the lock: a line for what is new or gone, a diff for what changed."""
    for name in sorted(set(locked.sources) | set(found.sources)):
        before, after = locked.sources.get(name), found.sources.get(name)
        if before is None or after is None:
            yield f"source {name}: {'not in the lock' if before is None else 'in the lock, and not here'}"
            continue
        yield from _files(name, before.files, after.files)
        for tool in sorted(set(before.tools) | set(after.tools)):
            if tool not in before.tools or tool not in after.tools:
                yield f"{name}/{tool}: {'not in the lock' if tool not in before.tools else 'in the lock, and not here'}"
            elif text := difference(before.tools[tool], after.tools[tool]):
                yield f"{name}/{tool}:\n{text}"


def _files(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path in sorted(set(before) | set(after)):
        if before.get(path) != after.get(path):
            what = "changed" if path in before and path in after else "is new" if path in after else "is gone"
            yield f"source {name}: {path} {what}"


def _mapping(given: Any, file: str, key: str) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError("a mapping was expected", file=file, key=key)
    return cast("Mapping[str, Any]", given)
