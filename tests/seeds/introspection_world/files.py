"""Files: read, written, moved, with the history of every change."""

from __future__ import annotations

import posixpath
import re
from fnmatch import fnmatch

from toolcrib.errors import ToolFailure

from .state import WORLD, Record, place

__all__ = [
    "below",
    "copyFile",
    "findAndReplace",
    "glob_files",
    "listBackups",
    "list_directory",
    "moveFile",
    "multiFileEdit",
    "readFile",
    "removeFile",
    "restoreFile",
    "undoFileChange",
    "updateFile",
    "writeNewFile",
]


def readFile(path: str, offset: int = 0, limit: int = 2000) -> Record:
    lines = WORLD.text(path).splitlines(keepends=True)
    return {"path": place(path), "content": "".join(lines[offset : offset + limit]), "total_lines": len(lines)}


def updateFile(path: str, old: str = "", new: str = "", new_content: str | None = None) -> Record:
    WORLD.write(path, _updated(WORLD.text(path), old, new, new_content))
    return {"success": True, "path": place(path)}


def _updated(text: str, old: str, new: str, new_content: str | None) -> str:
    if new_content is not None:
        return new_content
    if not old or text.count(old) != 1:
        raise ToolFailure("tool_error", f"old is {text.count(old) if old else 0} times in the file; once was expected")
    return text.replace(old, new)


def writeNewFile(path: str, content: str) -> Record:
    _check_free(path, overwrite=False)
    return {"success": True, "path": WORLD.write(path, content)}


def _check_free(path: str, *, overwrite: bool) -> None:
    if place(path) in WORLD.files and not overwrite:
        raise ToolFailure("tool_error", f"{path} exists already")


def removeFile(path: str) -> Record:
    WORLD.text(path)
    return {"success": True, "removed": WORLD.write(path, None)}


def moveFile(source_path: str, destination_path: str, overwrite: bool = False) -> Record:
    text = WORLD.text(source_path)
    _check_free(destination_path, overwrite=overwrite)
    WORLD.write(source_path, None)
    return {"success": True, "path": WORLD.write(destination_path, text)}


def copyFile(source_path: str, destination_path: str, overwrite: bool = False) -> Record:
    text = WORLD.text(source_path)
    _check_free(destination_path, overwrite=overwrite)
    return {"success": True, "path": WORLD.write(destination_path, text)}


def _backups(path: str) -> list[str]:
    kept = WORLD.backups.get(place(path))
    if not kept:
        raise ToolFailure("tool_error", f"There is no backup of {path}")
    return kept


def undoFileChange(path: str) -> Record:
    WORLD.files[place(path)] = _backups(path).pop()
    return {"success": True, "path": place(path)}


def multiFileEdit(operations: list[Record]) -> Record:
    """Compute every text first, so that all are written or none."""
    edited: dict[str, str] = {}
    for operation in operations:
        path = place(operation["path"])
        text = edited.get(path) if path in edited else WORLD.text(path)
        edited[path] = _updated(
            text or "", operation.get("old", ""), operation.get("new", ""), operation.get("content")
        )
    for path, text in edited.items():
        WORLD.write(path, text)
    return {"success": True, "edited": sorted(edited)}


def findAndReplace(pattern: str, replacement: str, paths: list[str], dry_run: bool = False) -> Record:
    counts: dict[str, int] = {}
    for path in paths:
        text, count = re.subn(pattern, replacement, WORLD.text(path))
        if count:
            counts[place(path)] = count
        if count and not dry_run:
            WORLD.write(path, text)
    return {"replacements": counts, "dry_run": dry_run}


def restoreFile(path: str, backup_path: str = "") -> Record:
    kept = _backups(path)
    number = int(backup_path.rpartition("~")[2]) if backup_path else len(kept) - 1
    if not 0 <= number < len(kept):
        raise ToolFailure("tool_error", f"There is no backup {backup_path}")
    WORLD.write(path, kept[number])
    return {"success": True, "path": place(path)}


def listBackups(path: str = "") -> Record:
    chosen = [place(path)] if path else list(WORLD.backups)
    return {"backups": [f"{name}~{number}" for name in chosen for number in range(len(WORLD.backups.get(name, [])))]}


def glob_files(pattern: str, root: str = "/", max_results: int = 500, include_hidden: bool = False) -> Record:
    names = [name for name in below(root) if include_hidden or "/." not in name]
    hits = [name for name in names if fnmatch(posixpath.relpath(name, place(root)), pattern)]
    return {"files": hits[:max_results], "truncated": len(hits) > max_results}


def below(path: str) -> list[str]:
    """Return the files at or below a path."""
    start = place(path)
    return sorted(name for name in WORLD.files if name == start or name.startswith(f"{start.rstrip('/')}/"))


def list_directory(path: str = "/") -> Record:
    parts = [posixpath.relpath(name, place(path)).partition("/") for name in below(path)]
    return {"path": place(path), "entries": sorted({f"{name}/" if slash else name for name, slash, _ in parts})}
