"""Search for files by name, and for lines by content, by ripgrep or RE2 with the same meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

from anyio import to_thread
from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, Signal, ToolFailure, Workspace, note_shown, unshown

from ._workspace.file_search import FileFilter, base_at, files_below, still_there
from ._workspace.file_text import decoded
from ._workspace.pages import fit_lines, room_of
from ._workspace.patterns import Glob, compile_regex, is_glob, parse_glob
from ._workspace.place import entry_at, workspace_of, workspace_tool

__all__ = ["TYPES", "for_ripgrep", "grep", "search_files", "type_globs"]

TYPES: Final[Mapping[str, str]] = {
    "c": "*.{c,h}",
    "cpp": "*.{cc,cpp,cxx,h,hh,hpp,hxx,inl}",
    "cs": "*.cs",
    "css": "*.{css,scss,sass,less}",
    "docker": "{*.dockerfile,Dockerfile*}",
    "go": "*.go",
    "html": "*.{htm,html,xhtml}",
    "java": "*.java",
    "js": "*.{cjs,js,jsx,mjs,vue}",
    "json": "*.{json,jsonc,jsonl}",
    "kotlin": "*.{kt,kts}",
    "lua": "*.lua",
    "make": "{GNUmakefile,Makefile,makefile,*.mk}",
    "md": "*.{markdown,md,mdx}",
    "php": "*.php",
    "proto": "*.proto",
    "py": "*.{py,pyi}",
    "ruby": "{*.rb,Gemfile,Rakefile}",
    "rust": "*.rs",
    "scala": "*.scala",
    "sh": "*.{bash,sh,zsh}",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.{cts,mts,ts,tsx}",
    "txt": "*.{rst,txt}",
    "xml": "*.{svg,xml,xsd,xsl}",
    "yaml": "*.{yaml,yml}",
}
_ALIASES: Final[Mapping[str, str]] = {
    "bash": "sh",
    "c++": "cpp",
    "csharp": "cs",
    "dockerfile": "docker",
    "javascript": "js",
    "kt": "kotlin",
    "makefile": "make",
    "markdown": "md",
    "python": "py",
    "rb": "ruby",
    "rs": "rust",
    "shell": "sh",
    "typescript": "ts",
    "yml": "yaml",
}

_ESCAPES: Final[Mapping[str, str]] = {
    "b": r"(?-u:\b)",
    "B": r"(?-u:\B)",
    "d": "[0-9]",
    "D": "[^0-9]",
    "s": r"[\t\n\f\r ]",
    "S": r"[^\t\n\f\r ]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "<": "<",
    ">": ">",
}
_OTHERWISE: Final = re.compile(r"&&|--|~~|\{,|\[[^\]]*\[(?!:)|\\[ACQz]|\(\?[a-zA-Z-]*[smU]")
"""Set operations, nested sets, an open repetition, ends of the text, flags that look across lines."""

_RESULTS: Final = 100
"""Default number of matching lines of one answer; at most 500 (seed 000)."""
_MOST: Final = 500
_MOST_CONTEXT: Final = 20
_FILE_BYTES: Final = 8 * 1024 * 1024
"""Larger files of a folder are skipped with a note; a named file is always searched."""
_NAMED_BYTES: Final = 100 * 1024 * 1024
_LINE: Final = 500
"""Characters of a line that are shown, around the first match in it."""
_NOTE: Final = 500
_BLOCK: Final = 256 * 1024
"""Bytes that are searched in one go."""
_NAMED: Final = 3
"""Files that could not be searched, by name."""
_BATCH: Final = 16
"""Files that are read before they are searched, in one go."""

_Output = Literal["content", "files_with_matches", "count"]

_FILES: Final = 50
_MOST_FILES: Final = 1_000
_FILES_NOTE: Final = 300


def type_globs(name: str) -> str | None:
    """Return the pattern of a type's names; None for a type that there is not."""
    lowered = name.lower().lstrip(".")
    return TYPES.get(_ALIASES.get(lowered, lowered))


