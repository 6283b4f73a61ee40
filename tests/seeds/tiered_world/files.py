"""The files of the workspaces: a tree in memory below `/workspace`, and a shell that knows four commands."""

from __future__ import annotations

import posixpath
import re
import shlex
from fnmatch import fnmatch

from toolcrib.errors import ToolFailure

from .state import WORLD, Record

__all__ = [
    "edit_file",
    "glob_files",
    "grep",
    "list_directory",
    "read_file",
    "run_command",
    "search_files",
    "write_file",
]

_ROOT = "/workspace"
_MOST_RESULTS = 500
_MOST_TEXT = 8000
_MOST_SECONDS = 120
_MOST_OUT, _MOST_ERR = 4000, 2000


def _inside(path: str) -> str:
    full = posixpath.normpath(posixpath.join(_ROOT, path))
    if full != _ROOT and not full.startswith(f"{_ROOT}/"):
        raise ToolFailure("tool_error", f"Access denied: {path} is outside of the workspaces")
    return full


def _text(path: str) -> str:
    full = _inside(path)
    if full not in WORLD.files:
        raise ToolFailure("tool_error", f"File not found: {path}")
    if "\0" in WORLD.files[full]:
        raise ToolFailure("tool_error", f"Binary file: {path}")
    return WORLD.files[full]


def _below(path: str) -> list[str]:
    start = _inside(path)
    return sorted(name for name in WORLD.files if name == start or name.startswith(f"{start.rstrip('/')}/"))


def read_file(path: str, max_lines: int = 2000, offset: int = 0) -> Record:
    lines = _text(path).splitlines(keepends=True)
    shown = lines[offset : offset + max_lines]
    cut = (
        {"truncated": True, "total_lines": len(lines), "lines_returned": len(shown)} if len(shown) < len(lines) else {}
    )
    return {"content": "".join(shown), "path": _inside(path), **cut}


def write_file(path: str, content: str) -> Record:
    WORLD.files[_inside(path)] = content
    return {"path": _inside(path), "written": len(content)}


def edit_file(path: str, old_string: str, new_string: str, replace_all: bool = False) -> Record:
    text = _text(path)
    count = text.count(old_string)
    if count == 0 or (count > 1 and not replace_all):
        raise ToolFailure("tool_error", f"old_string is {count} times in {path}; it must be there once, or replace_all")
    WORLD.files[_inside(path)] = text.replace(old_string, new_string)
    return {"path": _inside(path), "replacements": count}


def glob_files(pattern: str, path: str) -> Record:
    start = _inside(path)
    return {"files": [name for name in _below(path) if fnmatch(posixpath.relpath(name, start), pattern)]}


def list_directory(project_id: str, path: str = "", workspace: str = "") -> Record:
    folder = _inside(posixpath.join(WORLD.project(project_id), path))
    inside = [posixpath.relpath(name, folder).partition("/") for name in _below(folder)]
    names = sorted({f"{first}/" if slash else first for first, slash, _ in inside})
    return {"path": folder, "entries": names, "workspace": workspace or "main"}


def search_files(pattern: str, path: str, mode: str = "grep") -> Record:
    if mode == "find":
        return {"mode": mode, "files": [name for name in _below(path) if fnmatch(posixpath.basename(name), pattern)]}
    return {"mode": mode, "files": [name for name in _below(path) if re.search(pattern, WORLD.files[name])]}


def grep(pattern: str, path: str, context: int = 0, max_results: int = 100, **how: str) -> Record:
    expression = re.compile(pattern, re.IGNORECASE if how.get("case_insensitive") else 0)
    names = [name for name in _below(path) if fnmatch(posixpath.basename(name), how.get("glob", "*"))]
    found = [(name, number) for name in names for number, line in _lines(name) if expression.search(line)]
    found = found[: min(max_results, _MOST_RESULTS)]
    mode = how.get("output_mode", "content")
    if mode == "files_with_matches":
        return {"files": sorted({name for name, _ in found})}
    if mode == "count":
        return {"count": len(found)}
    shown = "\n".join(
        f"{name}:{number}:{line}"
        for name, hit in found
        for number, line in _lines(name)
        if abs(number - hit) <= context
    )
    return {
        "matches": shown[:_MOST_TEXT],
        "count": len(found),
        **({"truncated": True} if len(shown) > _MOST_TEXT else {}),
    }


def _lines(name: str) -> list[tuple[int, str]]:
    return list(enumerate(WORLD.files[name].splitlines(), start=1))


def run_command(command: str, working_dir: str, timeout: int = 30) -> Record:
    folder, words = _inside(working_dir), shlex.split(command)
    program, rest = (words[0], words[1:]) if words else ("", [])
    out, err, status = "", "", 0
    if program == "echo":
        out = " ".join(rest) + "\n"
    elif program == "ls":
        out = "\n".join(_below(folder)) + "\n"
    elif program == "cat":
        out = "".join(_text(posixpath.join(folder, name)) for name in rest)
    elif program == "pwd":
        out = f"{folder}\n"
    else:
        err, status = f"{program}: command not found\n", 127
    told = {"returncode": status, "stdout": out[:_MOST_OUT], "stderr": err[:_MOST_ERR]}
    return {**told, "timeout": min(timeout, _MOST_SECONDS)}
