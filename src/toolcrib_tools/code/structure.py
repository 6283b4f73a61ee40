"""`ast_search`: code of a given shape, by a pattern with holes or a tree-sitter query.

A pattern is code: its holes (`$X`, `$$$X`) are replaced by names, it is parsed by the grammar of the language, and its
tree is compared with the trees of the files, node by node; a hole takes a node, or a run of them. A query is
tree-sitter's; its predicates are evaluated here. Of both, only files that hold a word of the pattern are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from anyio import to_thread
from msgspec import Struct, field
from pydantic import Field
from tree_sitter import Node, Query, QueryCursor, QueryError

from toolcrib.plugin import Context, Signal, ToolFailure

from .._workspace.file_search import FileFilter, base_at, files_below
from .._workspace.pages import room_of
from .._workspace.patterns import compile_regex, parse_glob
from .._workspace.place import entry_at, workspace_of, workspace_tool
from .analysis import node_text, source_of
from .grammars import Grammar, grammar, language_by_name, language_of, spoken_here
from .index import FILE_BYTES

_HOLE: Final = re.compile(r"\$(\$\$)?([A-Z_][A-Z0-9_]*)?")
_ONE: Final = "Zq1"
_MANY: Final = "Zq9"
"""Placeholder names for holes while a pattern is parsed: unlikely in real code."""
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_PREDICATE: Final = re.compile(r"#([\w-]+[?!])")
_PREDICATES: Final = (
    *("eq?", "not-eq?", "any-eq?", "any-not-eq?", "any-of?", "not-any-of?"),
    *("match?", "not-match?", "any-match?", "any-not-match?"),
)
_MOST_MATCHES: Final = 1_000
"""Simultaneous partial matches at one place: the bound of tree-sitter's memory."""
_STATEMENT: Final = re.compile(rf"((?<=[{{;}}])\s*{_MANY}x\d+x)(?=\s*\}})")
"""A hole for any number of statements, in languages where each needs a mark at its end."""
_FILES: Final = frozenset({"document", "module", "program", "source_file", "translation_unit"})
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_MOST_STEPS: Final = 200_000
"""Comparisons in one file: many holes for any number of nodes can be put together in more ways than anybody waits."""
_LONGEST: Final = 80

Alive = Callable[[], bool]

_RESULTS: Final = 50
_MOST: Final = 500
_MOST_CONTEXT: Final = 20
_NOTE: Final = 400
_LINES: Final = 12
"""Lines shown of one match."""
_BATCH: Final = 32
_STRUCTURE_LONGEST: Final = 300


class Match(Struct, frozen=True, kw_only=True):
    """One place that fits."""

    start: int
    end: int
    row: int
    last_row: int
    holes: tuple[tuple[str, str], ...] = ()
    """Text in the holes, or of the captures."""


class Pattern(Struct, frozen=True, kw_only=True):
    """Something to look for in parsed code. Immutable, for all threads."""

    find: Callable[[Node, bytes, Alive], Iterator[Match]]
    """Yields matches below a node of a source; ends when the consumer stops."""
    word: str = ""
    """A word that every file with a match holds; empty when there is none."""


def query_pattern(spoken: Grammar, text: str) -> Pattern:
    """Return a query as a pattern. Raises `ToolFailure` for an invalid one.

    Predicates are judged here: tree-sitter's own regular expressions take any time, and its Python binding ends the
    process over some others, over an exception in a callback and over a callback for progress.
    """
    for found in _PREDICATE.finditer(_STRING.sub('""', text)):
        if found[1] not in _PREDICATES:
            known = ", ".join(f"#{name}" for name in _PREDICATES)
            raise ToolFailure("invalid_arguments", f"there is no predicate #{found[1]}", hint=f"there are {known}")
    try:
        query = Query(spoken.language, _own_names(text))
    except (QueryError, ValueError) as error:
        raise ToolFailure("invalid_arguments", f"this is not a query: {error}", hint=_hint(spoken)) from None

    def find(root: Node, source: bytes, alive: Alive) -> Iterator[Match]:
        judge = _Predicates(source)
        found = QueryCursor(query, match_limit=_MOST_MATCHES).matches(root, judge)
        if judge.failure is not None:
            raise judge.failure
        for _, captures in found:
            nodes = [(name, node) for name, some in captures.items() for node in some]
            if not alive():
                return
            if nodes:
                first = min(nodes, key=lambda one: (one[1].start_byte, -one[1].end_byte))[1]
                yield _match(first, [(name, node_text(node, source)) for name, node in nodes if node != first])

    return Pattern(find=find)


