"""Symbols and references of code, and search of a project's knowledge.

The index finds what shares words with a question; the host's ranking, which also finds tools, says what fits best.
Documents are found by their meaning as well, where the host has an embedder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from anyio import to_thread
from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, Signal, ToolFailure

from .._workspace.file_search import FileFilter, base_at, files_below, still_there
from .._workspace.pages import fit_lines, room_of
from .._workspace.place import entry_at, workspace_of, workspace_tool
from .analysis import DOCUMENTS, Occurrence, Symbol, is_read, occurrences, source_of, symbols_of
from .grammars import LANGUAGES, language_of, spoken_here
from .index import FILE_BYTES, INDEXING_SECONDS, Filter, Project, Rows, SymbolRow, project_at

_RESULTS: Final = 100
_MOST: Final = 1_000
_NOTE: Final = 300
_FILE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a named file."""

Kind = Literal["class", "constant", "enum", "function", "interface", "method", "module", "section", "type"]

_REFERENCES_NOTE: Final = 400
_BATCH: Final = 64
_NAME: Final = re.compile(r"[^\W\d][\w$]*")
_KINDS: Final = ("definition", "import", "write", "call", "use")

_Kind = Literal["any", "definition", "import", "write", "call", "use"]

_HITS: Final = 10

_CANDIDATES: Final = 300
"""Candidates that share words with the query, before ranking."""
_DEEPEST: Final = 3
_FANOUT: Final = 20
"""Neighbours of one symbol that are looked at, each way."""
_COMMON: Final = 10
"""A name that so many symbols have says nothing of which is meant."""

_DOC: Final = 160
_SECTION: Final = 600
"""Characters of a section that are shown."""
_READ: Final = 700
"""Characters of a section that are read for its meaning."""
_MOST_SECTIONS: Final = 20_000
"""Sections that are compared by meaning."""
_FUSION: Final = 10
"""Constant of reciprocal rank fusion: the larger, the less the first ranks dominate."""

_MOST_NEIGHBOURS: Final = 100


