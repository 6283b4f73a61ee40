"""Tools that read a file, whole, in part or as an outline, and its metadata.

Python is outlined by its parser. Everything else goes by patterns: a line that looks like a declaration is taken for
one, and the result says so.
"""

from __future__ import annotations

import ast
import io
import mimetypes
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, TypedDict

from anyio import to_thread
from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, OpenFile, ToolFailure

from .._records import date_of
from .._workspace.file_text import Encoding, decoded
from .._workspace.pages import Page, TextFile, describe, line_count, page_of, room_of
from .._workspace.place import entry_at, file_at, workspace_of, workspace_tool

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

_LINES: Final = 2_000
"""Default lines of one page (seed 000)."""
_MOST_LINES: Final = 100_000
_SHORT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a file for an outline or the compact form: its text is held several times."""
_NOTE: Final = 400
"""Bytes that the line about the page may take."""
_ENDS: Final = {"CRLF": "CRLF line ends", "mixed": "mixed line ends, LF and CRLF"}


class Outline(Struct, frozen=True, kw_only=True):
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
                yield node.lineno, _outline_short(f"{indent}class {node.name}{f'({bases})' if bases else ''}")
                yield from _definitions(node.body, depth + 1)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
                result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                yield node.lineno, _outline_short(f"{indent}{word} {node.name}({ast.unparse(node.args)}){result}")
                inner = [one for one in node.body if isinstance(one, ast.ClassDef)]
                yield from _definitions(inner, depth + 1)
            case ast.Assign() if not depth:
                for name in (target.id for target in node.targets if isinstance(target, ast.Name)):
                    yield node.lineno, f"{name} ="
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield node.lineno, _outline_short(f"{indent}{name}: {ast.unparse(node.annotation)}")
            case ast.If() | ast.Try():
                yield from _definitions([*node.body, *node.orelse], depth)
            case _:
                pass


def _declared(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > 1_000:
            continue
        if _DECLARATION.match(line) or (_METHOD.match(line) and not _NO_METHOD.match(line)):
            yield number, _outline_short(line.rstrip().rstrip("{").rstrip())


def _matching(text: str, pattern: re.Pattern[str]) -> Lines:
    lines = enumerate(text.split("\n"), start=1)
    return tuple(
        (number, _outline_short(line.rstrip())) for number, line in lines if len(line) <= 1_000 and pattern.match(line)
    )


def _headings(text: str) -> Iterator[tuple[int, str]]:
    """Yield headings, those that are underlined too; what stands in a block of code is none."""
    fenced, before = False, ""
    for number, line in enumerate(text.split("\n"), start=1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _HEADING.match(line):
            if line.startswith("#"):
                yield number, _outline_short(line.rstrip())
            elif before.strip():
                yield number - 1, _outline_short(before.rstrip())
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


def _outline_short(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


@workspace_tool(
    op="x.file.read",
    category="files",
    kind="read",
    tags=["file", "read", "text", "source"],
    metadata={"compression_hint": "skip"},
    examples=[{"path": "README.md"}, {"path": "src/app.py", "mode": "outline"}, {"path": "log.txt", "offset": -50}],
    policy={
        "do": ["Read the outline of a long source file first, then the lines that matter."],
        "dont": ["Do not read a file in pages to find something in it: grep shows where it is."],
        "edge_cases": ["The last line of the answer, in brackets, tells of cuts, encodings and unusual line ends."],
    },
)
async def read_file(
    path: str,
    ctx: Context,
    mode: Literal["full", "compact", "outline"] = "full",
    offset: int = 1,
    limit: Annotated[int, Field(ge=1, le=_MOST_LINES)] = _LINES,
    encoding: str = "",
    line_numbers: bool = False,
) -> str:
    """Read a text file: the whole of it, some of its lines, or its outline. Long files come in pages.

    Args:
        path: The file, such as "src/app.py".
        mode: full is the text; compact leaves out blank lines and comments; outline lists what is declared, with line
            numbers.
        offset: Number of the first line to read, from 1; a negative number counts from the end (-20: the last 20).
        limit: How many lines to read.
        encoding: Its encoding, such as "latin-1"; found from the content when not given.
        line_numbers: Put the number of each line in front of it; compact and outline always do.
    """
    workspace = workspace_of(ctx)
    entry = await file_at(workspace, path)
    wanted = _ReadOptions(path=entry.path, offset=offset or 1, limit=limit, encoding=encoding, numbers=line_numbers)
    room = room_of(ctx.result_bytes, _NOTE)
    if mode == "full":
        async with workspace.opened(path) as file:
            return await to_thread.run_sync(_full, file, wanted, room)
    content = await workspace.read(path, limit=_SHORT_BYTES)
    return await to_thread.run_sync(_short, content, wanted, mode, room)


class FileInfo(TypedDict, total=False):
    """Metadata of a file or folder, without its content."""

    path: str
    kind: str
    size: Annotated[int, Field(description="Bytes; of a folder, how many entries it has.")]
    modified: str
    pending: Annotated[bool, Field(description="It waits for review: the disk holds something else.")]
    mime_type: str
    sha256: str
    encoding: Annotated[str, Field(description="Of a text file; binary for what is none.")]
    line_ends: str
    lines: int


@workspace_tool(
    op="x.file.info",
    category="files",
    kind="read",
    tags=["file", "size", "encoding", "hash"],
    examples=[{"path": "data.bin"}, {"path": "src"}],
    policy={"edge_cases": ["Of a file of more than 100 MiB only kind, size and time are given."]},
)
async def file_info(path: str, ctx: Context) -> FileInfo:
    """Tell what a file or folder is: kind, size, time, and of a file its type, hash, encoding and number of lines.

    Args:
        path: The file or folder.
    """
    workspace = workspace_of(ctx)
    entry = await entry_at(workspace, path)
    info = FileInfo(path=entry.path, kind=entry.kind, size=entry.size, pending=entry.pending)
    if entry.modified:
        info["modified"] = date_of(entry.modified)
    if entry.kind == "folder":
        info["size"] = len(await workspace.list(path))
        return info
    if entry.kind != "file":
        return info
    try:
        async with workspace.opened(path) as file:
            return await to_thread.run_sync(_with_text_info, info, file)
    except ToolFailure as failure:
        if failure.code != "too_large":
            raise
        return info


class _ReadOptions:
    """Arguments of `read_file`."""

    def __init__(self, *, path: str, offset: int, limit: int, encoding: str, numbers: bool) -> None:
        self.path, self.offset, self.limit = path, offset, limit
        self.encoding, self.numbers = encoding, numbers

    def first(self, total: int) -> int:
        """Number of the first line; raises `ToolFailure` if it is past the end."""
        first = self.offset if self.offset > 0 else max(1, total + 1 + self.offset)
        if first > max(total, 1):
            raise ToolFailure("tool_error", f"{self.path!r} has {total} lines, so there is no line {first}")
        return first


def _full(file: OpenFile, wanted: _ReadOptions, room: int) -> str:
    """Return a page of the text, reading the file in windows."""
    text = TextFile(file, wanted.encoding, path=wanted.path)
    lines = text.lines(wanted.first(text.total), room)
    page = page_of(lines, limit=wanted.limit, room=room, numbers=wanted.numbers)
    return _with_notes(page, text.total, [_written(text.encoding), _ENDS.get(text.ends.title, "")])


def _short(content: bytes, wanted: _ReadOptions, mode: str, room: int) -> str:
    """Return a page of the outline or of the compact form."""
    text = decoded(content, wanted.encoding, path=wanted.path)
    total = line_count(text.plain.encode("utf-8", "replace"))
    notes: list[str] = []
    if mode == "outline":
        found = outline(text.plain, wanted.path)
        if found is None:
            raise ToolFailure(
                "tool_error", f"no outline is known for a file like {wanted.path!r}", hint="read it in full or compact"
            )
        lines = found.lines
        notes = [] if found.parsed else ["found by pattern, not parsed: something may be missing"]
    else:
        lines = compact(text.plain, wanted.path)
    first = wanted.first(total)
    shown = ((number, line, len(line)) for number, line in lines if number >= first)
    page = page_of(shown, limit=wanted.limit, room=room, numbers=True)
    counted = f"{mode} of {total} lines: {len(lines)} {'are listed' if mode == 'outline' else 'hold something'}"
    return _with_notes(page, total, [*notes, _written(text.encoding)], counted)


def _with_notes(page: Page, total: int, notes: list[str], counted: str = "") -> str:
    """Return the page with a last line, in brackets, if there is something to say of it."""
    lines = [counted] if counted else []
    if not total:
        lines.append("the file is empty")
    elif page.next or (page.first > 1 and not counted):
        lines.append(f"lines {page.first} to {page.last} of {total}")
    if page.cut:
        lines.append(f"line {page.cut[0]} has {page.cut[1]} characters and is cut; grep finds what is in it")
    if page.next and page.next <= total:
        lines.append(f"go on with offset={page.next}")
    lines += filter(None, notes)
    note = f"[{'; '.join(lines)}]" if lines else ""
    return "\n".join(filter(None, (page.text, note)))


def _written(encoding: Encoding) -> str:
    return "" if encoding == Encoding(name="utf-8") else f"encoding {encoding.title}"


def _with_text_info(info: FileInfo, file: OpenFile) -> FileInfo:
    guessed = mimetypes.guess_type(info.get("path", ""))[0]
    if guessed:
        info["mime_type"] = guessed
    found = describe(file)
    info["sha256"] = found.sha256
    if found.encoding is None:
        info["encoding"] = "binary"
        return info
    info["encoding"] = found.encoding.title
    info["line_ends"] = found.ends.title
    info["lines"] = found.ends.lines
    return info
