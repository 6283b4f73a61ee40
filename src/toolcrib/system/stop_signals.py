"""Signals that end a process that serves."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any, Final

import anyio

_HANG_UP: Final[Any] = getattr(signal, "SIGHUP", None)  # Windows has none


def stop_signals() -> AbstractContextManager[AsyncIterator[signal.Signals]]:
    """Receive SIGTERM, SIGINT, and SIGHUP (its terminal is gone) where that is not ignored, as `nohup` has it."""
    hang_up = () if _HANG_UP is None or signal.getsignal(_HANG_UP) is signal.SIG_IGN else (_HANG_UP,)
    return anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, *hang_up)
