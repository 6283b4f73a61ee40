"""Files that decide what a server of a project runs, pinned by content when the user confirms the project.

The program of its `command` and the files named in `args`, `cwd`, `env_file` and variables by which an interpreter
finds code are pinned, also inside of a command for a shell, with the packages of a module and the files of the script
of a `package.json` or a `pyproject.toml` that is run; what those load of the project (`launch_sources`); and the
manifests and lock files of package managers beside them and above, which pin what they install. Interpreters and
package runners outside of the project count by their names: their updates change nothing that the project says. A file
that is missing when the project is confirmed and there later is a change, too. Installed packages are pinned as trees
(`launch_packages`); databases and logs, which a server changes itself, are not, where no interpreter can take them for
a program. Trees, a program and build outputs that are missing when the user confirms
the project are awaited (`core.awaited_files`): their pins are taken once they are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import unquote

from ...core.awaited_files import AwaitedFiles
from ...core.json import read_json
from ...core.toml_document import read_toml
from .launch_packages import installed_trees, is_same, is_tree_name, possible_trees, tree_pin
from .launch_sources import loaded_by, shadows, tracked
from .spec import ServerSpec

__all__ = [
    "MISSING",
    "awaited_files",
    "changed_files",
    "changed_sources",
    "launch_pins",
    "made_by_agents",
    "pinned_state",
]

MISSING: Final = "missing"
"""The pin of a program, a tree of packages or a build output that is not there."""

_RUNNERS: Final = re.compile(
    r"(?:python|pypy|perl|ruby|php|lua|java|node|bun|deno|pip|pipx|uv|uvx|npm|npx|pnpm|pnpx|yarn|bunx|poetry|hatch|pdm"
    r"|cargo|go|dotnet|gem|bundle|composer|docker|podman|env|sh|bash|dash|zsh|fish|make|just|nix|tsx|ts-node|mvn"
    r"|gradle|sbt|mix|rake|task|nox|tox|pipenv|rye|pixi|devbox|conda|mamba)[\d.]*"
)
"""Names of interpreters and package runners."""
_BESIDE: Final = (
    "package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml bun.lock bun.lockb"
    " .npmrc .yarnrc.yml bunfig.toml deno.json deno.jsonc deno.lock pyproject.toml uv.lock uv.toml poetry.lock pdm.lock"
    " pylock.toml Pipfile Pipfile.lock requirements.txt Cargo.toml Cargo.lock go.mod go.sum Gemfile Gemfile.lock"
    " composer.json composer.lock Makefile makefile GNUmakefile justfile Dockerfile compose.yaml docker-compose.yml"
    " compose.yml docker-compose.yaml docker-compose.override.yml compose.override.yaml Justfile .justfile"
    " .yarnrc .pnp.cjs .pnp.loader.mjs .pnpmfile.cjs tsconfig.json setup.py setup.cfg poetry.toml hatch.toml pixi.toml"
    " pixi.lock .cargo/config.toml .cargo/config build.rs rust-toolchain rust-toolchain.toml go.work gems.rb"
    " gems.locked .bundle/config flake.nix flake.lock shell.nix default.nix global.json nuget.config NuGet.config"
    " Directory.Build.props Directory.Build.targets mise.toml .mise.toml .tool-versions .python-version .node-version"
    " .ruby-version .nvmrc"
).split()
"""Manifests and lock files: the ones name what runs (scripts, entry points), the others pin what is installed."""
_BUILT: Final = {
    "cargo": ("src/**/*.rs",),
    "go": ("*.go", "*/*.go", "*/*/*.go", "cmd/**/*.go", "internal/**/*.go", "pkg/**/*.go"),
    "dotnet": ("*.csproj", "*.fsproj", "*.sln", "*.cs", "*.fs", "Properties/*"),
    "gradle": ("*.gradle", "*.gradle.kts", "gradle.properties", "gradle/wrapper/*", "gradle/*.toml"),
    "gradlew": ("*.gradle", "*.gradle.kts", "gradle.properties", "gradle/wrapper/*", "gradle/*.toml"),
    "mvn": ("pom.xml", ".mvn/*", ".mvn/wrapper/*"),
    "mvnw": ("pom.xml", ".mvn/*", ".mvn/wrapper/*"),
    "sbt": ("build.sbt", "project/*"),
    "mix": ("mix.exs", "mix.lock"),
    "rake": ("Rakefile", "rakefile", "Rakefile.rb"),
    "task": ("Taskfile.yml", "Taskfile.yaml", "taskfile.yml"),
    "nox": ("noxfile.py",),
    "tox": ("tox.ini",),
    "devbox": ("devbox.json", "devbox.lock"),
    "conda": ("environment.yml", "environment.yaml"),
    "mamba": ("environment.yml", "environment.yaml"),
    "php": ("php.ini",),
    "direnv": (".envrc",),
}
"""Files that a runner takes without a name: what it builds, and its own manifests where few programs have them."""
_STARTED: Final = {
    "make gmake": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "docker docker-compose podman podman-compose": (
        *("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
        *("compose.override.yaml", "compose.override.yml", "docker-compose.override.yml", ".env"),
    ),
}
"""Runners → files whose recipes and services they start."""
_INSTALLERS: Final = re.compile(r"uvx?|pipx|pip[\d.]*|rye|hatch|poetry|pdm|pixi")
_PACKED: Final = re.compile(r"--(?:from|with|with-editable|spec|editable|package)(?:=|$)|-e$|install$")
"""Words of these before a folder that is packed."""
_RUN_A_PACKAGE: Final = frozenset({"uvx", "pipx"})
_OF_PACKAGE: Final = ("pyproject.toml", "setup.py", "setup.cfg")
_NOT_PACKED: Final = frozenset({"__pycache__", "build", "dist", "node_modules", "venv"})
_PYTHON_ENDS: Final = (".py", ".pyx", ".pth", ".so")
_MOST_BUILT: Final = 2_000
_FETCHERS: Final = frozenset({"bunx", "npx", "pnpx"})
_IN_PROJECT: Final = ("node_modules/.bin", ".venv/bin", "venv/bin")
"""Folders in which package runners look first."""
_VENV: Final = "pyvenv.cfg"
_PROJECT: Final = ".toolcrib"
_COMMAND: Final = "command"
"""Name of the pin of the program."""
_NAME: Final = re.compile(r"(?:@[\w.-]+/)?(\w[\w.-]*)(?:@[\w.^~*-]*)?", re.ASCII)
_ENTRIES: Final = (
    *("__init__.py", "__main__.py", "sitecustomize.py", "usercustomize.py", "main.py"),
    *("index.js", "index.mjs", "index.cjs", "index.ts", "mod.ts", "main.go"),
)
"""Files that an interpreter starts for the name of a folder, or of a folder on its search path."""
_DATA: Final = frozenset(".csv .db .db3 .duckdb .jsonl .ldb .log .mdb .ndjson .parquet .sqlite .sqlite3 .tsv".split())
_OF_DATA: Final = re.compile(
    r"--?(?!.*(?:import|require|load|script|config|class|module|exec|plugin))"
    r".*(?:cache|data|db|journal|log|out|path|store|sqlite)"
)
"""Options whose value is a file that the server reads and writes."""
_LOADS: Final = re.compile(
    r"PYTHON\w*|NODE_(?:OPTIONS|PATH)|LD_\w+|DYLD_\w+|BASH_ENV|ENV|PERL5?\w*|RUBY\w*|GEM_\w+|BUNDLE_\w+|_?J\w*_OPTIONS"
    r"|CLASSPATH|DOTNET_STARTUP_HOOKS|LUA_\w+|MAKE(?:FLAGS|FILES)|GOFLAGS|RUSTC?_\w*WRAPPER|CARGO_\w+|COMPOSE_FILE"
    r"|GIT_\w+|\w*(?:CONFIG|CONFIG_FILE|PRELOAD|STARTUP)",
    re.IGNORECASE,
)
"""Variables by which interpreters and runners find code, or a configuration that names code."""
_CONTAINERS: Final = frozenset({"docker", "podman"})
_GO_ON: Final = frozenset({"--", "dlx", "exec", "run", "task", "tool", "x"})
"""Sub-commands of runners after which the program comes."""
_SCRIPTED: Final = frozenset({"npm", "npx", "pnpm", "yarn", "bun", "bunx"})
"""Runners of the scripts of a `package.json`."""
_COMMANDS: Final = re.compile(r"[;&|\n()`]+")
_MARKS: Final = re.compile(r"[\s;&|()`{}\"'<>]+")
_QUOTES: Final = str.maketrans("", "", "\"'")
_PIECES: Final = re.compile(r"[=,:@]+")
_FILE: Final = re.compile(r"file:(?://(?:localhost)?(?=/)|/*(?=\.)|//)?")
_MODULE: Final = re.compile(r"(?:-[A-Za-z]*m)?([A-Za-z_]\w*(?:\.\w+)+)", re.ASCII)
_HERE: Final = re.compile(r"\$(?:PWD\b|\{PWD\}|\(pwd\))")
_MAX_MANIFEST: Final = 1024 * 1024
"""Bytes of a `package.json` that is read for the files of its scripts."""
_DEPTH: Final = 8
_BUILD_FOLDERS: Final = frozenset("bin build .build _build dist obj out .output release target".split())
"""Folders of build outputs."""
_PROGRAM_ENDS: Final = frozenset({"", ".cjs", ".dll", ".exe", ".jar", ".js", ".mjs", ".py", ".pyz", ".ts", ".wasm"})
_MOST_AWAITED: Final = 50
"""Paths of one server that are missing and named."""
_SUFFIXES: Final = ("", ".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".rb", ".pm", ".lua")


def launch_pins(spec: ServerSpec, path: str, known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the SHA-256 of each file that decides what `spec` runs, by name; none for a server at a URL.

    `path` is the `PATH` that its command is looked for on, `known` what was pinned before, which saves reading trees of
    packages again. Blocks: it is for a thread.
    """
    if spec.transport != "stdio":
        return {}
    here = Path(spec.cwd or ".").absolute()
    root = _root(here)
    pins = {_COMMAND: _program(spec, here, root, path)}
    places = _places(spec, here)
    files = dict.fromkeys(_named(spec, here, places))
    command = Path(os.path.normpath(here / spec.command))
    ours = [command.parent] if os.sep in spec.command and command.is_relative_to(root) else []
    folders = dict.fromkeys([*_up_to(here, root), *ours, *(one for file in files for one in _up_to(file.parent, root))])
    scripts = dict.fromkeys([*files, *([command] if ours else ()), *_recipes(spec, folders)])
    loaded = list(loaded_by(scripts, places, root))
    is_python = any(file.suffix == ".py" for file in (*scripts, *loaded))
    searched = dict.fromkeys([*places, *(file.parent for file in files if file.suffix == ".py")]) if is_python else ()
    files |= dict.fromkeys(
        [
            *loaded,
            *_recipes(spec, folders),
            *(file for folder in searched if folder.is_relative_to(root) for file in shadows(folder)),
            *_found_first(spec, here, root, scripts),
            *_built(spec, places, root),
            *_packaged(spec, here, root),
        ]
    )
    for file in (*files, *(folder / name for folder in folders for name in _BESIDE)):
        if digest := _digest(file):
            pins[str(file)] = digest
    words = [*_words_of(spec), *(name for script in scripts for name in _shebang(script))]
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
    for word in dict.fromkeys(_words_of(spec)):
        for text in dict.fromkeys(_spellings(word)) if os.sep in word else ():
            path = Path(os.path.normpath(here / text))
            if not path.is_relative_to(root) or path == root or os.path.lexists(path):
                continue
            folders = path.relative_to(root).parts[:-1]
            is_built = path.suffix in _PROGRAM_ENDS and not _BUILD_FOLDERS.isdisjoint(folders)
            is_installed = any(is_tree_name(one) for one in folders) or path.parent.name in ("bin", "Scripts")
            if word == spec.command or is_built or is_installed:
                yield path


