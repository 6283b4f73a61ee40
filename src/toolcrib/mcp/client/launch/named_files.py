"""Files that the command, the arguments and the variables of a server name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from ....core.documents.toml import read_toml
from ....core.json import as_mapping, read_json
from ....core.patterns import regex
from ..spec import ServerSpec
from .words import MARKS, MODULE, RUNNERS, spellings, split_words, words_of

MANIFESTS: Final = (
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
_ENTRIES: Final = (
    *("__init__.py", "__main__.py", "sitecustomize.py", "usercustomize.py", "main.py"),
    *("index.js", "index.mjs", "index.cjs", "index.ts", "mod.ts", "main.go"),
)
"""Files that an interpreter starts for the name of a folder, or of a folder on its search path."""
_DATA: Final = frozenset(".csv .db .db3 .duckdb .jsonl .ldb .log .mdb .ndjson .parquet .sqlite .sqlite3 .tsv".split())
_OF_DATA: Final = regex(
    r"--?(?!.*(?:import|require|load|script|config|class|module|exec|plugin))"
    r".*(?:cache|data|db|journal|log|out|path|store|sqlite)"
)
"""Options whose value is a file that the server reads and writes."""
_LOADS: Final = regex(
    r"PYTHON\w*|NODE_(?:OPTIONS|PATH)|LD_\w+|DYLD_\w+|BASH_ENV|ENV|PERL5?\w*|RUBY\w*|GEM_\w+|BUNDLE_\w+|_?J\w*_OPTIONS"
    r"|CLASSPATH|DOTNET_STARTUP_HOOKS|LUA_\w+|MAKE(?:FLAGS|FILES)|GOFLAGS|RUSTC?_\w*WRAPPER|CARGO_\w+|COMPOSE_FILE"
    r"|GIT_\w+|UV_(?:PROJECT|ENV_FILE|WORKING_DIR\w*)|\w*(?:CONFIG|CONFIG_FILE|PRELOAD|STARTUP)",
    re.IGNORECASE,
)
"""Variables by which interpreters and runners find code, or a configuration that names code."""
_CONTAINERS: Final = frozenset({"docker", "podman"})
_GO_ON: Final = frozenset({"--", "dlx", "exec", "run", "task", "tool", "x"})
"""Sub-commands of runners after which the program comes."""
_SCRIPTED: Final = frozenset({"npm", "npx", "pnpm", "yarn", "bun", "bunx"})
"""Runners of the scripts of a `package.json`."""
_COMMANDS: Final = regex(r"[;&|\n()`]+")
_PIECES: Final = regex(r"[=,:@]+")
_HERE: Final = regex(r"\$(?:PWD\b|\{PWD\}|\(pwd\))")
_MAX_MANIFEST: Final = 1024 * 1024
"""Bytes of a `package.json` that is read for the files of its scripts."""
_DEPTH: Final = 8
_SUFFIXES: Final = ("", ".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".rb", ".pm", ".lua")
_OF_TASKS: Final = ("pdm.scripts", "poe.tasks", "hatch.envs", "rye.scripts", "pixi.tasks", "uv.scripts")
"""Tables of a `pyproject.toml`, below `tool`, whose values are commands."""
_MOST_MEMBERS: Final = 200
"""Packages of a workspace that are looked at."""


def _loaded(spec: ServerSpec) -> list[str]:
    """Return the values of variables by which interpreters find code."""
    return [value.replace(os.pathsep, " ") for name, value in spec.env.items() if _LOADS.fullmatch(name)]


def named_folders(spec: ServerSpec, here: Path) -> list[Path]:
    """Return `here`, and the folders that arguments and variables name, by the names of their packages, too."""
    texts = words_of(spec)
    members = _members(here, set(texts)) if any(Path(text).name in _SCRIPTED for text in texts) else ()
    return list(dict.fromkeys([*_folders((*spec.args, *_loaded(spec)), here), *members]))


def _members(here: Path, names: Collection[str]) -> Iterator[Path]:
    """Yield the packages of a workspace that words name."""
    found = (file for pattern in ("*/package.json", "*/*/package.json") for file in here.glob(pattern))
    for file in islice((one for one in found if "node_modules" not in one.parts), _MOST_MEMBERS):
        if _manifest(file).get("name") in names:
            yield file.parent


def named_files(spec: ServerSpec, here: Path, places: list[Path]) -> Iterator[Path]:
    """Yield the files that arguments and variables name, each in the spellings that interpreters know."""
    yield from (here / spec.env_file,) if spec.env_file else ()
    words, loaded = (spec.command, *spec.args), _loaded(spec)
    for folder in places[1:]:
        yield from (folder / name for name in (*_ENTRIES, *MANIFESTS))
    yield from _files(words[1:], Path(spec.command).name, places)
    yield from _files(loaded, "env", places)
    texts = words_of(spec)
    if any(Path(text).name in _CONTAINERS for text in texts):
        yield from _mounted(texts, places)
    for folder in places:
        yield from _files_of_scripts(folder, set(texts), places)
    is_scripted = any(Path(text).name in _SCRIPTED for text in texts)
    starts_here = any(not text.startswith("-") and Path(os.path.normpath(here / text)) == here for text in texts)
    for folder in places if is_scripted or any(RUNNERS.fullmatch(Path(text).name) for text in texts) else ():
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
    parts = dict.fromkeys(part for word in words for part in (word, *split_words(word)))
    texts = (text for part in parts for text in spellings(part))
    named = (Path(os.path.normpath(here / text)) for text in texts)
    return list(dict.fromkeys([here, *(place for place in named if os.path.isdir(place))]))


def _files(words: Iterable[str], command: str, places: list[Path]) -> Iterator[Path]:
    """Yield the files that the arguments of one command name; a text with several words is a command, too."""
    is_run, before = bool(RUNNERS.fullmatch(command)) and command not in _CONTAINERS, ""
    for given in words:
        word = _HERE.sub(".", given)
        option, before = (word.partition("=")[0] if word.startswith("-") else before), word
        for line in dict.fromkeys(_COMMANDS.split(word)) if MARKS.search(word) else ():
            yield from _files(split_words(f"{line} "), "", places)
        is_data = Path(word).suffix.lower() in _DATA
        if is_data and (_OF_DATA.match(option) if option.startswith("-") else not is_run):
            continue
        pieces = [one for one in _PIECES.split(word) if is_run or Path(one).suffix.lower() not in _DATA]
        for text in (*spellings(word), *(text for piece in pieces for text in spellings(piece))):
            yield from _at(text, places)
        name = Path(word).name
        goes_on = word.startswith("-") or option.startswith("-") or word in _GO_ON
        is_run = (is_run and goes_on) or (bool(RUNNERS.fullmatch(name)) and name not in _CONTAINERS)


def _at(text: str, places: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that a text may mean: a path, or the dotted name of a module with its packages."""
    names = [f"{text}{end}" for end in _SUFFIXES]
    if found := MODULE.fullmatch(text):
        *packages, last = found[1].split(".")
        inner = ["/".join(packages[: count + 1]) for count in range(len(packages))]
        whole = "/".join((*packages, last))
        names += [f"{folder}/__init__.py" for folder in inner]
        names += [f"{whole}.py", f"{whole}/__init__.py", f"{whole}/__main__.py"]
    if text.endswith("/*"):  # archives of a class path
        yield from (file for place in places for file in (place / text[:-2]).glob("*.jar"))
    for place in places:
        for name in (*names, *((f"src/{one}" for one in names) if not text.startswith(("/", ".")) else ())):
            if os.path.isfile(file := os.path.normpath(os.path.join(place, name))):
                yield Path(file)
        if "." not in text and os.path.isdir(folder := place / "src" / text):
            yield from (folder / name for name in _ENTRIES)


