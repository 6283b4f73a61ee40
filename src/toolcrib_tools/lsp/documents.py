"""Documents that are open in a language server, and text positions of its protocol.

Positions count lines and characters from 0, characters in UTF-16 units: an emoji counts two there and one here.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from anyio import to_thread
from msgspec import Struct

from toolcrib.plugin import ToolFailure, Workspace

from .._workspace.file_search import FileFilter, base_at, files_below, stamp_of
from .._workspace.file_text import Text, decoded
from .._workspace.place import name_of
from .settings import ServerSpec

_ENDS: Final = re.compile(r"\r\n|\n|\r")
_BASIC: Final = 0xFFFF

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a file that is sent to a server."""
_MOST_OPEN: Final = 64
"""Files that stay open in a server, beside those that wait for review; the one asked about longest ago is closed."""

_Notify = Callable[[str, Any], None]
_Stamps = Mapping[str, tuple[int, int]]


def wide(text: str) -> int:
    """Return the number of UTF-16 units of a text."""
    return len(text) + sum(ord(one) > _BASIC for one in text) if not text.isascii() else len(text)


class Lines:
    """A text with its line ends as they are. What lies beyond an end is taken for the end, as the protocol says."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        self._stops: list[int] = []
        for end in _ENDS.finditer(text):
            self._stops.append(end.start())
            self._starts.append(end.end())
        self._stops.append(len(text))

    def __len__(self) -> int:
        return len(self._starts)

    def line(self, number: int) -> str:
        """Return a line, counted from 0, without its end; empty for one that there is not."""
        return self.text[self._starts[number] : self._stops[number]] if 0 <= number < len(self) else ""

    def start(self, number: int) -> int:
        """Return the start of a line."""
        return self._starts[number] if number < len(self) else len(self.text)

    def offset(self, line: int, character: int) -> int:
        """Return the place in the text of a line and a UTF-16 character."""
        if line >= len(self):
            return len(self.text)
        text = self.line(line)
        if text.isascii():
            return self._starts[line] + min(character, len(text))
        units = count = 0
        for one in text:
            units += 2 if ord(one) > _BASIC else 1
            if units > character:
                break
            count += 1
        return self._starts[line] + count

    def position(self, offset: int) -> dict[str, int]:
        """Return a place of the text as the protocol's position."""
        line = bisect_right(self._starts, offset) - 1
        end = min(offset, self._stops[line])
        return {"line": line, "character": wide(self.text[self._starts[line] : end])}

    def column(self, line: int, character: int) -> int:
        """Return the column, in characters from 1, of a UTF-16 character."""
        return self.offset(line, character) - self.start(line) + 1


_CREATED, _CHANGED, _DELETED = 1, 2, 3


class OpenDocument(Struct, frozen=True, kw_only=True):
    """A file as the server has it."""

    uri: str
    version: int
    content: bytes
    lines: Lines
    """Line index of the text, with its line ends."""