@workspace_tool(
    op="x.code.symbols",
    category="search",
    kind="read",
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
    """Return the symbols of one file, as the session sees it now."""
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


class _Places(Struct, kw_only=True):
    """References found so far."""

    symbol: str
    container: str
    """Definitions in something else do not count; empty takes all."""
    kind: str
    signal: Signal
    found: list[tuple[str, Occurrence]] = field(default_factory=list[tuple[str, Occurrence]])
    others: int = 0
    """Files in a language that is not parsed."""
    unread: int = 0

    def take(self, batch: Sequence[tuple[str, bytes | ToolFailure]]) -> None:
        """Search some files."""
        word = re.compile(rf"(?<![\w$]){re.escape(self.symbol)}(?![\w$])".encode())
        for path, content in batch:
            if self.signal.aborted:
                raise ToolFailure("timeout", "the search took too long", hint="search a folder or a file")
            if isinstance(content, ToolFailure):
                self.unread += 1
                continue
            try:
                source = source_of(content, path)
            except ToolFailure:
                continue  # it is not text
            if language_of(path) is None:
                self.others += bool(word.search(source))
                continue
            places = occurrences(path, source, self.symbol, lambda: not self.signal.aborted)
            self.found += [(path, one) for one in places if self._takes(one)]

    def _takes(self, one: Occurrence) -> bool:
        if self.kind not in ("any", one.kind):
            return False
        if one.kind != "definition" or not self.container:
            return True
        return one.inside == self.container or one.inside.endswith(f".{self.container}")


@workspace_tool(
    op="x.code.references",
    category="search",
    kind="read",
    tags=["references", "usages", "callers", "definition", "symbol", "code"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[
        {"symbol": "total"},
        {"symbol": "Cart.total", "file": "src", "kind": "call"},
        {"symbol": "parse_config", "kind": "definition"},
    ],
    policy={
        "do": [
            "Use it before you rename or remove something: it leaves out comments and strings, which grep does not."
        ],
        "dont": ["Do not use it for words in text: grep finds them."],
        "edge_cases": [
            "Names are distinguished by syntax, not by type: two methods of one name are found together.",
            "With Cart.total only the definitions in Cart are shown, and every use of total.",
            f"Parsed are {', '.join(LANGUAGES)}; files in other languages are counted.",
        ],
    },
)
async def find_references(
    symbol: Annotated[str, Field(min_length=1, max_length=200)],
    ctx: Context,
    file: str = ".",
    kind: _Kind = "any",
    ignored: bool = False,
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = _RESULTS,
) -> str:
    """Find where a symbol is defined and used in code, definitions first: path:line: [what, in what] the line.

    Args:
        symbol: The name of a function, class, method, constant …; Cart.total for a method of one class.
        file: The file or folder to search; the workspace's root when not given.
        kind: Only definitions, imports, writes, calls or other uses.
        ignored: Also files that .gitignore leaves out.
        max_results: At most so many places.
    """
    container, _, name = symbol.strip().replace("::", ".").replace("#", ".").rpartition(".")
    if not _NAME.fullmatch(name):
        raise ToolFailure("invalid_arguments", f"{symbol!r} is not a symbol name", hint="grep finds any text")
    workspace = workspace_of(ctx)
    entry = await entry_at(workspace, file)
    paths, is_whole = [entry.path], True
    if entry.kind == "folder":
        base = await base_at(workspace, file)
        word = ["--text", "--case-sensitive", "--fixed-strings", f"--regexp={name}"]
        found = await files_below(workspace, base, FileFilter(ignored=ignored), containing=word)
        paths, is_whole = list(found.paths), found.is_whole
    elif language_of(file) is None:
        raise ToolFailure(
            "tool_error", f"{file!r} is in no language that is parsed here", hint=f"those are {spoken_here()}"
        )
    places = _Places(symbol=name, container=container, kind=kind, signal=ctx.signal)
    for at in range(0, len(paths), _BATCH):
        some = paths[at : at + _BATCH]
        contents = await workspace.read_many(some, limit=FILE_BYTES)
        batch = list(zip(some, contents, strict=True))
        await to_thread.run_sync(places.take, batch, abandon_on_cancel=True)
    return _format_places(
        places, symbol, file, max_results, room=room_of(ctx.result_bytes, _REFERENCES_NOTE), is_whole=is_whole
    )


def _format_places(places: _Places, symbol: str, file: str, most: int, *, room: int, is_whole: bool) -> str:
    ordered = sorted(places.found, key=lambda one: (one[1].kind != "definition", one[0], one[1].line))
    notes: list[str] = []
    if len(ordered) > most:
        notes.append(f"the first {most} of {len(ordered)} are shown")
    if places.others:
        notes.append(f"files that hold the word and are in no language that is parsed here: {places.others}")
    if places.unread:
        notes.append(f"files that were not read, as too large or not for tools: {places.unread}")
    if not is_whole:
        notes.append("the folder has more files than one search goes through")
    if not ordered:
        what = "reference" if places.kind == "any" else places.kind
        return f"[{'; '.join([f'no {what} of {symbol!r} in the code below {file!r}', *notes])}]"
    lines = [
        f"{path}:{one.line}: [{one.kind}{f' in {one.inside}' if one.inside else ''}] {one.text}"
        for path, one in ordered[:most]
    ]
    counts = [(kind, sum(one.kind == kind for _, one in ordered)) for kind in _KINDS]
    summary = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts if count)
    return fit_lines(lines, room, [summary, *notes], hint="grep searches every text")


class _Neighbours(Struct):
    """The neighbours of what was found: what it uses, and what uses it."""

    rows: Rows
    most: int
    known: set[int]
    reached: list[tuple[SymbolRow, str]] = field(default_factory=list[tuple[SymbolRow, str]])
    """Symbols that were reached, each with the relation that led to it."""

    def go(self, begin: Sequence[SymbolRow], depth: int) -> None:
        """Follow the names in bodies, both ways, to a depth."""
        front = list(begin)
        for _ in range(depth):
            front = [near for one in front for near in self._near(one)]
            if not front or len(self.reached) >= self.most:
                return

    def _near(self, one: SymbolRow) -> list[SymbolRow]:
        every = Filter()
        used = list(self.rows.uses([one.id])[one.id])
        near = [(other, f"used by {one.symbol.whole}") for name in used for other in self._of_name(name, every)]
        users = self.rows.users(one.symbol.name, every, _FANOUT)
        near = [*near[:_FANOUT], *((other, f"uses {one.symbol.whole}") for other in users)]
        fresh: list[SymbolRow] = []
        for other, how in near:
            if other.id not in self.known and len(self.reached) < self.most:
                self.known.add(other.id)
                self.reached.append((other, how))
                fresh.append(other)
        return fresh

    def _of_name(self, name: str, wanted: Filter) -> list[SymbolRow]:
        found = self.rows.by_names([name], wanted, _COMMON + 1)
        return found if len(found) <= _COMMON else []


@workspace_tool(
    op="x.code.knowledge.search",
    category="search",
    kind="read",
    timeout=INDEXING_SECONDS,
    tags=["knowledge", "symbols", "project", "codebase", "where", "how"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[
        {"query": "where are prices rounded"},
        {"query": "retry failed uploads", "kinds": ["function", "method"], "path": "src", "depth": 2},
    ],
    policy={
        "do": [
            "Use it first in a project that you do not know: it finds functions and classes by what they are about."
        ],
        "dont": ["Do not use it for a name that you know: symbols and find_references are exact."],
        "edge_cases": [
            "Related symbols are found by names: two functions of one name are both shown.",
            "Sections of documents are among the hits only when kinds names them.",
        ],
    },
)
async def project_knowledge_search(
    query: Annotated[str, Field(min_length=1, max_length=1_000)],
    ctx: Context,
    max_hits: Annotated[int, Field(ge=1, le=_MOST_NEIGHBOURS)] = _HITS,
    kinds: Sequence[Kind] = (),
    path: str = ".",
    depth: Annotated[int, Field(ge=0, le=_DEEPEST)] = 1,
    max_related: Annotated[int, Field(ge=0, le=_MOST_NEIGHBOURS)] = _HITS,
) -> str:
    """Search the project's symbols by what they are about, and show what is connected with the best of them.

    Args:
        query: A few words, or a question.
        max_hits: At most so many symbols that fit.
        kinds: Only classes, functions, methods …; all when not given.
        path: Only what is below this folder.
        depth: How many steps to follow from the hits, to what they use and what uses them; 0 shows hits only.
        max_related: At most so many symbols found in that way.
    """
    project = await project_at(ctx, path)
    hits = await _best(ctx, project, query, Filter(kinds=kinds, prefix=project.prefix), max_hits)
    if not hits:
        return f"[nothing in the project below {path!r} has to do with {query!r}; grep searches every text]"
    related = await project.ask(partial(_related, hits, depth, max_related)) if depth and max_related else []
    there = {one.id for one in await visible_symbols(ctx, project, [one for one, _ in related])}
    lines = [_format_symbol(project, one) for one in hits]
    lines += [
        f"related: {line_of(project.display(one.path), one.symbol)} ({how})" for one, how in related if one.id in there
    ]
    notes = [] if project.is_whole else ["the folder has more files than one index holds"]
    return fit_lines(lines, room_of(ctx.result_bytes, _NOTE), notes, hint="ask for fewer hits")


def _related(hits: Sequence[SymbolRow], depth: int, most: int, rows: Rows) -> list[tuple[SymbolRow, str]]:
    walk = _Neighbours(rows, most, {one.id for one in hits})
    walk.go(hits, depth)
    return walk.reached


def _format_symbol(project: Project, one: SymbolRow) -> str:
    line = line_of(project.display(one.path), one.symbol)
    return f"{line}\n    {' '.join(one.symbol.doc.split())[:_DOC]}" if one.symbol.doc else line


async def _best(
    ctx: Context, project: Project, query: str, wanted: Filter, most: int, *, strict: bool = False
) -> list[SymbolRow]:
    """Return the best matches of the query. Unless `strict`, falls back to matches of any word."""
    found = await project.ask(lambda rows: rows.matching(query, wanted, _CANDIDATES))
    candidates = {str(one.id): one for one in await visible_symbols(ctx, project, found)}
    texts = {
        key: (one.symbol.whole, f"{one.symbol.doc} {one.symbol.signature} {one.path}")
        for key, one in candidates.items()
    }
    ranked = await to_thread.run_sync(ctx.lent.rank, query, texts, most)
    return [candidates[key] for key in ranked or (() if strict else list(candidates)[:most])]


@workspace_tool(
    op="x.code.knowledge.find",
    category="knowledge",
    kind="read",
    timeout=INDEXING_SECONDS,
    tags=["knowledge", "documents", "docs", "notes", "manual", "search"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[
        {"query": "how do I ask for a day off"},
        {"query": "opening hours", "path": "handbook", "file_type": "md"},
    ],
    policy={
        "do": ["Ask it before you answer from memory what the workspace has documents about."],
        "dont": ["Do not use it for code: project_knowledge_search knows functions and classes."],
        "edge_cases": [f"Documents are files ending in {', '.join(sorted(DOCUMENTS))}; each is read by its sections."],
    },
)
async def knowledge_search(
    query: Annotated[str, Field(min_length=1, max_length=1_000)],
    ctx: Context,
    limit: Annotated[int, Field(ge=1, le=_MOST_NEIGHBOURS)] = 5,
    file_type: str = "",
    path: str = ".",
) -> str:
    """Search the documents of the workspace; shows the sections that fit best, each with its file and line.

    Args:
        query: A few words, or a question.
        limit: At most so many sections.
        file_type: Only documents of one kind: md, rst, txt or adoc.
        path: The folder of documents; the whole workspace when not given.
    """
    suffix = f".{file_type.lower().lstrip('.')}" if file_type else ""
    if suffix and suffix not in DOCUMENTS:
        known = ", ".join(sorted(kind[1:] for kind in DOCUMENTS))
        raise ToolFailure(
            "invalid_arguments", f"there are no documents of type {file_type!r}", hint=f"there are {known}"
        )
    project = await project_at(ctx, path)
    wanted = Filter(kinds=["section"], prefix=project.prefix, suffix=suffix)
    by_meaning, unread = await _meant(ctx, project, query, wanted, limit)
    by_words = await _best(ctx, project, query, wanted, limit, strict=bool(by_meaning))
    hits = _together(by_words, by_meaning)[:limit]
    if not hits:
        return f"[no document below {path!r} says anything of {query!r}]"
    blocks = [f"{project.display(one.path)}:{one.symbol.line}: {one.symbol.name}\n{_passage(one)}" for one in hits]
    notes = [] if project.is_whole else ["the folder has more files than one index holds"]
    if unread:
        notes.append(f"{unread:,} sections are found by their words only so far: ask again later")
    return fit_lines(blocks, room_of(ctx.result_bytes, _NOTE), notes, hint="read_file shows the whole document")


async def _meant(ctx: Context, project: Project, query: str, wanted: Filter, most: int) -> tuple[list[SymbolRow], int]:
    """Return the sections nearest in meaning, best first, and the number of sections without an embedding."""
    if not ctx.lent.embeds:
        return [], 0
    sections = await visible_symbols(ctx, project, await project.ask(lambda rows: rows.every(wanted, _MOST_SECTIONS)))
    texts = {str(one.id): f"{one.symbol.name}: {one.symbol.doc[:_READ]}" for one in sections}
    nearest = await ctx.lent.nearest(query, texts, most)
    by_key = {str(one.id): one for one in sections}
    return [by_key[key] for key in nearest.found], nearest.unread


def _together(*rankings: Sequence[SymbolRow]) -> list[SymbolRow]:
    """Put rankings together: what stands high in both comes first (reciprocal rank fusion, Cormack 2009)."""
    scores: dict[int, float] = {}
    known: dict[int, SymbolRow] = {}
    for ranking in rankings:
        for place, one in enumerate(ranking):
            known[one.id] = one
            scores[one.id] = scores.get(one.id, 0.0) + 1 / (_FUSION + place)
    return [known[id] for id in sorted(scores, key=lambda id: -scores[id])]


def _passage(one: SymbolRow) -> str:
    """Return the text of a section, its beginning when it is long, set in."""
    text = one.symbol.doc
    cut = text if len(text) <= _SECTION else f"{text[:_SECTION].rstrip()} … to line {one.symbol.last_line}"
    return "\n".join(f"    {line}" for line in cut.splitlines())
