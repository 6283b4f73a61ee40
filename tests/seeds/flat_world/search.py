"""search: names, lines and uses of names in the session's folder."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import PurePosixPath

from toolcrib import ToolFailure
from toolcrib.sources.yaml.run_code import ToolContext

from .files import files_of, inside

__all__ = ["find_references", "grep", "search_files"]


async def search_files(pattern: str, context: ToolContext) -> str:
    found = [entry.path for entry in await files_of(context).walk() if _fits(entry.path, pattern)]
    return "\n".join(found) or "No files found."


async def grep(pattern: str, context: ToolContext, path: str = ".") -> str:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ToolFailure("tool_error", f"{pattern!r} is no regular expression: {error}") from None
    found = [f"{where}:{line.strip()}" async for where, line in _lines(context, path) if wanted.search(line)]
    return "\n".join(found) or "No matches found."


async def find_references(symbol: str, context: ToolContext, file: str = ".") -> str:
    word = re.compile(rf"\b{re.escape(symbol)}\b")
    defines = re.compile(rf"\s*(?:async def|def|class)\s+{re.escape(symbol)}\b|{re.escape(symbol)}\s*=")
    found = [
        f"{where}:{' [definition]' if defines.match(line) else ''} {line.strip()}"
        async for where, line in _lines(context, file)
        if word.search(line)
    ]
    return "\n".join(found) or f"No references to {symbol}."


def _fits(path: str, pattern: str) -> bool:
    """Whether a glob in which ** is any depth means the path."""
    steps = ("[^/]*".join(map(re.escape, part.split("*"))) for part in pattern.split("**/"))
    return re.fullmatch("(?:.*/)?".join(steps), str(PurePosixPath(path))) is not None


async def _lines(context: ToolContext, path: str) -> AsyncGenerator[tuple[str, str]]:
    inside(context, path)
    files = files_of(context)
    found = await files.stat(path)
    names = [path] if found is not None and found.kind == "file" else [entry.path for entry in await files.walk(path)]
    for name in names:
        try:
            lines = (await files.read(name)).decode().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            yield f"{name}:{number}", line