def _files_of_package(folder: Path, scripts: Collection[str], *, is_named: bool) -> Iterator[Path]:
    """Yield the files that a `package.json` names in these scripts and, `is_named`, as what its folder starts."""
    manifest = _manifest(folder / "package.json")
    keys = ("imports", *(("main", "bin", "module", "exports") if is_named else ()))
    texts = [text for key in keys for text in _texts(manifest.get(key))]
    known: Any = manifest.get("scripts")
    known = as_mapping(known)
    if "start" in scripts and "start" not in known:
        texts.append("server.js")  # what `npm start` runs
    for name, script in known.items():
        if name in scripts or name.removeprefix("pre") in scripts or name.removeprefix("post") in scripts:
            texts += [f"{text} " for text in _texts(script)]
    yield from _files(texts, "", [folder])


def _manifest(file: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; an empty one if there is none."""
    try:
        with file.open("rb") as stream:
            found: Any = read_json(stream.read(_MAX_MANIFEST))
    except (OSError, ValueError):
        return {}
    return as_mapping(found)


def _files_of_scripts(folder: Path, names: Set[str], places: list[Path]) -> Iterator[Path]:
    """Yield the modules of the scripts of a `pyproject.toml` that a runner starts by name, and the files of tasks."""
    try:
        with (folder / "pyproject.toml").open("rb") as stream:
            manifest: dict[str, Any] = read_toml(stream.read(_MAX_MANIFEST).decode())
    except (OSError, ValueError):
        return
    for path in ("project.scripts", "project.gui-scripts", "tool.poetry.scripts"):
        for name, entry in _table(manifest, path).items():
            if name in names and isinstance(entry, str):
                module = entry.partition(":")[0].strip()
                yield from _at(module, list(dict.fromkeys([folder, *places])))
    for path in _OF_TASKS:
        tasks = _table(manifest, f"tool.{path}")
        yield from _files([f"{text} " for text in _texts(tasks) if not names.isdisjoint(_keys(tasks))], "", [folder])


def _table(manifest: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the table at a dotted path; an empty one if there is none."""
    found: Any = manifest
    for key in path.split("."):
        found = as_mapping(found).get(key)
    return as_mapping(found)


def _keys(value: Any, depth: int = 0) -> Iterator[str]:
    for key, inner in cast("dict[str, Any]", value).items() if isinstance(value, dict) and depth < _DEPTH else ():
        yield key
        yield from _keys(inner, depth + 1)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and depth < _DEPTH:
        for inner in cast("dict[str, Any]", value).values():
            yield from _texts(inner, depth + 1)