def _recipes(spec: ServerSpec, folders: Iterable[Path]) -> list[Path]:
    """Return the files whose recipes and services a runner among the words starts."""
    names = {Path(text).name for text in _words_of(spec)}
    wanted = [name for runners, files in _STARTED.items() if not names.isdisjoint(runners.split()) for name in files]
    found = (folder / name for folder in folders for name in wanted)
    return [file for file in found if file.is_file()]


def _root(here: Path) -> Path:
    """Return the folder of the project that `here` is in: the nearest one with a configuration of ours."""
    return next((folder for folder in (here, *here.parents) if (folder / _PROJECT).is_dir()), here)


def _words_of(spec: ServerSpec) -> list[str]:
    """Return the words of a command, those inside of commands for a shell, too."""
    return [text for word in (spec.command, *spec.args) for text in (word, *_split(word))]


def _found_first(spec: ServerSpec, here: Path, root: Path, scripts: Iterable[Path]) -> Iterator[Path]:
    """Yield the programs of the project that are found before those of the machine, by their names alone.

    Package runners look into `node_modules` and `.venv`. One that would fetch the package otherwise makes no programs
    there, and each counts; other runners make them at the first start, and what the repository tracks counts.
    """
    texts = _words_of(spec)
    names = dict.fromkeys(found[1] for text in texts[1:] if (found := _NAME.fullmatch(text)))
    names |= dict.fromkeys(name for script in scripts for name in _shebang(script))
    for entry in spec.env.get("PATH", "").split(os.pathsep):  # not the user's own: it differs from shell to client
        folder = Path(os.path.normpath(here / entry))
        if entry and folder.is_relative_to(root):
            yield from (folder / name for name in names)
    is_fetched = any(Path(text).name in _FETCHERS for text in texts)
    if any(_RUNNERS.fullmatch(Path(text).name) for text in texts):
        for folder in _up_to(here, root):
            found = (folder / inner / name for inner in _IN_PROJECT for name in names)
            yield from (
                file
                for file in found
                if os.path.lexists(file) and (tracked(file, root) or (is_fetched and "node_modules" in file.parts))
            )
    settings = Path(os.path.normpath(here / spec.command)).parent.parent / _VENV
    if os.sep in spec.command and settings.is_file() and settings.is_relative_to(root) and tracked(settings, root):
        yield settings


