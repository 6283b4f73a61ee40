"""Files that runners take without a name: recipes, sources that they build or pack, programs that they find first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from ....core.patterns import regex
from ..spec import ServerSpec
from .packages import FETCHERS
from .sources import tracked
from .words import RUNNERS, spellings, words_of

_BUILT: Final = {
    "cargo": ("src/**/*.rs", "*/src/**/*.rs", "crates/*/src/**/*.rs"),
    "go": ("*.go", "*/*.go", "*/*/*.go", "cmd/**/*.go", "internal/**/*.go", "pkg/**/*.go"),
    "dotnet": ("*.csproj", "*.fsproj", "*.sln", "*.cs", "*.fs", "Properties/*"),
    "gradle": ("*.gradle", "*.gradle.kts", "gradle.properties", "gradle/wrapper/*", "gradle/*.toml"),
    "gradlew": ("*.gradle", "*.gradle.kts", "gradle.properties", "gradle/wrapper/*", "gradle/*.toml"),
    "mvn": ("pom.xml", ".mvn/*", ".mvn/wrapper/*"),
    "mvnw": ("pom.xml", ".mvn/*", ".mvn/wrapper/*"),
    "sbt": ("build.sbt", "project/*"),
    "mix": ("mix.exs", "mix.lock", "lib/**/*.ex", "config/*.exs"),
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
    "bun bunx": ("bunfig.toml",),
    "deno": ("deno.json", "deno.jsonc"),
    "fastmcp": ("fastmcp.json",),
    "docker docker-compose podman podman-compose": (
        *("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
        *("compose.override.yaml", "compose.override.yml", "docker-compose.override.yml", ".env"),
    ),
}
"""Runners → files whose recipes, services and code they start."""
_INSTALLERS: Final = regex(r"uvx?|pipx|pip[\d.]*|rye|hatch|poetry|pdm|pixi")
_PACKED: Final = regex(r"--(?:from|with|with-editable|spec|editable|package)(?:=|$)|-e$|install$")
"""Words of these before a folder that is packed."""
_RUN_A_PACKAGE: Final = frozenset({"uvx", "pipx"})
_OF_PACKAGE: Final = ("pyproject.toml", "setup.py", "setup.cfg")
_NOT_PACKED: Final = frozenset({"__pycache__", "build", "dist", "node_modules", "venv"})
_PYTHON_ENDS: Final = (".py", ".pyx", ".pth", ".so")
_MOST_BUILT: Final = 2_000
_IN_PROJECT: Final = ("node_modules/.bin", ".venv/bin", "venv/bin")
"""Folders in which package runners look first."""
_VENV: Final = "pyvenv.cfg"
_SOURCE: Final = regex(r"\b(?:path|url)\s{0,20}=\s{0,20}[\"'](?:file:/*)?([^\"'\n]{1,300})[\"']")
_MAX_MANIFEST: Final = 1024 * 1024
_NAME: Final = regex(r"(?:@[\w.-]+/)?(\w[\w.-]*)(?:@[\w.^~*-]*)?", re.ASCII)


def recipe_files(spec: ServerSpec, folders: Iterable[Path]) -> list[Path]:
    """Return the files whose recipes and services a runner among the words starts."""
    names = {Path(text).name for text in words_of(spec)}
    wanted = [name for runners, files in _STARTED.items() if not names.isdisjoint(runners.split()) for name in files]
    found = (folder / name for folder in folders for name in wanted)
    return [file for file in found if file.is_file()]


def found_first(spec: ServerSpec, here: Path, root: Path, scripts: Iterable[Path]) -> Iterator[Path]:
    """Yield the programs of the project that are found before those of the machine, by their names alone.

    Package runners look into `node_modules` and `.venv`. One that would fetch the package otherwise makes no programs
    there, and each counts; other runners make them at the first start, and what the repository tracks counts.
    """
    texts = words_of(spec)
    names = dict.fromkeys(found[1] for text in texts[1:] if (found := _NAME.fullmatch(text)))
    names |= dict.fromkeys(name for script in scripts for name in shebang_names(script))
    for entry in spec.env.get("PATH", "").split(os.pathsep):  # not the user's own: it differs from shell to client
        folder = Path(os.path.normpath(here / entry))
        if entry and folder.is_relative_to(root):
            yield from (folder / name for name in names)
    is_fetched = any(Path(text).name in FETCHERS for text in texts)
    if any(RUNNERS.fullmatch(Path(text).name) for text in texts):
        for folder in folders_up_to(here, root):
            found = (folder / inner / name for inner in _IN_PROJECT for name in names)
            yield from (
                file
                for file in found
                if os.path.lexists(file) and (tracked(file, root) or (is_fetched and "node_modules" in file.parts))
            )
    settings = Path(os.path.normpath(here / spec.command)).parent.parent / _VENV
    if os.sep in spec.command and settings.is_file() and settings.is_relative_to(root) and tracked(settings, root):
        yield settings


def shebang_names(file: Path) -> list[str]:
    """Return the names that the first line of a script has for `env`."""
    try:
        with file.open("rb") as stream:
            line = stream.readline(256)
    except OSError:
        return []
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    return [Path(word).name for word in words if not word.startswith("-")]


def built_files(spec: ServerSpec, places: Iterable[Path], root: Path) -> Iterator[Path]:
    """Return the files that runners take without a name."""
    patterns = dict.fromkeys(one for text in words_of(spec) for one in _BUILT.get(Path(text).name, ()))
    folders = (folder for folder in places if folder.is_relative_to(root)) if patterns else ()
    found = (file for folder in folders for pattern in patterns for file in sorted(folder.glob(pattern)))
    return islice(found, _MOST_BUILT)


def packaged_files(spec: ServerSpec, here: Path, root: Path) -> Iterator[Path]:
    """Yield the Python sources of a folder that a runner packs and installs before it runs: `uvx --from .`."""
    words = words_of(spec)
    if not any(_INSTALLERS.fullmatch(Path(word).name) for word in words):
        return
    pairs = list(zip(("", *words), words, strict=False))
    named = [word for before, word in pairs if _PACKED.match(before) or (_PACKED.match(word) and "=" in word)]
    manifests = (folder / "pyproject.toml" for folder in folders_up_to(here, root))
    scripts = (Path(os.path.normpath(here / word)) for word in words if word.endswith(".py"))
    named += [str(file.parent / found) for file in (*manifests, *scripts) for found in _sources_in(file)]
    if any(Path(word).name in _RUN_A_PACKAGE for word in words):
        named += [word for before, word in pairs if not before.startswith("-") and word.startswith((".", "/", "file:"))]
    texts = dict.fromkeys(text for word in named for text in spellings(word))
    folders = (Path(os.path.normpath(here / text)) for text in texts)
    inside = (folder for folder in folders if folder.is_relative_to(root))
    packed = (folder for folder in inside if any((folder / name).is_file() for name in _OF_PACKAGE))
    yield from islice(chain.from_iterable(map(_python_files, packed)), _MOST_BUILT)


def _python_files(folder: Path) -> Iterator[Path]:
    for above, inner, files in os.walk(folder):
        inner[:] = sorted(one for one in inner if not one.startswith(".") and one not in _NOT_PACKED)
        yield from (Path(above, name) for name in sorted(files) if name.endswith(_PYTHON_ENDS))


def _sources_in(file: Path) -> list[str]:
    """Return the folders that a `pyproject.toml`, or the head of a script (PEP 723), has as sources of packages."""
    try:
        with file.open("rb") as stream:
            return _SOURCE.findall(stream.read(_MAX_MANIFEST).decode("utf-8", "replace"))
    except OSError:
        return []


def folders_up_to(folder: Path, here: Path) -> Iterable[Path]:
    """Return `folder` and those above it up to `here`; `folder` alone outside of `here`."""
    if not folder.is_relative_to(here):
        return (folder,)
    return [one for one in (folder, *folder.parents) if one.is_relative_to(here)]
