"""Lookup of places: a symbol by its name, or a line of a file; and places as lines of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from toolcrib.plugin import Context, ToolFailure, Workspace

from .._workspace.file_text import decoded
from .._workspace.place import file_at, name_of, workspace_of
from .documents import MOST_BYTES, Lines, OpenDocument, display_path
from .protocol import DocumentSymbol, LspLocation, SymbolInformation, parse_answer
from .running_server import RunningServer
from .server import Fleet, Server

_MOST: Final = 200
"""Symbols of a name that are looked at."""
_LONGEST: Final = 200
_SEPARATORS: Final = re.compile(r"::|#|\.")

Symbols = Sequence[tuple[DocumentSymbol, str]]
"""Each with what it is in, `Cart.total`; empty at the top."""


class SymbolQuery(Struct, frozen=True, kw_only=True):
    """Place as a caller names it. Lines and columns count from 1; 0 means not given."""

    symbol: str = ""
    file: str = ""
    line: int = 0
    column: int = 0

    @property
    def name(self) -> str:
        """The name itself."""
        return _SEPARATORS.split(self.symbol.strip())[-1]

    @property
    def container(self) -> str:
        """Dotted name of the enclosing symbol; empty if not given."""
        return ".".join(_SEPARATORS.split(self.symbol.strip())[:-1])

    def check(self) -> None:
        """Raises `ToolFailure` for what names no place."""
        if self.symbol and not self.name:
            raise ToolFailure("invalid_arguments", f"symbol: {self.symbol!r} is not a name", hint="such as Cart.total")
        if not self.symbol and not (self.file and self.line and self.column):
            raise ToolFailure(
                "invalid_arguments", "say which place is meant", hint="give symbol, or file_path, line and column"
            )
        if (self.line or self.column) and not self.file:
            raise ToolFailure("invalid_arguments", "file_path: say which file the line is in")
        if self.column and not self.line:
            raise ToolFailure("invalid_arguments", "line: say which line the column is in")


class Spot(Struct, frozen=True, kw_only=True):
    """One place in a file of the workspace, in the protocol's way of counting."""

    file: str
    line: int
    character: int

    def params(self, opened: OpenDocument) -> dict[str, Any]:
        """Return it as a question names it."""
        return {
            "textDocument": {"uri": opened.uri},
            "position": {"line": self.line, "character": self.character},
        }


async def find_places(ctx: Context, fleet: Fleet, asked: SymbolQuery) -> list[Spot]:
    """Return the places that a query matches, each once: declarations of the symbol, or the named position.

    Raises `ToolFailure("not_found")` if there is none.
    """
    asked.check()
    workspace = workspace_of(ctx)
    if asked.file:
        await file_at(workspace, asked.file)
        name = name_of(workspace, asked.file)
        if asked.line:
            return [await _on_line(workspace, name, asked)]
        spots = await _in_file(ctx, fleet, name, asked)
    else:
        spots = await _in_workspace(ctx, fleet, asked)
    if not spots:
        where = repr(asked.file) if asked.file else "the workspace"
        hint = (
            "lsp_workspace_symbols finds names that are like it; or give file_path and line of a place where it stands"
        )
        raise ToolFailure("not_found", f"no symbol {asked.symbol!r} is declared in {where}", hint=hint)
    return list(dict.fromkeys(spots))


async def _on_line(workspace: Workspace, name: str, asked: SymbolQuery) -> Spot:
    """Return a place in a line. Raises `ToolFailure` for one that is not there."""
    lines = await _lines(workspace, name)
    if asked.line > len(lines):
        raise ToolFailure("invalid_arguments", f"line: {name!r} has {len(lines)} lines, not {asked.line}")
    text, row = lines.line(asked.line - 1), asked.line - 1
    start = max(0, asked.column - 1)
    if start > len(text):
        raise ToolFailure("invalid_arguments", f"column: line {asked.line} of {name!r} has {len(text)} characters")
    if asked.symbol:
        found = next((at for at in _places(text, asked.name) if at + len(asked.name) > start), -1)
        if found < 0:
            raise ToolFailure(
                "not_found",
                f"{asked.name!r} does not stand in line {asked.line} of {name!r}",
                hint=f"there is: {text[:_LONGEST].strip()}",
            )
        start = found
    return Spot(file=name, line=row, character=lines.position(lines.start(row) + start)["character"])


async def _in_file(ctx: Context, fleet: Fleet, name: str, asked: SymbolQuery) -> list[Spot]:
    """Return the declarations of the symbol in a file, else the first position of its name."""
    workspace = workspace_of(ctx)
    lines = await _lines(workspace, name)
    for server in fleet.for_file(name):
        symbols: Symbols | None = None
        with suppress(ToolFailure):  # the text is there all the same
            symbols = await server.ask(ctx, lambda live: symbols_in(live, workspace, name))
        fitting = [symbol for symbol, around in symbols or () if _fits(asked, symbol.name, around)]
        if fitting:
            return [
                _spot(name, lines, asked.name, one.selection.start.line, one.selection.start.character)
                for one in fitting
            ]
    if asked.container:
        return []
    for row in range(len(lines)):
        for at in _places(lines.line(row), asked.name):
            return [Spot(file=name, line=row, character=lines.position(lines.start(row) + at)["character"])]
    return []


async def symbols_in(live: RunningServer, workspace: Workspace, name: str) -> Symbols | None:
    """Return the symbols of a file, in its order; None if the server does not list them."""
    if not live.can("textDocument/documentSymbol"):
        return None
    (opened,) = await live.sync(workspace, name)
    answer: Any = await live.request("textDocument/documentSymbol", {"textDocument": {"uri": opened.uri}}) or []
    if any("location" in one for one in answer if one):
        plain = parse_answer(list[SymbolInformation], answer, "what a file declares")
        return [(_nested(one), one.container or "") for one in plain if one.location.range is not None]
    return list(flat(parse_answer(list[DocumentSymbol], answer, "what a file declares")))


