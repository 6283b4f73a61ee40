"""Text and data of workspace files: encodings without loss, JSON and YAML."""

from __future__ import annotations

import codecs
import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from toolcrib.plugin import ToolFailure, UsageError, Workspace, parse_yaml

from .place import file_at

SAMPLE: Final = 64 * 1024
"""Bytes from the beginning that say whether a file is text."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""UTF-32 before UTF-16: the one's mark begins with the other's."""
_CONTROLS: Final = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROLS: Final = 0.005
"""Share of control bytes in text of one byte a character."""
_ZEROS: Final = 0.7
"""Share of zeros in either half of the bytes that tells UTF-16 without a mark: text that is mostly Latin."""
_LEAST_WIDE: Final = 8
"""Bytes below which the statistics of null bytes are unreliable."""

ENDINGS: Final = (".json", ".yaml", ".yml")
_MOST_BYTES: Final = 1 << 20


class Encoding(Struct, frozen=True, kw_only=True):
    """Encoding of a text file."""

    name: str
    mark: bytes = b""
    """The byte order mark at its beginning."""

    @property
    def by_bytes(self) -> bool:
        """True if a newline is one byte that has no other meaning, so that lines are found without decoding."""
        return not self.name.startswith(("utf-16", "utf-32"))

    @property
    def title(self) -> str:
        """Display name."""
        return f"{self.name} with a byte order mark" if self.mark else self.name


_UTF_8: Final = Encoding(name="utf-8")


class Text(Struct, frozen=True, kw_only=True, dict=True):
    """The text of a file, and how it was written."""

    raw: str
    """Text as in the file, line ends included, without byte order mark."""
    encoding: Encoding = _UTF_8

    @cached_property
    def plain(self) -> str:
        """The text with LF for CRLF: what is shown and searched."""
        return self.raw.replace("\r\n", "\n")

    @property
    def newline(self) -> str:
        """The line end that most lines have."""
        crlf = self.raw.count("\r\n")
        return "\r\n" if crlf and crlf * 2 >= self.raw.count("\n") else "\n"

    @property
    def line_ends(self) -> str:
        """`LF`, `CRLF`, `mixed`, or empty for a text of one line."""
        crlf, every = self.raw.count("\r\n"), self.raw.count("\n")
        return ("CRLF" if crlf == every else "mixed" if crlf else "LF") if every else ""

    def replaced(self, spans: Sequence[tuple[int, int, str]]) -> Text:
        """Return the text with each span of `plain` replaced, in order and without overlaps; the rest untouched.

        New lines get the line end that most lines of the file have.
        """
        pieces: list[str] = []
        end = 0
        for start, stop, text in spans:
            pieces += [self.raw[self._place(end) : self._place(start)], self._with_ends(text)]
            end = stop
        pieces.append(self.raw[self._place(end) :])
        return Text(raw="".join(pieces), encoding=self.encoding)

    def rewritten(self, content: str) -> Text:
        """Return `content` written as this file is: its encoding, and its line ends where it has one kind."""
        plain = content.replace("\r\n", "\n") if self.line_ends == "CRLF" else content
        return Text(raw=plain.replace("\n", "\r\n") if self.line_ends == "CRLF" else plain, encoding=self.encoding)

    def to_bytes(self) -> bytes:
        """Return the file's bytes. Raises `ToolFailure` for a character that its encoding does not have."""
        try:
            return self.encoding.mark + self.raw.encode(self.encoding.name)
        except UnicodeEncodeError as error:
            line = self.raw.count("\n", 0, error.start) + 1
            what = self.raw[error.start : error.start + 1]
            raise ToolFailure(
                "tool_error",
                f"line {line} would hold {what!r}, which {self.encoding.name} cannot write",
                hint='write_file with encoding="utf-8" rewrites the file so that it can',
            ) from None

    @cached_property
    def _returns(self) -> list[int]:
        """Places in `plain` of the newlines that are two characters in the file."""
        found = re.finditer("\r\n", self.raw)
        return [match.start() - before for before, match in enumerate(found)]

    def _place(self, offset: int) -> int:
        """Return the place in `raw` of an offset in `plain`."""
        return offset + bisect_left(self._returns, offset) if self._returns else offset

    def _with_ends(self, text: str) -> str:
        plain = text.replace("\r\n", "\n")
        return plain.replace("\n", "\r\n") if self.newline == "\r\n" else plain