def for_ripgrep(pattern: str) -> str | None:
    """Return the pattern in ripgrep's words; None if it could mean something else there."""
    if _OTHERWISE.search(pattern):
        return None
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), pattern, flags=re.DOTALL)


@workspace_tool(
    op="x.file.grep",
    category="search",
    kind="read",
    tags=["grep", "search", "regex", "text", "code", "contents"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[
        {"pattern": r"def \w+_test", "path": "src", "glob": "*.py", "context": 2},
        {"pattern": "TimeoutError(", "literal": True, "output": "files_with_matches"},
        {"pattern": "deprecated", "type": "rust", "case_insensitive": True, "output": "count"},
    ],
    policy={
        "do": ["Ask for files_with_matches first when a word may occur often."],
        "dont": ["Do not look for a file by its name with it: search_files does that."],
        "edge_cases": [
            "The pattern matches within a line; there are no look-arounds and no backreferences.",
            "\\w, \\d, \\s and \\b know the letters, digits and blanks of ASCII only; write \\pL for any letter.",
            "Files that are not text, hidden, left out by .gitignore or larger than 8 MiB are not searched.",
        ],
    },
)
async def grep(
    pattern: Annotated[str, Field(min_length=1, max_length=2_000)],
    ctx: Context,
    path: str = ".",
    glob: str = "",
    type: str = "",
    case_insensitive: bool = False,
    literal: bool = False,
    context: Annotated[int, Field(ge=0, le=_MOST_CONTEXT)] = 0,
    output: _Output = "content",
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = _RESULTS,
    hidden: bool = False,
    ignored: bool = False,
) -> str:
    r"""Search the text in files for a word or a regular expression: find the lines. Shows path:line:text.

    Args:
        pattern: A regular expression such as "class \w+Error", or with literal a text.
        path: The folder or file to search; the workspace's root when not given.
        glob: Only files whose path matches, such as "*.py", "src/**/*.{ts,tsx}" or "!*.min.js".
        type: Only files of a language: py, js, ts, rust, go, java, c, cpp, md, yaml, json …
        case_insensitive: Find upper and lower case alike.
        literal: Read the pattern as plain text.
        context: How many lines to show around each match, as path-line-text.
        output: content shows the lines, files_with_matches only the paths, count how many lines match in each file.
        max_results: At most so many matching lines, or files.
        hidden: Also files that begin with a dot, or lie in a folder that does.
        ignored: Also files that .gitignore leaves out.
    """
    workspace = workspace_of(ctx)
    needle = _Needle(pattern, any_case=case_insensitive, literal=literal)
    globs = [parse_glob(glob)] if glob else []
    wanted = FileFilter(hidden=hidden, ignored=ignored, globs=[*globs, *_of_type(type)])
    entry = await entry_at(workspace, path)
    search = _Search(
        needle=needle,
        signal=ctx.signal,
        output=output,
        context=context,
        most=max_results,
        room=room_of(ctx.result_bytes, _NOTE),
    )
    if entry.kind == "folder":
        base = await base_at(workspace, path)
        found = await files_below(workspace, base, wanted, containing=needle.arguments())
        if not found.is_whole:
            search.notes.append("the folder has more files than one search goes through; search a smaller one")
        await _search_all(workspace, found.paths, search)
    else:
        await _search_all(workspace, [entry.path], search, is_named=True)
    return search.report(pattern, path)


class _Needle:
    """Search pattern, ready for UTF-8. A match lies within one line."""

    def __init__(self, pattern: str, *, any_case: bool, literal: bool) -> None:
        """Raises `ToolFailure` for a pattern that is none, or that spans lines."""
        if "\n" in pattern:
            raise ToolFailure("invalid_arguments", "a match lies within one line; leave the line end out")
        self._pattern, self._any_case, self._literal = pattern, any_case, literal
        self._regex: Any = compile_regex(pattern.encode(), any_case=any_case, literal=literal)
        whole = pattern.encode() if literal else b"(?m)" + pattern.encode()
        self._anywhere: Any = compile_regex(whole, any_case=any_case, literal=literal, within_lines=True)
        self._by_line = not literal and any(anchor in pattern for anchor in (r"\A", r"\z", "(?-"))

    def arguments(self) -> list[str] | None:
        """Return ripgrep's options for the pattern; None if ripgrep would read it differently."""
        pattern = self._pattern if self._literal else for_ripgrep(self._pattern)
        if pattern is None:
            return None
        options = ["--text", "--crlf", "--ignore-case" if self._any_case else "--case-sensitive"]
        return [*options, *(["--fixed-strings"] if self._literal else []), f"--regexp={pattern}"]

    def lines(self, content: bytes, signal: Signal) -> Iterator[tuple[int, int, int]]:
        """Yield beginning and end of the lines that match, and where the first match of each begins.

        Looks at `signal` after every block of lines and every match; raises `ToolFailure` when it is given.
        """
        begin = 0
        while begin < len(content):
            stop = content.find(b"\n", begin + _BLOCK)
            stop = len(content) if stop < 0 else stop + 1
            block = content[begin:stop]
            for start, end, first in self._in_block(block.removesuffix(b"\n")):
                _go_on(signal)
                yield begin + start, begin + end, begin + first
            _go_on(signal)
            begin = stop

    def _in_block(self, block: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield the same of one block, which ends without a line end."""
        at = 0
        while at <= len(block):
            found = None if self._by_line else self._anywhere.search(block, at)
            if found is None and not self._by_line:
                return
            place = at if found is None else found.start()
            start = block.rfind(b"\n", at, place) + 1 or at
            end = block.find(b"\n", place)
            end = len(block) if end < 0 else end
            if self._by_line:
                found = self._regex.search(block[start:end])
                place = start + found.start() if found is not None else -1
            if place >= 0:
                yield start, end, place
            at = end + 1


def _go_on(signal: Signal) -> None:
    if signal.aborted:
        raise ToolFailure("timeout", "the search took too long", hint="search fewer files, or for a simpler pattern")


class _Search(Struct, kw_only=True):
    """One search under way: what was found so far, and how much room is left for it."""

    needle: _Needle
    signal: Signal
    output: _Output
    context: int
    most: int
    room: int
    lines: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    matches: int = 0
    """Lines that match, or files with one, shown or not."""
    shown: int = 0
    files: int = 0
    quoted: set[str] = field(default_factory=set[str])
    """Files of which lines are shown."""
    too_large: list[str] = field(default_factory=list[str])
    """Files that were not searched for their size."""
    unreadable: int = 0
    """Files that could not be read. Not named: a folder that is swapped for a link lists names from outside."""
    is_full: bool = False
    """True once a match did not fit. Counting goes on in the files at hand."""

    def take(self, path: str, content: bytes) -> None:
        """Search the text of one file."""
        found = list(self.needle.lines(content, self.signal))
        if not found:
            return
        self.files += 1
        self.matches += len(found)
        match self.output:
            case "files_with_matches":
                self._show([path])
            case "count":
                self._show([f"{path}:{len(found)}"])
            case "content":
                self._show_lines(path, content, found)

    def report(self, pattern: str, path: str) -> str:
        """Return the report for the model."""
        notes = list(self.notes)
        if self.too_large:
            more = f" and {len(self.too_large) - _NAMED} more" if len(self.too_large) > _NAMED else ""
            notes.append(f"not searched, as too large: {', '.join(self.too_large[:_NAMED])}{more}")
        if self.unreadable:
            notes.append(f"not searched, as not for tools: {_counted(self.unreadable, 'file')}")
        if not self.matches:
            return f"[{'; '.join([f'nothing in {path!r} matches {pattern!r}', *notes])}]"
        what = "matching lines" if self.output == "content" else "files"
        every = self.matches if self.output == "content" else self.files
        if self.shown < every:
            notes.insert(0, f"{self.shown} of at least {every} {what} shown: narrow it with path, glob or type")
        elif self.output == "count":
            notes.insert(0, f"{_counted(self.matches, 'matching line')} in {_counted(self.files, 'file')}")
        return "\n".join([*self.lines, *([f"[{'; '.join(notes)}]"] if notes else [])])

    def _show_lines(self, path: str, content: bytes, found: Sequence[tuple[int, int, int]]) -> None:
        """Show matching lines with the lines around them; blocks that touch are one."""
        lines = content.removesuffix(b"\n").split(b"\n")
        number = counted = last = 0
        for place, (start, _, first) in enumerate(found):
            number += content.count(b"\n", counted, start) + (not place)
            counted = start
            following = len(lines) + 1
            if place + 1 < len(found):
                following = number + content.count(b"\n", start, found[place + 1][0])
            above = range(max(number - self.context, last + 1), number)
            below = range(number + 1, min(number + 1 + self.context, following))
            matching = f"{path}:{number}:{_cut(lines[number - 1], first - start)}"
            is_apart = bool(self.context and self.lines) and (not last or above.start > last + 1)
            block = ["--"] if is_apart else []
            block += [f"{path}-{other}-{_cut(lines[other - 1])}" for other in above]
            block.append(matching)
            block += [f"{path}-{other}-{_cut(lines[other - 1])}" for other in below]
            last = below.stop - 1
            if not self._show(block if self._fits(block) or self.shown else [matching]):
                return
            self.quoted.add(path)

    def _show(self, block: Sequence[str]) -> bool:
        """Show whole lines while there is room; return whether there was."""
        if self.shown >= self.most or not self._fits(block):
            self.is_full = True
            return False
        self.lines += block
        self.room -= _size(block)
        self.shown += 1
        return True

    def _fits(self, block: Sequence[str]) -> bool:
        return _size(block) <= self.room


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _of_type(name: str) -> list[Glob]:
    if not name:
        return []
    globs = type_globs(name)
    if globs is None:
        raise ToolFailure("invalid_arguments", f"there is no type {name!r}", hint=f"there are {', '.join(TYPES)}")
    return [parse_glob(globs)]


async def _search_all(workspace: Workspace, paths: Sequence[str], search: _Search, *, is_named: bool = False) -> None:
    """Search files in their order until there is no more room."""
    done = 0
    while done < len(paths) and not search.is_full:
        names = paths[done : done + _BATCH]
        contents = await unshown(workspace).read_many(names, limit=_NAMED_BYTES if is_named else _FILE_BYTES)
        batch: list[tuple[str, bytes]] = []
        for path, content in zip(names, contents, strict=True):
            if not isinstance(content, ToolFailure):
                batch.append((path, content))
            elif is_named:
                raise content
            elif content.code == "too_large":  # it was opened inside the workspace
                search.too_large.append(path)
            else:
                search.unreadable += 1
        done += _BATCH
        work = partial(_search_batch, batch, search, is_named=is_named)
        await to_thread.run_sync(work, abandon_on_cancel=True)
        await note_shown(workspace, {path: content for path, content in batch if path in search.quoted})
    if done < len(paths):
        search.notes.append(f"{_counted(len(paths) - done, 'more file')} may hold it")


def _search_batch(batch: Sequence[tuple[str, bytes]], search: _Search, *, is_named: bool) -> None:
    for path, content in batch:
        try:
            text = _utf8(content, path)
        except ToolFailure:
            if is_named:
                raise
            continue  # it is not text
        search.take(path, text)


def _utf8(content: bytes, path: str) -> bytes:
    """Return a text in UTF-8 with plain line ends; raises `ToolFailure` for content that is not text."""
    if content.isascii() and b"\0" not in content:
        return content.replace(b"\r\n", b"\n") if b"\r" in content else content
    return decoded(content, path=path).plain.encode("utf-8", "replace")


def _cut(line: bytes, place: int = 0) -> str:
    """Return a line as text; of a long one the part around `place`, with what it is a part of."""
    if len(line) <= _LINE:
        return line.decode("utf-8", "replace")
    begin = max(0, min(place - _LINE // 4, len(line) - _LINE))
    text = line[begin : begin + _LINE].decode("utf-8", "ignore")
    return f"{'…' if begin else ''}{text}{'…' if begin + _LINE < len(line) else ''} [cut: {len(line)} bytes]"


@workspace_tool(
    op="x.file.search",
    category="search",
    kind="read",
    tags=["find", "file", "name", "locate"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"pattern": "settings"}, {"pattern": "user model test"}, {"pattern": "*.toml", "type": "file"}],
    policy={
        "do": ["Use it when you know a part of a name; grep looks into the files."],
        "edge_cases": ["Upper and lower case are alike. Hidden files are found when the pattern begins with a dot."],
    },
)
async def search_files(
    pattern: Annotated[str, Field(min_length=1, max_length=200)],
    ctx: Context,
    path: str = ".",
    type: Literal["any", "file", "folder"] = "file",
    ignored: bool = False,
    max_results: Annotated[int, Field(ge=1, le=_MOST_FILES)] = _FILES,
) -> str:
    """Find files and folders by their names, the best first: one path a line, folders with a slash at the end.

    Args:
        pattern: A part of the name, words that all occur in the path, or a pattern such as "*.toml".
        path: The folder to search; the workspace's root when not given.
        type: Only files, only folders, or any.
        ignored: Also what .gitignore leaves out.
        max_results: At most so many paths.
    """
    workspace = workspace_of(ctx)
    base = await base_at(workspace, path)
    hidden = pattern.lstrip("*/").startswith(".")
    found = await files_below(workspace, base, FileFilter(hidden=hidden, ignored=ignored))
    start = base.display(base.inner)
    prefix = "" if start == "." else start
    ranked = await to_thread.run_sync(_called, found.paths, type, pattern, prefix, abandon_on_cancel=True)
    shown = await still_there(workspace, ranked[:max_results])
    if not shown:
        return f"[nothing below {path!r} is called like {pattern!r}; {len(found.paths)} files were looked at]"
    notes = [f"the first {max_results} of {len(ranked)} are shown"] if len(ranked) > max_results else []
    if not found.is_whole:
        notes.append("the folder has more files than one search goes through")
    return fit_lines(
        shown, room_of(ctx.result_bytes, _FILES_NOTE), notes, hint="search a smaller folder, or more words"
    )


def _called(files: Sequence[str], type: Literal["any", "file", "folder"], pattern: str, prefix: str) -> list[str]:
    """Return the files, their folders, or both, that are called like the pattern, the best first."""
    names = list(files) if type != "folder" else []
    if type != "file":
        names += _folders(files, prefix)
    return _ranked(names, pattern, prefix)


def _folders(paths: Iterable[str], prefix: str) -> list[str]:
    """Return the folders, below the one that is searched, that hold one of these files."""
    found: dict[str, None] = {}
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent != prefix and f"{parent}/" not in found:
            found[f"{parent}/"] = None
            parent = parent.rpartition("/")[0]
    return list(found)


def _ranked(paths: Iterable[str], pattern: str, prefix: str) -> list[str]:
    """Return those that match, the best first: name, then its beginning, then a part, then words of the path."""
    if is_glob(pattern):
        glob = parse_glob(pattern, any_case=True)
        start = len(prefix) + 1 if prefix else 0
        return [path for path in paths if glob.takes(path[start:].rstrip("/"))]
    wanted = pattern.lower().strip("/")
    words = [word for word in re.split(r"[\s/]+", wanted) if word]
    rated = ((_rating(path.lower().rstrip("/"), wanted, words), path) for path in paths)
    best = sorted((rating, path.count("/"), len(path), path) for rating, path in rated if rating is not None)
    return [path for *_, path in best]


def _rating(path: str, wanted: str, words: list[str]) -> int | None:
    """Return the rank of a path's match, 0 is best; None without a match."""
    name = path.rpartition("/")[2]
    stem = name.partition(".")[0]
    tests = (
        path == wanted or name == wanted,
        stem == wanted or path.endswith(f"/{wanted}"),
        name.startswith(wanted),
        wanted in name,
        wanted in path,
        all(word in name for word in words),
        all(word in path for word in words),
        all(_bare(word) in _bare(path) for word in words if _bare(word)) and any(map(_bare, words)),
    )
    return next((rating for rating, passed in enumerate(tests) if passed), None)


def _bare(text: str) -> str:
    """Return the letters and digits: `user_model` is found as `userModel`."""
    return re.sub(r"[\W_]+", "", text)
