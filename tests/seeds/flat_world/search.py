"""search: names, lines and uses of names in the session's folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from toolcrib import ToolFailure
from toolcrib.sources.yaml.context import ToolContext

from .files import inside, text_files

__all__ = ["find_references", "grep", "search_files"]


def search_files(pattern: str, context: ToolContext) -> str:
    root = context.call.cwd
    found = sorted(path.relative_to(root).as_posix() for path in root.glob(pattern) if path.is_file())
    return "\n".join(name for name in found if not name.startswith(".")) or "No files found."


def grep(pattern: str, context: ToolContext, path: str = ".") -> str:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ToolFailure("tool_error", f"{pattern!r} is no regular expression: {error}") from None
    found = (f"{where}:{line.strip()}" for where, line in _lines(context, path) if wanted.search(line))
    return "\n".join(found) or "No matches found."


def find_references(symbol: str, context: ToolContext, file: str = ".") -> str:
    word = re.compile(rf"\b{re.escape(symbol)}\b")
    defines = re.compile(rf"\s*(?:async def|def|class)\s+{re.escape(symbol)}\b|{re.escape(symbol)}\s*=")
    found = [
        f"{where}:{' [definition]' if defines.match(line) else ''} {line.strip()}"
        for where, line in _lines(context, file)
        if word.search(line)
    ]
    return "\n".join(found) or f"No references to {symbol}."


def _lines(context: ToolContext, path: str) -> Iterator[tuple[str, str]]:
    root = context.call.cwd
    for file in text_files(inside(context, path)):
        for number, line in enumerate(_read(file), 1):
            yield f"{file.relative_to(root).as_posix()}:{number}", line


def _read(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        return []
