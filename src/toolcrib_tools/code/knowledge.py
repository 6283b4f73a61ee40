"""`project_knowledge_search` and `knowledge_search`: code and documents of a project that fit a question.

The index finds what shares words with the question; the host's ranking, which also finds tools, says what fits best.
Documents are found by their meaning as well, where the host has an embedder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .._workspace.pages import fit_lines, room_of
from .analysis import DOCUMENTS
from .index import INDEXING_SECONDS, Filter, Project, Rows, SymbolRow, project_at
from .symbols import Kind, line_of, visible_symbols

__all__ = ["knowledge_search", "project_knowledge_search"]

_HITS: Final = 10
_MOST: Final = 100
_CANDIDATES: Final = 300
"""Candidates that share words with the query, before ranking."""
_DEEPEST: Final = 3
_FANOUT: Final = 20
"""Neighbours of one symbol that are looked at, each way."""
_COMMON: Final = 10
"""A name that so many symbols have says nothing of which is meant."""
_NOTE: Final = 300
_DOC: Final = 160
_SECTION: Final = 600
"""Characters of a section that are shown."""
_READ: Final = 700
"""Characters of a section that are read for its meaning."""
_MOST_SECTIONS: Final = 20_000
"""Sections that are compared by meaning."""
_FUSION: Final = 10
"""Constant of reciprocal rank fusion: the larger, the less the first ranks dominate."""


@dataclass(slots=True)
class _Neighbours:
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


@tool(
    op="x.code.knowledge.search",
    category="search",
    kind="read",
    open_world=False,
    needs=["workspace"],
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
    max_hits: Annotated[int, Field(ge=1, le=_MOST)] = _HITS,
    kinds: Sequence[Kind] = (),
    path: str = ".",
    depth: Annotated[int, Field(ge=0, le=_DEEPEST)] = 1,
    max_related: Annotated[int, Field(ge=0, le=_MOST)] = _HITS,
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


@tool(
    op="x.code.knowledge.find",
    category="knowledge",
    kind="read",
    open_world=False,
    needs=["workspace"],
    timeout=INDEXING_SECONDS,
    tags=["knowledge", "documents", "docs", "notes", "manual"],
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
    limit: Annotated[int, Field(ge=1, le=_MOST)] = 5,
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
