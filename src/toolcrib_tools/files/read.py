"""Tools that read a file, whole, in part or as an outline, and its metadata."""

from __future__ import annotations

import mimetypes
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypedDict

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, OpenFile, ToolFailure, tool

from .._workspace.file_text import Encoding, decoded
from .._workspace.pages import Page, line_count, page_of, room_of
from .._workspace.place import entry_at, file_at, workspace_of
from .._workspace.windows import TextFile, describe
from .outline import compact, outline

__all__ = ["FileInfo", "file_info", "read_file"]

_LINES: Final = 2_000
"""Default lines of one page (seed 000)."""
_MOST_LINES: Final = 100_000
_SHORT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a file for an outline or the compact form: its text is held several times."""
_NOTE: Final = 400
"""Bytes that the line about the page may take."""
_ENDS: Final = {"CRLF": "CRLF line ends", "mixed": "mixed line ends, LF and CRLF"}


@tool(
    op="x.file.read",
    category="files",
    kind="read",
    open_world=False,
    needs=["workspace"],
    tags=["file", "read", "text", "source"],
    metadata={"compression_hint": "skip"},
    examples=[{"path": "README.md"}, {"path": "src/app.py", "mode": "outline"}, {"path": "log.txt", "offset": -50}],
    policy={
        "do": ["Read the outline of a long source file first, then the lines that matter."],
        "dont": ["Do not read a file in pages to find something in it: grep shows where it is."],
        "edge_cases": ["The last line of the answer, in brackets, tells of cuts, encodings and unusual line ends."],
    },
)
async def read_file(
    path: str,
    ctx: Context,
    mode: Literal["full", "compact", "outline"] = "full",
    offset: int = 1,
    limit: Annotated[int, Field(ge=1, le=_MOST_LINES)] = _LINES,
    encoding: str = "",
    line_numbers: bool = False,
) -> str:
    """Read a text file: the whole of it, some of its lines, or its outline. Long files come in pages.

    Args:
        path: The file, such as "src/app.py".
        mode: full is the text; compact leaves out blank lines and comments; outline lists what is declared, with line
            numbers.
        offset: Number of the first line to read, from 1; a negative number counts from the end (-20: the last 20).
        limit: How many lines to read.
        encoding: Its encoding, such as "latin-1"; found from the content when not given.
        line_numbers: Put the number of each line in front of it; compact and outline always do.
    """
    workspace = workspace_of(ctx)
    entry = await file_at(workspace, path)
    wanted = _ReadOptions(path=entry.path, offset=offset or 1, limit=limit, encoding=encoding, numbers=line_numbers)
    room = room_of(ctx.result_bytes, _NOTE)
    if mode == "full":
        async with workspace.opened(path) as file:
            return await to_thread.run_sync(_full, file, wanted, room)
    content = await workspace.read(path, limit=_SHORT_BYTES)
    return await to_thread.run_sync(_short, content, wanted, mode, room)


class FileInfo(TypedDict, total=False):
    """Metadata of a file or folder, without its content."""

    path: str
    kind: str
    size: Annotated[int, Field(description="Bytes; of a folder, how many entries it has.")]
    modified: str
    pending: Annotated[bool, Field(description="It waits for review: the disk holds something else.")]
    mime_type: str
    sha256: str
    encoding: Annotated[str, Field(description="Of a text file; binary for what is none.")]
    line_ends: str
    lines: int


@tool(
    op="x.file.info",
    category="files",
    kind="read",
    open_world=False,
    needs=["workspace"],
    tags=["file", "size", "encoding", "hash"],
    examples=[{"path": "data.bin"}, {"path": "src"}],
    policy={"edge_cases": ["Of a file of more than 100 MiB only kind, size and time are given."]},
)
async def file_info(path: str, ctx: Context) -> FileInfo:
    """Tell what a file or folder is: kind, size, time, and of a file its type, hash, encoding and number of lines.

    Args:
        path: The file or folder.
    """
    workspace = workspace_of(ctx)
    entry = await entry_at(workspace, path)
    info = FileInfo(path=entry.path, kind=entry.kind, size=entry.size, pending=entry.pending)
    if entry.modified:
        info["modified"] = datetime.fromtimestamp(entry.modified, UTC).isoformat(timespec="seconds")
    if entry.kind == "folder":
        info["size"] = len(await workspace.list(path))
        return info
    if entry.kind != "file":
        return info
    try:
        async with workspace.opened(path) as file:
            return await to_thread.run_sync(_with_text_info, info, file)
    except ToolFailure as failure:
        if failure.code != "too_large":
            raise
        return info


class _ReadOptions:
    """Arguments of `read_file`."""

    def __init__(self, *, path: str, offset: int, limit: int, encoding: str, numbers: bool) -> None:
        self.path, self.offset, self.limit = path, offset, limit
        self.encoding, self.numbers = encoding, numbers

    def first(self, total: int) -> int:
        """Number of the first line; raises `ToolFailure` if it is past the end."""
        first = self.offset if self.offset > 0 else max(1, total + 1 + self.offset)
        if first > max(total, 1):
            raise ToolFailure("tool_error", f"{self.path!r} has {total} lines, so there is no line {first}")
        return first


def _full(file: OpenFile, wanted: _ReadOptions, room: int) -> str:
    """Return a page of the text, reading the file in windows."""
    text = TextFile(file, wanted.encoding, path=wanted.path)
    lines = text.lines(wanted.first(text.total), room)
    page = page_of(lines, limit=wanted.limit, room=room, numbers=wanted.numbers)
    return _with_notes(page, text.total, [_written(text.encoding), _ENDS.get(text.ends.title, "")])


def _short(content: bytes, wanted: _ReadOptions, mode: str, room: int) -> str:
    """Return a page of the outline or of the compact form."""
    text = decoded(content, wanted.encoding, path=wanted.path)
    total = line_count(text.plain.encode("utf-8", "replace"))
    notes: list[str] = []
    if mode == "outline":
        found = outline(text.plain, wanted.path)
        if found is None:
            raise ToolFailure(
                "tool_error", f"no outline is known for a file like {wanted.path!r}", hint="read it in full or compact"
            )
        lines = found.lines
        notes = [] if found.parsed else ["found by pattern, not parsed: something may be missing"]
    else:
        lines = compact(text.plain, wanted.path)
    first = wanted.first(total)
    shown = ((number, line, len(line)) for number, line in lines if number >= first)
    page = page_of(shown, limit=wanted.limit, room=room, numbers=True)
    counted = f"{mode} of {total} lines: {len(lines)} {'are listed' if mode == 'outline' else 'hold something'}"
    return _with_notes(page, total, [*notes, _written(text.encoding)], counted)


def _with_notes(page: Page, total: int, notes: list[str], counted: str = "") -> str:
    """Return the page with a last line, in brackets, where there is something to say of it."""
    lines = [counted] if counted else []
    if not total:
        lines.append("the file is empty")
    elif page.next or (page.first > 1 and not counted):
        lines.append(f"lines {page.first} to {page.last} of {total}")
    if page.cut:
        lines.append(f"line {page.cut[0]} has {page.cut[1]} characters and is cut; grep finds what is in it")
    if page.next and page.next <= total:
        lines.append(f"go on with offset={page.next}")
    lines += filter(None, notes)
    note = f"[{'; '.join(lines)}]" if lines else ""
    return "\n".join(filter(None, (page.text, note)))


def _written(encoding: Encoding) -> str:
    return "" if encoding == Encoding(name="utf-8") else f"encoding {encoding.title}"


def _with_text_info(info: FileInfo, file: OpenFile) -> FileInfo:
    guessed = mimetypes.guess_type(info.get("path", ""))[0]
    if guessed:
        info["mime_type"] = guessed
    found = describe(file)
    info["sha256"] = found.sha256
    if found.encoding is None:
        info["encoding"] = "binary"
        return info
    info["encoding"] = found.encoding.title
    info["line_ends"] = found.ends.title
    info["lines"] = found.ends.lines
    return info
