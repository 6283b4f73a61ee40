"""`find_references`: declarations, calls, imports, writes and reads of a name, in code and not in comments.

ripgrep, where it is installed, says in which files the word is; those are read through the workspace and parsed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, Signal, ToolFailure, tool

from .._workspace.file_search import FileFilter, base_at, files_below
from .._workspace.pages import fit_lines, room_of
from .._workspace.place import entry_at, workspace_of
from .analysis import Occurrence, occurrences, source_of
from .grammars import LANGUAGES, language_of, spoken_here
from .index import FILE_BYTES

__all__ = ["find_references"]

_RESULTS: Final = 100
_MOST: Final = 1_000
_NOTE: Final = 400
_BATCH: Final = 64
_NAME: Final = re.compile(r"[^\W\d][\w$]*")
_KINDS: Final = ("definition", "import", "write", "call", "use")

_Kind = Literal["any", "definition", "import", "write", "call", "use"]


@dataclass(slots=True, kw_only=True)
class _Places:
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
            places = occurrences(path, source, self.symbol)
            self.found += [(path, one) for one in places if self._takes(one)]

    def _takes(self, one: Occurrence) -> bool:
        if self.kind not in ("any", one.kind):
            return False
        if one.kind != "definition" or not self.container:
            return True
        return one.inside == self.container or one.inside.endswith(f".{self.container}")


@tool(
    op="x.code.references",
    category="search",
    kind="read",
    open_world=False,
    needs=["workspace"],
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
    return _format_places(places, symbol, file, max_results, room=room_of(ctx.result_bytes, _NOTE), is_whole=is_whole)


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
