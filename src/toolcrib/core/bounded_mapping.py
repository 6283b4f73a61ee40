"""A mapping of bounded size, for caches and for what is remembered of the latest events."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedMapping(OrderedDict[K, V]):
    """A mapping that forgets the entries that were set or moved to its end longest ago, beyond `most` of them.

    Reading an entry does not move it: a cache that keeps what is used calls `move_to_end`, as `ValidatorCache` does.
    """

    def __init__(self, most: int) -> None:
        """It is empty at first."""
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        """Put the entry at the end."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)
