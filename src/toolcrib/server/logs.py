"""Log of a serving process: one JSON object a line, short, without secrets or control characters.

A record may contain text of a server or a client, so nothing in it may move a cursor, end a line, or fill a disk
(security.md T8, T33). On a terminal the same facts are one plain line.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from typing import Any, Final, TextIO

_MAX_LINE_BYTES: Final = 8 * 1024
_MAX_FILE_BYTES: Final = 1024 * 1024
"""A log file is renamed at this size; one older file is kept."""

_CHATTY: Final = ("httpcore2", "httpx2", "uvicorn")
"""Libraries that report every request or start at `info`, which is noise in our log."""

_Clean = Callable[[str], str]


class LineFormatter(logging.Formatter):
    """Formats a record as one line of at most 8 KiB."""

    def __init__(self, clean: _Clean, *, plain: bool) -> None:
        """`clean` takes secrets out of a text; `plain` is for a person's terminal."""
        super().__init__()
        self._clean = clean
        self._plain = plain

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        message = self._clean(record.getMessage())
        trace = self.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
        trace = self._clean(trace)
        if self._plain:
            return _visible(f"{record.levelname.lower()}: {message}{': ' if trace else ''}{trace}")[:_MAX_LINE_BYTES]
        fields: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        if trace:
            fields["trace"] = trace
        line = json.dumps(fields)
        while len(line) > _MAX_LINE_BYTES:
            longest = max(fields, key=lambda name: len(fields[name]))
            fields[longest] = fields[longest][: len(fields[longest]) // 2] + "…"
            line = json.dumps(fields)
        return line


class DaemonLog(RotatingFileHandler):
    """A log file with a limit. Standard output and error follow it, so stray prints end up there too."""

    def __init__(self, path: str) -> None:
        super().__init__(path, maxBytes=_MAX_FILE_BYTES, backupCount=1, encoding="utf-8")
        self._follow()

    def doRollover(self) -> None:
        """Begin a new file."""
        super().doRollover()
        self._follow()

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the record, on a full disk: the traceback would go to the terminal of a command that runs here."""

    def _open(self) -> Any:
        previous = os.umask(0o077)
        try:
            return super()._open()
        finally:
            os.umask(previous)

    def _follow(self) -> None:
        if self.stream is not None:
            os.dup2(self.stream.fileno(), 1)
            os.dup2(self.stream.fileno(), 2)


def log_to(target: TextIO | logging.Handler, level: str, clean: _Clean) -> None:
    """Send the records of every logger, from `level` on, to `target`."""
    handler = logging.StreamHandler(target) if not isinstance(target, logging.Handler) else target
    plain = not isinstance(target, logging.Handler) and target.isatty()
    handler.setFormatter(LineFormatter(clean, plain=plain))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


def _visible(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
