"""Diff of the files that a call would change, made from its arguments for the person who is asked.

It knows nothing of single tools: names of arguments that are usual for paths, contents and replacements are enough for
most. A tool with other names gets no diff, and the question shows its arguments alone.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, cast

from anyio import to_thread

from ..core.call import Call
from ..core.json import as_list
from ..core.sanitize import escape
from ..core.tool import Tool
from ..errors import ToolFailure

_logger = logging.getLogger(__name__)

ReadText = Callable[[str], Awaitable[str | None]]
"""Returns the text of a file as the session sees it, None for a missing one.

Raises `ValueError` for a file that cannot be shown: not text, too large, out of reach; the message gives the reason.
"""

_PATH_ARGUMENTS: Final = ("path", "file_path", "filepath", "filename", "file", "target_file", "output_path")
_CONTENT_ARGUMENTS: Final = ("content", "new_content", "contents", "file_text")
_REPLACEMENT_ARGUMENTS: Final = (
    ("search", "replace"),
    ("old", "new"),
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
)
_LIST_ARGUMENTS: Final = ("edits", "operations", "changes")
_REPLACE_ALL_ARGUMENTS: Final = ("replace_all", "all")
_MAX_DIFF_LENGTH: Final = 256 * 1024
"""Characters of a file, and of a diff, up to which one is made: comparing takes time that grows with the square."""
_MAX_FILES: Final = 50
_DISK_ORIGIN: Final = "claude"
"""Origin of calls that a client carries out itself: they work on files of the disk, not of a workspace."""

_MAX_FILE_BYTES: Final = 256 * 1024
"""Of a file that is read to show what a call would change in it."""


async def diff_of_call(call: Call) -> str:
    """Return the changes that a call would make to the files of its session, as a diff."""
    workspace = call.session.files.workspace
    if workspace is None and call.origin != _DISK_ORIGIN:
        return ""

    async def read(path: str) -> str | None:
        if workspace is None:
            return await _text_on_disk(call.session.files.cwd / path)
        try:
            if await workspace.stat(path) is None:
                return None
            return (await workspace.read(path, limit=_MAX_FILE_BYTES)).decode()
        except ToolFailure as failure:
            raise ValueError(failure.message) from failure
        except UnicodeDecodeError:
            raise ValueError("it is not text") from None

    try:
        return await diff_of(call.target, call.arguments, read)
    except Exception:  # without a diff the arguments still say what will run
        _logger.exception("no diff could be made for call %s", call.id)
        return ""


async def _text_on_disk(path: Path) -> str | None:
    """Return the text of a file that a client is about to change, None for one that is not there.

    Raises `ValueError` for a file that is not text, not a plain file, larger than `_MAX_FILE_BYTES`, or cannot be read.
    """

    def read() -> str | None:
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_FILE_BYTES:
                raise ValueError("no plain file, or too large to compare")
            return path.read_bytes().decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ValueError(error.strerror or "it cannot be read") from None
        except UnicodeDecodeError:
            raise ValueError("it is not text") from None

    return await to_thread.run_sync(read)


async def diff_of(tool: Tool, arguments: Mapping[str, Any], read: ReadText) -> str:
    """Return the file changes of the call; empty for a tool that only reads or uses unknown arguments.

    A file that cannot be compared is named with the reason; the others are shown.

    Changes of one file are applied in their order, as far as they fit; nothing is written.
    """
    if tool.kind == "read":
        return ""
    after: dict[str, str] = {}
    parts: list[str] = []
    before: dict[str, str | None] = {}
    for path, change in _changes_in(arguments):
        if path not in before and len(before) >= _MAX_FILES:
            parts.append(f"(more than {_MAX_FILES} files: the arguments name the rest)\n")
            break
        try:
            if path not in before:
                before[path] = await read(path)
            after[path] = _apply_change(after.get(path, before[path] or ""), change)
        except ValueError as reason:
            before.setdefault(path, None)
            parts.append(f"({escape(path)}: {reason})\n")
    for path, text in after.items():
        parts.append(await to_thread.run_sync(_unified_diff, escape(path), before[path], text))
    return "".join(parts)


def _changes_in(arguments: Mapping[str, Any], outer: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the arguments of every change, lists taken apart.

    A path at an outer level is that of the edits below it: `{"path": …, "edits": [{"old": …, "new": …}]}`.
    """
    path = next((arguments[name] for name in _PATH_ARGUMENTS if isinstance(arguments.get(name), str)), outer)
    if path and _is_change(arguments):
        yield path, arguments
    for name in _LIST_ARGUMENTS:
        for item in as_list(arguments.get(name)):
            if isinstance(item, Mapping):
                yield from _changes_in(cast("Mapping[str, Any]", item), path)


def _is_change(arguments: Mapping[str, Any]) -> bool:
    return _replacement_in(arguments) is not None or any(
        isinstance(arguments.get(name), str) for name in _CONTENT_ARGUMENTS
    )


def _replacement_in(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    for old, new in _REPLACEMENT_ARGUMENTS:
        if isinstance(arguments.get(old), str) and isinstance(arguments.get(new), str):
            return arguments[old], arguments[new]
    return None


def _apply_change(text: str, change: Mapping[str, Any]) -> str:
    """Return the changed text. Raises `ValueError` for a change without effect.

    Replaces the first occurrence, all of them only where `replace_all` or `all` is true.
    """
    pair = _replacement_in(change)
    if pair is None:
        return next(change[name] for name in _CONTENT_ARGUMENTS if isinstance(change.get(name), str))
    old, new = pair
    if not old or old not in text:
        raise ValueError("the text to be replaced is not in it")
    return text.replace(old, new, -1 if any(change.get(name) is True for name in _REPLACE_ALL_ARGUMENTS) else 1)


def _unified_diff(path: str, before: str | None, after: str) -> str:
    if max(len(before or ""), len(after)) > _MAX_DIFF_LENGTH:
        return f"({path}: too large to compare, {len(before or '')} characters before and {len(after)} after)\n"
    old = "/dev/null" if before is None else f"a/{path}"
    lines = unified_diff((before or "").splitlines(), after.splitlines(), old, f"b/{path}", lineterm="")
    diff = "".join(f"{line}\n" for line in lines)
    return diff if len(diff) <= _MAX_DIFF_LENGTH else f"({path}: the difference has {len(diff)} characters)\n"
