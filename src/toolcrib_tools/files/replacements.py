"""Find and replace over many files, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from anyio import to_thread
from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, Signal, ToolFailure, Workspace, note_shown, unshown

from .._workspace.file_search import FileFilter, base_at, files_below
from .._workspace.file_text import decoded
from .._workspace.patterns import compile_regex, parse_globs, quoted
from .._workspace.place import entry_at, workspace_of, workspace_tool
from .text_matches import Span, hunks, line_of
from .undo import apply, in_turn

_MOST_FILES: Final = 500
"""Files that one call changes."""
_MOST_PLACES: Final = 20_000
_FILE_BYTES: Final = 4 * 1024 * 1024
"""Larger files of a folder are left alone, and counted."""
_TOTAL_BYTES: Final = 100 * 1024 * 1024
"""Bytes of all files that one call changes."""
_LINES: Final = 20
_FILES_SHOWN: Final = 100
_DIFF: Final = 4_000
"""Characters of all diffs in a result."""


class ReplacedFile(TypedDict):
    """Replacements in one file."""

    path: str
    replacements: int
    lines: Annotated[list[int], Field(description="The first 20 lines that change, as they were before.")]


class Replaced(TypedDict):
    """Replacements in all files."""

    files: Annotated[list[ReplacedFile], Field(description="At most 100 are listed.")]
    changed_files: int
    replacements: int
    searched_files: Annotated[int, Field(description="Files that were read.")]
    not_searched: Annotated[int, Field(description="Files that are not text, too large or not for tools.")]
    diff: Annotated[str, Field(description="The first changes.")]
    dry_run: Annotated[bool, Field(description="True: nothing was changed.")]
    pending: bool
    undo: bool


class _Rewrite(Struct, frozen=True, kw_only=True):
    """One file with its replacements made."""

    path: str
    before: bytes
    after: bytes
    plain: str
    spans: Sequence[Span]


@workspace_tool(
    op="x.file.replace",
    category="files",
    kind="write",
    traits=["file_writer", "by_action"],
    metadata={"reads": {"dry_run": [True]}},
    locks=["paths"],
    tags=["replace", "rename", "word", "refactor", "regex", "bulk"],
    examples=[
        {"pattern": "old_name", "replacement": "new_name", "paths": ["src"], "glob": "*.py", "dry_run": True},
        {"pattern": r"log\((\w+)\)", "replacement": r"logger.info(\1)", "paths": ["app.py"], "regex": True},
    ],
    policy={
        "do": ["Call it with dry_run first, and look at what would change."],
        "edge_cases": [
            "Of a folder, files that .gitignore leaves out, hidden ones and those of more than 4 MiB stay as they are.",
            "In a regular expression ^ and $ are the ends of lines, and a dot matches no line end.",
        ],
    },
)
async def find_and_replace(
    pattern: Annotated[str, Field(min_length=1)],
    replacement: str,
    ctx: Context,
    paths: Annotated[list[str], Field(min_length=1)] = ["."],  # noqa: B006 - read only; the schema shows the default
    glob: str | list[str] = "",
    regex: bool = False,
    case_insensitive: bool = False,
    dry_run: bool = False,
) -> Replaced:
    r"""Replace a text, or rename a word, wherever it occurs in all files of a folder: all at once or not at all.

    Args:
        pattern: What to find: a text or, with regex, a regular expression (RE2: no look-arounds, no backreferences).
        replacement: What to put there; with regex, \1 or \g<name> stand for what a group matched.
        paths: Files, and folders that are searched with all that is in them.
        glob: Only files whose path matches, such as "*.py", "src/**/*.{ts,tsx}" or "!*.min.js"; or several of them.
        regex: Read the pattern as a regular expression.
        case_insensitive: Find upper and lower case alike.
        dry_run: Change nothing, only tell what would change.
    """
    workspace = workspace_of(ctx)
    found = _Finder(pattern, replacement, ctx.signal, regex=regex, case_insensitive=case_insensitive)
    meant, names = await _find_files(workspace, paths, glob, found.arguments())
    async with in_turn(workspace):
        rewrites: list[_Rewrite] = []
        skipped = 0
        for path in names:
            try:
                content = await unshown(workspace).read(path, limit=None if path in meant else _FILE_BYTES)
                work = partial(_rewrite, content, path, found)
                rewrite = await to_thread.run_sync(work, abandon_on_cancel=True)
            except ToolFailure as failure:
                if path in meant or failure.code in ("invalid_arguments", "timeout"):
                    raise
                skipped += 1
                continue
            if rewrite is not None:
                rewrites.append(rewrite)
                _check(rewrites)
        await note_shown(workspace, {rewrite.path: rewrite.before for rewrite in rewrites})
        report = _report_of(rewrites, searched=len(names) - skipped, skipped=skipped, dry_run=dry_run)
        if dry_run or not rewrites:
            return report
        before = {rewrite.path: rewrite.before for rewrite in rewrites}
        after = {rewrite.path: rewrite.after for rewrite in rewrites}
        written, undo = await apply(ctx, workspace, before, after)
    report["pending"], report["undo"] = any(one.pending for one in written), undo
    return report


class _Finder:
    """Finds the places in one text."""

    def __init__(self, pattern: str, replacement: str, signal: Signal, *, regex: bool, case_insensitive: bool) -> None:
        """Raises `ToolFailure` for an invalid pattern or replacement."""
        self._signal = signal
        self._pattern: Any = compile_regex(f"(?m){pattern if regex else quoted(pattern)}", any_case=case_insensitive)
        self._replacement = replacement
        self._expands = regex and "\\" in replacement
        self._plain = pattern if not regex and not case_insensitive else ""

    def arguments(self) -> list[str] | None:
        """Return ripgrep's options for the pattern; None if ripgrep would read it differently."""
        if not self._plain or "\n" in self._plain or "\r" in self._plain:
            return None
        return ["--text", "--case-sensitive", "--fixed-strings", f"--regexp={self._plain}"]

    def spans(self, text: str) -> list[Span]:
        """Return the spans to replace; empty matches are left out."""
        if self._plain and self._plain not in text:
            return []
        found: list[Span] = []
        for match in self._pattern.finditer(text):
            if self._signal.aborted:
                raise ToolFailure("timeout", "it took too long, and nothing was changed", hint="name fewer files")
            start, end = match.span()
            if end > start and (put := self._put(match)) != text[start:end]:
                found.append((start, end, put))
        return found

    def _put(self, match: Any) -> str:
        if not self._expands:
            return self._replacement
        try:
            put: str = match.expand(self._replacement)
        except (IndexError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise ToolFailure(
                "invalid_arguments",
                f"the replacement means nothing for this pattern: {reason}",
                hint=r"\1 and \g<name> stand for groups of the pattern, \\ for a backslash",
            ) from None
        return put


async def _find_files(
    workspace: Workspace, paths: Sequence[str], glob: str | Sequence[str], containing: Sequence[str] | None
) -> tuple[set[str], list[str]]:
    """Return the named files and the files of named folders that could match, each once.

    Raises `ToolFailure` for a path where nothing is.
    """
    wanted = FileFilter(globs=parse_globs([glob] if isinstance(glob, str) else glob))
    names: dict[str, None] = {}
    meant = set[str]()
    for path in dict.fromkeys(paths):
        entry = await entry_at(workspace, path)
        if entry.kind != "folder":
            meant.add(entry.path)
            names[entry.path] = None
            continue
        found = await files_below(workspace, await base_at(workspace, path), wanted, containing=containing)
        if not found.is_whole:
            raise ToolFailure("too_large", f"there are too many files below {path!r}", hint="name a smaller folder")
        names |= dict.fromkeys(found.paths)
    return meant, list(names)


def _rewrite(content: bytes, path: str, finder: _Finder) -> _Rewrite | None:
    text = decoded(content, path=path)
    spans = finder.spans(text.plain)
    if not spans:
        return None
    new = text.replaced(spans).to_bytes()
    return _Rewrite(path=path, before=content, after=new, plain=text.plain, spans=spans)


def _check(rewrites: Sequence[_Rewrite]) -> None:
    places = sum(len(rewrite.spans) for rewrite in rewrites)
    size = sum(len(rewrite.after) for rewrite in rewrites)
    if len(rewrites) > _MOST_FILES or places > _MOST_PLACES or size > _TOTAL_BYTES:
        raise ToolFailure(
            "too_large",
            f"more would change than one call may: {_MOST_FILES} files, {_MOST_PLACES} places, 100 MiB; nothing did",
            hint="name fewer folders, or a glob",
        )


def _report_of(rewrites: Sequence[_Rewrite], *, searched: int, skipped: int, dry_run: bool) -> Replaced:
    diffs: list[str] = []
    room = _DIFF
    for rewrite in rewrites:
        if room <= 0:
            break
        diff = f"--- {rewrite.path}\n+++ {rewrite.path}\n{hunks(rewrite.plain, rewrite.spans, room)}"
        diffs.append(diff)
        room -= len(diff)
    files = [
        ReplacedFile(
            path=rewrite.path,
            replacements=len(rewrite.spans),
            lines=sorted({line_of(rewrite.plain, start) for start, _, _ in rewrite.spans[:_LINES]}),
        )
        for rewrite in rewrites
    ]
    return Replaced(
        files=files[:_FILES_SHOWN],
        changed_files=0 if dry_run else len(files),
        replacements=sum(one["replacements"] for one in files),
        searched_files=searched,
        not_searched=skipped,
        diff="\n".join(diffs),
        dry_run=dry_run,
        pending=False,
        undo=False,
    )
