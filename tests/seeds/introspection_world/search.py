"""Searches in files, in code and on a very small web."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch

from .files import below
from .state import WORLD, Record

__all__ = ["ast_search", "grep_content", "web_search"]


def grep_content(
    pattern: str,
    path: str = "/",
    file_glob: str = "*",
    context_lines: int = 0,
    case_sensitive: bool = True,
    max_results: int = 500,
) -> Iterator[Record]:
    expression = re.compile(pattern, 0 if case_sensitive else re.IGNORECASE)
    left = max_results
    for name in below(path):
        lines = WORLD.files[name].splitlines()
        for number, line in enumerate(lines if fnmatch(name, file_glob) else []):
            if left > 0 and expression.search(line):
                left -= 1
                around = lines[max(0, number - context_lines) : number + context_lines + 1]
                yield {"file": name, "line": number + 1, "text": "\n".join(around)}


def ast_search(pattern: str, language: str = "python", path: str = "/", file_pattern: str = "*", **how: int) -> Record:
    if language != "python":
        return {"matches": [], "message": f"There is no grammar for {language}"}
    matches: list[Record] = []
    for name in below(path):
        if name.endswith(".py") and fnmatch(name, file_pattern):
            matches += _definitions(name, pattern, how.get("context_lines", 0))
    return {"matches": matches[: how.get("max_results", 100)]}


def _definitions(name: str, pattern: str, context: int) -> list[Record]:
    lines = WORLD.files[name].splitlines()
    nodes = [
        node for node in ast.walk(ast.parse(WORLD.files[name])) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    return [
        {"file": name, "line": node.lineno, "text": "\n".join(lines[node.lineno - 1 : node.lineno + context])}
        for node in nodes
        if re.fullmatch(pattern, node.name)
    ]


def web_search(query: str, max_results: int = 5) -> Record:
    words = query.lower().split()
    hits = [
        {"url": url, "title": text} for url, text in WORLD.pages.items() if any(word in text.lower() for word in words)
    ]
    return {"query": query, "results": hits[:max_results]}
