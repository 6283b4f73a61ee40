"""Text in pages: numbered lines, as many whole ones as fit, and windows of files of any size.

A window takes a few chunks of memory and gives what a full read would. A first pass finds the encoding, checks the
bytes and counts the lines; a second one stops where the page is full. The functions block: call them in a thread.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from toolcrib.plugin import OpenFile, ToolFailure

from .file_text import SAMPLE, Encoding, encoding_by_name, encoding_in, encoding_of, misfit, no_text

_LEAST: Final = 200

CHUNK: Final = 256 * 1024
"""Bytes that are read at once."""
_MOST_WHOLE: Final = 8 * 1024 * 1024
"""Bytes of a file in an encoding that cannot be decoded in pieces."""
_WHOLE: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})
"""Encodings whose decoders need the whole text, or hold an unbounded part of it."""
_NOT_CP1252: Final = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_SPARE: Final = 8
"""Bytes of a long line that are kept beyond the room for it, so that no character at the cut is incomplete."""


class Page(Struct, frozen=True, kw_only=True):
    """Some lines of a text."""

    text: str
    first: int = 0
    """Number of the first line; 0 for a page without lines."""
    last: int = 0
    next: int = 0
    """Number of the line that the next page begins with; 0 if there is none."""
    cut: tuple[int, int] | None = None
    """A line that is longer than a page: its number and its characters. It is shown from its beginning."""


def line_count(content: bytes) -> int:
    """Return the number of lines; the last one needs no line end."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def room_of(result_bytes: int, note: int) -> int:
    """Return the bytes for lines in a result that also has a note; never less than a few lines."""
    return max(result_bytes - note, _LEAST)


def page_of(lines: Iterable[tuple[int, str, int]], *, limit: int, room: int, numbers: bool) -> Page:
    """Return at most `limit` lines that take at most `room` bytes of UTF-8.

    Each has its number, its text and its characters; the text of one that is longer than `room` may be its beginning.
    """
    shown: list[str] = []
    first = last = 0
    for number, line, characters in lines:
        if len(shown) == limit:
            return Page(text="\n".join(shown), first=first, last=last, next=number)
        text = f"{number}\t{line}" if numbers else line
        size = len(text.encode("utf-8", "replace")) + 1
        if size > room:
            if shown:
                return Page(text="\n".join(shown), first=first, last=last, next=number)
            cut = (number, characters)
            return Page(text=shortened(text, room), first=number, last=number, next=number + 1, cut=cut)
        room -= size
        shown.append(text)
        first, last = first or number, number
    return Page(text="\n".join(shown), first=first, last=last)


def shortened(text: str, room: int) -> str:
    """Return the beginning of a text that takes at most `room` bytes of UTF-8."""
    return text[:room].encode("utf-8", "replace")[:room].decode("utf-8", "ignore")


def fit_lines(lines: Sequence[str], room: int, notes: Sequence[str], *, hint: str) -> str:
    """Return the first lines that take at most `room` bytes, and the notes as a last line in brackets.

    `hint` follows the notes; it may be empty.
    """
    size = count = 0
    for line in lines:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > room:
            break
        count += 1
    notes_shown = list(notes)
    if count < len(lines):
        notes_shown.append(f"{len(lines) - count} more lines left out")
    if notes_shown and hint:
        notes_shown.append(hint)
    return "\n".join([*lines[:count], *([f"[{'; '.join(notes_shown)}]"] if notes_shown else [])])


class LineEnds:
    """The line ends of a text that comes in pieces of bytes."""

    def __init__(self) -> None:
        """Start at zero."""
        self.newlines = self.crlf = 0
        self._last = b""

    def feed(self, piece: bytes) -> None:
        """Count those of the next piece."""
        self.newlines += piece.count(b"\n")
        self.crlf += piece.count(b"\r\n") + (self._last == b"\r" and piece.startswith(b"\n"))
        self._last = piece[-1:] or self._last

    @property
    def lines(self) -> int:
        """Number of lines; the last one needs no line end."""
        return self.newlines + (self._last not in (b"", b"\n"))

    @property
    def title(self) -> str:
        """`LF`, `CRLF`, `mixed`, or empty for a text of one line."""
        return ("CRLF" if self.crlf == self.newlines else "mixed" if self.crlf else "LF") if self.newlines else ""


