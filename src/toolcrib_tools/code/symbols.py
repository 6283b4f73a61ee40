"""`symbols`: declarations of a file, and declarations in the project that match a name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .._workspace.file_search import still_there
from .._workspace.pages import fit_lines, room_of
from .._workspace.place import entry_at, workspace_of
from .analysis import Symbol, is_read, symbols_of
from .grammars import spoken_here
from .index import INDEXING_SECONDS, Filter, Project, SymbolRow, project_at

__all__ = ["Kind", "line_of", "symbols", "visible_symbols"]

_RESULTS: Final = 100
_MOST: Final = 1_000
_NOTE: Final = 300
_FILE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a named file."""

Kind = Literal["class", "constant", "enum", "function", "interface", "method", "module", "section", "type"]


@tool(
    op="x.code.symbols",
    category="search",
    kind="read",
    open_world=False,
    needs=["workspace"],
    timeout=INDEXING_SECONDS,
    tags=["symbols", "outline", "definition", "class", "function", "code"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[
        {"path": "src/cart.py"},
        {"query": "parse"},
        {"query": "Error", "kinds": ["class"], "path": "src"},
    ],
    policy={
        "do": ["Give a part of a name to find where something is defined."],
        "dont": ["Do not ask for the whole project: project_knowledge_search finds what a task needs."],
        "edge_cases": [
            "Of a folder, sections of documents are shown only when kinds names them.",
            "The first question about a large project takes longer: it is read once, then only what has changed.",
        ],
    },
)
async def symbols(
    ctx: Context,
    query: Annotated[str, Field(max_length=200)] = "",
    path: str = ".",
    kinds: Sequence[Kind] = (),
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = _RESULTS,
) -> str:
    """List what a file declares, or find declarations by a part of their name: path:line: [kind] name: its first line.

    Args:
        query: A part of the name, in any case; Cart.tot finds what has "tot" in its name in something like Cart.
        path: The file or folder; the workspace's root when not given. A file needs no query.
        kinds: Only classes, functions, methods …; all when not given.
        max_results: At most so many symbols.
    """
    entry = await entry_at(workspace_of(ctx), path)
    container, _, part = query.strip().replace("::", ".").rpartition(".")
    notes: list[str] = []
    if entry.kind == "folder":
        if not part:
            raise ToolFailure("invalid_arguments", "give a query, or one file", hint="list_directory shows the files")
        project = await project_at(ctx, path)
        wanted = Filter(kinds=kinds, prefix=project.prefix)
        found = await visible_symbols(
            ctx, project, await project.ask(lambda rows: rows.like(part, container, wanted, _MOST + 1))
        )
        declared = [(project.display(one.path), one.symbol) for one in found]
        if not project.is_whole:
            notes.append("the folder has more files than one index holds")
    else:
        declared = [
            (entry.path, one)
            for one in await _of_file(ctx, entry.path)
            if part.lower() in one.name.lower() and container.lower() in one.container.lower()
            if not kinds or one.kind in kinds
        ]
    if not declared:
        what = f"symbol like {query!r}" if query else "symbol"
        return f"[{'; '.join([f'no {what} in {path!r}', *notes])}]"
    if len(declared) > max_results:
        more = "more than " if len(declared) > _MOST else ""
        notes.insert(0, f"the first {max_results} of {more}{min(len(declared), _MOST)} are shown")
    lines = [line_of(*one) for one in declared[:max_results]]
    return fit_lines(lines, room_of(ctx.result_bytes, _NOTE), notes, hint="give a longer query, or a smaller folder")


async def _of_file(ctx: Context, path: str) -> list[Symbol]:
    """Return what one file declares, as the session sees it now."""
    if not is_read(path):
        hint = f"those are documents, {spoken_here()}; read_file with the mode outline may show more"
        raise ToolFailure("tool_error", f"{path!r} is in no language that is parsed here", hint=hint)
    content = await workspace_of(ctx).read(path, limit=_FILE_BYTES)
    return await to_thread.run_sync(partial(symbols_of, path, content))


async def visible_symbols(ctx: Context, project: Project, found: Sequence[SymbolRow]) -> list[SymbolRow]:
    """Return those in files that this session may read."""
    shown = {project.display(one.path): one.path for one in found if project.has(one.path)}
    there = {shown[path] for path in await still_there(workspace_of(ctx), list(shown))}
    return [one for one in found if one.path in there]


def line_of(path: str, symbol: Symbol) -> str:
    """Return a symbol as one line."""
    line = f"{path}:{symbol.line}: [{symbol.kind}] {symbol.whole}"
    return line if symbol.signature == symbol.name else f"{line}: {symbol.signature}"
