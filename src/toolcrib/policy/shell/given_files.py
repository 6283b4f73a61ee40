"""Files of the workspace that a command gives a program by a word: as the value of an option or of a variable.

A program loads code by options and variables that no list has all of: `--rulesdir rules`, `PYTEST_PLUGINS=plug`,
`GOENV=x`. So each value that names a file, a module or a folder of the workspace counts, whatever the option is. Of a
program that no table describes, so do its operands, and the files that bear its name: `Trunk.toml`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

from ...core.patterns import regex
from .configuration_files import (
    CODE,
    ELSEWHERE,
    INSTALLED,
    MAX_NAMES,
    SETTINGS,
    ConfigurationFile,
    has_table,
    names_in,
)
from .harmless_programs import CHECKERS, HARMLESS, READERS
from .launchers import launchers
from .script import HOLE
from .task_runners import task_files
from .wrapper_commands import describes

_MAX_FILES: Final = 16
"""Files of one value, and of one folder."""
_MAX_FOLDERS: Final = 8
_MAX_VALUE_LENGTH: Final = 1_000
_TOKEN_SEPARATOR: Final = regex(r"[\s,:;=@\"'()\[\]]+")
_ASSIGNMENT: Final = regex(r"[A-Za-z_]\w*=")
_SETTERS: Final = frozenset("declare env export local make readonly typeset".split())
"""Programs and words of the shell that set variables, besides anything else known of them."""
_LABEL_OPTIONS: Final = frozenset(
    "-t --tag --name -n --network --label -m --message -k -o --output --out --out-dir --outDir --outdir --outfile -j"
    " --cov --format --title --body --log-level -w".split()
)
"""Options whose value is a name, a text, or a place to write to."""
_READ_SUFFIXES: Final = CODE | SETTINGS | {"", ".sh"}
_CONFIGURATION_NAME: Final = regex(
    r"[._]\w|[\w.-]*(?:conf|init|mk$|php\.ini|plugin|profile|rc$|setting|tasks)", re.IGNORECASE
)
"""Names of files that configure a program which is given their folder."""
_SUB_COMMANDS: Final = frozenset(
    "apply build compose create delete describe down exec get install list logs ps pull push restart run start status"
    " stop test up update upgrade".split()
)
"""Sub-commands, which the reader of a program that runs its words takes for programs."""
_TEST_RUNNERS: Final = frozenset("ava behave busted cucumber jasmine jest mocha prove rspec tap uvu vitest".split())
"""Programs that run the tests in the files that they are given."""
_TEXT_SUFFIXES: Final = frozenset(".adoc .css .csv .htm .html .lock .log .md .png .rst .scss .svg .tsv".split())
_MODULE_SUFFIXES: Final = ("", ".py", ".js", ".rb", ".ts", ".cjs", ".mjs", ".pm", ".lua")
_PROGRAMS_READ_ELSEWHERE: Final = frozenset("docker git nerdctl npm npx pnpm podman yarn".split())
"""Programs whose words are read elsewhere."""


def given_files(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[ConfigurationFile]:
    """Yield the files that the program `name`, run with `words` in `folders`, is given.

    Beyond the values of assignments, nothing is yielded for programs that only look at files (`CHECKERS`), and for
    those whose options are all described.
    """
    is_harmless = name in HARMLESS or name in READERS
    if name in _SETTERS or not is_harmless:
        values = (word.partition("=")[2] for word in words if _ASSIGNMENT.match(word))
        yield from _files_named((token for value in values for token in _tokens(value)), folders, has_folders=True)
    if (
        is_harmless
        or name in CHECKERS
        or name in _SUB_COMMANDS
        or name in _PROGRAMS_READ_ELSEWHERE
        or _has_known_options(name)
    ):
        return
    inner = [folder / one for one in words for folder in folders if os.path.isdir(os.path.join(folder, one))]
    yield from _files_named(
        _option_values(words), tuple(dict.fromkeys((*folders, *inner[:_MAX_FOLDERS]))), has_folders=True
    )
    if name and (name in _TEST_RUNNERS or not (has_table(name) or describes(name) or task_files(name))):
        operands = (word for word in words if not word.startswith("-"))
        yield from _files_named(operands, folders, has_folders=False)
        bears = re.compile(rf"[._]{{0,2}}{re.escape(name)}(?:rc|file)?(?:[._-].*)?", re.IGNORECASE)
        for folder in folders:
            named = (one for one in names_in(folder) if bears.fullmatch(one) and Path(one).suffix in _READ_SUFFIXES)
            yield from _configuration_files(folder / one for one in sorted(named)[:_MAX_FILES])


def _has_known_options(name: str) -> bool:
    """Whether all options of the program are described."""
    known = launchers().get(name)
    return known is not None and bool(known.flags) and not known.code


def _option_values(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        option, _, value = word.partition("=")
        if not word.startswith("-"):
            if before.startswith("-") and (before not in _LABEL_OPTIONS or value):
                yield from _tokens(word)
        elif word.startswith("--"):
            yield from _tokens(value) if option not in _LABEL_OPTIONS else ()
        elif word[:2] not in _LABEL_OPTIONS:
            yield from (*_tokens(word[2:]), *_tokens(value))
        before = word


def _tokens(value: str) -> Iterator[str]:
    """Yield what a value may name: as a whole, and its parts; of an option in it, what is glued to the letter."""
    yield value
    for part in islice(_TOKEN_SEPARATOR.split(value), _MAX_FILES):
        yield part
        if part.startswith("-"):
            yield part[2:]


def _files_named(tokens: Iterable[str], folders: Sequence[Path], *, has_folders: bool) -> Iterator[ConfigurationFile]:
    """Yield the files that tokens name: by path, as a module, or as a folder with files in it."""
    for token in dict.fromkeys(tokens):
        if not token.strip("./") or HOLE in token or len(token) > _MAX_VALUE_LENGTH:
            continue
        if token.startswith("/") and not token.startswith(tuple(map(str, folders))):
            continue
        module = [f"{token.replace('.', '/')}{end}" for end in (".py", "/__init__.py")] if "/" not in token else []
        for folder in folders:
            if not _may_be_in(folder, token):
                continue
            paths = [os.path.join(folder, one) for one in (*(f"{token}{end}" for end in _MODULE_SUFFIXES), *module)]
            yield from _configuration_files(map(Path, filter(os.path.isfile, paths)))
            if has_folders and token not in INSTALLED and os.path.isdir(paths[0]):
                yield from _files_in(Path(paths[0]))


def _may_be_in(folder: Path, token: str) -> bool:
    """Whether a folder has something that is named as a token begins: quicker than a look for each file it may mean."""
    names = names_in(folder)
    path = token.removeprefix("./")
    if path.startswith(("/", "..")) or len(names) >= MAX_NAMES:
        return True
    head = path.partition("/")[0]
    return head in names or head.partition(".")[0] in _stems(names)


@lru_cache(maxsize=64)
def _stems(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in names)


def _files_in(folder: Path) -> Iterator[ConfigurationFile]:
    """Yield the files of a folder that may be code or settings."""
    known = (name for name in sorted(names_in(folder)) if Path(name).suffix in CODE or _CONFIGURATION_NAME.match(name))
    yield from _configuration_files(folder / name for name in islice(known, _MAX_FILES))


def _configuration_files(paths: Iterable[Path]) -> Iterator[ConfigurationFile]:
    for path in paths:
        if path.suffix in _TEXT_SUFFIXES or path.name in ELSEWHERE or not os.path.isfile(path):
            continue
        if path.suffix in CODE:
            yield ConfigurationFile(path, "code")
        elif path.suffix == ".sh" or os.access(path, os.X_OK):
            yield ConfigurationFile(path, "program")
        else:
            yield ConfigurationFile(path, "settings" if path.suffix in SETTINGS - {".conf"} else "words")
