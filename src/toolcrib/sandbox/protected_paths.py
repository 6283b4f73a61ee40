"""Paths of a workspace that a command may not change or see, nested repositories included.

    guarded_in    before a command    → `GuardedPaths`, mounted read-only or, without mounts, with the contents (`open`)
    open_again    after it            access that it took away
    put_aside                         names that appeared where nothing may be
    left_in                           files that other programs take up, new or changed → `Leftovers`
    put_back                          these aside, and the earlier content in the place of a changed one

All but `put_back` run in a thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from msgspec import Struct, field

from ..core.files import read_strange
from ..core.patterns import regex
from .leftovers import (
    Contents,
    KeptContents,
    Stamp,
    clean_folder,
    clean_repository,
    contents_of,
    is_taken_up,
    move_aside,
    rebases_of,
    reopen,
    reopen_repository,
    restore_rebases,
    restore_repository,
    stamp_of,
    stamps_of,
)

_SKIPPED_FOLDERS: Final = frozenset({"node_modules", ".venv", "venv"})
"""Folders of package managers, with more entries than all others; repositories in them are not the user's. One of
Python has a `pyvenv.cfg`.
"""
_MAX_FOLDERS: Final = 20_000
"""Folders that are compared, those nearest to the root first: some 40 ms when nothing has changed.

The result of a command names a root that has more.
"""
_SETTLED_NS: Final = 1_000_000_000
"""Nanoseconds: well above the time resolution of file systems."""
_BARE_REPOSITORY_PARTS: Final = frozenset({"HEAD", "objects", "refs"})
_SHARED_REPOSITORY_PARTS: Final = frozenset({"HEAD", "commondir"})
"""A folder with these is a repository, too: objects and references are in the other folder."""
_PROGRAM_FOLDERS: Final = ("bin", ".bin", "Scripts")

_GUARDED_GIT_PARTS: Final = ("hooks", "config", "config.worktree", "commondir", "modules", "info/attributes")
"""`commondir` names the other folder in which git looks for hooks and configuration (gitrepository-layout)."""
_GUARDED: Final = (
    ".toolcrib", ".claude", ".codex", ".cursor", ".gemini", ".mcp.json", ".vscode", ".idea", ".envrc", ".husky",
)  # fmt: skip
"""Read-only where they exist; what a command adds elsewhere is put aside when it has ended."""
_SECRET_FILES: Final = (".env", ".env.local", ".env.production", ".netrc", ".npmrc", ".pypirc", ".git-credentials")
"""Files that the file tools guard as well; empty for a command."""
_RUNNING_GIT_PARTS: Final = ("hooks", "config", "config.worktree", "commondir", "modules")
_GUARDED_WORKTREE_PARTS: Final = ("commondir", "gitdir", "config.worktree")
"""The same for the repository's data of a worktree; its index and HEAD stay writable."""
_MAX_NESTED_REPOSITORIES: Final = 32
"""Maximum of repositories below the roots, and worktrees of one: more would make the start too slow.

Those whose guarded part is oldest come first: no command can push one out of the list by making others.
"""
_COMMIT: Final = regex(r"(?m)\b[0-9a-f]{40,64}\b")
_MAX_REFERENCE_FILES: Final = 2_000
_MAX_REFERENCE_LENGTH: Final = 1024 * 1024
"""Files of references that are read, and characters of one."""
_WRITABLE_GIT_PARTS: Final = ("objects", "refs", "logs")
"""Files of a shared repository that work in one of its worktrees writes."""


class _FolderSnapshot(Struct, frozen=True):
    """A folder as it was read."""

    changed: int
    folders: tuple[str, ...]
    """Names of the folders in it that are looked at."""
    repository: str
    """Name of its repository, `.` for the root itself; empty outside a repository."""
    taken_up: tuple[str, ...] = ()
    """Names of its files that another program takes up by itself."""
    programs: tuple[str, ...] = ()
    """Folders of programs in it that run only when they are called."""


