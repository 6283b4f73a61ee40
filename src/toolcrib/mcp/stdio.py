"""Framing of the stdio transport, both sides: a byte stream to messages, in linear time and bounded memory.

The client keeps a long message in memory up to a limit and on disk beyond it, so that a result of hundreds of megabytes
costs no more memory than a small one. It writes to disk on the event loop: one 64 KiB write to the page cache takes
about 20 microseconds. The server refuses a long message and reads on.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from ..core.files import make_private_folder
from ..core.json import MESSAGE_BYTES, read_json
from ..core.patterns import regex
from .client.spec import McpLimits
from .jsonrpc import Id

_HEAD: Final = 256
"""First bytes of a message, enough to recognise JSON-RPC."""

# Beginning of any message, and of an answer (`result` or `error` behind at most two short members). The second is for a
# line that is too long to be parsed on trial.
_START: Final = regex(rb'\s*\{\s*"(?:jsonrpc|id|result|error|method|params)"\s*:')

_ANSWER: Final = regex(
    rb'\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"\\]{0,200}"|-?\d{1,18})\s*,\s*){0,2}"(?:result|error)"\s*:'
)

# Beginning and end of a request that is too long to be parsed: with its id, which no other member can look like there.
_ID: Final = rb'"id"\s*:\s*("[^"\\]{0,100}"|-?\d{1,18})\s*'
_REQUEST: Final = regex(rb'[^{]*\{\s*(?:(?:"jsonrpc"\s*:\s*"2\.0"|' + _ID + rb')\s*,\s*){0,2}"method"\s*:')
_END: Final = regex(rb",\s*" + _ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')

_SHOWN_BYTES: Final = 200
_LOOKED_AT: Final = 4
"""Places of one line at which an answer may begin: reading stays linear."""


class Flood(Exception):
    """The peer sent data that is not a message, or a message that is too large; the connection must close."""


class SpooledMessage(Struct, frozen=True, kw_only=True):
    """Message on disk. Its receiver deletes it."""

    path: Path
    size: int
    is_parsed: bool = False
    """Whether its receiver parses it, once there is memory for it; otherwise it is too large to parse."""

    def discard(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


class MessageBuffer:
    """Incoming message of one connection; `take` empties the buffer for the next message."""

    def __init__(self, limits: McpLimits, folder: Path, *, defers: bool = False) -> None:
        """`defers`: leave a message that went to disk there, for its receiver to parse."""
        self._limits = limits
        self._folder = folder
        self._defers = defers
        self._pieces: list[bytes] = []
        self._held = 0
        self._head = b""
        self._path: Path | None = None
        self._file = -1
        self.size = 0

    def append(self, piece: bytes) -> None:
        """Add bytes. Raises `Flood` above the size limit."""
        self.size += len(piece)
        if self.size > self._limits.spool_bytes:
            raise Flood(f"sent a message above {self._limits.spool_bytes} bytes")
        if len(self._head) < _HEAD:
            self._head += piece[:_HEAD]
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > self._limits.memory_bytes:
            self._write_out()

    def head(self) -> bytes:
        """Return the first bytes of the message."""
        return self._head

    def take(self) -> bytes | SpooledMessage:
        """Return the message and empty the buffer: bytes if it may be parsed, else the file."""
        size, self.size, self._head = self.size, 0, b""
        if self._path is None:
            content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces, self._held = [], 0
            return content
        self._write_out()
        os.close(self._file)
        path, self._path = self._path, None
        is_parsed = size <= self._limits.inline_bytes
        if self._defers or not is_parsed:
            return SpooledMessage(path=path, size=size, is_parsed=is_parsed)
        content = path.read_bytes()
        path.unlink()
        return content

    def discard(self) -> None:
        """Drop the collected bytes."""
        self._pieces, self._held, self._head, self.size = [], 0, b"", 0
        if self._path is not None:
            os.close(self._file)
            self._path.unlink(missing_ok=True)
            self._path = None

    def _write_out(self) -> None:
        if self._path is None:
            make_private_folder(self._folder)
            self._path = self._folder / f"incoming-{secrets.token_hex(16)}"
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        view = memoryview(b"".join(self._pieces))
        while view:
            view = view[os.write(self._file, view) :]
        self._pieces, self._held = [], 0


class LineReader:
    """Splits chunks into lines. Short lines that are not messages are dropped and counted.

    Of a line that a program began with words of its own, without an end of line, the answer behind them is taken.
    """

    def __init__(self, limits: McpLimits, folder: Path) -> None:
        """A message that went to `folder` stays there, for its receiver to parse."""
        self._limits = limits
        self._buffer = MessageBuffer(limits, folder, defers=True)
        self._most_noise = min(limits.noise_bytes, limits.memory_bytes)
        self._checked = False
        self.noise = 0
        """Number of dropped lines."""
        self.first_noise = b""
        """Beginning of the first dropped line."""

    def feed(self, data: bytes) -> Iterator[bytes | SpooledMessage]:
        """Yield the messages that `data` completes, oldest first; `noise` is the number up to each. Raises `Flood`."""
        first, *rest = data.split(b"\n")
        if not rest:
            self._grow(first)
            return
        last = rest.pop()
        for line in (self._completed(first), *rest):
            message = self._message_in(line)
            if message is not None:
                yield message
        if last:
            self._grow(last)

    def close(self) -> None:
        """Drop an unfinished line."""
        self._buffer.discard()

    def _completed(self, end: bytes) -> bytes | SpooledMessage:
        if not self._buffer.size:
            return end
        self._grow(end)
        self._checked = False
        return self._buffer.take()

    def _grow(self, piece: bytes) -> None:
        if not self._checked and self._buffer.size + len(piece) > self._most_noise:
            if not looks_like_message((self._buffer.head() + piece[:_HEAD])[:_HEAD]):
                piece = self._without_noise(piece)
            self._checked = True
        self._buffer.append(piece)

    def _without_noise(self, piece: bytes) -> bytes:
        """Return a line that grew long from the beginning of its answer on; raises `Flood` where it has none."""
        begun = self._buffer.take()
        assert isinstance(begun, bytes), "noise goes to no file"
        line = begun + piece
        answer = _ANSWER.search(line)
        if answer is None:
            raise Flood(f"sent {self._most_noise} bytes that are not a JSON-RPC message")
        return line[answer.start() :]

    def _message_in(self, line: bytes | SpooledMessage) -> bytes | SpooledMessage | None:
        if isinstance(line, SpooledMessage):
            return line
        start = line[:64].lstrip()[:1] or line.lstrip()[:1]
        answer = None if _START.match(line) else _answer_in(line)
        if answer is not None or start in (b"{", b"["):
            return line if answer is None else answer
        if len(line) > self._limits.noise_bytes:
            raise Flood(f"sent a line of {len(line)} bytes that is not a JSON-RPC message")
        if line.strip():
            self.noise += 1
            self.first_noise = self.first_noise or line.strip()[:_SHOWN_BYTES]
        return None


def _answer_in(line: bytes) -> bytes | None:
    """Return the answer with which a line ends that begins otherwise; None without one.

    Answers alone: a program that logs the requests that it gets would otherwise seem to make them.
    """
    for found in islice(_START.finditer(line, 1), _LOOKED_AT):
        with suppress(ValueError):
            value = read_json(line[found.start() :], limit=len(line))
            if isinstance(value, dict) and "id" in value and ("result" in value or "error" in value):
                return line[found.start() :]
    return None


def looks_like_message(head: bytes) -> bool:
    """Whether a text begins like a JSON-RPC object."""
    return _START.match(head) is not None


async def read_messages(
    receive: Callable[[], Awaitable[bytes]], received: bytes = b"", most: int = MESSAGE_BYTES
) -> AsyncIterator[bytes | Id | None]:
    """Yield the lines of a client, without line ends and blank lines.

    Of a line above `most` bytes the id of the request is yielded, None where it has none that can be read. `received`
    arrived before. Ends when `receive` returns no bytes.
    """
    parts: list[bytes] = []
    size = 0
    chunk = received or await receive()
    while chunk:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            parts.append(line)
            size += len(line)
            text = b"".join(parts)
            message = text.strip() if size <= most else _request_id(text)
            parts, size = [], 0
            if message != b"":
                yield message
        parts.append(rest)
        size += len(rest)
        if size > most:
            text = b"".join(parts)
            parts = [text[:_HEAD], text[-_HEAD:]]
        chunk = await receive()
    text = b"".join(parts).strip()
    if text:
        yield text if size <= most else _request_id(text)


def _request_id(line: bytes) -> Id | None:
    """Return the id of a request that is too long, by its beginning and its end."""
    start = _REQUEST.match(line[:_HEAD])
    found = start and (start[1] or ((end := _END.search(line[-_HEAD:])) and end[1]))
    with suppress(ValueError):
        return read_json(found) if found else None
    return None
