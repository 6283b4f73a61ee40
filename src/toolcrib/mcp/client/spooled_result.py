"""Spooled result, too large for memory: the request that it answers, and its text as a plain file.

The answer lies on disk as the server sent it. Its first and last kilobytes say whose it is; when its content is one
text block, the text is decoded by chunks into a file of its own, else the raw `result` is kept. Both run in a worker
thread and hold a few megabytes at most, for any size.

    {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"… 200 MB …"}],"isError":false}}
    └── `_layout`: id, start of `result`             └── `_String`: chunk by chunk          └── `_AFTER_TEXT`

Regular expressions read the frame, since no parser that holds the whole can. What they do not recognise is no error:
the result is kept as it was sent.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import orjson
from msgspec import Struct

from ...core.files import make_private_folder
from ...core.patterns import regex
from ...core.result import SpooledResult
from ..stdio import SpooledMessage

_HEAD: Final = 64 * 1024
_TAIL: Final = 4 * 1024
_CHUNK: Final = 256 * 1024
_EXCERPT: Final = 2000
"""Characters of the beginning and of the end that are kept at hand."""

_KEY = regex(rb'\s*[{,]?\s*"(\w{1,64})"\s*:\s*')
_SCALAR = regex(rb'(?:"(?:[^"\\]|\\.)*+"|-?[0-9.eE+-]+|true|false|null)')
_TAIL_ID = regex(rb',\s*"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_TAIL_REST = regex(rb'(?:\s*,\s*"(?:id|jsonrpc)"\s*:\s*(?:-?\d{1,18}|"(?:[^"\\]|\\.){0,200}"))*\s*\}\s*$')
_LONE = regex(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_RUN = regex(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_HIGH = regex(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_AFTER_TEXT = regex(
    rb'(?:\s*,\s*"[a-zA-Z_]{1,32}"\s*:\s*(?:"(?:[^"\\]|\\.)*+"|null|true|false|\{[^{}]{0,500}\}))*\s*\}\s*\]'
)


class SpooledAnswer(Struct, frozen=True, kw_only=True):
    """A large answer made fit to hand on."""

    spooled: SpooledResult
    is_error: bool = False
    """The tool or the server reported a failure."""


class _Layout(Struct):
    """Positions of the members in the first kilobytes."""

    key: int | str | None = None
    member: str = ""
    """`result` or `error`."""
    start: int = 0
    """Start of that member's value."""


def id_of_big(big: SpooledMessage) -> int | str | None:
    """Return the id of the request that `big` answers; None for anything but an answer."""
    with big.path.open("rb") as file:
        layout = _layout(file.read(_HEAD))
        if layout.member and layout.key is None:
            file.seek(max(0, big.size - _TAIL))
            found = _TAIL_ID.search(file.read())
            layout.key = _scalar(found[1]) if found else None
    return layout.key if layout.member else None


def convert(big: SpooledMessage, folder: Path) -> SpooledAnswer:
    """Turn `big` into an output file in `folder` and delete it. Blocking; raises `OSError` and `ValueError`."""
    try:
        with big.path.open("rb") as file:
            head = file.read(_HEAD)
            layout = _layout(head)
            found = _single_text(head, layout.start) if layout.member == "result" else None
            if found is not None:
                answer = _text(file, found, folder)
                if answer is not None:
                    return answer
            return _raw(file, big.size, layout, folder)
    finally:
        big.discard()


def _layout(head: bytes) -> _Layout:
    """Read the top-level members up to the large one."""
    layout, position = _Layout(), 0
    while (key := _KEY.match(head, position)) is not None:
        if key[1] in (b"result", b"error"):
            layout.member, layout.start = key[1].decode(), key.end()
            break
        value = _SCALAR.match(head, key.end())
        if value is None:
            break
        if key[1] == b"id":
            layout.key = _scalar(value[0])
        position = value.end()
    return layout


class _SingleText(Struct):
    """The single text block: where its text begins, and what the result says of itself."""

    start: int
    is_error: bool


def _single_text(head: bytes, start: int) -> _SingleText | None:
    """Find the text of a result whose content begins with a text block; None when it has another shape."""
    position, is_error = start, False
    while (key := _KEY.match(head, position)) is not None:
        if key[1] == b"content":
            text = _text_start(head, key.end())
            return None if text is None else _SingleText(text, is_error)
        value = _SCALAR.match(head, key.end())
        if value is None:
            return None
        is_error = is_error or (key[1] == b"isError" and value[0] == b"true")
        position = value.end()
    return None


def _text_start(head: bytes, position: int) -> int | None:
    opening = re.compile(rb"\s*\[").match(head, position)
    position, kind = (opening.end(), b"") if opening else (len(head), b"")
    while (key := _KEY.match(head, position)) is not None:
        if key[1] == b"text":
            quoted = head[key.end() : key.end() + 1] == b'"'
            return key.end() + 1 if quoted and kind in (b"", b'"text"') else None
        value = _SCALAR.match(head, key.end())
        if value is None:
            return None
        kind = value[0] if key[1] == b"type" else kind
        position = value.end()
    return None


