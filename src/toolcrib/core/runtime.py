"""What a session keeps between calls for its tools: a shell, a symbol graph, a connection."""

from __future__ import annotations

import inspect
import logging
from typing import Any, Final

__all__ = ["Runtime"]

_LOG: Final = logging.getLogger(__name__)


class Runtime(dict[str, Any]):
    """A mapping of one session's own. No other session sees it, so that one's working directory is not another's.

    It ends with its session, at the latest with the crib: every value that has `aclose` or `close` is closed then, the
    newest first.
    """

    async def aclose(self) -> None:
        """Close and forget every value. One that cannot be closed is logged, and the others are closed all the same."""
        while self:
            name, value = self.popitem()
            close = getattr(value, "aclose", None) or getattr(value, "close", None)
            if not callable(close):
                continue
            try:
                ended = close()
                if inspect.isawaitable(ended):
                    await ended
            except Exception:  # noqa: BLE001 - it is logged, and the others are closed
                _LOG.exception("%s of a session's runtime could not be closed", name)
