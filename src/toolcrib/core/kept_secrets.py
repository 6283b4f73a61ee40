"""Placeholders `⟦secret:ID⟧` for values that may be secrets, and the values that this process keeps for them.

They belong to one conversation of one principal. They are neither stored nor shared with other processes: after a
restart, at another replica, after an hour, and when 64 newer ones came, a placeholder stands for nothing, and the call
that brings it is asked to read the value again. Records, questions and saved calls hold the placeholder.
"""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, Final, cast

from msgspec import Struct

from .json import MAX_DEPTH
from .patterns import regex

SIGN: Final = "⟦"
"""The first character of a placeholder."""
_WHOLE: Final = regex(r"⟦secret:[a-z]{10}⟧")
"""Letters only: random text with digits would itself look like a secret to the redactor."""
_MOST: Final = 64
"""Values that a conversation keeps."""
_LONGEST: Final = 4096
_SHORTEST: Final = 6
"""Characters of a value: a shorter one cannot be masked where it comes back without its name."""
_SECONDS: Final = 3600.0
"""Time from when a value was last shown as its placeholder."""


class KeptSecret(Struct):
    """A value that may be a secret, and the sources that gave it to this conversation."""

    value: str
    sources: set[str]
    until: float


def _new_name() -> str:
    return f"⟦secret:{''.join(secrets.choice(string.ascii_lowercase) for _ in range(10))}⟧"


class KeptSecrets:
    """The kept values of one conversation, by placeholder. May be used from several threads.

    `Redact` keeps a value, `Execute` puts it in the place of its placeholder right before the source is called
    (`policy.secret_arguments` decides for which source). Reached by `session.state_of(KeptSecrets)`.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` returns seconds."""
        self._now = now
        self._kept: dict[str, KeptSecret] = {}
        self._names: dict[str, str] = {}
        self._lock = Lock()

    @property
    def shown_by(self) -> object:
        """None: views do not depend on it."""
        return ()

    def keep(self, value: str, source: str) -> str:
        """Return the placeholder of `value`, a new one if it has none; empty for a value that cannot be kept."""
        if not _SHORTEST <= len(value) <= _LONGEST:
            return ""
        with self._lock:
            self._drop_old()
            name = self._names.get(value) or _new_name()
            kept = self._kept.pop(name, None) or KeptSecret(value, set(), 0.0)
            kept.sources.add(source)
            kept.until = self._now() + _SECONDS
            self._kept[name], self._names[value] = kept, name
            while len(self._kept) > _MOST:
                self._forget(next(iter(self._kept)))
            return name

    def known(self, value: str) -> str:
        """Return the placeholder that `value` has already; empty for none."""
        with self._lock:
            self._drop_old()
            return self._names.get(value, "")

    def get(self, placeholder: str) -> KeptSecret | None:
        """Return the kept value, None for a placeholder that stands for nothing (any more)."""
        with self._lock:
            self._drop_old()
            return self._kept.get(placeholder)

    def _drop_old(self) -> None:
        """Forget what is over. The first is the oldest: `keep` puts a value at the end, with the latest time."""
        now = self._now()
        while self._kept and (oldest := next(iter(self._kept))) and self._kept[oldest].until <= now:
            self._forget(oldest)

    def _forget(self, name: str) -> None:
        del self._names[self._kept.pop(name).value]


def placeholders_in(value: Any, depth: int = 0) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield path and text of each string in `value` that is one placeholder and nothing else."""
    if isinstance(value, str):
        if SIGN in value and _WHOLE.fullmatch(value):
            yield (), value
    elif depth <= MAX_DEPTH and isinstance(value, Mapping | list):
        is_list = isinstance(value, list)
        items = enumerate(cast("list[Any]", value)) if is_list else cast("Mapping[Any, Any]", value).items()
        for key, inner in items:
            if isinstance(inner, str | Mapping | list):
                for path, found in placeholders_in(inner, depth + 1):
                    yield (key, *path), found
