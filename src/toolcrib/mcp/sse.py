"""Server-sent events, both sides. The data of a large event waits on disk, like any large message."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from .client.spec import McpLimits
from .stdio import Flood, MessageBuffer, SpooledMessage, looks_like_message

PING = b": ping\n\n"
"""Comment that keeps a silent stream open."""


def encode_events(messages: Iterable[bytes]) -> bytes:
    """Return one `message` event for each message."""
    return b"".join([b"event: message\ndata: %b\n\n" % message for message in messages])


class Event(Struct, frozen=True, kw_only=True):
    """One event. `data` is empty if it only sets the id."""

    name: str
    data: bytes | SpooledMessage


class EventReader:
    """Splits the chunks of one stream into events; `close` removes its file.

    Lines end with LF or CRLF. A lone CR, which the standard of event streams also allows, ends no line here: the
    carriage returns that CRLF leaves in the data are white space of its JSON.
    """

    def __init__(self, limits: McpLimits, folder: Path) -> None:
        self.last_id = ""
        """Id of the last event, for resumption; empty if there is none."""
        self.retry: float | None = None
        """Reconnection delay that the server asked for, in seconds."""
        self._limits = limits
        self._buffer = MessageBuffer(limits, folder)
        self._line = b""
        self._in_data = False
        self._checked = False
        self._name = ""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes, oldest first; raises `Flood`."""
        done: list[Event] = []
        position = 0
        while position < len(chunk):
            end = chunk.find(b"\n", position)
            piece = chunk[position:] if end < 0 else chunk[position:end]
            self._take(piece)
            if end < 0:
                break
            self._end_line(done)
            position = end + 1
        return done

    def close(self) -> None:
        """Drop an unfinished event."""
        self._buffer.discard()

    def _take(self, piece: bytes) -> None:
        if not self._in_data:
            self._line += piece
            if not self._line.startswith(b"data:"):
                if len(self._line) > self._limits.noise_bytes:
                    raise Flood(f"sent {len(self._line)} bytes that are not an event")
                return
            self._in_data, piece, self._line = True, self._line[5:], b""
        self._buffer.append(piece)
        if not self._checked and self._buffer.size > self._limits.noise_bytes:
            if not looks_like_message(self._buffer.head()):
                raise Flood(f"sent {self._buffer.size} bytes that are not a JSON-RPC message")
            self._checked = True

    def _end_line(self, done: list[Event]) -> None:
        if self._in_data:
            self._in_data = False
            self._buffer.append(b"\n")
            return
        line, self._line = self._line.rstrip(b"\r"), b""
        if line:
            field, _, value = line.partition(b":")
            text = value.removeprefix(b" ").decode("utf-8", "replace")
            if field == b"event":
                self._name = text
            elif field == b"id" and "\0" not in text:
                self.last_id = text
            elif field == b"retry" and text.isdecimal():
                self.retry = int(text[:9]) / 1000
            return
        if self._buffer.size:
            data = self._buffer.take()
            done.append(
                Event(name=self._name or "message", data=data if isinstance(data, SpooledMessage) else data.strip())
            )
        self._name, self._checked = "", False
