"""Tools that query language servers: definitions, references, hover, symbols, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, cast

from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure

from .._workspace.pages import fit_lines, room_of, shortened
from .._workspace.place import file_at, name_of, workspace_of
from .protocol import KINDS, SEVERITIES, Diagnostic, Hover, Link, LspLocation, parse_answer
from .running_server import RunningServer
from .server import Fleet, Server, first_of, fleet_of, lsp_tool
from .symbol_lookup import Spot, SymbolQuery, Symbols, find_places, lines_of, search_symbols, symbols_in

_RESULTS: Final = 100
_MOST: Final = 1_000
_NOTE: Final = 500
_SPOTS: Final = 5
"""Declarations of one name that are asked about."""
_TAGS: Final = ["lsp", "language server", "code"]

Line = Annotated[int, Field(ge=0)]

MOST_FILES: Final = 50
"""Files that one server checks in one call."""
_MESSAGE: Final = 400

_Least = Literal["error", "warning", "information", "hint"]


@lsp_tool(
    op="x.lsp.definition",
    kind="read",
    tags=[*_TAGS, "definition", "declaration", "jump", "defined", "class"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"symbol": "Cart.total"}, {"file_path": "src/cart.py", "line": 12, "symbol": "gross"}],
    policy={
        "do": ["Use it where a name means different things: it goes by types and imports, symbols by the name alone."],
        "edge_cases": ["A definition in a library is given by its place, which no tool reads: lsp_hover describes it."],
    },
)
async def lsp_goto_definition(
    ctx: Context,
    symbol: Annotated[str, Field(max_length=300)] = "",
    file_path: str = "",
    line: Line = 0,
    column: Line = 0,
) -> str:
    """Go to the definition of a symbol, as a language server knows it: path:line:column: the line.

    Args:
        symbol: Its name, such as total or Cart.total; the name in that line when a line is given.
        file_path: The file it is used or declared in; any when not given.
        line: The line in that file, from 1.
        column: The column in that line, from 1; needed when there is no symbol.
    """
    asked = SymbolQuery(symbol=symbol, file=file_path, line=line, column=column)
    notes: list[str] = []
    places = await _led(ctx, asked, "textDocument/definition", {}, notes)
    return await _format_places(ctx, places, notes, nothing=f"no definition of {_display_query(asked)} is known")


@lsp_tool(
    op="x.lsp.references",
    kind="read",
    tags=[*_TAGS, "references", "usages", "callers", "calls", "function"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"symbol": "Cart.total"}, {"file_path": "src/cart.py", "line": 3, "column": 7}],
    policy={
        "do": ["Use it where several things have one name: it tells them apart, which find_references does not."],
        "dont": ["Do not use it to rename: lsp_rename_symbol finds and changes in one step."],
    },
)
async def lsp_find_references(
    ctx: Context,
    symbol: Annotated[str, Field(max_length=300)] = "",
    file_path: str = "",
    line: Line = 0,
    column: Line = 0,
    include_declaration: bool = True,
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = _RESULTS,
) -> str:
    """Find the uses of exactly this symbol; a language server distinguishes it by types and imports.

    Args:
        symbol: Its name, such as total or Cart.total; the name in that line when a line is given.
        file_path: The file it is used or declared in; any when not given.
        line: The line in that file, from 1.
        column: The column in that line, from 1; needed when there is no symbol.
        include_declaration: Also where it is declared.
        max_results: At most so many places.
    """
    asked = SymbolQuery(symbol=symbol, file=file_path, line=line, column=column)
    notes: list[str] = []
    wanted = {"context": {"includeDeclaration": include_declaration}}
    places = await _led(ctx, asked, "textDocument/references", wanted, notes)
    if not include_declaration:  # some servers name it all the same
        with suppress(ToolFailure):
            declared = await _led(ctx, asked, "textDocument/definition", {}, [])
            places = [one for one in places if one not in declared]
    ordered = sorted(places, key=lambda one: (one.uri, one.range.start.line, one.range.start.character))
    notes.insert(0, f"{len(places)} places in {len({one.uri for one in places})} files")
    if len(ordered) > max_results:
        notes.append(f"the first {max_results} are shown")
    return await _format_places(ctx, ordered[:max_results], notes, nothing=f"{_display_query(asked)} is used nowhere")


@lsp_tool(
    op="x.lsp.hover",
    kind="read",
    tags=[*_TAGS, "hover", "type", "signature", "documentation", "docs", "variable", "method"],
    examples=[{"symbol": "Cart.total"}, {"file_path": "src/cart.py", "line": 12, "symbol": "gross"}],
    policy={"do": ["Use it for the type of a variable, the signature of a function of a library."]},
)
async def lsp_hover(
    ctx: Context,
    symbol: Annotated[str, Field(max_length=300)] = "",
    file_path: str = "",
    line: Line = 0,
    column: Line = 0,
) -> str:
    """Tell the type, signature and documentation of a symbol, as a language server shows them over a name.

    Args:
        symbol: Its name, such as total or Cart.total; the name in that line when a line is given.
        file_path: The file it is used or declared in; any when not given.
        line: The line in that file, from 1.
        column: The column in that line, from 1; needed when there is no symbol.
    """
    asked = SymbolQuery(symbol=symbol, file=file_path, line=line, column=column)
    fleet, notes, texts = fleet_of(ctx), list[str](), list[str]()
    for spot in _few(await find_places(ctx, fleet, asked), notes):
        answer = await _ask_at(ctx, fleet, spot, "textDocument/hover", {}, notes)
        text = _text(parse_answer(Hover, answer, "what a symbol is").contents).strip() if answer is not None else ""
        if text:
            texts.append(f"{spot.file}:{spot.line + 1}:\n{text}")
    whole = "\n\n".join(texts) or f"nothing is known of {_display_query(asked)}"
    shown = shortened(whole, room_of(ctx.result_bytes, _NOTE))
    if len(shown) < len(whole):
        notes.append("the rest is left out")
    return "\n".join([shown, *([f"[{'; '.join(notes)}]"] if notes else [])])


@lsp_tool(
    op="x.lsp.symbols.document",
    kind="read",
    tags=[*_TAGS, "symbols", "outline"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"file_path": "src/cart.py"}],
    policy={"dont": ["Do not use it for a language that symbols parses itself: that is faster."]},
)
async def lsp_document_symbols(
    file_path: str, ctx: Context, max_results: Annotated[int, Field(ge=1, le=_MOST)] = 500
) -> str:
    """List what a file declares, as a language server sees it: line: [kind] name, indented by what it is in.

    Args:
        file_path: The file.
        max_results: At most so many symbols.
    """
    workspace, fleet = workspace_of(ctx), fleet_of(ctx)
    await file_at(workspace, file_path)
    name, notes = name_of(workspace, file_path), list[str]()

    async def ask(live: RunningServer) -> Symbols:
        return await symbols_in(live, workspace, name) or ()

    found = await first_of(ctx, fleet.for_file(name), "textDocument/documentSymbol", ask, notes) or ()
    lines = [
        f"{'  ' * (around.count('.') + 1 if around else 0)}{one.range.start.line + 1}: [{_kind(one.kind)}] {one.name}"
        for one, around in found
    ]
    if len(lines) > max_results:
        notes.append(f"the first {max_results} of {len(lines)} are shown")
    if not lines:
        return f"[{'; '.join([f'{file_path!r} declares nothing', *notes])}]"
    return fit_lines(
        lines[:max_results], room_of(ctx.result_bytes, _NOTE), notes, hint="symbols finds some by their name"
    )


@lsp_tool(
    op="x.lsp.symbols.workspace",
    kind="read",
    tags=[*_TAGS, "symbols", "search", "class", "function"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"query": "parse"}],
    policy={"edge_cases": ["Each server has its own idea of what is like a query: most take a part of the name."]},
)
async def lsp_workspace_symbols(
    query: Annotated[str, Field(min_length=1, max_length=200)],
    ctx: Context,
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = _RESULTS,
) -> str:
    """Find symbols of the whole project by name with language servers: path:line: [kind] name.

    Args:
        query: The name, or a part of it.
        max_results: At most so many symbols.
    """
    fleet, failures, lines = fleet_of(ctx), list[ToolFailure](), dict[str, None]()
    for server in fleet.servers:
        for one in await search_symbols(ctx, server, query.strip(), failures):
            if one.location.range is None:
                continue
            around = f" in {one.container}" if one.container else ""
            place = LspLocation(uri=one.location.uri, range=one.location.range)
            where = (await lines_of(workspace_of(ctx), [place]))[0].split(": ", 1)[0].rpartition(":")[0]
            lines[f"{where}: [{_kind(one.kind)}] {one.name}{around}"] = None
    if not lines and len(failures) == len(fleet.servers):
        raise failures[0]
    notes = [failure.message for failure in failures]
    if len(lines) > max_results:
        notes.append(f"the first {max_results} of {len(lines)} are shown")
    if not lines:
        return f"[{'; '.join([f'no symbol like {query!r}', *notes])}]"
    return fit_lines(list(lines)[:max_results], room_of(ctx.result_bytes, _NOTE), notes, hint="give a longer query")


async def _led(
    ctx: Context, asked: SymbolQuery, method: str, more: dict[str, Any], notes: list[str]
) -> Sequence[LspLocation]:
    """Return the places that a question about a symbol leads to."""
    fleet = fleet_of(ctx)
    found: dict[LspLocation, None] = {}
    for spot in _few(await find_places(ctx, fleet, asked), notes):
        answer: Any = await _ask_at(ctx, fleet, spot, method, more, notes)
        several = cast("list[Any]", answer if isinstance(answer, list) else [answer] if answer else [])
        for one in several:
            if isinstance(one, dict) and "targetUri" in one:
                link = parse_answer(Link, one, method)
                found[LspLocation(uri=link.uri, range=link.range)] = None
            else:
                found[parse_answer(LspLocation, one, method)] = None
    return list(found)


async def _ask_at(ctx: Context, fleet: Fleet, spot: Spot, method: str, more: dict[str, Any], notes: list[str]) -> Any:
    """Return the first answer of a server about a place."""
    workspace = workspace_of(ctx)

    async def ask(live: RunningServer) -> Any:
        (opened,) = await live.sync(workspace, spot.file)
        return await live.request(method, {**spot.params(opened), **more})

    return await first_of(ctx, fleet.for_file(spot.file), method, ask, notes)


def _few(spots: Sequence[Spot], notes: list[str]) -> Sequence[Spot]:
    if len(spots) > 1:
        places = ", ".join(f"{spot.file}:{spot.line + 1}" for spot in spots[:_SPOTS])
        left = f" and {len(spots) - _SPOTS} more, which were not asked about" if len(spots) > _SPOTS else ""
        notes.append(f"the name is declared in several places: {places}{left}; file_path and line tell them apart")
    return spots[:_SPOTS]


async def _format_places(ctx: Context, places: Sequence[LspLocation], notes: Sequence[str], *, nothing: str) -> str:
    if not places:
        return f"[{'; '.join([nothing, *notes])}]"
    lines = await lines_of(workspace_of(ctx), places)
    return fit_lines(lines, room_of(ctx.result_bytes, _NOTE), notes, hint="read_file shows what is around a line")


def _display_query(asked: SymbolQuery) -> str:
    return repr(asked.symbol) if asked.symbol else f"what stands at {asked.file}:{asked.line}:{asked.column}"


def _kind(number: int) -> str:
    return KINDS[number - 1] if 0 < number <= len(KINDS) else "symbol"


def _text(contents: Any) -> str:
    """Return hover content as text: plain, marked, or a list of both."""
    if isinstance(contents, list):
        return "\n".join(filter(None, map(_text, cast("list[Any]", contents))))
    if isinstance(contents, dict):
        return str(cast("dict[str, Any]", contents).get("value", ""))
    return str(contents or "")


class Finding(Struct, frozen=True, order=True):
    """One thing that is wrong. Lines and columns count from 1."""

    path: str
    line: int
    column: int
    severity: str
    source: str
    """Program and rule that report it."""
    message: str


class CheckResult(Struct, kw_only=True):
    """Findings, and notes about servers that failed."""

    findings: set[Finding] = field(default_factory=set[Finding])
    asked: list[str] = field(default_factory=list[str])
    """Servers that gave an answer."""
    notes: list[str] = field(default_factory=list[str])
    failures: list[ToolFailure] = field(default_factory=list[ToolFailure])


async def check_files(ctx: Context, servers: Sequence[Server], names: Sequence[str]) -> CheckResult:
    """Ask each server about the files of its languages; a failing server does not hide the others' findings."""
    result = CheckResult()
    for server in servers:
        own = [name for name in names if server.spec.takes(name)]
        if len(own) > MOST_FILES:
            result.notes.append(f"{server.name} was asked about {MOST_FILES} of {len(own)} files")
        if own:
            await _ask(ctx, server, own[:MOST_FILES], result)
    return result