def _shebang(file: Path) -> list[str]:
    """Return the names that the first line of a script has for `env`."""
    try:
        with file.open("rb") as stream:
            line = stream.readline(256)
    except OSError:
        return []
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    return [Path(word).name for word in words if not word.startswith("-")]


def _built(spec: ServerSpec, places: Iterable[Path], root: Path) -> Iterator[Path]:
    """Yield the files that runners take without a name."""
    patterns = dict.fromkeys(one for text in _words_of(spec) for one in _BUILT.get(Path(text).name, ()))
    left = _MOST_BUILT
    for folder in places if patterns else ():
        if not folder.is_relative_to(root):
            continue
        for pattern in patterns:
            for file in sorted(folder.glob(pattern)):
                left -= 1
                if left < 0:
                    return
                yield file


def _packaged(spec: ServerSpec, here: Path, root: Path) -> Iterator[Path]:
    """Yield the Python sources of a folder that a runner packs and installs before it runs: `uvx --from .`."""
    words, left = _words_of(spec), _MOST_BUILT
    if not any(_INSTALLERS.fullmatch(Path(word).name) for word in words):
        return
    pairs = list(zip(("", *words), words, strict=False))
    named = [word for before, word in pairs if _PACKED.match(before) or (_PACKED.match(word) and "=" in word)]
    if any(Path(word).name in _RUN_A_PACKAGE for word in words):
        named += [word for before, word in pairs if not before.startswith("-") and word.startswith((".", "/", "file:"))]
    for text in dict.fromkeys(text for word in named for text in _spellings(word)):
        folder = Path(os.path.normpath(here / text))
        if not folder.is_relative_to(root) or not any((folder / name).is_file() for name in _OF_PACKAGE):
            continue
        for above, inner, files in os.walk(folder):
            inner[:] = sorted(one for one in inner if not one.startswith(".") and one not in _NOT_PACKED)
            for name in sorted(files):
                if name.endswith(_PYTHON_ENDS):
                    left -= 1
                    if left < 0:
                        return
                    yield Path(above, name)


