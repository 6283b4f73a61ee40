"""Symbols of one file, and the role of a name at each of its occurrences.

Names are distinguished by syntax, not by type: two methods of one name are one name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from os.path import splitext
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct
from tree_sitter import Node, QueryCursor

from toolcrib.plugin import ToolFailure

from .._workspace.file_text import decoded
from .grammars import Grammar, grammar, language_of

DOCUMENTS: Final = frozenset({".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc"})
_CLASSES: Final = frozenset({"class", "interface", "scope"})
_LONGEST: Final = 200
_DOC: Final = 400
_SECTION: Final = 1_500
"""Characters of a section that are kept; a longer one goes on as another."""
_MOST_USES: Final = 300
"""Names that are kept of one symbol's body."""
_COMMENT: Final = re.compile(r"^\s*(?://[/!]?|#+|/?\*+/?|--)\s?")
_QUOTES: Final = re.compile(r"^[rRbBuUfF]{0,2}(?:\"{3}|'{3}|[\"'])|(?:\"{3}|'{3}|[\"'])$")
_HEADING: Final = re.compile(r"^#{1,6}\s+\S|^={1,5}\s+\S")
_RULE: Final = re.compile(r"^(={3,}|-{3,}|~{3,})\s*$")
_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_IMPORTS: Final = ("import", "use_declaration", "preproc_include", "export_clause", "package_clause")
_CALLS: Final = ("call", "call_expression", "method_invocation", "macro_invocation", "new_expression", "command_name")
_ASSIGNED: Final = frozenset({"left", "target"})
_DEEPEST: Final = 2_000
"""Brackets inside each other."""
_STEPS: Final = bytes.maketrans(b"([{)]}", b"\2\2\2\0\0\0")
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b"([{)]}")
_LONGEST_CONTAINER: Final = 1_000
"""Characters of the names of all that a symbol is in."""
_MOST_ABOVE: Final = 32
"""Nodes above a name among which an import is looked for."""
_WORD: Final = r"(?<![\w$]){}(?![\w$])"


class Symbol(Struct, frozen=True, kw_only=True):
    """Something with a name."""

    name: str
    kind: str
    line: int
    last_line: int
    signature: str
    """The line that declares it."""
    container: str = ""
    """Dotted name of the enclosing symbol, such as `Cart.total`; empty at the top level."""
    doc: str = ""
    """Its documentation; of a section its text."""
    uses: tuple[str, ...] = ()
    """Names in its body, each once."""

    @property
    def whole(self) -> str:
        """Its name with what it is in."""
        return f"{self.container}.{self.name}" if self.container else self.name


class Occurrence(Struct, frozen=True, kw_only=True):
    """One place where a name stands."""

    line: int
    kind: str
    """definition, import, call, write or use."""
    inside: str
    """The symbol that it is in; empty at the top."""
    text: str


class _Defined(Struct, kw_only=True):
    start: int
    end: int
    kind: str
    name: Node
    node: Node
    owner: str = ""


def is_read(path: str) -> bool:
    """True if a file can have symbols: its language has a grammar, or it is a document."""
    return language_of(path) is not None or splitext(path)[1].lower() in DOCUMENTS


def source_of(content: bytes, path: str) -> bytes:
    """Return a text in UTF-8 with plain line ends.

    Raises `ToolFailure` for content that is not text, and for brackets nested so deeply that no person wrote them:
    queries of tree-sitter take time by the square of the depth.
    """
    if content.isascii() and b"\0" not in content:
        source = content.replace(b"\r\n", b"\n") if b"\r" in content else content
    else:
        source = decoded(content, path=path).plain.encode("utf-8", "replace")
    brackets = source.translate(_STEPS, _OTHERS)
    if len(brackets) > _DEEPEST and max(accumulate(step - 1 for step in brackets)) > _DEEPEST:
        raise ToolFailure("tool_error", f"{path!r} is nested deeper than {_DEEPEST:,} levels")
    return source


def symbols_of(path: str, content: bytes) -> list[Symbol]:
    """Return the symbols that a file declares, in order; empty for a file that is not text."""
    try:
        source = source_of(content, path)
    except ToolFailure:
        return []
    if PurePosixPath(path).suffix.lower() in DOCUMENTS:
        return list(_sections(path, source.decode("utf-8", "replace")))
    language = language_of(path)
    if language is None:
        return []
    spoken = grammar(language)
    root = spoken.parser().parse(source).root_node
    defined = _defined(spoken, root, source)
    inside = _enclosing(defined, source)
    lines = source.decode("utf-8", "replace").split("\n")
    uses = _uses(spoken, root, source, defined)
    return [
        _symbol(one, container, lines, source, uses[number])
        for number, (one, container) in enumerate(zip(defined, inside, strict=True))
        if one.kind != "scope"
    ]