class Documents:
    """The files of one running server. Belongs to one question at a time."""

    def __init__(self, spec: ServerSpec, notify: _Notify, *, saves: bool) -> None:
        """`notify` tells the server; `saves`: it wants to hear of files that were saved."""
        self._spec = spec
        self._notify = notify
        self._saves = saves
        self._opened: dict[str, OpenDocument] = {}
        """The one asked about last comes last."""
        self._stamps: _Stamps | None = None
        self._count = 0

    def get(self, name: str) -> OpenDocument | None:
        """Return a file as the server has it; None for one that is not open there."""
        return self._opened.get(name)

    def some(self) -> str | None:
        """Return a file to open where none is open: some servers know no project before."""
        return None if self._opened else next(filter(self._spec.takes, self._stamps or ()), None)

    def by_uri(self, uri: str) -> OpenDocument | None:
        """Return the open file of that address."""
        key = key_of(uri)
        return next((one for one in self._opened.values() if key_of(one.uri) == key), None)

    async def sync(self, workspace: Workspace, names: Sequence[str]) -> bool:
        """Send changed files to the server, and open these ones. Return True if any was new to it.

        Raises `ToolFailure` for a file that cannot be read, or is not text.
        """
        before = self._count
        waiting = await self._waiting(workspace)
        contents = await _read(workspace, [name for name in self._opened if name not in waiting])
        for name, content in contents.items():
            if isinstance(content, ToolFailure):
                if name not in names:
                    self._close(name)
            else:
                self._put(workspace, name, content)
        for name, content in waiting.items():
            self._put(workspace, name, content)
        for name in names:
            content = waiting[name] if name in waiting else contents.get(name)
            if content is None:
                content = await workspace.read(name, limit=MOST_BYTES)
            if isinstance(content, ToolFailure):
                raise content
            decoded(content, path=name)  # raises for content that is not text
            self._put(workspace, name, content)
            self._opened[name] = self._opened.pop(name)
        others = [name for name in self._opened if name not in waiting and name not in names]
        for name in others[: max(0, len(others) - _MOST_OPEN)]:
            self._close(name)
        await self._watch(workspace)
        return self._count > before

    async def is_seen(self, workspace: Workspace, name: str, content: bytes | None) -> bool:
        """True if the server has the current content of a file; a closed one is compared by time and size."""
        opened = self._opened.get(name)
        if opened is not None:
            return opened.content == (content or b"")
        known = (self._stamps or {}).get(name)
        now = await to_thread.run_sync(stamp_of, workspace.local(name))
        return known is None or known == now

    async def _waiting(self, workspace: Workspace) -> dict[str, bytes]:
        """Return the contents that wait for review, of the files that the server is asked about."""
        found: dict[str, bytes] = {}
        for root in workspace.roots if workspace.diverts else ():
            for path, content in (await workspace.overlay(str(root))).items():
                name = name_of(workspace, path)
                if self._spec.takes(name) and _is_text(content or b"", name):
                    found[name] = content or b""
        return found

    def _put(self, workspace: Workspace, name: str, content: bytes) -> None:
        """Let a file have this content in the server."""
        known = self._opened.get(name)
        if known is not None and known.content == content:
            return
        text = _text(content, name)
        if text is None:
            self._close(name)
            return
        self._count += 1
        version = known.version + 1 if known is not None else 1
        uri = known.uri if known is not None else uri_of(workspace, name)
        opened = OpenDocument(uri=uri, version=version, content=content, lines=Lines(text.raw))
        self._opened[name] = opened
        if known is None:
            item = {"uri": uri, "languageId": self._spec.language(name), "version": version, "text": text.raw}
            self._notify("textDocument/didOpen", {"textDocument": item})
        else:
            changed = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text.raw}]}
            self._notify("textDocument/didChange", changed)
        if self._saves:
            self._notify("textDocument/didSave", {"textDocument": {"uri": uri}, "text": text.raw})

    def _close(self, name: str) -> None:
        opened = self._opened.pop(name, None)
        if opened is not None:
            self._count += 1
            self._notify("textDocument/didClose", {"textDocument": {"uri": opened.uri}})

    async def _watch(self, workspace: Workspace) -> None:
        """Tell the server which files on the disk have come, changed and gone."""
        names: list[str] = []
        for root in workspace.roots:
            base = await base_at(workspace, str(root))
            names += (await files_below(workspace, base, FileFilter())).paths
        places = {name: workspace.root / name for name in names}
        stamps = await to_thread.run_sync(_stamps_of, places)
        known, self._stamps = self._stamps, stamps
        if known is None:
            return
        kinds = {name: _CHANGED if name in known else _CREATED for name in stamps if known.get(name) != stamps[name]}
        kinds |= dict.fromkeys(known.keys() - stamps.keys(), _DELETED)
        if kinds:
            self._count += 1
            events = [{"uri": _uri(workspace.root / name), "type": kind} for name, kind in sorted(kinds.items())]
            self._notify("workspace/didChangeWatchedFiles", {"changes": events})


async def _read(workspace: Workspace, names: Sequence[str]) -> dict[str, bytes | ToolFailure]:
    contents = await workspace.read_many(names, limit=MOST_BYTES)
    return dict(zip(names, contents, strict=True))


def _text(content: bytes, name: str) -> Text | None:
    try:
        return decoded(content, path=name)
    except ToolFailure:
        return None


def _is_text(content: bytes, name: str) -> bool:
    return len(content) <= MOST_BYTES and _text(content, name) is not None


def _stamps_of(places: Mapping[str, Path]) -> dict[str, tuple[int, int]]:
    found = ((name, stamp_of(path)) for name, path in places.items())
    return {name: stamp for name, stamp in found if stamp is not None}


def uri_of(workspace: Workspace, name: str) -> str:
    """Return the address of a file. Raises `ToolFailure` for one outside of the workspace."""
    return _uri(workspace.local(name))


def _uri(path: Path) -> str:
    return path.as_uri()


def key_of(uri: str) -> str:
    """Return one spelling of an address: servers write the same one with more or fewer `%`."""
    return unquote(uri)


def display_path(workspace: Workspace, uri: str) -> str | None:
    """Return the tools' name of the file at a URI; None outside of the workspace, or if it is not a file."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # not an address at all
        return None
    path = Path(os.path.normpath(unquote(parts.path)))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in str(path):
        return None
    if not any(path.is_relative_to(root) for root in workspace.roots):
        return None
    return str(path.relative_to(workspace.root)) if path.is_relative_to(workspace.root) else str(path)