def changed_files(spec: ServerSpec, path: str) -> list[str]:
    """Return what is not as it was when the user confirmed it, by name; nothing for a server without pins.

    Blocks, as `launch_pins` does.
    """
    if spec.pinned is None:
        return []
    late, known = _Late(spec), dict(spec.pinned)
    known |= {name: pin for name in late.names if (pin := late.pin(name))}
    now = launch_pins(spec, path, known)
    pinned = late.join(now)
    for name in pinned.keys() - now.keys():  # what a changed file does not load any more is as it was
        now[name] = tree_pin(Path(name), pinned[name]) if os.path.isdir(name) else _digest(Path(name))
    return sorted(name for name in {*now, *pinned} if not is_same(now.get(name), pinned.get(name)))


def made_by_agents(spec: ServerSpec, names: Iterable[str]) -> list[str]:
    """Return those of changed names that came while a command of an agent ran, after the project was confirmed."""
    late = _Late(spec)
    return [name for name in names if late.is_traced(name)]


def awaited_files(folder: Path) -> AwaitedFiles:
    """Return the record of awaited files in `folder`, for the files of servers."""
    return AwaitedFiles(folder, _late_pin)


def _late_pin(path: Path) -> str:
    """Return the pin of what was awaited."""
    if path.is_dir():
        return tree_pin(path)
    return _pin_of_program(path, path.name, [_root(path.parent)])