def occurrences(path: str, source: bytes, name: str, alive: Callable[[], bool] = lambda: True) -> list[Occurrence]:
    """Return the places in the code of a file where a name stands; those in comments and strings are none.

    It ends early once `alive` is false: in a file of very many places each takes the longer the larger the file is.
    """
    language = language_of(path)
    if language is None:
        return []
    places = [found.span() for found in re.finditer(_WORD.format(re.escape(name)).encode(), source)]
    if not places:
        return []
    spoken = grammar(language)
    root = spoken.parser().parse(source).root_node
    defined = _defined(spoken, root, source)
    inside = _enclosing(defined, source)
    named = {one.name.start_byte for one in defined if one.kind != "scope"}
    lines = source.split(b"\n")
    found: list[Occurrence] = []
    for (start, end), numbers in zip(places, _around(defined, [start for start, _ in places]), strict=True):
        if not alive():
            break
        node = root.descendant_for_byte_range(start, end)
        if node is None or node.type not in spoken.spoken.names or (node.start_byte, node.end_byte) != (start, end):
            continue
        kind = "definition" if start in named else _role(node)
        row = node.start_point[0]
        own = start if kind == "definition" else -1
        around = next((number for number in numbers if defined[number].name.start_byte != own), None)
        whole = (
            "" if around is None else ".".join(filter(None, (inside[around], node_text(defined[around].name, source))))
        )
        text = lines[row].decode("utf-8", "replace").strip()[:_LONGEST]
        found.append(Occurrence(line=row + 1, kind=kind, inside=whole, text=text))
    return found


def _defined(spoken: Grammar, root: Node, source: bytes) -> list[_Defined]:
    """Return the declarations by their start, each once."""
    found: dict[int, _Defined] = {}
    for _, captures in QueryCursor(spoken.definitions).matches(root):
        name = captures["name"][0]
        owner = node_text(captures["owner"][0], source) if "owner" in captures else ""
        kind, node = next((kind, nodes[0]) for kind, nodes in captures.items() if kind not in ("name", "owner"))
        body = _body(node)
        one = _Defined(start=body.start_byte, end=body.end_byte, kind=kind, name=name, node=body, owner=owner)
        known = found.get(name.start_byte)
        if known is None or known.kind == "constant":
            found[name.start_byte] = one
    return sorted(found.values(), key=lambda one: (one.start, -one.end))


def _body(node: Node) -> Node:
    """Return the whole of what a node declares: in C a name is declared within what has the body."""
    around: Node | None = node
    while around is not None and around.type.endswith(("_declarator", "declarator")):
        around = around.parent
    return around if around is not None and around.type == "function_definition" else node


def _enclosing(defined: Sequence[_Defined], source: bytes) -> list[str]:
    """Return the container of each, and make methods of the functions in classes."""
    stack: list[tuple[int, str, str]] = []
    containers: list[str] = []
    for one in defined:
        while stack and stack[-1][0] <= one.start:
            stack.pop()
        around = next((entry for entry in reversed(stack) if entry[0] >= one.end), None)
        container = one.owner or (stack[-1][1] if around is not None and around is stack[-1] else "")
        containers.append(container)
        if one.kind == "function" and around is not None and around[2] in _CLASSES:
            one.kind = "method"
        name = node_text(one.name, source)
        whole = f"{container}.{name}" if container else name
        stack.append((one.end, whole if len(whole) <= _LONGEST_CONTAINER else container, one.kind))
    return containers


def _around(defined: Sequence[_Defined], places: Sequence[int]) -> list[Sequence[int]]:
    """Return the numbers of the innermost two declarations around each of the ascending places, the innermost first."""
    stack: list[int] = []
    found: list[Sequence[int]] = []
    following = 0
    for place in places:
        while following < len(defined) and defined[following].start <= place:
            _leave(stack, defined, defined[following].start)
            stack.append(following)
            following += 1
        _leave(stack, defined, place)
        found.append(tuple(islice((number for number in reversed(stack) if defined[number].end > place), 2)))
    return found


def _leave(stack: list[int], defined: Sequence[_Defined], place: int) -> None:
    while stack and defined[stack[-1]].end <= place:
        stack.pop()