def flat(symbols: Sequence[DocumentSymbol], around: str = "") -> Iterator[tuple[DocumentSymbol, str]]:
    """Yield symbols with those in them, each with what it is in."""
    for one in symbols:
        yield one, around
        yield from flat(one.children, f"{around}.{one.name}" if around else one.name)


def _nested(one: SymbolInformation) -> DocumentSymbol:
    assert one.location.range is not None
    return DocumentSymbol(name=one.name, kind=one.kind, range=one.location.range, selectionRange=one.location.range)


async def _in_workspace(ctx: Context, fleet: Fleet, asked: SymbolQuery) -> list[Spot]:
    """Return the declarations of the symbol in the workspace: by the servers, else by our index of the project."""
    workspace = workspace_of(ctx)
    spots: list[Spot] = []
    failures: list[ToolFailure] = []
    for server in fleet.servers:
        for one in await search_symbols(ctx, server, asked.name, failures):
            name = display_path(workspace, one.location.uri)
            if name is None or one.location.range is None or not _fits(asked, one.name, one.container or ""):
                continue
            start = one.location.range.start
            spots.append(_spot(name, await _lines(workspace, name), asked.name, start.line, start.character))
    spots = spots or await _from_index(ctx, fleet, asked)
    if not spots and failures:
        raise failures[0]
    return spots


async def search_symbols(
    ctx: Context, server: Server, query: str, failures: list[ToolFailure]
) -> list[SymbolInformation]:
    """Return the symbols of the workspace that a server finds by a name; none where it does not tell that.

    One that gives no answer is added to `failures`.
    """
    workspace = workspace_of(ctx)

    async def ask(live: RunningServer) -> list[SymbolInformation]:
        if not live.can("workspace/symbol"):
            return []
        await live.sync(workspace)
        if (name := live.documents.some()) is not None:
            await live.sync(workspace, name)
        answer = await live.request("workspace/symbol", {"query": query})
        return parse_answer(list[SymbolInformation], (answer or [])[:_MOST], "which symbols there are")

    try:
        return await server.ask(ctx, ask)
    except ToolFailure as failure:
        failures.append(failure)
        return []


async def _from_index(ctx: Context, fleet: Fleet, asked: SymbolQuery) -> list[Spot]:
    """Return the declarations of the symbol by the index, in files that have a server."""
    from ..code.index import Filter, project_at  # the package `code` imports this one

    workspace = workspace_of(ctx)
    project = await project_at(ctx, ".")
    rows = await project.ask(lambda rows: rows.like(asked.name, asked.container, Filter(prefix=project.prefix), _MOST))
    spots: list[Spot] = []
    for one in rows:
        name = project.display(one.path)
        if not _fits(asked, one.symbol.name, one.symbol.container) or not project.has(one.path):
            continue
        if any(server.spec.takes(name) for server in fleet.servers):
            spots.append(_spot(name, await _lines(workspace, name), asked.name, one.symbol.line - 1, 0))
    return spots


def _fits(asked: SymbolQuery, name: str, container: str) -> bool:
    """True if a symbol matches a name; servers write `total(int)` for `total`."""
    if re.split(r"[(<\[ ]", name, maxsplit=1)[0] != asked.name and name != asked.name:
        return False
    around = ".".join(_SEPARATORS.split(container))
    return not asked.container or around == asked.container or around.endswith(f".{asked.container}")


def _spot(file: str, lines: Lines, name: str, line: int, character: int) -> Spot:
    """Return the position of the name from a place on: a declaration may begin with other words."""
    start = lines.offset(line, character)
    at = next((start + at for at in _places(lines.text[start : start + 4_000], name)), start)
    place = lines.position(at)
    return Spot(file=file, line=place["line"], character=place["character"])


def _places(text: str, name: str) -> Iterator[int]:
    """Yield the positions of a name in a text, as a whole word."""
    for found in re.finditer(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text):
        yield found.start()


async def _lines(workspace: Workspace, name: str) -> Lines:
    return Lines(decoded(await workspace.read(name, limit=MOST_BYTES), path=name).raw)


async def lines_of(workspace: Workspace, places: Sequence[LspLocation]) -> list[str]:
    """Return places as lines `path:line:column: text`, each once and in their order; without text outside."""
    names = [display_path(workspace, one.uri) for one in places]
    inside = list(dict.fromkeys(name for name in names if name is not None))
    texts: dict[str, Lines] = {}
    for name, content in zip(inside, await workspace.read_many(inside, limit=MOST_BYTES), strict=True):
        with suppress(ToolFailure):  # guarded, or not text: the place is listed without its line
            if not isinstance(content, ToolFailure):
                texts[name] = Lines(decoded(content, path=name).raw)
    answer: dict[str, None] = {}
    for name, place in zip(names, places, strict=True):
        start, lines = place.range.start, texts.get(name or "")
        if lines is None:
            answer[
                f"{name or _outside(place.uri)}:{start.line + 1}:{start.character + 1}: (no text of the workspace)"
            ] = None
        else:
            column = lines.column(start.line, start.character)
            answer[f"{name}:{start.line + 1}:{column}: {lines.line(start.line).strip()[:_LONGEST]}"] = None
    return list(answer)


def _outside(uri: str) -> str:
    """Return a file outside of the workspace by its last folders: the rest is of no use to anybody."""
    path = PurePosixPath(unquote(urlsplit(uri).path))
    return f"…/{'/'.join(path.parts[-3:])}" if len(path.parts) > 4 else str(path)
