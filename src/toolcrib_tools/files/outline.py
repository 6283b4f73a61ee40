"""Short forms of a source file: outline (declarations with line numbers) and compact form (without comments).

Python is parsed. Everything else goes by patterns: a line that looks like a declaration is taken for one, and the
result says so.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

__all__ = ["Lines", "Outline", "compact", "outline"]

Lines = Sequence[tuple[int, str]]

_PYTHON: Final = frozenset({".py", ".pyi"})
_LONGEST: Final = 200
"""Characters of one line of an outline."""
_DECLARATION: Final = re.compile(
    r"""^\s*(?:(?:export|default|public|private|protected|internal|static|abstract|async|final|override|open|sealed
    |pub(?:\([^)]{0,40}\))?|unsafe|extern(?:\ "[^"]{0,10}")?|const|inline|virtual|partial|data|suspend|declare)\s+)*
    (?:class|interface|struct|enum|trait|impl|fn|func|function\*?|def|defp|defmodule|module|namespace|protocol|extension
    |type|record|object|mod|union|macro_rules!|sub|procedure|package)\b\s*[\w$<*({:"'&]""",
    re.VERBOSE,
)
_METHOD: Final = re.compile(
    r"^\s*(?:[\w$<>\[\],.?*&:~]+\s+){0,4}[\w$~:]+\s*\([^;=]{0,300}\)\s*(?:[\w\s:<>,?\[\]]{0,80})\{\s*$"
)
_NO_METHOD: Final = re.compile(
    r"^\s*(?:\}?\s*else|if|for|while|switch|catch|do|try|return|when|match|with|using|lock)\b"
)
_BRACES: Final = frozenset(
    (
        ".c .cc .cpp .cs .cts .cxx .dart .go .h .hpp .java .js .jsx .kt .m .mjs .mts .php .rs .scala .swift .ts .tsx"
    ).split()
)
_WORDS: Final = frozenset(".ex .exs .jl .lua .pl .pm .proto .r .rb .sh .bash .zsh .sql .zig .vue .svelte".split())
_KEYS: Final[Mapping[str, re.Pattern[str]]] = {
    ".yaml": re.compile(r"^[\w\"'./-][^:#]{0,100}:(?:\s|$)"),
    ".yml": re.compile(r"^[\w\"'./-][^:#]{0,100}:(?:\s|$)"),
    ".toml": re.compile(r"^\s*\[{1,2}[^\]]{1,100}\]|^[\w.\"-]{1,100}\s*="),
    ".ini": re.compile(r"^\s*\[[^\]]{1,100}\]"),
    ".cfg": re.compile(r"^\s*\[[^\]]{1,100}\]"),
    ".json": re.compile(r'^(?: {0,2}|\t)"[^"]{1,100}"\s*:'),
    ".css": re.compile(r"^[^\s{}][^{}]{0,200}\{\s*$"),
    ".html": re.compile(r"^\s*<(?:head|body|main|section|article|nav|header|footer|h[1-6]|form|script|style)\b"),
    ".sql": re.compile(r"^\s*(?:create|alter|drop)\s", re.IGNORECASE),
}
_HEADING: Final = re.compile(r"^#{1,6}\s|^={3,}\s*$|^-{3,}\s*$")
_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_COMMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_BRACES, r"^\s*//"),
    **dict.fromkeys(
        (".sh .bash .zsh .rb .pl .pm .r .jl .ex .exs .yaml .yml .toml .cfg .mk .cmake .tf .dockerfile").split(),
        r"^\s*#",
    ),
    **dict.fromkeys((".sql", ".lua", ".hs", ".elm", ".adb"), r"^\s*--"),
    **dict.fromkeys((".ini", ".lisp", ".clj", ".asm"), r"^\s*[;#]"),
}
"""Beginning of a comment line, by suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The lines that declare something, by number."""

    lines: Lines
    parsed: bool
    """False: found by pattern, something may be missing or be none."""


def outline(text: str, path: str) -> Outline | None:
    """Return the outline of a text; None where we know none for such a file."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _PYTHON:
        found = _python(text)
        if found is not None:
            return Outline(lines=found, parsed=True)
        return Outline(lines=_matching(text, _DECLARATION), parsed=False)
    if suffix in (".md", ".markdown", ".mdx", ".rst"):
        return Outline(lines=tuple(_headings(text)), parsed=False)
    if suffix in _KEYS:
        return Outline(lines=_matching(text, _KEYS[suffix]), parsed=False)
    if suffix in _BRACES:
        return Outline(lines=tuple(_declared(text)), parsed=False)
    if suffix in _WORDS:
        return Outline(lines=_matching(text, _DECLARATION), parsed=False)
    return None


def compact(text: str, path: str) -> Lines:
    """Return the lines that are not empty and not only a comment, without blanks at their ends."""
    suffix = PurePosixPath(path).suffix.lower()
    comments = _python_comments(text) if suffix in _PYTHON else _only_comments(text, suffix)
    return [
        (number, line.rstrip())
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip() and number not in comments
    ]


def _python(text: str) -> Lines | None:
    try:
        tree = ast.parse(text)
        return tuple(_definitions(tree.body, 0))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _definitions(body: Sequence[ast.stmt], depth: int) -> Iterator[tuple[int, str]]:
    indent = "    " * depth
    for node in body:
        match node:
            case ast.ClassDef():
                bases = ", ".join(map(ast.unparse, [*node.bases, *node.keywords]))
                yield node.lineno, _short(f"{indent}class {node.name}{f'({bases})' if bases else ''}")
                yield from _definitions(node.body, depth + 1)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
                result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                yield node.lineno, _short(f"{indent}{word} {node.name}({ast.unparse(node.args)}){result}")
                inner = [one for one in node.body if isinstance(one, ast.ClassDef)]
                yield from _definitions(inner, depth + 1)
            case ast.Assign() if not depth:
                for name in (target.id for target in node.targets if isinstance(target, ast.Name)):
                    yield node.lineno, f"{name} ="
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield node.lineno, _short(f"{indent}{name}: {ast.unparse(node.annotation)}")
            case ast.If() | ast.Try():
                yield from _definitions([*node.body, *node.orelse], depth)
            case _:
                pass


def _declared(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > 1_000:
            continue
        if _DECLARATION.match(line) or (_METHOD.match(line) and not _NO_METHOD.match(line)):
            yield number, _short(line.rstrip().rstrip("{").rstrip())


def _matching(text: str, pattern: re.Pattern[str]) -> Lines:
    lines = enumerate(text.split("\n"), start=1)
    return tuple(
        (number, _short(line.rstrip())) for number, line in lines if len(line) <= 1_000 and pattern.match(line)
    )


def _headings(text: str) -> Iterator[tuple[int, str]]:
    """Yield headings, those that are underlined too; what stands in a block of code is none."""
    fenced, before = False, ""
    for number, line in enumerate(text.split("\n"), start=1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _HEADING.match(line):
            if line.startswith("#"):
                yield number, _short(line.rstrip())
            elif before.strip():
                yield number - 1, _short(before.rstrip())
        before = line


def _python_comments(text: str) -> set[int]:
    """Return the numbers of lines that are only a comment; what looks like one in a string is none."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return set()
    return {
        token.start[0]
        for token in tokens
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
    }


def _only_comments(text: str, suffix: str) -> set[int]:
    """Return the numbers of lines that are only a comment, by how they begin."""
    start = _COMMENTS.get(suffix)
    if start is None:
        return set()
    lines = text.split("\n")
    found = {number for number, line in enumerate(lines, start=1) if re.match(start, line)}
    if suffix in _BRACES:
        found |= _blocks(lines)
    return {number for number in found if not (number == 1 and lines[0].startswith("#!"))}


def _blocks(lines: Sequence[str]) -> set[int]:
    """Return the numbers of lines that lie in a `/* … */` that begins a line and ends one."""
    found = set[int]()
    start = 0
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not start and stripped.startswith("/*"):
            start = number
        if start and "*/" in stripped:
            if stripped.endswith("*/"):
                found |= set(range(start, number + 1))
            start = 0
    return found


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
