"""knowledge: a small web, diagrams of Markdown files, and the project's own functions and classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolcrib import ToolFailure
from toolcrib.core.context import Context
from toolcrib.sources.yaml.run_code import ToolContext

from .files import inside, text_files

__all__ = ["WEB", "display_diagram", "project_knowledge_search", "web_search"]

WEB = {
    "https://docs.example/taskgroup": "asyncio TaskGroup: cancel all tasks when one of them fails",
    "https://docs.example/git-rebase": "git rebase: put commits on top of another branch",
    "https://docs.example/ollama": "Ollama: run a local model and ask it over HTTP",
}
"""All pages that there are: address → text."""


def web_search(query: str) -> str:
    asked = _words(query)
    ranked = sorted(WEB, key=lambda url: -len(asked & _words(WEB[url])))
    found = [f"{WEB[url].partition(':')[0]}\n{url}\n{WEB[url]}" for url in ranked if asked & _words(WEB[url])]
    return "\n\n".join(found) or "No results."


async def display_diagram(path: str, context: ToolContext, index: int = 0) -> str:
    file = inside(context, path)
    text = file.read_text("utf-8") if file.is_file() else ""
    diagrams = re.findall(r"^```mermaid\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    if index >= len(diagrams):
        raise ToolFailure("tool_error", f"{path} has {len(diagrams)} diagrams, there is none with the index {index}")
    context.call.runtime["diagram"] = diagrams[index]
    return f"Diagram {index} of {path}:\n{diagrams[index]}"


@dataclass(frozen=True, kw_only=True)
class _Symbol:
    name: str
    kind: str
    where: str
    words: frozenset[str]
    calls: frozenset[str]


def project_knowledge_search(
    query: str,
    context: ToolContext,
    maxHits: int = 10,
    kindFilter: str = "",
    pathPrefix: str = ".",
    **walk: int,
) -> str:
    symbols = _graph(context.call)
    asked, folder = _words(query), "" if pathPrefix == "." else pathPrefix
    fitting = [symbol for symbol in symbols if asked & symbol.words and symbol.where.startswith(folder)]
    fitting = [symbol for symbol in fitting if kindFilter in ("", symbol.kind)]
    hits = sorted(fitting, key=lambda symbol: (-len(asked & symbol.words), symbol.where))[:maxHits]
    around = _around(hits, symbols, walk.get("graphWalkDepth", 0))[: walk.get("maxGraphHits", 10)]
    lines = [f"{symbol.kind} {symbol.name} ({symbol.where})" for symbol in hits]
    return "\n".join(lines + [f"  near: {symbol.name} ({symbol.where})" for symbol in around]) or "Nothing found."


def _graph(call: Context) -> list[_Symbol]:
    """Return the symbols of the folder, from the session's own graph as long as no file is newer."""
    files = [file for file in text_files(call.cwd) if file.suffix == ".py"]
    stamp = tuple((file, file.stat().st_mtime_ns) for file in files)
    known = call.runtime.get("symbols")
    if known is None or known[0] != stamp:
        found = [symbol for file in files for symbol in _symbols(file, call.cwd)]
        known = call.runtime["symbols"] = (stamp, found)
    return known[1]


def _symbols(file: Path, root: Path) -> Iterator[_Symbol]:
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            called = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            yield _Symbol(
                name=node.name,
                kind="class" if isinstance(node, ast.ClassDef) else "function",
                where=f"{file.relative_to(root).as_posix()}:{node.lineno}",
                words=frozenset(_words(f"{node.name} {ast.get_docstring(node) or ''}")),
                calls=frozenset(called - {node.name}),
            )


def _around(hits: list[_Symbol], symbols: list[_Symbol], depth: int) -> list[_Symbol]:
    near: list[_Symbol] = []
    ring = hits
    for _ in range(depth):
        names, called = {symbol.name for symbol in ring}, {name for symbol in ring for name in symbol.calls}
        ring = [symbol for symbol in symbols if symbol.name in called or names & symbol.calls]
        ring = [symbol for symbol in ring if symbol not in hits and symbol not in near]
        near += ring
    return near


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", text)}
