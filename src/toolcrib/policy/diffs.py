"""What a call would change in files, as a unified diff for whoever is asked about it.

Read from the arguments alone, by the names that such tools use: a path with whole new content, a path with a text and
what stands in its place, or a list of those. A call that says it in another way has no diff; its arguments say all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from difflib import unified_diff
from typing import Any, Final, cast

from anyio import to_thread

from ..core.tool import Tool

__all__ = ["ReadText", "diff_of"]

ReadText = Callable[[str], Awaitable[str | None]]
"""Returns the text of a file as the session sees it, None for one that is not there.

Raises `ValueError` for what cannot be shown: no text, too large, out of reach; the message says which."""

_PATHS: Final = ("path", "file_path", "filepath", "filename", "file", "target_file", "output_path")
_CONTENTS: Final = ("content", "new_content", "contents", "file_text")
_PAIRS: Final = (
    ("search", "replace"),
    ("old", "new"),
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
)
_LISTS: Final = ("edits", "operations", "changes")
_ALL: Final = ("replace_all", "all")
_LONGEST: Final = 256 * 1024
"""Characters of a file, and of a diff, up to which one is made: comparing takes time that grows with the square."""
_FILES: Final = 50


async def diff_of(tool: Tool, arguments: Mapping[str, Any], read: ReadText) -> str:
    """Return what the call would change; empty for a tool that only reads or does not say it in arguments known here.

    A file that cannot be compared is named with the reason: the rest is shown.
    """
    if tool.kind == "read":
        return ""
    after: dict[str, str] = {}
    parts: list[str] = []
    before: dict[str, str | None] = {}
    for path, change in _changes(arguments):
        if path not in before and len(before) >= _FILES:
            parts.append(f"(more than {_FILES} files: the arguments name the rest)\n")
            break
        try:
            if path not in before:
                before[path] = await read(path)
            after[path] = _changed(after.get(path, before[path] or ""), change)
        except ValueError as reason:
            before.setdefault(path, None)
            parts.append(f"({path}: {reason})\n")
    for path, text in after.items():
        parts.append(await to_thread.run_sync(_diff, path, before[path], text))
    return "".join(parts)


def _changes(arguments: Mapping[str, Any], outer: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the arguments of every change, lists taken apart."""
    path = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), outer)
    if path and _is_change(arguments):
        yield path, arguments
    for name in _LISTS:
        items = arguments.get(name)
        for item in cast("list[Any]", items) if isinstance(items, list) else ():
            if isinstance(item, Mapping):
                yield from _changes(cast("Mapping[str, Any]", item), path)


def _is_change(arguments: Mapping[str, Any]) -> bool:
    return _pair(arguments) is not None or any(isinstance(arguments.get(name), str) for name in _CONTENTS)


def _pair(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    for old, new in _PAIRS:
        if isinstance(arguments.get(old), str) and isinstance(arguments.get(new), str):
            return arguments[old], arguments[new]
    return None


def _changed(text: str, change: Mapping[str, Any]) -> str:
    """Return the text after the change. Raises `ValueError` where it changes nothing."""
    pair = _pair(change)
    if pair is None:
        return next(change[name] for name in _CONTENTS if isinstance(change.get(name), str))
    old, new = pair
    if not old or old not in text:
        raise ValueError("the text to be replaced is not in it")
    return text.replace(old, new, -1 if any(change.get(name) is True for name in _ALL) else 1)


def _diff(path: str, before: str | None, after: str) -> str:
    if max(len(before or ""), len(after)) > _LONGEST:
        return f"({path}: too large to compare, {len(before or '')} characters before and {len(after)} after)\n"
    old = "/dev/null" if before is None else f"a/{path}"
    lines = unified_diff((before or "").splitlines(), after.splitlines(), old, f"b/{path}", lineterm="")
    diff = "".join(f"{line}\n" for line in lines)
    return diff if len(diff) <= _LONGEST else f"({path}: the difference has {len(diff)} characters)\n"