def _own_names(query: str) -> str:
    """Return a query with its predicates under names that tree-sitter does not know, so that we are asked."""
    pieces = _STRING.split(query)
    strings = _STRING.findall(query)
    renamed = [_PREDICATE.sub(lambda found: f"#own-{found[1]}", piece) for piece in pieces]
    return "".join(part for pair in zip(renamed, [*strings, ""], strict=True) for part in pair)


class _Predicates:
    """Evaluates query predicates. Never raises: `failure` holds the error."""

    def __init__(self, source: bytes) -> None:
        self.failure: ToolFailure | None = None
        self._source = source
        self._regexes: dict[str, Any] = {}

    def __call__(
        self,
        predicate: str,
        args: list[tuple[str, Literal["capture", "string"]]],
        pattern_index: int,
        captures: dict[str, list[Node]],
    ) -> bool:
        """Return whether the nodes of the first argument are as the others say."""
        try:
            return self._holds(predicate.removeprefix("own-"), args, captures)
        except ToolFailure as failure:
            self.failure = failure
            return False

    def _holds(self, name: str, arguments: Sequence[tuple[str, str]], captures: dict[str, list[Node]]) -> bool:
        if len(arguments) < 2 or arguments[0][1] != "capture":
            raise ToolFailure("invalid_arguments", f"#{name} takes a capture and what to compare it with")
        values = [
            value
            for text, kind in arguments[1:]
            for value in (self._texts(captures, text) if kind == "capture" else [text])
        ]
        is_regex = name.endswith("match?")
        fits = [
            any(self._regex(value).search(text.encode()) for value in values) if is_regex else text in values
            for text in self._texts(captures, arguments[0][0])
        ]
        if "not-" in name:
            fits = [not one for one in fits]
        return any(fits) if name.startswith("any-") and name != "any-of?" else all(fits)

    def _regex(self, pattern: str) -> Any:
        if pattern not in self._regexes:
            self._regexes[pattern] = compile_regex(pattern.encode())
        return self._regexes[pattern]

    def _texts(self, captures: dict[str, list[Node]], name: str) -> list[str]:
        return [node_text(node, self._source) for node in captures.get(name, ())]


