"""Search for a file by a part of its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, tool

from .._workspace.file_search import FileFilter, base_at, files_below, still_there
from .._workspace.pages import fit_lines, room_of
from .._workspace.patterns import is_glob, parse_glob
from .._workspace.place import workspace_of

__all__ = ["search_files"]

_RESULTS: Final = 50
_MOST: Final = 1_000
_NOTE: Final = 300


@tool(
    op="x.file.search",
    category="search",
    kind="read",
    open_world=False,
    needs=["workspace"],
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
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = _RESULTS,
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
    return fit_lines(shown, room_of(ctx.result_bytes, _NOTE), notes, hint="search a smaller folder, or more words")


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
    """Return how well a path matches, 0 is best; None for not at all."""
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