class _Late:
    """The awaited files of a server, as they were taken or are now."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._pinned = spec.pinned or {}
        self.names = [name for name, pin in self._pinned.items() if pin == MISSING and name != _COMMAND]
        self._record = awaited_files(Path(spec.awaited)) if spec.awaited else None
        self._here = Path(spec.cwd or ".").absolute()
        self._root = _root(self._here)

    def pin(self, name: str) -> str:
        return self._record.pin(Path(name)) if self._record is not None else ""

    def is_traced(self, name: str) -> bool:
        command = os.path.normpath(self._here / self._spec.command)
        path = command if name == _COMMAND else name
        return self._record is not None and path in self.names and self._record.is_traced(Path(path))

    def join(self, now: dict[str, str]) -> dict[str, str]:
        """Return the pins with those of awaited files; `now` loses what counts by them, or does not count."""
        pinned, record = dict(self._pinned), self._record
        command = os.path.normpath(self._here / self._spec.command)
        is_program = command in self.names and os.path.lexists(command) and self._pinned.get(_COMMAND) == MISSING
        found: list[str] = []
        for name in self.names:
            del pinned[name]
            is_there = record is not None and ((name == command and is_program) or name in now)
            if record is None or not is_there:
                now.pop(name, None)
                continue
            path = Path(name)
            if not path.is_dir():
                now[name] = _late_pin(path)
            pinned[name] = "" if tracked(path, self._root) else record.taken(path, now[name])
            found.append(name)
        if is_program and record is not None:  # it counts by its path
            del now[_COMMAND], pinned[_COMMAND]
        if found and record is not None:
            for name in now.keys() - pinned.keys():
                if self._came_with(record, found, name):
                    del now[name]
        return pinned

    def _came_with(self, record: AwaitedFiles, found: Sequence[str], name: str) -> bool:
        """Whether a file that only an awaited one loads is as it was when that was taken, or the project confirmed."""
        path = Path(name)
        changed = max(one.st_ctime_ns for one in (path.lstat(), path.stat())) if path.exists() else 0
        if not path.is_relative_to(self._root) or changed < record.confirmed(Path(found[0])):
            return path.is_relative_to(self._root)
        if tracked(path, self._root):
            return False
        if any(path.is_relative_to(one) for one in found):
            return True  # it is part of a tree
        folder = _build_folder(path, self._root)
        times = [
            record.taken_at(Path(one)) for one in found if folder and folder == _build_folder(Path(one), self._root)
        ]
        return changed <= max(times, default=-1)


def _build_folder(path: Path, root: Path) -> Path | None:
    """Return the outermost folder of build outputs around a path."""
    above = [one for one in path.parents if one.is_relative_to(root) and one.name in _BUILD_FOLDERS]
    return above[-1] if above else None


def changed_sources(spec: ServerSpec, path: str) -> list[str]:
    """Return the changed files without installed packages, which a package runner may bring up to date as it starts."""
    return [name for name in changed_files(spec, path) if not os.path.isdir(name)]


def pinned_state(spec: ServerSpec) -> dict[str, tuple[int, ...]]:
    """Return what shows cheaply that a pinned file, or the folder of one, was written: to compare around a start."""
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
    return _pin_of_program(Path(found), Path(spec.command).name, [here, root])


def _pin_of_program(file: Path, name: str, folders: Iterable[Path]) -> str:
    """Return the pin of a program: that of an interpreter outside of `folders` is its name."""
    program = file.resolve()
    is_outside = not any(program.is_relative_to(folder.resolve()) for folder in folders)
    if is_outside and _RUNNERS.fullmatch(program.name):
        return f"runner {name}"
    return _digest(program) or MISSING


def _loaded(spec: ServerSpec) -> list[str]:
    """Return the values of variables by which interpreters find code."""
    return [value.replace(os.pathsep, " ") for name, value in spec.env.items() if _LOADS.fullmatch(name)]


def _places(spec: ServerSpec, here: Path) -> list[Path]:
    """Return `here`, and the folders that arguments and variables name."""
    return _folders((*spec.args, *_loaded(spec)), here)


def _named(spec: ServerSpec, here: Path, places: list[Path]) -> Iterator[Path]:
    """Yield the files that arguments and variables name, each in the spellings that interpreters know."""
    yield from (here / spec.env_file,) if spec.env_file else ()
    words, loaded = (spec.command, *spec.args), _loaded(spec)
    for folder in places[1:]:
        yield from (folder / name for name in (*_ENTRIES, *_BESIDE))
    yield from _files(words[1:], Path(spec.command).name, places)
    yield from _files(loaded, "env", places)
    texts = _words_of(spec)
    if any(Path(text).name in _CONTAINERS for text in texts):
        yield from _mounted(texts, places)
    for folder in places:
        yield from _files_of_scripts(folder, texts, places)
    is_scripted = any(Path(text).name in _SCRIPTED for text in texts)
    starts_here = any(not text.startswith("-") and Path(os.path.normpath(here / text)) == here for text in texts)
    for folder in places if is_scripted or any(_RUNNERS.fullmatch(Path(text).name) for text in texts) else ():
        if folder.is_relative_to(here):  # of a folder elsewhere, the server may be the editor
            scripts = set(texts) if is_scripted else set[str]()
            yield from _files_of_package(folder, scripts, is_named=folder != here or starts_here)


def _mounted(words: Iterable[str], places: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that paths inside of a container may mean: each end of a path, in each folder."""
    for word in words:
        parts = Path(word).parts[1:] if word.startswith("/") and not os.path.exists(word) else ()
        for start in range(min(len(parts), _DEPTH)):
            yield from (file for place in places if (file := place.joinpath(*parts[start:])).is_file())


