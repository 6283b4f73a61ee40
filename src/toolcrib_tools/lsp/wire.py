"""The base protocol: JSON-RPC messages behind headers, from bytes and to bytes. No input, no output.

Ours, for a library's client (pygls 2.1) takes 1.0 s to import, brings an event loop's futures of its own, reads lines
of any length, and loses a whole message over one field that is not by the book.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

__all__ = ["MOST_BYTES", "Frames", "Garbage", "packed"]

MOST_BYTES: Final = 32 * 1024 * 1024
"""Of one message."""
_HEADER: Final = 4 * 1024
"""Bytes before a message."""
_SHOWN: Final = 200
_END: Final = b"\r\n\r\n"
_BEGINNING: Final = b"content-"
_LENGTH: Final = b"content-length"

_Message = dict[str, Any]


class Garbage(Exception):
    """What came is no language server protocol; the text says what it was instead."""


def packed(message: _Message) -> bytes:
    """Return a message as it is sent."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Frames:
    """Messages out of pieces of a stream. Lives as long as the stream, and is of no use once it has raised."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length = -1
        """Of the message whose header was read; -1 before one."""

    def feed(self, piece: bytes) -> list[_Message]:
        """Return the messages that are whole now. Raises `Garbage`."""
        self._buffer += piece
        found: list[_Message] = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> _Message | None:
        if self._length < 0:
            self._read_header()
        if self._length < 0 or len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._length = -1
        try:
            message: Any = json.loads(body)
        except (ValueError, RecursionError):
            raise Garbage(f"it sent a message that is no JSON: {_shown(body)}") from None
        if not isinstance(message, dict):
            raise Garbage(f"it sent a message that is no object: {_shown(body)}")
        return cast("_Message", message)

    def _read_header(self) -> None:
        start = bytes(self._buffer[: len(_BEGINNING)]).lower()
        if not _BEGINNING.startswith(start):
            raise Garbage(f"it wrote to its output what is no message: {_shown(self._buffer)}")
        end = self._buffer.find(_END, 0, _HEADER)
        if end < 0:
            if len(self._buffer) >= _HEADER:
                raise Garbage(f"it sent a header without an end: {_shown(self._buffer)}")
            return
        fields = [line.partition(b":") for line in bytes(self._buffer[:end]).split(b"\r\n")]
        said = next((value.strip() for name, _, value in fields if name.strip().lower() == _LENGTH), b"")
        if not said.isdigit() or len(said) > len(str(MOST_BYTES)):
            raise Garbage(f"it sent a header that tells no length: {_shown(self._buffer)}")
        if int(said) > MOST_BYTES:
            raise Garbage(f"it sent a message of {int(said):,} bytes, and {MOST_BYTES >> 20} MiB are the most")
        del self._buffer[: end + len(_END)]
        self._length = int(said)


def _shown(data: bytes | bytearray) -> str:
    return repr(bytes(data[:_SHOWN]).decode("utf-8", "replace"))