def _uses(spoken: Grammar, root: Node, source: bytes, defined: Sequence[_Defined]) -> list[tuple[str, ...]]:
    """Return the names in the body of each, without those in what is declared inside it."""
    uses: list[dict[str, None]] = [{} for _ in defined]
    nodes = QueryCursor(spoken.names).captures(root).get("name", [])
    places = sorted((node.start_byte, node.end_byte) for node in nodes)
    stack: list[int] = []
    following = 0
    for start, end in places:
        while following < len(defined) and defined[following].start <= start:
            stack.append(following)
            following += 1
        _leave(stack, defined, start)
        if stack and len(uses[stack[-1]]) < _MOST_USES and start != defined[stack[-1]].name.start_byte:
            uses[stack[-1]][source[start:end].decode("utf-8", "replace")] = None
    return [tuple(names) for names in uses]


def _symbol(one: _Defined, container: str, lines: Sequence[str], source: bytes, uses: tuple[str, ...]) -> Symbol:
    row = one.name.start_point[0]
    return Symbol(
        name=node_text(one.name, source),
        kind=one.kind,
        line=row + 1,
        last_line=one.node.end_point[0] + 1,
        signature=lines[row].strip()[:_LONGEST],
        container=container,
        doc=_doc(one.node, lines, source),
        uses=uses,
    )


def _doc(node: Node, lines: Sequence[str], source: bytes) -> str:
    """Return the documentation of a declaration: its docstring, else the comment above it."""
    body = node.child_by_field_name("body")
    first = body.named_children[0] if body is not None and body.named_children else None
    if first is not None and first.type == "expression_statement" and first.named_children:
        first = first.named_children[0]
    if first is not None and first.type == "string":
        return " ".join(_QUOTES.sub("", node_text(first, source)).split())[:_DOC]
    above: list[str] = []
    row = node.start_point[0] - 1
    while row >= 0 and len(above) < 10 and _COMMENT.match(lines[row]):
        above.append(_COMMENT.sub("", lines[row]).removesuffix("*/").strip())
        row -= 1
    return " ".join(filter(None, reversed(above)))[:_DOC]


def _role(node: Node) -> str:
    """Return the role of the name at a place."""
    around = node.parent
    if around is not None and around.type in (
        "attribute",
        "member_expression",
        "field_expression",
        "selector_expression",
    ):
        last = around.named_children[-1] if around.named_children else None
        if last != node:
            return "use"
        node, around = around, around.parent
    if around is None:
        return "use"
    if around.type in _CALLS and around.named_children and _is_called(around, node):
        return "call"
    if "assign" in around.type and any(around.child_by_field_name(field) == node for field in _ASSIGNED):
        return "write"
    above: Node | None = around
    for _ in range(_MOST_ABOVE):
        if above is None:
            break
        if above.type.startswith(_IMPORTS):
            return "import"
        above = above.parent
    return "use"


def _is_called(call: Node, node: Node) -> bool:
    for field in ("function", "name", "method", "constructor", "macro"):
        called = call.child_by_field_name(field)
        if called is not None:
            return called == node
    return call.named_children[0] == node


def node_text(node: Node, source: bytes) -> str:
    """Return the text of a node."""
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _sections(path: str, text: str) -> Iterator[Symbol]:
    """Yield a document's sections: what stands under a heading, long ones in parts; the first may have none."""
    lines = text.split("\n")
    starts = dict(_headings(lines))
    title, begin = PurePosixPath(path).name, 0
    for number in [*starts, len(lines)]:
        yield from _parts(title, lines, begin, number)
        if number < len(lines):
            title, begin = starts[number], number


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _HEADING.match(line):
            yield number, line.strip("#= \t")[:_LONGEST]
        elif not fenced and number and lines[number - 1].strip() and _RULE.match(line):
            above = lines[number - 1].strip()
            if not above.startswith(("#", "|", "-", "*", ">")) and len(line.strip()) + 2 >= len(above):
                yield number - 1, above[:_LONGEST]


def _parts(title: str, lines: Sequence[str], begin: int, end: int) -> Iterator[Symbol]:
    kept: list[str] = []
    size, start = 0, begin
    for number in range(begin, end):
        line = lines[number][:_SECTION]
        if size and size + len(line) > _SECTION:
            yield _section(title, start, number, kept)
            kept, size, start = [], 0, number
        kept.append(line)
        size += len(line) + 1
    if any(line.strip() for line in kept):
        yield _section(title, start, end, kept)


def _section(title: str, begin: int, end: int, lines: Sequence[str]) -> Symbol:
    text = "\n".join(lines).strip()
    return Symbol(name=title, kind="section", line=begin + 1, last_line=end, signature=title, doc=text)
