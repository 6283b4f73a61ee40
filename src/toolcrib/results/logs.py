"""Secrets out of our own log records, whoever formats them: the library's user has handlers of his own.

A record of a logger below `toolcrib` that holds a secret is cleaned when it is made; every other record, and every
other logger's, is left as it is. `toolcrib serve` cleans all that it logs once more, whoever logged it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from .redact import Redactor

__all__ = ["guard_logs"]

_OURS: Final = "toolcrib"
_plain: Final = logging.Formatter()


class _Guard:
    """The process's factory of log records, put before the one that was there. There is one, for all cribs."""

    def __init__(self) -> None:
        self._make: Callable[..., logging.LogRecord] = logging.LogRecord
        self._redactors: list[Redactor] = []

    def __call__(self, *args: Any, **fields: Any) -> logging.LogRecord:
        record = self._make(*args, **fields)
        if self._redactors and record.name.partition(".")[0] == _OURS:
            for redactor in self._redactors:
                _clean(record, redactor)
        return record

    def add(self, redactor: Redactor) -> None:
        """Clean with `redactor` too, from now on."""
        if logging.getLogRecordFactory() is not self:
            self._make = logging.getLogRecordFactory()
            logging.setLogRecordFactory(self)
        self._redactors.append(redactor)

    def remove(self, redactor: Redactor) -> None:
        """Clean with it no more; the last one gives the process its own factory back, unless that was replaced."""
        self._redactors.remove(redactor)
        if not self._redactors and logging.getLogRecordFactory() is self:
            logging.setLogRecordFactory(self._make)


_guard: Final = _Guard()


def guard_logs(redactor: Redactor) -> Callable[[], None]:
    """Clean our records with `redactor` from now on; returns what ends it."""
    _guard.add(redactor)
    return lambda: _guard.remove(redactor)


def _clean(record: logging.LogRecord, redactor: Redactor) -> None:
    """Mask what the message, the stack and the exception hold. One that is clean stays as it was made."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - the handler will report it
        return
    clean = redactor.text(message)
    if clean is not message:
        record.msg, record.args = clean, ()
    if record.stack_info:
        record.stack_info = redactor.text(record.stack_info)
    if record.exc_info and record.exc_info[0] is not None:
        trace = record.exc_text or _plain.formatException(record.exc_info)
        clean = redactor.text(trace)
        if clean is not trace:
            record.exc_text, record.exc_info = clean, None
    elif record.exc_text:
        record.exc_text = redactor.text(record.exc_text)
