"""Files that a program takes without being asked, by a table: `mvn` runs what `pom.xml` says, `mypy` loads plugins.

`configuration_files.toml` lists them by program. Settings are read as text, whatever their format is: where a value may
begin, a command may stand. The files that they name are read as code or as a script, one step far.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import filter as matching
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, cast

from msgspec import Struct

from ...core.json import as_mapping, dumps, read_json
from ...core.patterns import regex

Kind = Literal["settings", "words", "shell", "includes", "code", "program", "containers"]

_DATA: Final = Path(__file__).with_suffix(".toml")
_MAX_FILES: Final = 16
"""Files of one pattern, and files that the settings of one program name."""
_MAX_FOLDERS: Final = 4
"""Folders that settings name in which modules are looked for."""
MAX_NAMES: Final = 2_000
"""Names of a folder that are looked at."""
FILE_TIME_GRANULARITY_NS: Final = 2_100_000_000
"""Nanoseconds within which a file or folder may change twice with one time: those of FAT are 2 s apart."""
_MAX_SETTINGS_LENGTH: Final = 64 * 1024
"""Characters of settings in which names of files are looked for."""
CODE: Final = frozenset(
    ".bzl .cjs .clj .cts .dart .exs .go .groovy .js .kts .lua .mjs .mts .nims .php .pl .pm .py .rake .rb .rs .ru .sbt"
    " .sc .scala .swift .ts".split()
)
_SCRIPT_SUFFIXES: Final = frozenset({"", ".bash", ".sh"})
SETTINGS: Final = frozenset(
    ".cfg .cmake .conf .gradle .hcl .ini .json .jsonc .just .neon .tf .toml .xml .yaml .yml".split()
)
ELSEWHERE: Final = frozenset(
    "GNUmakefile Justfile Makefile Taskfile.yaml Taskfile.yml composer.json deno.json justfile makefile"
    " package-lock.json package.json pyproject.toml".split()
)
"""Files with tasks of other programs, of which those that run are read."""
INSTALLED: Final = frozenset({".git", ".venv", ".yarn", "node_modules", "target", "vendor", "venv"})
"""Folders whose content no pattern and no name means."""
_NODE_CONFIG_SUFFIXES: Final = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")
"""Of the configuration of a tool of Node, which is code: `vite.config.js`."""
_LOADING_OPTION: Final = regex(
    r"-[cfprIP]|--(?:bootstrap|collection|config(?:-file)?|file|gulpfile|import|init-script|kubeconfig|load-plugins|loader"
    r"|noxfile|plugins?|preload|rakefile|rcfile|require|settings|setup[\w-]*|taskfile)|runner|run(?:spider)?|exec|eval|script"
)
"""Options and sub-commands behind which a file is loaded or run."""
_MAX_OPERANDS: Final = 4
"""Words among which a sub-command is looked for."""
_TOKEN: Final = regex(r"[\w@./][\w@./+-]{0,199}", re.ASCII)
_HEADER: Final = regex(r"^[ \t]{0,40}\[{1,2}([^\[\]\n]{1,200})\]{1,2}[ \t]{0,40}(?:#.*)?$", re.MULTILINE)


class ConfigurationFile(Struct, frozen=True):
    """One file that a program takes."""

    path: Path
    kind: Kind
    part: str = ""
    """Sections or keys that count, between bars; empty for the whole file."""


class _FilePattern(Struct, frozen=True):
    kind: Kind
    path: str
    part: str


@cache
def _patterns_by_program() -> Mapping[str, tuple[_FilePattern, ...]]:
    """Return the patterns by program, or program and sub-command."""
    found: dict[str, tuple[_FilePattern, ...]] = {}
    data: Mapping[Kind, Mapping[str, str]] = cast("Any", tomllib.loads(_DATA.read_text(encoding="utf-8")))
    for kind, programs in data.items():
        for names, texts in programs.items():
            patterns = tuple(
                _FilePattern(kind, path, part) for path, _, part in (text.partition("#") for text in texts.split())
            )
            for name in names.split(", "):
                found[name] = (*found.get(name, ()), *patterns)
    return found


def has_table(name: str) -> bool:
    """Whether the table has this program, or a sub-command of it."""
    return name in _programs()


@cache
def _programs() -> frozenset[str]:
    return frozenset(key.partition(" ")[0] for key in _patterns_by_program())


def implicit_files(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[ConfigurationFile]:
    """Yield the files that the program `name`, run with `words` in `folders`, takes, and such as its words name.

    `name` may be that of a module (`python -m mypy`); sub-commands are looked for among the first `_MAX_OPERANDS`
    words.
    """
    keys = (name, *(f"{name} {word}" for word in words[:_MAX_OPERANDS]))
    patterns = [one for key in keys for one in _patterns_by_program().get(key, ())]
    values = [word.rpartition("=")[2] for word in words] if patterns else []
    values = [value for value in values if value.strip("./")]
    paths = [os.path.join(folder, value) for folder in folders for value in values]
    inner = [Path(path) for path in paths if os.path.isdir(path)]
    for folder in dict.fromkeys((*folders, *inner[:_MAX_FILES])):
        names = names_in(folder)
        tools = names.intersection(f"{name}.config{end}" for end in _NODE_CONFIG_SUFFIXES)
        yield from (ConfigurationFile(folder / one, "code") for one in sorted(tools))
        for pattern in patterns:
            for path in islice(_matching_files(folder, pattern.path, names), _MAX_FILES):
                kind = "code" if pattern.kind == "settings" and path.suffix in CODE else pattern.kind
                yield ConfigurationFile(path, kind, pattern.part)
    for path in paths:
        if os.path.splitext(path)[1] in SETTINGS and os.path.isfile(path):
            yield ConfigurationFile(Path(path), "words" if patterns[0].kind == "words" else "settings")
    yield from _files_of_options(words, folders) if patterns else ()


def _files_of_options(words: Sequence[str], folders: Sequence[Path]) -> Iterator[ConfigurationFile]:
    """Yield the files, or modules, that options name which load or run them: `-c a.js`, `--require=./a.rb`."""
    before = ""
    for word in words:
        option, equals, value = word.partition("=") if word.startswith("-") else (before, "=", word)
        before = word
        if not equals or not _LOADING_OPTION.fullmatch(option) or not (option.startswith("-") or "." in value):
            continue
        ends = ("", ".py", ".js", ".rb", "/__init__.py")
        files = (os.path.join(folder, f"{value}{end}") for folder in folders for end in ends)
        for path in map(Path, islice(filter(os.path.isfile, files), 1)):
            yield ConfigurationFile(path, "code" if path.suffix in CODE else "settings")


def names_in(folder: Path) -> frozenset[str]:
    """Return the names in a folder: those of the last time where it has not changed since."""
    try:
        known = os.stat(folder)
        is_settled = (
            time.time_ns() - known.st_ctime_ns > FILE_TIME_GRANULARITY_NS
        )  # that of its content can be set by anybody
        return (_list_folder if is_settled else _list_folder.__wrapped__)(str(folder), known.st_ino, known.st_ctime_ns)
    except OSError:
        return frozenset()


@lru_cache(maxsize=64)
def _list_folder(folder: str, inode: int, changed: int) -> frozenset[str]:
    """List a folder once; the other arguments differ when the folder has changed."""
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in islice(entries, MAX_NAMES))


def _matching_files(folder: Path, pattern: str, names: frozenset[str]) -> Iterator[Path]:
    head, _, rest = pattern.partition("/")
    if "*" in head:
        found = [name for name in sorted(matching(names, head)) if name not in INSTALLED]
    else:
        found = [head] if head in names or len(names) == MAX_NAMES else []
    for name in found[: 2 * _MAX_FILES]:
        if "*" in rest:
            yield from _matching_files(folder / name, rest, names_in(folder / name))
        elif os.path.isfile(path := os.path.join(folder, name, rest) if rest else os.path.join(folder, name)):
            yield Path(path)


def part_of(text: str, name: str, part: str) -> str:
    """Return a part of settings: the values of keys of JSON, or the sections whose names begin so.

    JSON that cannot be read counts whole; sections that are not there count for nothing.
    """
    if not part:
        return text
    if name.endswith(".json"):
        try:
            found: Any = read_json(text.encode())
        except ValueError:
            return text
        values = as_mapping(found)
        return dumps([values[key] for key in part.split("|") if key in values]).decode()
    pieces, wanted = _HEADER.split(text), tuple(part.split("|"))
    sections = zip(pieces[1::2], pieces[2::2], strict=True)
    return "\n".join(content for title, content in sections if title.replace('"', "").strip().startswith(wanted))


def named_files(text: str, folders: Sequence[Path]) -> Iterator[ConfigurationFile]:
    """Yield the files of `folders` that settings name by path, or as a module: code, scripts, and other settings.

    A module may stand in a folder that they name, too.
    """
    tokens = dict.fromkeys(_TOKEN.findall(text[:_MAX_SETTINGS_LENGTH]))
    places = {folder: names_in(folder) - INSTALLED for folder in folders}
    named = (folder / token for folder, names in places.items() for token in tokens if token in names)
    places |= {path: names_in(path) for path in islice(filter(Path.is_dir, named), _MAX_FOLDERS)}
    for folder, names in places.items():
        paths = (os.path.join(folder, one) for token in tokens for one in _paths(token, names))
        for path in map(Path, islice(filter(os.path.isfile, dict.fromkeys(paths)), _MAX_FILES)):
            if path.suffix in CODE:
                yield ConfigurationFile(path, "code")
            elif path.suffix == ".sh" or (path.suffix in _SCRIPT_SUFFIXES and os.access(path, os.X_OK)):
                yield ConfigurationFile(path, "shell")
            elif path.suffix in SETTINGS | {""} and path.name not in ELSEWHERE:
                yield ConfigurationFile(path, "settings")


def _paths(token: str, names: frozenset[str]) -> Iterator[str]:
    """Yield the paths that a word of settings may mean; `names` are those of the folder.

    A whole path may be one in a container, in which the folder stands elsewhere.
    """
    path = token.removeprefix("./").strip("/")
    head, last = path.partition("/")[0], path.rpartition("/")[2]
    if token.startswith("/") and last in names:
        yield last
    if head in names:
        yield path
    for end in (".js", ".ts", ".cjs", ".just") if "/" not in path else ():
        if f"{path}{end}" in names:
            yield f"{path}{end}"
    if "/" in path and head in names and not Path(path).suffix:
        yield f"{path}.js"
    module = path.partition(":")[0]
    if (top := module.partition(".")[0]) in names or f"{top}.py" in names:
        yield f"{module.replace('.', '/')}.py"
        yield f"{module.replace('.', '/')}/__init__.py"
