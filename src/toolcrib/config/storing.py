"""Where the store is and how long records are kept, as the configuration says it."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Final

from .secrets import MIN_LENGTH, secret_values

__all__ = ["KEEP_LEAST", "ROWS_LEAST", "StoreSpec", "bytes_of", "seconds_of", "store_key"]

KEEP_LEAST: Final = 86_400.0
"""Seconds: whoever repeats a request within 24 hours must find what became of the first."""
ROWS_LEAST: Final = 1000

_KEY_BYTES: Final = 32
_DURATION: Final = re.compile(r"(\d{1,6})([smhdw])")
_SIZE: Final = re.compile(r"(\d{1,12})(B|KiB|MiB|GiB|TiB)")
_SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """Where the store is; nothing given is a file in the data directory with its key beside it."""

    url: str = field(default="", repr=False)
    """Of a PostgreSQL database, with its password."""
    key: bytes = field(default=b"", repr=False)
    """What real arguments are sealed with: the same on every machine that shares the store."""

    def secrets(self) -> tuple[str, ...]:
        """Return the values to mask wherever they turn up."""
        key = base64.b64encode(self.key).decode() if self.key else ""
        return (*secret_values(url=self.url), *((key,) if len(key) >= MIN_LENGTH else ()))


def store_key(text: str) -> bytes:
    """Return the 32 bytes of a key in base64; none for a text that is no such key."""
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return key if len(key) == _KEY_BYTES else b""


def seconds_of(text: str) -> float | None:
    """Return the seconds of `90d`, `12h` or `2w`; None for what is no such time."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def bytes_of(text: str) -> int | None:
    """Return the bytes of `256MiB` or `2GiB`; None for what is no such size."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _SIZES[match[2]] if match else None
