"""What of a workspace a command may not change, and what it may not see.

A command could leave there what runs, or is believed, outside of the sandbox later: hooks, configuration of git, of
editors and of other agents. What is there is read-only inside, under its own name: the folders above it cannot be moved
away. What is not there cannot be kept from coming into being without leaving traces in the workspace; it is put
aside when the command has ended.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Guarded", "guarded_in", "put_aside"]

_OF_GIT: Final = ("hooks", "config", "config.worktree", "modules", "info/attributes")
_GUARDED: Final = (
    ".toolcrib", ".claude", ".codex", ".cursor", ".gemini", ".mcp.json", ".vscode", ".idea", ".envrc", ".husky",
)  # fmt: skip
_SECRET: Final = (".env", ".env.local", ".env.production", ".netrc", ".npmrc", ".pypirc", ".git-credentials")
"""What the file tools guard as well; a command finds them empty."""
_WRITTEN: Final = ("objects", "refs", "logs")
"""Of a repository that is shared by worktrees: what working in one of them writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The guarded part of some folders, as it is before a command runs. Links are followed in every path."""

    shown: tuple[Path, ...] = ()
    """Read-only, and outside of the folders: the repository that a worktree belongs to."""
    fixed: tuple[Path, ...] = ()
    """Writable, and not to be moved or removed: what is kept lies in them."""
    kept: tuple[Path, ...] = ()
    """Read-only."""
    hidden: tuple[Path, ...] = ()
    """Files that are empty inside."""
    absent: tuple[Path, ...] = ()
    """What would be kept if it were there."""


def guarded_in(folders: Iterable[Path], *, trusted: bool = False) -> Guarded:
    """Return what is guarded in these folders; for a trusted command only what it is shown beside them.

    Makes `.git/hooks` where a repository has none: then nobody else can.
    """
    roots = [folder.resolve() for folder in folders]
    shown, fixed = dict[Path, None](), dict[Path, None]()
    for root in roots:
        _of_worktree(root / ".git", shown, fixed)
    if trusted:
        return Guarded(shown=tuple(shown), fixed=tuple(fixed))
    names = [path for root in roots for path in (*_of_repository(root / ".git", fixed), *(root / n for n in _GUARDED))]
    secrets = [root / name for root in roots for name in _SECRET]
    return Guarded(
        shown=tuple(shown),
        fixed=tuple(fixed),
        kept=_inside(roots, (path for path in names if path.exists())),
        hidden=_inside(roots, (path for path in secrets if path.is_file())),
        absent=tuple(path for path in names if not os.path.lexists(path)),
    )


def put_aside(guarded: Guarded) -> tuple[str, ...]:
    """Rename what has come into being and may not; return the new names."""
    moved: list[str] = []
    for path in guarded.absent:
        if os.path.lexists(path):
            target = next(place for place in _names(path) if not os.path.lexists(place))
            with contextlib.suppress(OSError):  # somebody else has taken it away meanwhile
                path.rename(target)
                moved.append(str(target))
    return tuple(moved)


def _names(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.aside")
    yield from (path.with_name(f"{path.name}.aside{number}") for number in itertools.count(2))


def _of_repository(folder: Path, fixed: dict[Path, None]) -> Iterator[Path]:
    """Yield what is guarded of a repository; add to `fixed` what has to stay where it is."""
    if folder.is_symlink() or not folder.is_dir():
        yield from (folder,) if folder.is_file() else ()
        return
    fixed[folder] = None
    hooks, info = folder / "hooks", folder / "info"
    if not os.path.lexists(hooks):
        with contextlib.suppress(OSError):
            hooks.mkdir()
    if info.is_dir() and not info.is_symlink():
        fixed[info] = None
    yield from (folder / name for name in _OF_GIT)


def _of_worktree(file: Path, shown: dict[Path, None], fixed: dict[Path, None]) -> None:
    """Add the repository that a worktree belongs to, where it says the same: else a file could name any folder."""
    own = _named_in(file, "gitdir: ") if file.is_file() else None
    if own is None or own.parent.name != "worktrees" or _named_in(own / "gitdir") != file:
        return
    common = own.parent.parent
    shown[common] = None
    fixed |= dict.fromkeys([own, *(common / name for name in _WRITTEN if (common / name).is_dir())])


def _named_in(file: Path, before: str = "") -> Path | None:
    """Return the path that is the content of a file, behind a word."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return (file.parent / text.removeprefix(before)).resolve() if text.startswith(before) else None


def _inside(roots: Sequence[Path], paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths with links followed, without what then lies outside: a link must not show it."""
    found = dict.fromkeys(path.resolve() for path in paths)
    return tuple(path for path in found if any(path.is_relative_to(root) for root in roots))
