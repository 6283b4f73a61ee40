"""An index on disk: one file, mapped when it is opened, so that opening costs no reading of the tools.

    magic · length of the head · head (JSON: stamp, recipe, sources, where each section lies) · sections, 8-aligned

The stamp says of which catalog the file is, the recipe by which way of reading tools it was made: with another of
either the file counts as absent. So does one that is damaged, foreign or cut short: it is a copy of what can be built
again. Files are replaced whole (written beside, synced, renamed) and belong to their owner alone.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import tempfile
from array import array
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from .postings import Frozen, Postings
from .sources import Sources

__all__ = ["Stored", "load", "save"]

_MAGIC = b"toolcrib index 1"
_ALIGN = 8
_FROZEN = ("groups", "groups_at", "pairs", "pairs_at", "order", "order_at")


class Stored(NamedTuple):
    """All that an index consists of, with documents numbered 0, 1, 2 … without gaps."""

    postings: Postings
    sources: Sources
    names: list[str]
    source_of: array[int]
    keys: array[int]
    keys_of: array[int]


def save(path: Path, stamp: str, stored: Stored) -> None:
    """Write the index; raises `OSError` when that cannot be done."""
    frozen = stored.postings.frozen
    sections = {
        "terms": orjson.dumps(stored.postings.terms),
        "names": orjson.dumps(stored.names),
        "source_of": stored.source_of.tobytes(),
        "keys": stored.keys.tobytes(),
        "keys_of": stored.keys_of.tobytes(),
    } | {name: getattr(frozen, name).tobytes() for name in _FROZEN}
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, content in sections.items():
        places[name] = end, len(content)
        end += _padded(len(content))
    head = orjson.dumps({"stamp": stamp, "recipe": _recipe(), "sources": stored.sources.dump(), "places": places})
    head = head.ljust(_padded(len(head)))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(_MAGIC + len(head).to_bytes(_ALIGN, "little") + head)
            out.writelines(content.ljust(_padded(len(content)), b"\0") for content in sections.values())
            out.flush()
            os.fsync(out.fileno())
        Path(beside).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(beside).unlink()
        raise


def load(path: Path, stamp: str) -> Stored | None:
    """Return the index that `path` holds of the catalog `stamp`, or None when it holds no such thing."""
    try:
        with path.open("rb") as opened:
            content = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        start = len(_MAGIC) + _ALIGN
        length = int.from_bytes(content[len(_MAGIC) : start], "little")
        if content[: len(_MAGIC)].tobytes() != _MAGIC or length > len(content) - start:
            return None
        head = orjson.loads(content[start : start + length])
        if head["stamp"] != stamp or head["recipe"] != _recipe():
            return None
        return _stored(head, content[start + length :])
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return None


def _stored(head: Mapping[str, Any], body: memoryview) -> Stored:
    """Return what the sections hold; raises `ValueError` when they do not fit one another."""
    parts = {name: _section(body, *place) for name, place in head["places"].items()}
    terms, names = orjson.loads(parts["terms"]), orjson.loads(parts["names"])
    frozen = Frozen(**{name: parts[name].cast("I") for name in _FROZEN})
    source_of, keys, keys_of = array("I"), array("Q"), array("Q")
    source_of.frombytes(parts["source_of"])
    keys.frombytes(parts["keys"])
    keys_of.frombytes(parts["keys_of"])
    if not (frozen.fits(len(terms), len(names)) and len(source_of) == len(names) and len(keys_of) == 2 * len(names)):
        raise ValueError("the sections do not fit one another")
    return Stored(Postings(terms, frozen), Sources.load(head["sources"]), names, source_of, keys, keys_of)


def _section(body: memoryview, at: int, length: int) -> memoryview:
    if at + length > len(body):
        raise ValueError("cut short")
    return body[at : at + length]


def _padded(length: int) -> int:
    return -(-length // _ALIGN) * _ALIGN


@cache
def _recipe() -> str:
    """Return a mark of how tools are read: this package's own text, and how this machine writes numbers."""
    mark = blake2b(f"{sys.byteorder} {array('I').itemsize} {array('Q').itemsize}".encode(), digest_size=8)
    for part in sorted(files(__package__ or "").iterdir(), key=lambda part: part.name):
        if part.name.endswith(".py"):
            mark.update(part.read_bytes())
    return mark.hexdigest()