def _folders(words: Iterable[str], here: Path) -> list[Path]:
    """Return `here`, and the folders that words name: what comes after one may be relative to it."""
    parts = dict.fromkeys(part for word in words for part in (word, *_split(word)))
    texts = (text for part in parts for text in _spellings(part))
    named = (Path(os.path.normpath(here / text)) for text in texts)
    return list(dict.fromkeys([here, *(place for place in named if os.path.isdir(place))]))


def _split(word: str) -> list[str]:
    """Return the words of a text that a shell, or another program, takes apart."""
    return _MARKS.sub(" ", word.translate(_QUOTES)).split() if _MARKS.search(word) else []


def _files(words: Iterable[str], command: str, places: list[Path]) -> Iterator[Path]:
    """Yield the files that the arguments of one command name; a text with several words is a command, too."""
    is_run, before = bool(_RUNNERS.fullmatch(command)) and command not in _CONTAINERS, ""
    for given in words:
        word = _HERE.sub(".", given)
        option, before = (word.partition("=")[0] if word.startswith("-") else before), word
        for line in dict.fromkeys(_COMMANDS.split(word)) if _MARKS.search(word) else ():
            yield from _files(_split(f"{line} "), "", places)
        is_data = Path(word).suffix.lower() in _DATA
        if is_data and (_OF_DATA.match(option) if option.startswith("-") else not is_run):
            continue
        pieces = [one for one in _PIECES.split(word) if is_run or Path(one).suffix.lower() not in _DATA]
        for text in (*_spellings(word), *(text for piece in pieces for text in _spellings(piece))):
            yield from _at(text, places)
        name = Path(word).name
        goes_on = word.startswith("-") or option.startswith("-") or word in _GO_ON
        is_run = (is_run and goes_on) or (bool(_RUNNERS.fullmatch(name)) and name not in _CONTAINERS)