class Found(Struct, frozen=True, kw_only=True):
    """Entries below a folder."""

    repositories: tuple[Path, ...]
    """Git folders of the repositories, without that of the folder itself; those known before come first."""
    taken_up: Mapping[str, Stamp]
    programs: Mapping[str, Stamp]
    is_whole: bool = True
    """Whether every folder was looked at."""


class Repositories:
    """Repositories and files with an effect below folders, found once and remembered. Safe in several threads.

    One for all commands of a sandbox. A folder that has not changed for a second is read once.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _FolderSnapshot] = {}
        self._found: dict[str, dict[Path, None]] = {}
        """The repositories found below each root: they stay, even behind folders that are added in front of them."""
        self._lock = Lock()
        self.kept = KeptContents()

    def below(self, root: Path) -> Found:
        """Return the protected paths below a folder. A repository is a `.git`, a folder or a file, or a bare one.

        Blocks: it is for a thread. A folder is read again only when it changed.
        """
        with self._lock:
            looked, is_whole = self._take_snapshots(str(root))
            known = [place for place in self._found.get(str(root), ()) if os.path.lexists(place)]
            fresh = [Path(place, seen.repository) for place, seen in looked.items() if seen.repository]
            found = self._found[str(root)] = dict.fromkeys([*known, *(one for one in fresh if one != root / ".git")])
            taken_up = (f"{place}/{name}" for place, seen in looked.items() for name in seen.taken_up)
            programs = (f"{place}/{name}" for place, seen in looked.items() for name in seen.programs)
            return Found(
                repositories=tuple(found),
                taken_up=_stamped(taken_up),
                programs=_stamped(programs),
                is_whole=is_whole,
            )

    def keep(self, taken_up: Mapping[str, Stamp]) -> None:
        """Read the contents of these files, to be given back."""
        with self._lock:
            self.kept.take(taken_up)

    def _take_snapshots(self, root: str) -> tuple[dict[str, _FolderSnapshot], bool]:
        """Return the folders below a root, and whether these are all."""
        looked: dict[str, _FolderSnapshot] = {}
        waiting = deque([root])
        while waiting and len(looked) < _MAX_FOLDERS:
            place = waiting.popleft()
            seen = self._take_snapshot(place, root)
            if seen is None:
                continue
            looked[place] = seen
            waiting.extend(f"{place}/{name}" for name in seen.folders)
        for gone in [place for place in self._seen if place.startswith(f"{root}/") and place not in looked]:
            del self._seen[gone]
        self._seen |= looked
        return looked, not waiting

    def _take_snapshot(self, place: str, root: str) -> _FolderSnapshot | None:
        """Return the content of a folder; None when it is not one any more.

        A folder that changed within the last second is read again next time: a second change may leave the same time.
        """
        try:
            changed = os.stat(place, follow_symlinks=False).st_ctime_ns
            known = self._seen.get(place)
            if known is not None and known.changed == changed:
                return known
            settled = changed if time.time_ns() - changed > _SETTLED_NS else 0
            if not os.access(place, os.R_OK | os.X_OK):
                reopen(place)
            with os.scandir(place) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            return None
        parts = tuple(place.removeprefix(root).split("/")[1:])
        repository = ".git" if ".git" in names else ""
        if not repository and (names.keys() >= _BARE_REPOSITORY_PARTS or names.keys() >= _SHARED_REPOSITORY_PARTS):
            repository = "."  # its folders are looked at as all others: the names alone prove nothing
        name = parts[-1] if parts else ""
        programs = tuple(one for one in _PROGRAM_FOLDERS if names.get(one)) if name in _SKIPPED_FOLDERS else ()
        if name == "node_modules" or (name in _SKIPPED_FOLDERS and "pyvenv.cfg" in names):
            return _FolderSnapshot(settled, (), repository, programs=programs)
        folders = tuple(one for one, is_folder in names.items() if is_folder and one != ".git")
        taken_up = (one for one, is_folder in names.items() if not is_folder and is_taken_up(parts, one))
        return _FolderSnapshot(settled, folders, repository, tuple(taken_up), programs)


def _stamped(places: Iterable[str]) -> dict[str, Stamp]:
    return {place: stamp for place in places if (stamp := stamp_of(place)) is not None}


class GuardedPaths(Struct, frozen=True, kw_only=True):
    """The guarded paths of some folders, before a command runs. Links are followed in every path.

    Made by `guarded_in` for one command, and compared with by `left_in`.
    """

    shown: tuple[Path, ...] = ()
    """Read-only, and outside of the folders: the repository that a worktree belongs to."""
    fixed: tuple[Path, ...] = ()
    """Folders that are writable but may not be moved or removed, because they contain guarded files."""
    kept: tuple[Path, ...] = ()
    """Read-only."""
    hidden: tuple[Path, ...] = ()
    """Files that are empty inside."""
    absent: tuple[Path, ...] = ()
    """Guarded paths that do not exist yet."""
    placed: Mapping[Path, int] = field(default_factory=dict[Path, int])
    """Repositories and worktrees that may be moved, and their inodes: in the place of one there may be no other."""
    roots: tuple[Path, ...] = ()
    """Folders that are compared when the command has ended."""
    mounted: Mapping[Path, tuple[str, ...]] = field(default_factory=dict[Path, "tuple[str, ...]"])
    """Repositories whose configuration and hooks no command can change, each with the commits that were referred to."""
    loose: Mapping[Path, tuple[object, ...]] = field(default_factory=dict[Path, tuple[object, ...]])
    """The other ones, with the stamps of these files."""
    taken_up: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    """Files that other programs take up."""
    programs: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    """Folders of programs that run only when they are called."""
    worktrees: frozenset[Path] = frozenset()
    """Git folders of the worktrees of these repositories."""
    open: Mapping[Path, Contents] = field(default_factory=dict[Path, Contents])
    """Repositories that nothing but the comparison guards, with the files that start programs."""
    rebases: Mapping[Path, Mapping[Path, bytes]] = field(default_factory=dict[Path, Mapping[Path, bytes]])
    """Repositories with the files of stopped rebases: commands write these, in a sandbox, too."""


def guarded_in(
    folders: Iterable[Path], known: Repositories, *, trusted: bool = False, mounts: bool = True
) -> GuardedPaths:
    """Return the guarded paths of these folders; for a trusted command only those mounted beside them.

    `mounts`: whether the command runs in a sandbox, where guarded paths are read-only. `known` finds the repositories
    below the folders. Makes `.git/hooks` where a repository has none, so that a command cannot.
    """
    roots = [folder.resolve() for folder in folders]
    shown, fixed = dict[Path, None](), dict[Path, None]()
    own = [one for root in roots if (one := _add_repository_of_worktree(root / ".git", shown, fixed)) is not None]
    if trusted:
        return GuardedPaths(shown=tuple(shown), fixed=tuple(fixed))
    below = [known.below(root) for root in roots]
    taken_up = {path: stamp for found in below for path, stamp in found.taken_up.items()}
    known.keep(taken_up)
    every = [folder for found in below for folder in found.repositories]
    nested = _least_changed(every, "config")
    repositories = (*(root / ".git" for root in roots), *nested)
    others = _least_changed((one for folder in repositories for one in _folders_in(folder / "worktrees")), "commondir")
    trees = [*roots, *(folder.parent for folder in nested if folder.name == ".git")]
    names = [path for root in roots for path in _guarded_in_repository(root / ".git", fixed)]
    names += [path for folder in nested for path in _guarded_in_nested(folder, fixed)]
    names += [folder / name for folder in (*own, *others) for name in _GUARDED_WORKTREE_PARTS]
    names = names if mounts else []
    given = [tree / name for tree in trees for name in _GUARDED]
    secrets = [tree / name for tree in trees for name in _SECRET_FILES]
    return GuardedPaths(
        shown=tuple(shown),
        fixed=tuple(fixed),
        kept=_inside((*roots, *own), (path for path in (*names, *given) if path.exists())),
        hidden=_inside(roots, (path for path in secrets if path.is_file())),
        absent=tuple(path for path in names if not os.path.lexists(path)),
        placed={folder: number for folder in (*nested, *others) if (number := _inode_of(folder))},
        roots=tuple(roots),
        mounted={folder: _commits(folder) for folder in repositories if os.path.lexists(folder)},
        worktrees=frozenset(one for folder in repositories for one in _folders_in(folder / "worktrees")),
        loose={folder: stamps_of(folder) for folder in every if folder not in nested},
        taken_up=taken_up,
        programs={path: stamp for found in below for path, stamp in found.programs.items()},
        open={} if mounts else {folder: contents_of(folder) for folder in (*repositories, *shown)},
        rebases={folder: rebases_of(folder) for folder in (*repositories, *shown)},
    )


def open_again(guarded: GuardedPaths) -> None:
    """Give us access to the repositories and to the folders around them: a command may have taken it away."""
    around = {place for folder in (*guarded.mounted, *guarded.placed) for place in folder.parents}
    for place in sorted(place for place in around if any(place.is_relative_to(root) for root in guarded.roots)):
        reopen(place)
    for folder in guarded.mounted:
        reopen_repository(folder)


def put_aside(guarded: GuardedPaths) -> tuple[str, ...]:
    """Rename forbidden files that were created; return the new names."""
    replaced = [path for path, number in guarded.placed.items() if _inode_of(path) not in (0, number)]
    return tuple(name for path in (*replaced, *guarded.absent) if os.path.lexists(path) and (name := move_aside(path)))


class Leftovers(Struct, frozen=True, kw_only=True):
    """Files that a command left behind."""

    files: tuple[Path, ...] = ()
    """New and changed files that other programs take up."""
    programs: tuple[str, ...] = ()
    """Changed folders of programs that run only when they are called."""
    aside: tuple[str, ...] = ()
    """New names of what starts programs in new repositories."""
    unseen: tuple[str, ...] = ()
    """Roots with more folders than are compared."""


def left_in(guarded: GuardedPaths, known: Repositories) -> Leftovers:
    """Compare the folders with what they were; put aside what starts programs in repositories that were not there."""
    files, programs, aside, unseen = list[Path](), list[str](), list[str](), list[str]()
    for folder, before in guarded.open.items():
        aside += restore_repository(folder, before)
    for folder, steps in guarded.rebases.items():
        aside += restore_rebases(folder, steps)
    moved = frozenset(guarded.placed.values())
    for folder in guarded.mounted if not guarded.open else ():
        for worktree in _folders_in(folder / "worktrees"):
            if worktree not in guarded.worktrees and _inode_of(worktree) not in moved:
                aside += clean_folder(worktree)
    for root in guarded.roots:
        found = known.below(root)
        unseen += [] if found.is_whole else [str(root)]
        repositories = [root / ".git"] if os.path.lexists(root / ".git") else []
        for folder in (*repositories, *found.repositories):
            if folder in guarded.mounted or _inode_of(folder) in moved:
                continue
            reopen_repository(folder)
            if guarded.loose.get(folder) != stamps_of(folder):
                aside += clean_repository(folder, guarded.roots, guarded.mounted, guarded.worktrees)
        files += [Path(path) for path, stamp in found.taken_up.items() if guarded.taken_up.get(path) != stamp]
        programs += [path for path, stamp in found.programs.items() if guarded.programs.get(path) != stamp]
    return Leftovers(files=tuple(files), programs=tuple(programs), aside=tuple(aside), unseen=tuple(unseen))


def put_back(guarded: GuardedPaths, known: Repositories, files: Iterable[Path]) -> tuple[str, ...]:
    """Put aside new and changed files, and give changed ones their earlier content; return the new names."""
    moved: list[str] = []
    for path in files:
        before = guarded.taken_up.get(str(path))
        known.kept.refuse(path)
        if name := move_aside(path):
            moved.append(name)
        if before is not None:
            known.kept.give_back(path, before)
    return tuple(moved)


def _commits(repository: Path) -> tuple[str, ...]:
    """Return the commits that the branches, tags and stashes of a repository refer to, and its HEAD."""
    texts = [_text(repository / name) for name in ("HEAD", "packed-refs", "logs/refs/stash")]
    for place, _, files in os.walk(repository / "refs"):
        texts += [_text(Path(place, name)) for name in files[: _MAX_REFERENCE_FILES - len(texts)]]
    return tuple(dict.fromkeys(_COMMIT.findall("\n".join(texts))))


def _text(file: Path) -> str:
    try:
        return read_strange(file, _MAX_REFERENCE_LENGTH).decode("ascii", "replace")
    except OSError:
        return ""


def _guarded_in_repository(folder: Path, fixed: dict[Path, None]) -> Iterator[Path]:
    """Yield the guarded paths of a repository; add to `fixed` the folders that may not move."""
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
    yield from (folder / name for name in _GUARDED_GIT_PARTS)


def _guarded_in_nested(folder: Path, fixed: dict[Path, None]) -> Iterator[Path]:
    """Yield the executed files of a repository below a root. Each costs one mount."""
    found = (
        path for path in _guarded_in_repository(folder, fixed) if path.name in _RUNNING_GIT_PARTS or path == folder
    )
    yield from found
    fixed.pop(folder / "info", None)


def _folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder, without links; empty when it is missing or a link."""
    try:
        if folder.is_symlink():
            return []
        with os.scandir(folder) as entries:
            return [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _least_changed(folders: Iterable[Path], name: str) -> list[Path]:
    """Return those in which a file changed longest ago (its ctime, which cannot be set back)."""

    def changed(folder: Path) -> int:
        for path in (folder / name, folder):  # of a `.git` that is a file nothing can be changed while it is guarded
            with contextlib.suppress(OSError):
                return path.lstat().st_ctime_ns
        return 0

    return sorted(folders, key=changed)[:_MAX_NESTED_REPOSITORIES]


def _inode_of(path: Path) -> int:
    """Return the inode of a path; 0 when nothing is there.

    An inode identifies a folder that was renamed: a repository that moved is the same repository.
    """
    try:
        return path.lstat().st_ino
    except OSError:
        return 0


def _add_repository_of_worktree(file: Path, shown: dict[Path, None], fixed: dict[Path, None]) -> Path | None:
    """Add the repository of a worktree, if that repository confirms it: otherwise a file could name any folder.

    Return the repository's folder for the worktree.
    """
    own = _named_in(file, "gitdir: ") if file.is_file() else None
    if own is None or own.parent.name != "worktrees" or _named_in(own / "gitdir") != file:
        return None
    common = own.parent.parent
    shown[common] = None
    fixed |= dict.fromkeys([own, *(common / name for name in _WRITABLE_GIT_PARTS if (common / name).is_dir())])
    return own


def _named_in(file: Path, before: str = "") -> Path | None:
    """Return the path that is the content of a file, behind a word."""
    try:
        text = read_strange(file, _MAX_REFERENCE_LENGTH).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return (file.parent / text.removeprefix(before)).resolve() if text.startswith(before) else None


def _inside(roots: Sequence[Path], paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths with links followed, without those that then lie outside: a link must not reveal them."""
    found = dict.fromkeys(path.resolve() for path in paths)
    return tuple(path for path in found if any(path.is_relative_to(root) for root in roots))
