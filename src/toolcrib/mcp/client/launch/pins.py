"""Files that decide what a server of a project runs, pinned by content when the user confirms the project.

The program of its `command` and the files named in `args`, `cwd`, `env_file` and variables by which an interpreter
finds code are pinned, also inside of a command for a shell, with the packages of a module and the files of the script
of a `package.json` or a `pyproject.toml` that is run; what those load of the project (`sources`); and the
manifests and lock files of package managers beside them and above, which pin what they install. Interpreters and
package runners outside of the project count by their names: their updates change nothing that the project says. A file
that is missing when the project is confirmed and there later is a change, too. Installed packages are pinned as trees
(`packages`); databases and logs, which a server changes itself, are not, where no interpreter can take them for
a program. Trees, a program and build outputs that are missing when the user confirms the project are awaited
(`awaited_pins`): their pins are taken once they are there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ..spec import ServerSpec
from .awaited_pins import BUILD_FOLDERS, AwaitedPins
from .digests import COMMAND, MISSING, file_digest, program_pin, project_root
from .named_files import MANIFESTS, named_files, named_folders
from .packages import installed_trees, is_same, is_tree_name, possible_trees, tree_pin
from .runner_files import built_files, folders_up_to, found_first, packaged_files, recipe_files, shebang_names
from .sources import loaded_by, shadows
from .words import spellings, words_of

_PROGRAM_ENDS: Final = frozenset({"", ".cjs", ".dll", ".exe", ".jar", ".js", ".mjs", ".py", ".pyz", ".ts", ".wasm"})
_MOST_AWAITED: Final = 50
"""Paths of one server that are missing and named."""


def launch_pins(spec: ServerSpec, path: str, known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the SHA-256 of each file that decides what `spec` runs, by name; none for a server at a URL.

    `path` is the `PATH` that its command is looked for on, `known` what was pinned before, which saves reading trees of
    packages again. Blocks: it is for a thread.
    """
    if spec.transport != "stdio":
        return {}
    here = Path(spec.cwd or ".").absolute()
    root = project_root(here)
    pins = {COMMAND: _program(spec, here, root, path)}
    places = named_folders(spec, here)
    files = dict.fromkeys(named_files(spec, here, places))
    command = Path(os.path.normpath(here / spec.command))
    ours = [command.parent] if os.sep in spec.command and command.is_relative_to(root) else []
    folders = dict.fromkeys(
        [*folders_up_to(here, root), *ours, *(one for file in files for one in folders_up_to(file.parent, root))]
    )
    scripts = dict.fromkeys([*files, *([command] if ours else ()), *recipe_files(spec, folders)])
    loaded = list(loaded_by(scripts, places, root))
    is_python = any(file.suffix == ".py" for file in (*scripts, *loaded))
    searched = dict.fromkeys([*places, *(file.parent for file in files if file.suffix == ".py")]) if is_python else ()
    files |= dict.fromkeys(
        [
            *loaded,
            *recipe_files(spec, folders),
            *(file for folder in searched if folder.is_relative_to(root) for file in shadows(folder)),
            *found_first(spec, here, root, scripts),
            *built_files(spec, places, root),
            *packaged_files(spec, here, root),
        ]
    )
    for file in (*files, *(folder / name for folder in folders for name in MANIFESTS)):
        if digest := file_digest(file):
            pins[str(file)] = digest
    words = [*words_of(spec), *(name for script in scripts for name in shebang_names(script))]
    for tree in installed_trees(words, [*folders, *places], (*scripts, *loaded), spec.env, root):
        name = str(tree)
        if name in known or not known:  # others are awaited, or were made by a runner before trees were awaited
            pins[name] = tree_pin(tree, known.get(name, ""))
    if not known:
        missing = list(islice(_missing(spec, here, root), _MOST_AWAITED))
        missing += possible_trees(words, folders, (*scripts, *loaded), missing, root)
        pins |= {str(one): MISSING for one in missing if str(one) not in pins}
    return pins


def _missing(spec: ServerSpec, here: Path, root: Path) -> Iterator[Path]:
    """Yield the program and the build outputs that a command names and that are not there."""
    for word in dict.fromkeys(words_of(spec)):
        for text in dict.fromkeys(spellings(word)) if os.sep in word else ():
            path = Path(os.path.normpath(here / text))
            if not path.is_relative_to(root) or path == root or os.path.lexists(path):
                continue
            folders = path.relative_to(root).parts[:-1]
            is_built = path.suffix in _PROGRAM_ENDS and not BUILD_FOLDERS.isdisjoint(folders)
            is_installed = any(is_tree_name(one) for one in folders) or path.parent.name in ("bin", "Scripts")
            if word == spec.command or is_built or is_installed:
                yield path


def changed_files(spec: ServerSpec, path: str) -> list[str]:
    """Return the files that changed since the user confirmed them, by name; none for a server without pins.

    Blocks, as `launch_pins` does.
    """
    if spec.pinned is None:
        return []
    late, known = AwaitedPins(spec), dict(spec.pinned)
    known |= {name: pin for name in late.names if (pin := late.pin(name))}
    now = launch_pins(spec, path, known)
    pinned = late.join(now)
    for name in pinned.keys() - now.keys():  # what a changed file does not load any more is as it was
        now[name] = tree_pin(Path(name), pinned[name]) if os.path.isdir(name) else file_digest(Path(name))
    return sorted(name for name in {*now, *pinned} if not is_same(now.get(name), pinned.get(name)))


def made_by_agents(spec: ServerSpec, names: Iterable[str]) -> list[str]:
    """Return those of changed names that came while a command of an agent ran, after the project was confirmed."""
    late = AwaitedPins(spec)
    return [name for name in names if late.is_traced(name)]


def changed_sources(spec: ServerSpec, path: str) -> list[str]:
    """Return the changed files without installed packages, which a package runner may bring up to date as it starts."""
    return [name for name in changed_files(spec, path) if not os.path.isdir(name)]


def pinned_state(spec: ServerSpec) -> dict[str, tuple[int, ...]]:
    """Return a cheap stamp that changes when a pinned file or its folder is written: to compare around a start."""
    found: dict[str, tuple[int, ...]] = {}
    for name in spec.pinned or ():
        for one in dict.fromkeys((name, os.path.dirname(name))) if os.sep in name else ():
            with contextlib.suppress(OSError):
                status = os.stat(one)
                found[one] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


def _program(spec: ServerSpec, here: Path, root: Path, path: str) -> str:
    path = spec.env.get("PATH", path)
    words = [str(Path(here, entry)) for entry in path.split(os.pathsep)]
    found = (
        str(here / spec.command) if os.sep in spec.command else shutil.which(spec.command, path=os.pathsep.join(words))
    )
    if found is None:
        return MISSING
    return program_pin(Path(found), Path(spec.command).name, [here, root])