def _at(text: str, places: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that a text may mean: a path, or the dotted name of a module with its packages."""
    names = [f"{text}{end}" for end in _SUFFIXES]
    if found := _MODULE.fullmatch(text):
        *packages, last = found[1].split(".")
        inner = ["/".join(packages[: count + 1]) for count in range(len(packages))]
        whole = "/".join((*packages, last))
        names += [f"{folder}/__init__.py" for folder in inner]
        names += [f"{whole}.py", f"{whole}/__init__.py", f"{whole}/__main__.py"]
    for place in places:
        for name in (*names, *((f"src/{one}" for one in names) if not text.startswith(("/", ".")) else ())):
            if os.path.isfile(file := os.path.normpath(os.path.join(place, name))):
                yield Path(file)
        if "." not in text and os.path.isdir(folder := place / "src" / text):
            yield from (folder / name for name in _ENTRIES)


def _files_of_package(folder: Path, scripts: Collection[str], *, is_named: bool) -> Iterator[Path]:
    """Yield the files that a `package.json` names in these scripts and, `is_named`, as what its folder starts."""
    try:
        with (folder / "package.json").open("rb") as stream:
            found: Any = read_json(stream.read(_MAX_MANIFEST))
    except (OSError, ValueError):
        return
    manifest = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    texts = [text for key in ("main", "bin", "module", "exports") if is_named for text in _texts(manifest.get(key))]
    known: Any = manifest.get("scripts")
    for name, script in cast("dict[str, Any]", known).items() if isinstance(known, dict) else ():
        if name in scripts or name.removeprefix("pre") in scripts or name.removeprefix("post") in scripts:
            texts += [f"{text} " for text in _texts(script)]
    yield from _files(texts, "", [folder])


def _files_of_scripts(folder: Path, names: Collection[str], places: list[Path]) -> Iterator[Path]:
    """Yield the modules of the scripts of a `pyproject.toml` that a runner starts by their names."""
    try:
        with (folder / "pyproject.toml").open("rb") as stream:
            manifest: dict[str, Any] = read_toml(stream.read(_MAX_MANIFEST).decode())
    except (OSError, ValueError):
        return
    for path in (("project", "scripts"), ("project", "gui-scripts"), ("tool", "poetry", "scripts")):
        scripts: Any = manifest
        for key in path:
            scripts = cast("dict[str, Any]", scripts).get(key) if isinstance(scripts, dict) else None
        for name, entry in cast("dict[str, Any]", scripts).items() if isinstance(scripts, dict) else ():
            if name in names and isinstance(entry, str):
                module = entry.partition(":")[0].strip()
                yield from _at(module, list(dict.fromkeys([folder, *places])))


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and depth < _DEPTH:
        for inner in cast("dict[str, Any]", value).values():
            yield from _texts(inner, depth + 1)


def _spellings(word: str) -> Iterator[str]:
    """Yield `word` and what it may name: the value of an option, the file of `file.py:object`."""
    if "\0" in word or len(word) > os.pathconf("/", "PC_PATH_MAX"):
        return
    texts = [word, *([word.partition("=")[2]] if "=" in word else []), *([word[2:]] if word[:1] == "-" else [])]
    texts += [text.rpartition(":")[0] for text in texts if ":" in text]
    texts += [unquote(_FILE.sub("", text)) for text in texts if text.startswith("file:")]
    texts += [text.partition("[")[0] for text in texts if text.endswith("]")]  # the extras of a package
    if found := _MODULE.fullmatch(word):
        texts.append(found[1])
    yield from (os.path.expanduser(text) for text in texts if text and not text.startswith("-"))


def _up_to(folder: Path, here: Path) -> Iterable[Path]:
    """Return `folder` and those above it up to `here`; `folder` alone outside of `here`."""
    if not folder.is_relative_to(here):
        return (folder,)
    return [one for one in (folder, *folder.parents) if one.is_relative_to(here)]


def _digest(file: Path) -> str:
    """Return the SHA-256 of a regular file, links followed; empty where there is none."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return "unreadable"