class Description(Struct, frozen=True, kw_only=True):
    """Result of one pass through a file."""

    sha256: str
    encoding: Encoding | None
    """None for content that is not text."""
    ends: LineEnds


class TextFile:
    """A text file, of which pages are read. Lives as long as the open file."""

    def __init__(self, file: OpenFile, encoding: str, *, path: str, chunk: int = CHUNK) -> None:
        """Read the file once; `encoding` overrides detection.

        Raises `ToolFailure` for content that is not text, or not in that encoding.
        """
        self._file, self._path, self._chunk = file, path, chunk
        head = file.read_at(0, SAMPLE + 1)
        found = encoding_in(head, encoding_by_name(encoding)) if encoding else encoding_of(head)
        if found is None:
            raise no_text(path, file.size)
        self._is_transcoded = bool(encoding) or not found.by_bytes
        self.encoding = found
        try:
            self.ends = self._checked()
        except _Misfit as error:
            if encoding:
                raise misfit(path, encoding_by_name(encoding), error.at) from None
            self.encoding = _one_byte(file, chunk)
            self.ends = self._checked()

    @property
    def total(self) -> int:
        """Number of lines."""
        return self.ends.lines

    def lines(self, start: int, room: int) -> Iterator[tuple[int, str, int]]:
        """Yield number, text and characters of the lines from number `start` on, without line ends.

        Of a line with more than `room` bytes the text is its beginning, which takes more than `room` bytes; its
        characters are counted for the first line only.
        """
        codec = "utf-8" if self._is_transcoded else self.encoding.name
        number, line = start, _Line(codec, room + _SPARE)
        for piece in _after(start - 1, self._pieces()):
            at = 0
            while (end := piece.find(b"\n", at)) >= 0:
                line.add(piece[at:end])
                yield number, *line.finished()
                number, line, at = number + 1, _Line(codec, room + _SPARE), end + 1
            line.add(piece[at:])
            if line.is_cut and number > start:
                yield number, line.beginning(), 0
                return
        if line.length:
            yield number, *line.finished()

    def _pieces(self, errors: str = "replace") -> Iterator[bytes]:
        """Yield the text without its mark: as it is in the file where that shows the lines, else in UTF-8."""
        if not self._is_transcoded:
            return _pieces(self._file, self._chunk, len(self.encoding.mark))
        texts = _decoded(self._file, self.encoding, self._chunk, errors, self._path)
        return (text.encode("utf-8", "replace") for text in texts)

    def _checked(self) -> LineEnds:
        """Return the line ends. Raises `_Misfit`, and `ToolFailure` for zeros in what has no wide characters."""
        ends = LineEnds()
        for piece in self._pieces("strict"):
            if not self._is_transcoded and b"\0" in piece:
                raise no_text(self._path, self._file.size)
            ends.feed(piece)
        return ends


class _Line:
    """One line that comes in parts. Of a long one only the beginning is held."""

    def __init__(self, codec: str, most: int) -> None:
        self._codec, self._most = codec, most
        self._line_bytes = bytearray()
        self._last = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        """Checks and counts the characters of a line that is cut."""
        self._characters = 0
        self._fits = True
        self.length = 0

    @property
    def is_cut(self) -> bool:
        """True if the line is longer than the part that is held."""
        return self.length > self._most

    def add(self, part: bytes) -> None:
        """Take the next part of the line, without its line end."""
        if not part:
            return
        self.length += len(part)
        self._last = part[-1:]
        if self._decoder is None:
            self._line_bytes += part
            if not self.is_cut:
                return
            self._decoder = codecs.getincrementaldecoder(self._codec)()
            part = bytes(self._line_bytes)
            del self._line_bytes[self._most :]
        self._count(part)

    def beginning(self) -> str:
        """Return the text of what is held of a line that is cut."""
        if not self._fits:
            return self._line_bytes.decode("latin-1")
        try:
            return codecs.getincrementaldecoder(self._codec)().decode(bytes(self._line_bytes))
        except UnicodeDecodeError:  # its end would tell that it does not fit; it is not waited for
            return self._line_bytes.decode("latin-1")

    def finished(self) -> tuple[str, int]:
        """Return text and characters of the line, which has ended."""
        returns = self._last == b"\r"
        if self.is_cut:
            self._count(b"", final=True)
            text = self.beginning()
            return text, (self._characters if self._fits else self.length) - returns
        kept = bytes(self._line_bytes[:-1] if returns else self._line_bytes)
        try:
            text = kept.decode(self._codec)
        except UnicodeDecodeError:
            text = kept.decode("latin-1")
        return text, len(text)

    def _count(self, part: bytes, *, final: bool = False) -> None:
        if self._decoder is None or not self._fits:
            return
        try:
            self._characters += len(self._decoder.decode(part, final))
        except UnicodeDecodeError:
            self._fits = False