def code_pattern(spoken: Grammar, text: str) -> Pattern:
    """Return a piece of code as a pattern. Raises `ToolFailure` for what cannot be parsed, or fits everything."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        if not found[1] and not found[2]:
            return found[0]
        written = f"{_MANY if found[1] else _ONE}x{len(names)}x"
        names[written] = found[2] or "_"
        return written

    code = _HOLE.sub(name, text.strip())
    root, source = _parsed(spoken, code, text)
    if _whole(root, source) in names:
        raise ToolFailure("invalid_arguments", "this pattern fits everything", hint="write some code around the hole")
    literal: list[str] = _WORD.findall(_HOLE.sub(" ", text))

    def find(tree: Node, where: bytes, alive: Alive) -> Iterator[Match]:
        query = Query(spoken.language, f"({root.type}) @node" if root.is_named else f'"{root.type}" @node')
        fitting = _Matcher(names, source, where)
        for node in QueryCursor(query).captures(tree).get("node", []):
            if not alive():
                return
            holes = fitting.holes(root, node)
            if holes is not None:
                yield _match(node, [(name, value) for name, value in holes.items() if name != "_"])

    return Pattern(find=find, word=max(literal, key=len, default=""))


def _parsed(spoken: Grammar, code: str, text: str) -> tuple[Node, bytes]:
    """Return the node that a piece of code is, and the source that it stands in."""
    for piece in dict.fromkeys((code, _STATEMENT.sub(r"\1;", code))):
        for frame in spoken.spoken.frames:
            source = frame.format(piece).encode()
            start = frame.format("\0").encode().index(b"\0")
            node = _node_at(spoken, source, start, start + len(piece.encode()))
            if node is not None:
                return node, source
    raise ToolFailure(
        "invalid_arguments",
        f"this is not a single piece of code of this language: {text.strip()[:_LONGEST]!r}",
        hint=_hint(spoken),
    )


def _node_at(spoken: Grammar, source: bytes, start: int, end: int) -> Node | None:
    """Return the node that covers exactly this part of a source; None if there is none or it has errors."""
    node = spoken.parser().parse(source).root_node.descendant_for_byte_range(start, end)
    while node is not None and not node.has_error and (node.start_byte, node.end_byte) == (start, end):
        is_wrapped = node.type in _FILES or (node.type == "expression_statement" and source[end - 1 : end] != b";")
        if not is_wrapped:
            return node
        node = node.named_children[0] if node.named_child_count == 1 else None
    return None


class _Matcher:
    """Compares the nodes of a pattern with those of one source."""

    def __init__(self, names: dict[str, str], pattern: bytes, source: bytes) -> None:
        self._names, self._pattern, self._source = names, pattern, source
        self._steps = 0

    def holes(self, wanted: Node, node: Node) -> dict[str, str] | None:
        """Return the texts in the holes; None if the node does not fit."""
        return self._one(wanted, node, {})

    def _one(self, wanted: Node, node: Node, holes: dict[str, str]) -> dict[str, str] | None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise ToolFailure("too_large", "the pattern fits in too many ways", hint="use fewer $$$ next to each other")
        written = _whole(wanted, self._pattern)
        if written in self._names and written.startswith(_ONE):
            return _filled(holes, self._names[written], node_text(node, self._source)) if node.is_named else None
        if wanted.type != node.type:
            return None
        theirs = _children(node)
        ours = _children(wanted)
        if not ours or not theirs:
            same = not ours and not theirs and written == _whole(node, self._source)
            return holes if same else None
        return self._several(ours, theirs, holes)

    def _several(self, ours: Sequence[Node], theirs: Sequence[Node], holes: dict[str, str]) -> dict[str, str] | None:
        if not ours:
            return holes if all(not node.is_named and node.type in (",", ";") for node in theirs) else None
        if name := self._many(ours[0]):
            return self._any_number(name, ours[1:], theirs, holes)
        if len(ours) > 1 and ours[0].type == "," and (name := self._many(ours[1])):
            # `f(a, $$$)` also fits `f(a)`: the comma before a hole that holds nothing is not there.
            filled = _filled(holes, name, "")
            found = None if filled is None else self._several(ours[2:], theirs, filled)
            if found is not None:
                return found
        if not theirs:
            return None
        filled = self._one(ours[0], theirs[0], holes)
        return None if filled is None else self._several(ours[1:], theirs[1:], filled)

    def _any_number(
        self, name: str, ours: Sequence[Node], theirs: Sequence[Node], holes: dict[str, str]
    ) -> dict[str, str] | None:
        for count in range(len(theirs) + 1):
            filled = _filled(holes, name, self._between(theirs[:count]))
            # The comma after a hole that holds nothing is not there either.
            rest = ours[1:] if not count and ours and ours[0].type == "," else ours
            found = None if filled is None else self._several(rest, theirs[count:], filled)
            if found is not None:
                return found
        return None

    def _many(self, node: Node) -> str:
        """Return the name of a hole for any number of nodes; empty for anything else."""
        written = _whole(node, self._pattern)
        return self._names.get(written, "") if written.startswith(_MANY) else ""

    def _between(self, nodes: Sequence[Node]) -> str:
        return self._source[nodes[0].start_byte : nodes[-1].end_byte].decode("utf-8", "replace") if nodes else ""


def _children(node: Node) -> list[Node]:
    """Return the children that count: no comments, no comma at the end of a list."""
    children = [child for child in node.children if not child.is_extra]
    is_list = len(children) > 2 and children[-1].type in (")", "]", "}") and children[-2].type == ","
    return [*children[:-2], children[-1]] if is_list else children


def _filled(holes: dict[str, str], name: str, text: str) -> dict[str, str] | None:
    if name == "_":
        return holes
    if name in holes:
        return holes if holes[name] == text else None
    return {**holes, name: text}


def _match(node: Node, holes: Sequence[tuple[str, str]]) -> Match:
    shown = tuple((name, value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…") for name, value in holes)
    rows = node.start_point[0], node.end_point[0]
    return Match(start=node.start_byte, end=node.end_byte, row=rows[0], last_row=rows[1], holes=shown)


def _whole(node: Node, source: bytes) -> str:
    """Return the text of a node without the mark that ends a statement."""
    return node_text(node, source).strip().rstrip(";")


def _hint(spoken: Grammar) -> str:
    name = spoken.spoken.suffixes[0]
    return f"write code as in a {name} file, such as name($ARG, $$$REST), or a query such as (identifier) @it"


class _Search(Struct, kw_only=True):
    """One search under way."""

    spoken: Grammar
    pattern: Pattern
    context: int
    most: int
    room: int
    signal: Signal
    blocks: list[str] = field(default_factory=list[str])
    files: int = 0
    """Number of parsed files."""
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
                continue  # it is not text
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
        shown = [
            f"{path}-{row + 1}-{lines[row][:_STRUCTURE_LONGEST]}"
            for row in range(max(0, one.row - self.context), one.row)
        ]
        shown += [f"{path}:{row + 1}:{lines[row][:_STRUCTURE_LONGEST]}" for row in range(one.row, last + 1)]
        if last < one.last_row:
            shown.append(f"  … to line {one.last_row + 1}")
        below = range(one.last_row + 1, min(one.last_row + 1 + self.context, len(lines)))
        shown += [f"{path}-{row + 1}-{lines[row][:_STRUCTURE_LONGEST]}" for row in below]
        shown += [f"  {name} = {' '.join(value.split())}" for name, value in one.holes]
        return "\n".join(shown)

    def _is_wanted(self) -> bool:
        return not self.signal.aborted

    def _go_on(self) -> None:
        if self.signal.aborted:
            raise ToolFailure("timeout", "the search took too long", hint="search a smaller folder, or write more code")


@workspace_tool(
    op="x.code.structure",
    category="search",
    kind="read",
    background_after=10,
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
    spoken_as = language_by_name(language) if language else language_of(path) if entry.kind == "file" else None
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
        if file_pattern:
            globs.append(parse_glob(file_pattern))
        word = ["--text", "--case-sensitive", "--fixed-strings", f"--regexp={search.pattern.word}"]
        wanted = FileFilter(globs=globs)
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
    return _format_matches(search, pattern, path, is_whole=is_whole)


def _format_matches(search: _Search, pattern: str, path: str, *, is_whole: bool) -> str:
    notes: list[str] = []
    if search.is_full:
        notes.append(f"{search.shown} matches are shown, there are more: narrow it with path or file_pattern")
    if not is_whole:
        notes.append("the folder has more files than one search goes through")
    if not search.blocks and not search.is_full:
        notes.insert(0, f"nothing in {path!r} has the shape {pattern!r}; {search.files} files were parsed")
    return "\n".join([*search.blocks, *([f"[{'; '.join(notes)}]"] if notes else [])])