def _text(file: BinaryIO, found: _SingleText, folder: Path) -> SpooledAnswer | None:
    """Decode the string that begins at `found.start` into a file; None when the content goes on after it."""
    path = _new(folder)
    string = _String(file, found.start)
    try:
        size, head, tail = _write_text(string, path)
    except (OSError, ValueError):
        path.unlink(missing_ok=True)
        raise
    after = _AFTER_TEXT.match(string.rest())
    if after is None:
        path.unlink()
        return None
    late = b'"isError":true' in string.rest()[after.end() :].replace(b" ", b"")
    spooled = SpooledResult(path=path, size=size, mime_type="text/plain", head=head, tail=tail)
    return SpooledAnswer(spooled=spooled, is_error=found.is_error or late)


def _write_text(string: _String, path: Path) -> tuple[int, str, str]:
    """Write the decoded text to `path`; return its size in bytes, its beginning and its end."""
    size, head, tail = 0, "", ""
    with path.open("wb") as target:
        os.chmod(path, 0o600)
        for text in string.chunks():
            data = text.encode("utf-8", "replace")
            target.write(data)
            size += len(data)
            head = head if len(head) >= _EXCERPT else (head + text)[:_EXCERPT]
            tail = (tail + text[-_EXCERPT:])[-_EXCERPT:]
    return size, head, tail


def _raw(file: BinaryIO, size: int, layout: _Layout, folder: Path) -> SpooledAnswer:
    """Copy the value of the large member as it is."""
    file.seek(max(0, size - _TAIL))
    last = file.read()
    rest = _TAIL_REST.search(last)
    end = size - len(last) + rest.start() if rest else size
    path = _new(folder)
    file.seek(layout.start)
    left = end - layout.start
    with path.open("wb") as target:
        os.chmod(path, 0o600)
        while left > 0 and (data := file.read(min(_CHUNK, left))):
            target.write(data)
            left -= len(data)
    with path.open("rb") as copied:
        head = copied.read(_EXCERPT).decode("utf-8", "replace")
        copied.seek(max(0, end - layout.start - _EXCERPT))
        tail = copied.read().decode("utf-8", "replace")
    spooled = SpooledResult(path=path, size=end - layout.start, mime_type="application/json", head=head, tail=tail)
    return SpooledAnswer(
        spooled=spooled, is_error=layout.member == "error" or '"isError":true' in tail.replace(" ", "")
    )


class _String:
    """One JSON string of any length, read in chunks that end on a character."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file = file
        self._file.seek(start)
        self._rest = b""

    def chunks(self) -> Iterator[str]:
        """Yield the decoded text; raises `ValueError` for anything but a JSON string."""
        held = b""
        while True:
            data = self._file.read(_CHUNK)
            window = held + data
            end = _string_end(window)
            if end < len(window) and window[end : end + 1] == b'"':
                self._rest = window[end + 1 :]
                yield _decoded(window[:end])
                return
            if not data:
                raise ValueError("the text of the result does not end")
            cut = _safe_cut(window[:end])
            held = window[cut:]
            yield _decoded(window[:cut])

    def rest(self) -> bytes:
        """Return the bytes behind the string, as far as they are needed to recognise its surroundings."""
        if len(self._rest) < _TAIL:
            self._rest += self._file.read(_TAIL)
        return self._rest


def _string_end(window: bytes) -> int:
    """Return the end of the string that `window` is inside of, or of its last whole escape."""
    quote = window.find(b'"')
    end = len(window) if quote < 0 else quote
    slashes = end - len(window[:end].rstrip(b"\\"))
    if slashes % 2 == 0:
        return end
    if quote < 0:
        return end - 1
    matched = _RUN.match(window)
    return matched.end() if matched else 0


def _safe_cut(text: bytes) -> int:
    """Return the last position at which `text` may be cut: after a whole character, not between two surrogates."""
    cut = len(text)
    while cut > max(0, len(text) - 3) and text[cut - 1] & 0xC0 == 0x80:
        cut -= 1
    cut = cut - 1 if cut > 0 and text[cut - 1] >= 0xC0 else len(text)
    escape = text.rfind(b"\\u", max(0, cut - 5), cut)
    if escape >= 0 and _is_escape(text, escape):
        cut = escape
    high = cut - 6
    if high >= 0 and _HIGH.match(text, high) and _is_escape(text, high):
        cut = high
    return cut


def _is_escape(text: bytes, position: int) -> bool:
    """Whether the backslash at `position` begins an escape and is not itself escaped."""
    before = position
    while before > 0 and text[before - 1] == 0x5C:
        before -= 1
    return (position - before) % 2 == 0


def _decoded(raw: bytes) -> str:
    try:
        return cast("str", orjson.loads(b'"' + raw + b'"'))
    except ValueError:
        return cast("str", orjson.loads(b'"' + _printable(raw.decode("utf-8", "replace")).encode() + b'"'))


def _printable(text: str) -> str:
    """Replace what a strict parser refuses in a string: bare control characters and lone surrogates."""
    text = re.sub(r"[\x00-\x1f]", "\N{REPLACEMENT CHARACTER}", text)
    return _LONE.sub("\\\\ufffd", text)


def _scalar(text: bytes) -> int | str | None:
    try:
        value: Any = orjson.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, int | str) else None


def _new(folder: Path) -> Path:
    make_private_folder(folder)
    return folder / f"output-{secrets.token_hex(16)}"