async def _ask(ctx: Context, server: Server, names: Sequence[str], result: CheckResult) -> None:
    workspace = workspace_of(ctx)
    silent: list[str] = []

    async def ask(live: RunningServer) -> Mapping[str, list[Finding]]:
        silent.clear()
        found: dict[str, list[Finding]] = {}
        opened = dict(zip(names, await live.sync(workspace, *names), strict=True))
        for name, one in opened.items():
            items = await live.findings(one)
            if items is None:
                silent.append(name)
                continue
            given = parse_answer(list[Diagnostic], items, "what it finds")
            found[name] = [
                Finding(
                    name,
                    item.range.start.line + 1,
                    one.lines.column(item.range.start.line, item.range.start.character),
                    _severity(item.severity),
                    " ".join(str(word) for word in ((item.source or server.name).lower(), item.code) if word),
                    " ".join(item.message.split())[:_MESSAGE],
                )
                for item in given
            ]
        return found

    try:
        found = await server.ask(ctx, ask)
    except ToolFailure as failure:
        result.failures.append(failure)
        result.notes.append(failure.message)
        return
    result.findings.update(one for several in found.values() for one in several)
    if found:
        result.asked.append(server.name)
    if silent:
        result.notes.append(f"{server.name} did not report on {', '.join(silent[:3])} in time: their state is unknown")


