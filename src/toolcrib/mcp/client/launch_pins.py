"""Files that decide what a server of a project runs, pinned by content when the user confirms the project.

The program of its `command` and the files named in `args`, `cwd` and `env_file` are pinned, and the manifests and lock
files of package managers beside them, which pin what they install. Interpreters and package runners outside of the
project count by their names: their updates change nothing that the project says. A file that is missing when the
project is confirmed and there later is a change, too. What a pinned file imports is not pinned, unless a lock file
names it; nor are databases and logs, which a server changes itself, where no interpreter can take them for a program.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from .spec import ServerSpec

__all__ = ["changed_files", "launch_pins"]

_RUNNERS: Final = re.compile(
    r"(?:python|pypy|perl|ruby|php|lua|java|node|bun|deno|pip|pipx|uv|uvx|npm|npx|pnpm|pnpx|yarn|bunx|poetry|hatch|pdm"
    r"|cargo|go|dotnet|gem|bundle|composer|docker|podman|env|sh|bash|dash|zsh|fish|make|just|nix)[\d.]*"
)
"""Names of interpreters and package runners."""
_BESIDE: Final = (
    "package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml bun.lock bun.lockb"
    " .npmrc .yarnrc.yml bunfig.toml deno.json deno.jsonc deno.lock pyproject.toml uv.lock uv.toml poetry.lock pdm.lock"
    " pylock.toml Pipfile Pipfile.lock requirements.txt Cargo.toml Cargo.lock go.mod go.sum Gemfile Gemfile.lock"
    " composer.json composer.lock Makefile makefile GNUmakefile justfile Dockerfile compose.yaml docker-compose.yml"
).split()
"""Manifests and lock files: the ones name what runs (scripts, entry points), the others pin what is installed."""
_ENTRIES: Final = ("__main__.py", "index.js", "index.mjs", "index.cjs", "index.ts", "main.py", "main.go", "mod.ts")
"""Files that an interpreter starts for the name of a folder."""
_DATA: Final = frozenset(".csv .db .db3 .duckdb .jsonl .ldb .log .mdb .ndjson .parquet .sqlite .sqlite3 .tsv".split())
_OF_DATA: Final = re.compile(
    r"--?(?!.*(?:import|require|load|script|config)).*(?:cache|data|db|journal|log|out|path|store|sqlite)"
)
"""Options whose value is a file that the server reads and writes."""
_SUFFIXES: Final = ("", ".py", ".js", ".mjs", ".cjs", ".ts", ".mts")


def launch_pins(spec: ServerSpec, path: str) -> dict[str, str]:
    """Return the SHA-256 of each file that decides what `spec` runs, by name; none for a server at a URL.

    `path` is the `PATH` that its command is looked for on. Blocks: it is for a thread.
    """
    if spec.transport != "stdio":
        return {}
    here = Path(spec.cwd or ".").absolute()
    pins = {"command": _program(spec, here, path)}
    files = dict.fromkeys(_named(spec, here))
    folders = dict.fromkeys([here, *(folder for file in files for folder in _up_to(file.parent, here))])
    for file in (*files, *(folder / name for folder in folders for name in _BESIDE)):
        if digest := _digest(file):
            pins[str(file)] = digest
    return pins


def changed_files(spec: ServerSpec, path: str) -> list[str]:
    """Return what is not as it was when the user confirmed it, by name; nothing for a server without pins.

    Blocks, as `launch_pins` does.
    """
    if spec.pinned is None:
        return []
    now = launch_pins(spec, path)
    return sorted(name for name in {*now, *spec.pinned} if now.get(name) != spec.pinned.get(name))


def _program(spec: ServerSpec, here: Path, path: str) -> str:
    path = spec.env.get("PATH", path)
    words = [str(Path(here, entry)) for entry in path.split(os.pathsep)]
    found = (
        str(here / spec.command) if os.sep in spec.command else shutil.which(spec.command, path=os.pathsep.join(words))
    )
    if found is None:
        return "missing"
    program = Path(found).resolve()
    is_outside = not program.is_relative_to(here.resolve())
    if is_outside and _RUNNERS.fullmatch(program.name):
        return f"runner {Path(spec.command).name}"
    return _digest(program) or "missing"


def _named(spec: ServerSpec, here: Path) -> Iterator[Path]:
    """Yield the files that the arguments name, each in the spellings that interpreters know."""
    yield from (here / spec.env_file,) if spec.env_file else ()
    modules = {after for before, after in zip(spec.args, spec.args[1:], strict=False) if before == "-m"}
    is_run, before = bool(_RUNNERS.fullmatch(Path(spec.command).name)), ""
    for word in spec.args:
        option, before = (word.partition("=")[0] if word.startswith("-") else before), word
        is_data = Path(word).suffix.lower() in _DATA
        if is_data and (_OF_DATA.match(option) if option.startswith("-") else not is_run):
            continue
        is_run = is_run and (word.startswith("-") or option.startswith("-"))
        for text in _spellings(word, is_module=word in modules):
            place = Path(os.path.normpath(here / text))
            if os.path.isdir(place):  # unlike `Path.is_dir`, False for a word that is too long to name a file
                yield from (place / name for name in (*_ENTRIES, *_BESIDE) if place != here)
            else:
                yield from (found for end in _SUFFIXES if os.path.isfile(found := Path(f"{place}{end}")))


def _spellings(word: str, *, is_module: bool) -> Iterator[str]:
    """Yield `word` and what it may name: the value of an option, the file of `file.py:object`, that of a module."""
    if "\0" in word or len(word) > os.pathconf("/", "PC_PATH_MAX"):
        return
    texts = [word, *([word.partition("=")[2]] if "=" in word else []), *([word[2:]] if word[:1] == "-" else [])]
    texts += [text.rpartition(":")[0] for text in texts if ":" in text]
    texts += [text.removeprefix("file://") for text in texts if text.startswith("file://")]
    if is_module:
        texts.append(word.replace(".", "/"))
        texts.append(f"src/{word.replace('.', '/')}")
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
