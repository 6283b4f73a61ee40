"""Installed packages of a project, pinned as one tree: its virtual environments and `node_modules`.

The pin of a tree holds a digest of names, sizes and times, which is compared first, and one of contents, which is made
when the project is confirmed and when the first one differs: a tree that was only copied or touched is as it was. Byte
code in `__pycache__` and caches of build tools are left out, for programs write them as they run. A tree that is
missing when the project is confirmed is awaited (`core.awaited_files`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Final

_PYTHON: Final = frozenset("uv poetry pdm hatch pipenv rye pixi tox nox pytest uvicorn gunicorn".split())
_NODE: Final = frozenset("node npm pnpm yarn bun deno tsx ts-node".split())
FETCHERS: Final = frozenset({"bunx", "npx", "pnpx"})
"""Runners that take a package from elsewhere, unless its program is installed."""
_SCRIPTS: Final = frozenset({".cjs", ".js", ".mjs", ".ts"})
_NAMES: Final = (".venv", "venv")
_MODULES: Final = "node_modules"
_OF_PYTHON: Final = ("pyproject.toml", "uv.lock", "poetry.lock", "pdm.lock", "Pipfile", "requirements.txt", "setup.py")
_PROGRAMS: Final = ("bin", "Scripts")
_SETTINGS: Final = "pyvenv.cfg"
_LEFT_OUT: Final = frozenset({"__pycache__", ".cache", ".vite", ".vite-temp", ".git"})
_TREE: Final = "tree "
_MOST: Final = 300_000
"""Files of one tree that are looked at."""
_BLOCK: Final = 1024 * 1024


def installed_trees(
    words: Iterable[str], folders: Iterable[Path], files: Iterable[Path], variables: Mapping[str, str], root: Path
) -> list[Path]:
    """Return the trees of installed packages that a server loads from.

    `words` are those of its command, `folders` those where package runners look, `files` what it starts.
    """
    words = list(words)
    names = _names_of(words)
    files, folders = list(files), list(dict.fromkeys(folders))
    found = [above for file in files for above in file.parents if above.is_relative_to(root)]
    found += [root / folder for name in ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT") if (folder := variables.get(name))]
    if not names.isdisjoint(_PYTHON):
        found += [folder / name for folder in folders for name in _NAMES]
    trees = [one for one in found if (one.is_dir() if one.name == _MODULES else (one / _SETTINGS).is_file())]
    if not names.isdisjoint(_NODE) or any(file.suffix in _SCRIPTS and file.is_file() for file in files):
        trees += [one for folder in folders if (one := folder / _MODULES).is_dir()]
    elif not names.isdisjoint(FETCHERS):
        programs = {Path(f"{word[:1]}{word[1:].partition('@')[0]}").name for word in words}
        inner = (folder / _MODULES for folder in folders)
        trees += [one for one in inner if any((one / ".bin" / name).is_file() for name in programs if name)]
    return [one for one in dict.fromkeys(trees) if one != root]


def possible_trees(
    words: Iterable[str], folders: Iterable[Path], files: Iterable[Path], missing: Iterable[Path], root: Path
) -> list[Path]:
    """Return the trees that a server would load from if they were there.

    `words`, `folders` and `files` are those of `installed_trees`, `missing` the files that its command names.
    """
    names, folders = _names_of(words), list(dict.fromkeys(folders))
    found: list[Path] = []
    for file in missing:
        found += [above for above in file.parents if is_tree_name(above.name)]
        found += [file.parent.parent] if file.parent.name in _PROGRAMS else ()
    if not names.isdisjoint(_PYTHON):
        found += [
            one / _NAMES[0] for one in folders if one == root or any((one / name).is_file() for name in _OF_PYTHON)
        ]
    if not names.isdisjoint(_NODE | FETCHERS) or any(file.suffix in _SCRIPTS for file in files):
        found += [folder / _MODULES for folder in folders]
    inside = (one for one in dict.fromkeys(found) if one != root and one.is_relative_to(root))
    return [one for one in inside if not os.path.lexists(one)]


def is_tree_name(name: str) -> bool:
    """Whether a folder of installed packages is called that."""
    return name in (*_NAMES, _MODULES)


def _names_of(words: Iterable[str]) -> set[str]:
    return {Path(word).name.rstrip("0123456789.") for word in words}


def tree_pin(folder: Path, known: str = "") -> str:
    """Return the pin of a tree; `known` is an earlier one, whose contents count while all else is equal."""
    found = sorted(_files(folder), key=itemgetter(0))
    seen = hashlib.sha256()
    for name, path, status in found:
        place = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
        numbers = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        seen.update(f"{name}\0{place}\0{numbers}\n".encode("utf-8", "surrogateescape"))
    times = seen.hexdigest()
    if known.startswith(f"{_TREE}{times} "):
        return known
    content = hashlib.sha256()
    for name, path, status in found:
        is_program = bool(status.st_mode & stat.S_IXUSR)
        content.update(f"{name}\0{is_program}\0".encode("utf-8", "surrogateescape") + _content(path, status))
    return f"{_TREE}{times} {content.hexdigest()}"


def is_same(one: str | None, other: str | None) -> bool:
    """Whether two pins are of the same contents."""
    if one is not None and other is not None and one.startswith(_TREE) and other.startswith(_TREE):
        return one.rpartition(" ")[2] == other.rpartition(" ")[2]
    return one == other


def _files(folder: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield the files of a tree: name, path, status. Links to folders elsewhere are followed, each folder once."""
    waiting, seen, left = [("", str(folder))], set[str](), _MOST
    root = os.path.realpath(folder)
    while waiting:
        name, path = waiting.pop()
        try:
            with os.scandir(path) as entries:
                inside = list(entries)
        except OSError:
            continue
        for entry in inside:
            is_link = entry.is_symlink()
            is_folder = entry.is_dir() if is_link else entry.is_dir(follow_symlinks=False)
            if is_folder and entry.name not in _LEFT_OUT:
                real = os.path.realpath(entry.path) if is_link else ""
                if not is_link or not (real in seen or f"{real}/".startswith(f"{root}/")):
                    waiting.append((f"{name}/{entry.name}", entry.path))
                seen.add(real)
            if is_link or not is_folder:
                left -= 1
                if left < 0:
                    return
                with contextlib.suppress(OSError):
                    yield f"{name}/{entry.name}", entry.path, entry.stat(follow_symlinks=False)


def _content(path: str, status: os.stat_result) -> bytes:
    """Return the digest of a file, or of where a link leads."""
    found = hashlib.sha256()
    if stat.S_ISLNK(status.st_mode):
        found.update(os.fsencode(os.readlink(path)))
    if os.path.isfile(path):
        try:
            with open(path, "rb") as stream:
                while block := stream.read(_BLOCK):
                    found.update(block)
        except OSError:
            found.update(b"unreadable")
    return found.digest()