class _Misfit(Exception):
    """A byte that is not in the encoding."""

    def __init__(self, at: int) -> None:
        super().__init__(f"byte {at}")
        self.at = at


def describe(file: OpenFile, *, chunk: int = CHUNK) -> Description:
    """Return hash, encoding and line ends of a file."""
    found = encoding_of(file.read_at(0, SAMPLE + 1))
    wide = None if found is None or found.by_bytes else _ends_of(file, found, chunk)
    mark, ends = hashlib.sha256(), LineEnds()
    decoder = codecs.getincrementaldecoder(found.name)() if found is not None and found.by_bytes else None
    fits, is_text = True, found is not None
    at, skipped = 0, len(found.mark) if found is not None else 0
    for piece in _pieces(file, chunk):
        mark.update(piece)
        text = piece[max(0, skipped - at) :]
        at += len(piece)
        ends.feed(text)
        if decoder is not None:
            is_text = is_text and b"\0" not in piece
            fits = fits and _takes(decoder, text)
    if decoder is not None:
        fits = fits and _takes(decoder, b"", final=True)
    elif found is not None:
        fits = wide is not None
    if not is_text:
        found = None
    elif not fits:
        found = _one_byte(file, chunk)
    return Description(sha256=mark.hexdigest(), encoding=found, ends=wide or ends)


def _ends_of(file: OpenFile, encoding: Encoding, chunk: int) -> LineEnds | None:
    """Return the line ends of a text in wide characters; None if it is not in that encoding."""
    ends = LineEnds()
    try:
        for text in _decoded(file, encoding, chunk, "strict", ""):
            ends.feed(text.encode("utf-8", "replace"))
    except _Misfit:
        return None
    return ends


def _takes(decoder: codecs.IncrementalDecoder, piece: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(piece, final)
    except UnicodeDecodeError:
        return False
    return True


def _one_byte(file: OpenFile, chunk: int) -> Encoding:
    """Return an encoding that takes these bytes and gives them back, as `file_text` chooses it."""
    odd = any(_NOT_CP1252.search(piece) for piece in _pieces(file, chunk))
    return Encoding(name="latin-1" if odd else "cp1252")


def _pieces(file: OpenFile, chunk: int, start: int = 0) -> Iterator[bytes]:
    while piece := file.read_at(start, chunk):
        yield piece
        start += len(piece)


def _decoded(file: OpenFile, encoding: Encoding, chunk: int, errors: str, path: str) -> Iterator[str]:
    """Yield the text of a file in pieces, without its mark. Raises `_Misfit` where `errors` is strict."""
    at = len(encoding.mark)
    can_go_on = getattr(codecs.lookup(encoding.name), "incrementaldecoder", None) is not None
    is_whole = encoding.name.replace("_", "-") in _WHOLE or not can_go_on
    try:
        if is_whole:
            if file.size > _MOST_WHOLE:
                message = f"{path!r} has {file.size:,} bytes; in {encoding.name} {_MOST_WHOLE:,} may be read"
                raise ToolFailure("too_large", message, hint="convert it to UTF-8, or read it without the encoding")
            yield file.read_at(at, file.size).decode(encoding.name, errors)
            return
        decoder = codecs.getincrementaldecoder(encoding.name)(errors)
        for piece in _pieces(file, chunk, at):
            at += len(piece)
            if text := decoder.decode(piece):
                yield text
        if text := decoder.decode(b"", True):
            yield text
    except UnicodeDecodeError as error:
        raise _Misfit(error.start + (at if is_whole else at - len(error.object))) from None


def _after(count: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces behind the first `count` line ends."""
    for piece in pieces:
        here = piece.count(b"\n") if count else 0
        if here < count:
            count -= here
            continue
        at = 0
        for _ in range(count):
            at = piece.index(b"\n", at) + 1
        count = 0
        yield piece[at:] if at else piece