def _severity(number: int | None) -> str:
    """Return it as a word; one that is left out is ours to choose (LSP 3.17, Diagnostic)."""
    return SEVERITIES[number - 1] if number is not None and 0 < number <= len(SEVERITIES) else SEVERITIES[0]


@lsp_tool(
    op="x.lsp.diagnostics",
    category="diagnostics",
    kind="read",
    tags=["lsp", "language server", "errors", "types", "check", "lint"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"file_path": "src/cart.ts"}, {"file_path": "src/cart.py", "severity": "error"}],
    policy={
        "do": ["Call it after you have changed a file, before you run anything."],
        "dont": ["Do not use it for a folder, or for more linters: get_diagnostics asks all that there are."],
    },
)
async def lsp_get_diagnostics(
    file_path: str,
    ctx: Context,
    severity: _Least = "information",
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = 100,
) -> str:
    """Check one file with its language servers: errors and warnings as path:line:column.

    Args:
        file_path: The file.
        severity: The least that is shown: error, warning, information, or hint for everything.
        max_results: At most so many findings.
    """
    workspace, fleet = workspace_of(ctx), fleet_of(ctx)
    await file_at(workspace, file_path)
    name = name_of(workspace, file_path)
    result = await check_files(ctx, fleet.for_file(name), [name])
    if result.failures and not result.asked:
        raise result.failures[0]
    least = SEVERITIES.index(severity)
    shown = sorted(one for one in result.findings if SEVERITIES.index(one.severity) <= least)
    lines = [f"{one.path}:{one.line}:{one.column}: {one.severity} [{one.source}] {one.message}" for one in shown]
    counts = ", ".join(f"{sum(one.severity == kind for one in result.findings)} {kind}s" for kind in SEVERITIES[:3])
    notes = [f"{counts}; asked: {', '.join(result.asked) or 'no server'}", *result.notes, *fleet.problems]
    if len(lines) > max_results:
        notes.append(f"the first {max_results} of {len(lines)} are shown")
    hint = "lsp_get_code_actions may mend it" if lines else ""
    return fit_lines(lines[:max_results], room_of(ctx.result_bytes, _NOTE), notes, hint=hint)
