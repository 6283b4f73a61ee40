"""`ast_search`: code of a shape, whatever its blanks, line ends and names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, Signal, ToolFailure, tool

from .._workspace.finding import Wanted, base_at, files_below
from .._workspace.globs import Glob, parse_glob
from .._workspace.pages import room_of
from .._workspace.place import entry_at, workspace_of
from .analysis import source_of
from .grammars import Grammar, grammar, language_named, language_of, spoken_here
from .index import FILE_BYTES
from .patterns import Match, Pattern, code_pattern, query_pattern

__all__ = ["ast_search"]

_RESULTS: Final = 50
_MOST: Final = 500
_MOST_CONTEXT: Final = 20
_NOTE: Final = 400
_LINES: Final = 12
"""Of one match; of a longer one the first are shown."""
_BATCH: Final = 32
_LONGEST: Final = 300


@dataclass(slots=True, kw_only=True)
class _Search:
    """One search under way."""

    spoken: Grammar
    pattern: Pattern
    context: int
    most: int
    room: int
    signal: Signal
    blocks: list[str] = field(default_factory=list[str])
    files: int = 0
    """That were parsed."""
    shown: int = 0
    is_full: bool = False

    def take(self, batch: Sequence[tuple[str, bytes | ToolFailure]]) -> None:
        """Search some files."""
        for path, content in batch:
            if self.is_full:
                return
            self._go_on()
            if isinstance(content, ToolFailure):
                continue
            try:
                source = source_of(content, path)
            except ToolFailure:
                continue  # it is no text
            if self.pattern.word.encode() not in source:
                continue
            self.files += 1
            self._show_all(path, source)

    def _show_all(self, path: str, source: bytes) -> None:
        root = self.spoken.parser().parse(source).root_node
        lines = source.decode("utf-8", "replace").split("\n")
        matches = {(one.start, one.end): one for one in self.pattern.find(root, source, self._is_wanted)}
        self._go_on()
        for key in sorted(matches):
            block = self._block(path, lines, matches[key])
            size = len(block.encode("utf-8", "replace")) + 1
            if self.shown >= self.most or size > self.room:
                self.is_full = True
                return
            self.blocks.append(block)
            self.room -= size
            self.shown += 1

    def _block(self, path: str, lines: Sequence[str], one: Match) -> str:
        last = min(one.last_row, one.row + _LINES - 1)
        shown = [f"{path}-{row + 1}-{lines[row][:_LONGEST]}" for row in range(max(0, one.row - self.context), one.row)]
        shown += [f"{path}:{row + 1}:{lines[row][:_LONGEST]}" for row in range(one.row, last + 1)]
        if last < one.last_row:
            shown.append(f"  … to line {one.last_row + 1}")
        below = range(one.last_row + 1, min(one.last_row + 1 + self.context, len(lines)))
        shown += [f"{path}-{row + 1}-{lines[row][:_LONGEST]}" for row in below]
        shown += [f"  {name} = {' '.join(value.split())}" for name, value in one.holes]
        return "\n".join(shown)

    def _is_wanted(self) -> bool:
        return not self.signal.aborted

    def _go_on(self) -> None:
        if self.signal.aborted:
            raise ToolFailure("timeout", "the search took too long", hint="search a smaller folder, or write more code")


@tool(
    op="x.code.structure",
    category="search",
    kind="read",
    open_world=False,
    needs=["workspace"],
    tags=["ast", "syntax", "structure", "pattern", "code", "tree-sitter"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[
        {"pattern": "open($PATH, $$$)", "language": "python"},
        {"pattern": "if ($A === $A) { $$$ }", "language": "javascript", "path": "src"},
        {"pattern": '((function_definition name: (identifier) @name) (#match? @name "^test_"))', "language": "python"},
    ],
    policy={
        "do": [
            "Use it for what grep cannot tell: calls with certain arguments, code over several lines with holes in it."
        ],
        "dont": ["Do not use it for a name: find_references tells what each place does with it."],
        "edge_cases": [
            "A pattern that begins with ( or [ and holds an @ is read as a tree-sitter query.",
            "What is between the holes must be as written: def $F($$$): does not fit a function with a result type.",
        ],
    },
)
async def ast_search(
    pattern: Annotated[str, Field(min_length=1, max_length=4_000)],
    ctx: Context,
    language: str = "",
    path: str = ".",
    file_pattern: str = "",
    context_lines: Annotated[int, Field(ge=0, le=_MOST_CONTEXT)] = 0,
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = _RESULTS,
) -> str:
    """Find code by its structure: a piece of code with holes ($X one node, $$$X any number), or a tree-sitter query.

    Args:
        pattern: Such as "print($$$)", "$A == $A" or "(call function: (identifier) @name)".
        language: python, javascript, typescript, tsx, go, rust, java, c, cpp, ruby, bash or json; that of path when
            path is a file.
        path: The folder or file to search; the workspace's root when not given.
        file_pattern: Only files whose path matches, such as "*_test.py" or "src/**".
        context_lines: How many lines to show around each match.
        max_results: At most so many matches.
    """
    workspace = workspace_of(ctx)
    entry = await entry_at(workspace, path)
    spoken_as = language_named(language) if language else language_of(path) if entry.kind == "file" else None
    if spoken_as is None:
        raise ToolFailure("invalid_arguments", "say in which language to search", hint=f"there are {spoken_here()}")
    spoken = grammar(spoken_as)
    is_query = pattern.lstrip().startswith(("(", "[")) and "@" in pattern
    search = _Search(
        spoken=spoken,
        pattern=query_pattern(spoken, pattern) if is_query else code_pattern(spoken, pattern),
        context=context_lines,
        most=max_results,
        room=room_of(ctx.result_bytes, _NOTE),
        signal=ctx.signal,
    )
    paths, is_whole = [entry.path], True
    if entry.kind == "folder":
        globs = [parse_glob(f"*.{{{','.join(suffix[1:] for suffix in spoken.spoken.suffixes)},_}}")]
        globs += _given(file_pattern)
        word = ["--text", "--case-sensitive", "--fixed-strings", f"--regexp={search.pattern.word}"]
        wanted = Wanted(globs=globs)
        found = await files_below(
            workspace, await base_at(workspace, path), wanted, containing=word if search.pattern.word else None
        )
        paths, is_whole = list(found.paths), found.is_whole
    done = 0
    while done < len(paths) and not search.is_full:
        some = paths[done : done + _BATCH]
        contents = await workspace.read_many(some, limit=FILE_BYTES)
        await to_thread.run_sync(search.take, list(zip(some, contents, strict=True)), abandon_on_cancel=True)
        done += _BATCH
    return _told(search, pattern, path, is_whole=is_whole)


def _given(file_pattern: str) -> list[Glob]:
    return [parse_glob(file_pattern)] if file_pattern else []


def _told(search: _Search, pattern: str, path: str, *, is_whole: bool) -> str:
    notes: list[str] = []
    if search.is_full:
        notes.append(f"{search.shown} matches are shown, there are more: narrow it with path or file_pattern")
    if not is_whole:
        notes.append("the folder has more files than one search goes through")
    if not search.blocks and not search.is_full:
        notes.insert(0, f"nothing in {path!r} has the shape {pattern!r}; {search.files} files were parsed")
    return "\n".join([*search.blocks, *([f"[{'; '.join(notes)}]"] if notes else [])])