def encoding_of(content: bytes) -> Encoding | None:
    """Detect the encoding of `content` from its first 64 KiB; None if it is not text.

    Of a longer file its first `SAMPLE` + 1 bytes are enough.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            return Encoding(name=name, mark=mark)
    sample = content[:SAMPLE]
    if b"\0" in sample:
        return _wide(sample)
    if _is_utf8(sample, whole=len(content) <= SAMPLE):
        return _UTF_8
    if len(_CONTROLS.findall(sample)) > len(sample) * _MOST_CONTROLS:
        return None
    return _one_byte(sample)


def encoding_by_name(name: str) -> Encoding:
    """Return the encoding that a caller names; raises `ToolFailure` for one that there is not."""
    known = {"utf-8-sig": Encoding(name="utf-8", mark=codecs.BOM_UTF8)}
    known |= {
        name: Encoding(name=f"{name}-le", mark=mark)
        for name, mark in (("utf-16", codecs.BOM_UTF16_LE), ("utf-32", codecs.BOM_UTF32_LE))
    }
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        info = None
    if info is None or not getattr(info, "_is_text_encoding", True):
        raise ToolFailure(
            "invalid_arguments", f"there is no encoding {name!r}", hint="utf-8, utf-16, latin-1, cp1252, shift_jis …"
        )
    return known.get(info.name) or Encoding(name=info.name)


def decoded(content: bytes, encoding: str = "", *, path: str = "") -> Text:
    """Decode a whole file; `encoding` overrides detection.

    Raises `ToolFailure` for content that is not text, or not in that encoding.
    """
    if encoding:
        return _as(content, encoding_by_name(encoding), path)
    found = encoding_of(content)
    if found is None or (found.by_bytes and b"\0" in content):
        raise no_text(path, len(content))
    mark = found.mark
    try:
        return Text(raw=content[len(mark) :].decode(found.name), encoding=found)
    except UnicodeDecodeError:
        found = _one_byte(content)
        return Text(raw=content.decode(found.name), encoding=found)


def encoding_in(content: bytes, encoding: Encoding) -> Encoding:
    """Return the encoding that a caller named as the file has it: the byte order mark at the beginning decides."""
    family = encoding.name.removesuffix("-le") if encoding.mark else encoding.name
    fitting = ((mark, name) for mark, name in _MARKS if name.startswith(family) and content.startswith(mark))
    mark, name = next(fitting, (b"", encoding.name))
    return Encoding(name=name, mark=mark)


def no_text(path: str, size: int) -> ToolFailure:
    """Return the refusal of a file that holds no text."""
    return ToolFailure(
        "tool_error",
        f"{path!r} is not text: it holds bytes that no text has ({size} bytes)",
        hint="file_info says what is known of it; name its encoding if it is text all the same",
    )


def misfit(path: str, encoding: Encoding, at: int) -> ToolFailure:
    """Return the refusal of a file that is not in the encoding that the caller named."""
    return ToolFailure(
        "tool_error",
        f"{path!r} is not in {encoding.name}: byte {at} does not fit",
        hint="leave the encoding out to have it found",
    )


def _as(content: bytes, encoding: Encoding, path: str) -> Text:
    found = encoding_in(content, encoding)
    try:
        return Text(raw=content[len(found.mark) :].decode(found.name), encoding=found)
    except UnicodeDecodeError as error:
        raise misfit(path, encoding, error.start + len(found.mark)) from None


def _wide(sample: bytes) -> Encoding | None:
    """Return UTF-16 for what looks like it: zeros in one half of the bytes and hardly any in the other."""
    even, odd = sample[0::2], sample[1::2]
    if len(sample) < _LEAST_WIDE:
        return None
    zeros = (even.count(0) / len(even), odd.count(0) / len(odd))
    if min(zeros) > _MOST_CONTROLS or max(zeros) < _ZEROS:
        return None
    name = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    try:
        text = sample[: len(sample) & ~1].decode(name, "strict" if len(sample) < SAMPLE else "ignore")
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text.encode("utf-8", "replace")) else Encoding(name=name)


def _is_utf8(sample: bytes, *, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def _one_byte(content: bytes) -> Encoding:
    """Return an encoding that takes these bytes and gives them back."""
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        return Encoding(name="latin-1")
    return Encoding(name="cp1252")


async def data_at(workspace: Workspace, path: str) -> Any:
    """Return the value of a JSON or YAML file.

    Raises `ToolFailure`: for a file that is not there or of another kind, and with the line for one that is broken.
    """
    entry = await file_at(workspace, path)
    if not entry.path.endswith(ENDINGS):
        raise ToolFailure("invalid_arguments", f"{entry.path!r} is not a file of {', '.join(ENDINGS)}")
    content = await workspace.read(entry.path, limit=_MOST_BYTES)
    try:
        text = content.decode("utf-8-sig")
        return json.loads(text) if entry.path.endswith(".json") else parse_yaml(text, entry.path).plain()
    except UnicodeDecodeError as error:
        raise ToolFailure("tool_error", f"{entry.path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise ToolFailure("tool_error", f"{entry.path}:{error.lineno}: this is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ToolFailure("tool_error", f"{entry.path} is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise ToolFailure("tool_error", f"{entry.path} cannot be read: {error}") from error
    except UsageError as error:
        raise ToolFailure("tool_error", str(error)) from error
