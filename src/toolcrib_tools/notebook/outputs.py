"""Output of a cell, in order and readable: text, values, tracebacks, and images as images."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from anyio import to_thread

from toolcrib.plugin import ToolFailure

from .._pictures import Picture, read_picture
from ..shell.processes import OutputBuffer, plain
from .inside import VARIABLES

__all__ = ["Output"]

_KEPT: Final = 1024 * 1024
"""Characters of text of one cell; the result is cut to what the session takes, and the rest stays readable."""
_MOST: Final = 8
"""Images of one cell."""
_MEDIA: Final = 6 * 1024 * 1024
"""Base64 characters of all images of one cell."""
_VALUES: Final = 200
"""Values that one cell may show."""
_PICTURES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_NOBODY: Final = "StdinNot"
"""Prefix of the exception that a kernel without stdin raises for input()."""


@dataclass(slots=True, kw_only=True)
class Output:
    """The output of one cell, as it comes in."""

    failed: str = ""
    """The name of the exception that ended it."""
    inspected: Any = None
    """The variables, where the kernel was asked for them."""
    _blocks: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    _text: OutputBuffer = field(default_factory=lambda: OutputBuffer(_KEPT))
    _stream: str = "stdout"
    _at_start: bool = True
    """True if the text ends with a line end."""
    _values: int = 0
    _pictures: list[int] = field(default_factory=list[int])
    """The base64 characters of each."""

    async def add(self, event: Mapping[str, Any]) -> str:
        """Add an event of the kernel; return its new text, for progress."""
        match event.get("event"):
            case "stream":
                return self._say(str(event.get("text", "")), "stderr" if event.get("name") == "stderr" else "stdout")
            case "data":
                return await self._value(event)
            case "error":
                self.failed = str(event.get("name", "")) or "an error"
                note = (
                    "\n[input() has no user here: write the value into the cell]"
                    if self.failed.startswith(_NOBODY)
                    else ""
                )
                return self._line(plain(str(event.get("text", ""))) + note)
            case _:
                return ""

    def content(self, notes: list[str]) -> list[Mapping[str, Any]]:
        """Return all of it as blocks of content, notes at the end; one text at least."""
        if not self._blocks and not self._text.is_waiting and not notes:
            notes = ["no output"]
        for note in notes:
            self._line(f"[{note}]")
        self._close()
        return self._blocks

    def last(self, most: int) -> str:
        """Return the end of the output, for a failure message; no event can be added after that."""
        self._close()
        return "\n".join(str(block["text"]) for block in self._blocks if block["type"] == "text")[-most:]

    def _say(self, text: str, stream: str = "stdout") -> str:
        head = ""
        if stream != self._stream:
            head = f"{'' if self._at_start else chr(10)}[{stream}]\n"
            self._stream = stream
        message = head + text
        self._text.add(message.encode("utf-8", "replace"))
        self._at_start = message.endswith("\n") if message else self._at_start
        return message

    def _line(self, text: str) -> str:
        """Add text on lines of its own."""
        self._stream = "stdout"
        return self._say(f"{'' if self._at_start else chr(10)}{text.rstrip(chr(10))}\n")

    async def _value(self, event: Mapping[str, Any]) -> str:
        self._values += 1
        if self._values > _VALUES + 1:
            return ""
        if self._values > _VALUES:
            return self._line(f"[more than {_VALUES} values: the rest is not shown]")
        data = event.get("data")
        given: Mapping[str, Any] = cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {}
        kind, value = next(iter(given.items()), ("text/plain", ""))
        if kind == VARIABLES:
            self.inspected = value
            return ""
        if kind in _PICTURES:
            return await self._image(kind, str(value))
        return self._line(plain(str(value)))

    async def _image(self, kind: str, data: str) -> str:
        if len(self._pictures) >= _MOST or sum(self._pictures) + len(data) > _MEDIA:
            return self._line(f"[an image ({kind}) left out: a cell shows {_MOST}, of {_MEDIA >> 20} MiB]")
        try:
            picture = await to_thread.run_sync(_read, data)
        except ToolFailure as failure:
            return self._line(f"[an image ({kind}) left out: {failure.message}]")
        self._pictures.append(len(data))
        line = self._line(f"[image {len(self._pictures)}: {picture.about}]")
        self._close()
        self._blocks.append(picture.block)
        return line

    def _close(self) -> None:
        """Make a block of the text so far."""
        if self._text.is_waiting:
            self._blocks.append({"type": "text", "text": plain(self._text.take()).rstrip("\n")})
            self._at_start, self._stream = True, "stdout"


def _read(data: str) -> Picture:
    """Return the image of a kernel as it is sent. Raises `ToolFailure` for an invalid one."""
    try:
        return read_picture(base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise ToolFailure("tool_error", f"it is not base64: {error}") from None
