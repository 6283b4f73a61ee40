"""Files of the workspace that a command runs.

Read are: a program named by a path, with the interpreter of its first line; the script of an interpreter; the recipes
of `make` and `just` that a run reaches; the scripts of a `package.json`; commands in the manifests of a few runners;
aliases, hooks and programs of git's configuration; the steps of a Dockerfile; what further programs take without being
asked (`configuration_files`), and what an option or a variable gives them (`given_files`); and what these run in turn.
A file that is too large, and one more than are looked at, are answered as not read. Of code, the modules beside it are
read that it imports, one step far; of tests, those that are named or stand in the folder itself. Installed packages are
not read, and a name that a program computes is not found.

    started_files       a queue of commands; files found by one add the commands in them, until nothing is new or a
                        limit is reached
      _places_of        the folders in which each command may run: those of `cd` and of options for a folder
      _files_of         file, kind (how it is read, see `started_file`) and names (tasks, parts) by program

Everything here answers "may run": a match in a file makes a deny ask, and never denies.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from ...core.patterns import regex
from .configuration_files import INSTALLED, ConfigurationFile, implicit_files, named_files, part_of
from .container_files import container_commands
from .given_files import given_files
from .script import HOLE, Script, ShellCommand, literal
from .started_file import (
    MAKES,
    SHELLS,
    StartedFile,
    content_of,
    executables_in,
    existing,
    globbed,
    read_started,
)
from .task_runners import task_files

_MAX_FILES: Final = 32
"""Files of one command that are looked at. Imported modules beyond are left out; of other files twice as many are read,
and the next is answered as not read.
"""
_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of all files of one command."""
_MAX_FOLDERS: Final = 8
_INTERPRETERS: Final = regex(r"(?:python|pypy|perl|ruby|node|(?:tex)?lua(?:jit)?|php|tclsh)[\d.]*|deno|bun|tsx|ts-node")
_PLAIN_COMMAND_PROGRAM: Final = regex(r"m4|dc|duckdb|sqlite3|gcc|g\+\+|cc|ed|ex|psql|mysql|mariadb")
"""Programs that take commands as bare words of a file."""
_SCRIPT_PROGRAM: Final = regex(
    r"Rscript|R|bb|celery|clj|clojure|cmake|coverage|crystal|daphne|dart|dotnet|elixir|escript|flask|ghci|go|groovy"
    r"|guile|gunicorn|huey_consumer|hypercorn|(?:[bi]|pt)python3?|java|jshell|julia|karma|kotlinc?|latexmk|lualatex"
    r"|nextflow|nim|nodemon|ocaml|octave|pipx|phpunit|pm2|racket|rackup|run(?:ghc|haskell)|sbcl|scala(?:-cli)?"
    r"|streamlit|swift|uvicorn|uvx?|waitress-serve|watchfiles|wdio|zig|zx"
)
"""Further programs that run the code of a file that they are given."""
_WORD_PROGRAM: Final = regex(
    r"tclsh[\d.]*|wish|expect|gnuplot|ansible-playbook|bats|crontab|elvish|jupyter|logrotate|nu|papermill|robot|screen|supervisord|tmux"
    r"|xonsh"
)
"""Programs of whose files every word may be a command."""
_MODULE_NAME: Final = regex(r"[A-Za-z_][\w.]*(?::\w+(?:\(\))?)?", re.ASCII)
"""A module, or an object in one."""
_ENVIRONMENTS: Final = frozenset(
    "asdf aws-vault bundle c8 chamber conda cross-env devbox devenv direnv doppler dotenv dotenvx env-cmd envchain"
    " flox hatch infisical mamba micromamba mise nix nyc op opam pdm pipenv pixi poetry pyenv rbenv rye stack"
    " teller uv".split()
)
"""Programs that run another one in an environment: `poetry run python a.py`."""
_PATH_IN_VALUE: Final = regex(r"[^\s=,:]*/[^\s=,:]*")
"""A path in the value of a variable: `GOFLAGS=-toolexec=./a.sh`."""
_CONTAINERS: Final = frozenset({"docker", "nerdctl", "podman"})
_MOUNTS: Final = ("-v", "--volume", "--mount")
_INPUT_RUNNERS: Final = frozenset(". at batch eval parallel source xargs".split())
"""Programs that run what a file or their input says."""
_FILE_PRINTERS: Final = frozenset("awk cat cut envsubst gawk grep head mapfile readarray sed sort tac tail tr".split())
"""Programs whose output is the content of the files that they name."""
_PACKAGE_MANAGERS: Final = frozenset({"bun", "npm", "npm-run-all", "pnpm", "run-p", "run-s", "yarn"})
_PACKAGE_RUNNERS: Final = frozenset({"bunx", "npx", "pnpx"})
"""Programs that install a package and run a program of it."""
_MONOREPOS: Final = frozenset({"lerna", "nx", "turbo", "wsrun"})
"""Programs that run scripts of all folders."""
_ALL_FOLDERS_OPTIONS: Final = ("-r", "-w", "--filter", "--recursive", "--workspace", "-F")
"""Options of package managers that run scripts of other folders."""
_FOLDER_OPTIONS: Final = frozenset(
    {
        "-C",
        "--chdir",
        "--cwd",
        "--dir",
        "--directory",
        "--manifest-path",
        "--prefix",
        "--project",
        "--project-directory",
        "--rootDir",
    }
)
_FOLDER_OPTIONS_BY_PROGRAM: Final[Mapping[str, tuple[str, ...]]] = {
    "gradle": ("-p",),
    "gradlew": ("-p",),
    "just": ("-d",),
    "sudo": ("-D",),
    "task": ("-d",),
    "tox": ("-c",),
    "unshare": ("-w",),
}
"""Options for a folder of single programs."""
_REQUIREMENTS_OPTIONS: Final = ("-r", "--requirement", "-c", "--constraint")
"""Options of pip for files that list packages."""
_MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")
_JUSTFILES: Final = ("justfile", "Justfile", ".justfile")
_MAKE_PATH_OPTIONS: Final = frozenset({"-f", "-C"})
_MAKE_OPTIONS_WITH_VALUE: Final = frozenset("-C -f -I -o -W --directory --file --makefile --justfile -j".split())
_UPWARD_SEARCHING_PROGRAMS: Final = frozenset(
    "bazel bazelisk bun bundle cargo devcontainer direnv docker docker-compose dune eslint git gradle gradlew jest just"
    " lefthook lerna mise mocha moon mvnw npm npx nx pdm pixi pnpm podman-compose poe poetry pre-commit prettier"
    " py.test pytest rake rubocop rye task turbo uv yarn".split()
)
"""Programs that look for their files in the folders above, too."""
_MANIFESTS: Final = {"pre-commit": ".pre-commit-config.yaml", "tox": "tox.ini"}
"""Runner → file with its commands."""
_IMPORTS: Final = regex(
    r"(?:require\(|\bfrom|\bimport\(?)\s*[\"'](\.{1,2}/[^\"'\n]{1,200})[\"']"
    r"|(?:^|[;\n])[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\(\s{0,40}([\w,\s]{1,300})|([\w, \t]{1,300}))"
    r"|(?:^|[;\n])[ \t]*import[ \t]+([\w.]+)"
)
_PART_LENGTH: Final = 64 * 1024
_MAX_IMPORTS: Final = 16
"""Imports of one file that are looked at."""
_NAMING_KINDS: Final = frozenset({"containers", "includes", "settings", "words"})
"""Kinds of files in which the names of others are looked for."""
_BUILD_FOLDERS: Final = ("*", "*/*")
"""Folders in which a preset of cmake may build."""
_PROGRAMS: Final = ("node_modules/.bin", ".venv/bin")

_FileToRead = tuple[Path, str, tuple[str, ...]]
"""File, kind (`policy.shell.started_file.read_started`) and the names in it that are run."""


def started_files(scripts: Iterable[Script], bases: Sequence[Path]) -> Iterator[StartedFile]:
    """Yield what the commands of `scripts` start of the files in and below the folders `bases`, and above them.

    Above, up to the top of the repository, programs look that are known to do so.

    Reads files, up to `_MAX_BYTES` in all; belongs in a thread.
    """
    scripts = tuple(scripts)
    above = _folders_above(bases[0])
    waiting = deque(_places_of(scripts, bases))
    values = [value for script in scripts for value in script.values]
    named = [one for value in values if "/" in value for one in _PATH_IN_VALUE.findall(value)]
    waiting += [(ShellCommand(words=(literal(value),)), list(bases)) for value in named]
    waiting += [(ShellCommand(words=(literal("env"), literal(f"_={value}"))), list(bases)) for value in values]
    fed = [word.text for script in scripts for word in script.files if word.known]
    if any(_PLAIN_COMMAND_PROGRAM.fullmatch(command.name) for command, _ in waiting):
        for file in (file for name in fed for file in existing(name, bases)):
            yield from read_started(file, "plain", ())
    seen = set[tuple[str, str, tuple[str, ...]]]()
    size = 0
    while waiting:
        command, folders = waiting.popleft()
        folders = [*folders, *above] if command.name in _UPWARD_SEARCHING_PROGRAMS else folders
        for file, kind, names in _files_of(command, folders):
            if (key := (str(file), kind, names)) in seen or (kind == "imported" and len(seen) >= _MAX_FILES):
                continue
            seen.add(key)
            size += len(content_of(file) or b"")
            if len(seen) > 2 * _MAX_FILES or size > _MAX_BYTES:
                yield StartedFile(file=str(file), unread=True)
                return
            for found in read_started(file, kind, names):
                yield found
                if found.script is not None:
                    waiting += _places_of([found.script], [*folders, file.parent])
                    yield from _files_fed_to(found.script, [*folders, file.parent])


def _folders_above(folder: Path) -> Sequence[Path]:
    """Return the folders above up to the top of the repository; none outside of one."""
    folders = [folder, *islice(folder.parents, _MAX_FOLDERS)]
    tops = (place for place, one in enumerate(folders) if os.path.exists(one / ".git"))
    return folders[1 : next(tops, 0) + 1]


def _files_fed_to(script: Script, folders: Sequence[Path]) -> Iterator[StartedFile]:
    """Yield the files from which a script may take commands that it runs: `while read line; do $line; done < FILE`."""
    commands = tuple(script.every())
    if any(MAKES.fullmatch(one.name) for one in commands):
        words = (word for value in script.values for word in value.split())  # that of MAKEFILES, perhaps
        for file in islice((file for word in words for file in existing(word, folders)), _MAX_FILES):
            yield from read_started(file, "make", ())
    if not any(not one.name or one.name in _INPUT_RUNNERS or _takes_input(one.name) for one in commands):
        return
    named = [
        word for one in commands if one.name in _FILE_PRINTERS or one.name in _INPUT_RUNNERS for word in one.words[1:]
    ]
    named += [*script.inputs, *(word for one in commands for word in one.files)]
    names = dict.fromkeys(word.text for word in named if word.known and not word.text.startswith("-"))
    for file in islice((file for name in names for file in existing(name, folders)), _MAX_FILES):
        yield from read_started(file, "plain", ())


def _takes_input(name: str) -> bool:
    return any(known.fullmatch(name) for known in (SHELLS, _INTERPRETERS, _PLAIN_COMMAND_PROGRAM))


def _places_of(scripts: Sequence[Script], bases: Sequence[Path]) -> list[tuple[ShellCommand, list[Path]]]:
    """Return the commands, each with the folders that it may run in: those of `cd` and of options for a folder."""
    commands = [command for script in scripts for command in script.every()]
    folders = list(dict.fromkeys(bases))
    for command in commands:
        words = [word.text for word in command.words]
        if command.name in ("cd", "pushd"):
            named = [_path_after_hole(word) for word in words[1:]]
            if any(HOLE in word for word in named):  # only the shell will know: folders that the text names elsewhere
                named += (text for script in scripts for text in script.values)
                named += (word.text for script in scripts for word in script.words())
        elif command.name == "find" and any(word in ("-execdir", "-okdir") for word in words):
            folders += [one for one in _folders_of_find(folders, words) if one not in folders]
            continue
        else:
            named = [*_option_values(words, (*_FOLDER_OPTIONS, *_FOLDER_OPTIONS_BY_PROGRAM.get(command.name, ())))]
        for name in named:
            inner = [one for folder in folders if HOLE not in name for one in _folders_named(folder, name)]
            folders += [one for one in dict.fromkeys(inner) if one not in folders]
            del folders[_MAX_FOLDERS:]
    return [(command, folders) for command in commands]


def _folders_of_find(folders: Sequence[Path], words: Sequence[str]) -> list[Path]:
    """Return the folders below those that find is given, in which it may run a program; hidden ones left out."""
    named = [word for word in words if word and not word.startswith("-")]
    starts = [one for folder in folders for word in named for one in _folders_named(folder, word)]
    found = list[Path]()
    for start in dict.fromkeys(starts or folders):
        for place, inner, _ in os.walk(start):
            inner[:] = [one for one in sorted(inner) if not one.startswith(".") and one not in INSTALLED]
            found.append(Path(place))
            if len(found) >= _MAX_FILES:
                return found
    return found


def _folders_named(folder: Path, name: str) -> list[Path]:
    """Return the folders that a word means; below the root of the machine, none is looked for by a wildcard."""
    if "*" in name or "?" in name:
        return [one for one in globbed(folder, name) if one.is_dir()]
    path = Path(os.path.normpath(folder / name))
    return [path] if os.path.isdir(path) else [path.parent] if os.path.isfile(path) else []


def _option_values(words: Sequence[str], options: Iterable[str]) -> Iterator[str]:
    """Yield the values of options: the next word, behind `=`, or glued to a letter."""
    for place, word in enumerate(words):
        if word in options:
            yield from words[place + 1 : place + 2]
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            if equals and name in options:
                yield value
        elif word[:2] in options and len(word) > 2:
            yield word[2:]
        elif word[:1] == "-" and f"-{word[-1]}" in options and word[1:].isalpha():
            yield from words[place + 1 : place + 2]


def _files_of(command: ShellCommand, folders: Sequence[Path], *, is_inner: bool = False) -> Iterator[_FileToRead]:
    """Yield the files that one command runs, how each is read, and the names in it that are run.

    `is_inner`: another program may start it.
    """
    if not command.words:
        return
    name, first = command.name, _path_after_hole(command.words[0].text)
    words = [text for word in command.words[1:] if HOLE not in (text := _path_after_hole(word.text))]
    if "/" in first and not first.endswith("/") and not _is_installed(first):
        yield from ((file, "program", ()) for file in existing(first, folders))
    elif first and HOLE not in first:
        yield from ((file, "program", ()) for inner in _PROGRAMS for file in existing(f"{inner}/{first}", folders))
    if _WORD_PROGRAM.fullmatch(name):
        yield from ((file, "lines", ()) for word in words for file in existing(word, folders))
    elif _INTERPRETERS.fullmatch(name):
        yield from _scripts_of_interpreter(words, folders)
    elif SHELLS.fullmatch(name) or name in (".", "source"):
        scripts = (file for word in words if not word.startswith("-") for file in existing(word, folders))
        yield from ((file, "program", ()) for file in islice(scripts, 1))
    elif _PLAIN_COMMAND_PROGRAM.fullmatch(name):
        files = (file for word in words for file in existing(word.removeprefix("@"), folders))
        yield from ((file, "plain", ()) for file in files)
    elif _SCRIPT_PROGRAM.fullmatch(name):
        modules = _module_files(word.partition(":")[0] for word in words if _MODULE_NAME.fullmatch(word))
        files = (file for word in (*words, *modules) for file in existing(word, folders))
        yield from ((file, "code", ()) for file in islice(files, _MAX_FOLDERS))
    yield from _files_of_runner(name, words, folders)
    yield from _files_of_tasks(name, words, folders)
    yield from _implicit_files(name, words, folders)
    for place in range(1, len(command.words)) if name in _ENVIRONMENTS and not is_inner else ():
        inner = ShellCommand(words=command.words[place : place + _MAX_FOLDERS])
        yield from _files_of(inner, folders, is_inner=True)


def _files_of_tasks(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    operands = tuple(_operands(words))
    for one in task_files(name):
        if name != "cargo" or operands[:1] == ("make",):
            yield from ((file, "tasks", (name, *operands)) for file in existing(one.name, folders))
    if name == "run-parts":
        inner = (one for word in words for folder in folders for one in _folders_named(folder, word))
        yield from ((file, "program", ()) for one in inner for file in executables_in(one))
    if name == "go" and "generate" in operands:
        patterns = ("*.go", "*/*.go", "*/*/*.go")
        found = (file for folder in folders for pattern in patterns for file in globbed(folder, pattern))
        yield from ((file, "generate", ()) for file in islice(found, _MAX_IMPORTS))
    if name in _CONTAINERS and any(word.startswith(_MOUNTS) for word in words):
        inside = (word.rpartition("/")[2] for word in words if word.startswith("/"))
        yield from ((file, "program", ()) for one in inside if one for file in existing(one, folders))


def _implicit_files(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield the files that a program takes without being asked, and those that they name in turn."""
    if name.startswith(("python", "pypy")):
        module = next(_option_values(words, ("-m",)), "")
        name, words = module, words[words.index(module) + 1 :] if module in words else ()
    yield from _with_named_files(given_files(name, words, folders), folders)
    if name.startswith("pip"):
        listed = (
            content_of(file) or b""
            for one in _option_values(words, _REQUIREMENTS_OPTIONS)
            for file in existing(one, folders)
        )
        words = [*words, *(word for text in listed for word in text.decode("utf-8", "replace").split() if "/" in word)]
        if not any(word.startswith((".", "-e")) or _is_folder(word, folders) for word in words):
            return
    yield from _with_named_files(implicit_files(name, words, folders), folders)


def _is_folder(name: str, folders: Sequence[Path]) -> bool:
    return any(os.path.isdir(os.path.join(folder, name)) for folder in folders)


def _with_named_files(files: Iterable[ConfigurationFile], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield files, and of settings and containers those that they name."""
    for one in files:
        yield one.path, one.kind, (one.part,)
        is_script = one.path.suffix in (".js", ".cjs", ".mjs", ".ts")
        if (is_script or one.kind in _NAMING_KINDS) and (content := content_of(one.path)):
            text = part_of(content.decode("utf-8", "replace"), one.path.name, one.part)
            text = "\n".join(container_commands(text)) if one.kind == "containers" else text
            for named in named_files(text, tuple(dict.fromkeys((one.path.parent, *folders)))):
                is_read = one.kind != "includes" or named.kind == "settings"
                yield from [(named.path, "imported" if named.kind == "code" else named.kind, ("",))] * is_read


def _files_of_runner(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield the files of programs that find them by a fixed name."""
    if MAKES.fullmatch(name):
        yield from _files_of_make(name, words, folders)
    elif name in _PACKAGE_MANAGERS or name in _MONOREPOS or name in _PACKAGE_RUNNERS:
        yield from _files_of_package_manager(name, words, folders)
    elif name in ("node", "deno"):
        scripts = tuple(_option_values(words, ("--run",)) if name == "node" else _operands(words))
        yield from ((file, "package", scripts) for file in existing("package.json", folders) if scripts)
    elif name in ("pytest", "py.test"):
        yield from _test_files(words, folders)
    elif name == "git":
        named = (".git", *_option_values(words, ("--git-dir",)))
        for place in (found for folder in folders for one in named for found in _repositories(folder / one)):
            yield from ((file, "git", tuple(words)) for file in existing("config", [place]))
            yield from ((file, "program", ()) for file in executables_in(place / "hooks"))
    elif name in ("ninja", "ninja-build", "samu"):
        files = ("build.ninja", *_option_values(words, ("-f",)))
        yield from ((file, "ninja", ()) for one in files for file in existing(one, folders))
    elif name in ("cmake", "meson"):
        yield from _files_of_build(words, folders)
    if name in _MANIFESTS:
        yield from ((file, "manifest", ()) for file in existing(_MANIFESTS[name], folders))


def _files_of_make(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield the files of `make` and `just`, with the targets that are named."""
    operands = tuple(_operands(words))
    named = [*_option_values(words, ("-f", "--file", "--makefile", "--justfile"))]
    for one in named or (_JUSTFILES if name == "just" else _MAKEFILES):
        yield from ((file, "make", operands) for file in existing(one, folders))
    for one in _option_values(words, ("-I", "--include-dir")):
        inner = (file for folder in folders for file in globbed(folder, f"{one}/*"))
        yield from ((file, "make", operands) for file in inner if file.is_file())


def _files_of_package_manager(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield the scripts that a package manager of Node runs, and the packages of the workspace that it installs."""
    if name not in _PACKAGE_RUNNERS:
        patterns = ("*/package.json", "packages/*/package.json")
        inner = (one for folder in folders[:2] for pattern in patterns for one in globbed(folder, pattern))
        is_everywhere = name in _MONOREPOS or any(word.startswith(_ALL_FOLDERS_OPTIONS) for word in words)
        files = [*existing("package.json", folders), *(inner if is_everywhere else ())]
        yield from ((file, "package", tuple(_operands(words))) for file in files)
    for word in words:
        place = word.removeprefix("file:").removeprefix("link:").rstrip("/")
        if place.strip("./") and ("/" in word or place != word):
            for file in existing(f"{place}/package.json", folders):
                yield from ((file, "package", ("install",)), (file, "bin", ()))


def _files_of_build(words: Sequence[str], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield the files of the folders in which cmake and meson build."""
    has_preset = any(word.startswith("--preset") for word in words)
    named = dict.fromkeys(word.rpartition("=")[2] for word in words)
    caches = [file for folder in folders for one in _BUILD_FOLDERS for file in globbed(folder, f"{one}/CMakeCache.txt")]
    places = [folder / one for folder in folders for one in named if one.strip("./")]
    for place in dict.fromkeys((*folders, *places, *(file.parent for file in caches if has_preset))):
        yield from ((file, "ninja", ()) for file in existing("build.ninja", [place]))
        if place not in folders or (place / "CMakeCache.txt").is_file():
            yield from ((file, "make", ()) for file in existing("Makefile", [place]))


def _path_after_hole(text: str) -> str:
    """Return the end of a path that begins with a part that only the shell will know: `$(dirname "$0")/lib.sh`.

    The unknown part is taken for a folder in which the command runs.
    """
    if text.startswith("~+/"):
        return f".{text[2:]}"
    before, hole, behind = text.rpartition(HOLE)
    return f".{behind}" if hole and behind.startswith("/") and "/" not in before else text


def _is_installed(path: str) -> bool:
    """Whether a path is that of a program of the machine: links of a workspace to one are not."""
    return path.startswith("/") and Path(path).parent.name in ("bin", "sbin", "libexec")


def _operands(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that are neither options, values of known options, nor variables."""
    before = ""
    for word in words:
        takes = (
            before in _MAKE_OPTIONS_WITH_VALUE
            or before in _FOLDER_OPTIONS
            or (before[1:].isalpha() and f"-{before[-1]}" in _MAKE_PATH_OPTIONS)
        )
        if not word.startswith("-") and "=" not in word and not (before.startswith("-") and takes):
            yield word
        before = word


def _scripts_of_interpreter(words: Sequence[str], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield the script of an interpreter (its first file or folder, or a module) and its imports."""
    modules = list(_option_values(words, ("-m",)))[:1]
    code = "\n".join(_option_values(words, ("-c", "-e", "-p", "--eval", "--print")))
    loaded = [
        f"{one}{end}" for one in _option_values(words, ("-r", "--require", "--import")) for end in ("", ".rb", ".js")
    ]
    yield from (one for name in loaded for one in _code_files(name, folders))
    yield from _imported_files(code, folders)
    for name in _module_files(modules):
        yield from _code_files(name, folders)
    for word in words:
        if word.startswith("-") or (modules and not word.endswith(".py") and modules[0] != "unittest"):
            continue
        found = list(existing(word, folders))
        for end in ("/__main__.py", "/index.js", "/index.mjs", ".js", ".py") if not found else ():
            found += existing(f"{word.rstrip('/')}{end}", folders)
        yield from (one for file in found for one in _code_files(str(file), folders))
        if found:
            return
        yield from ((file, "main", ()) for file in existing(f"{word}/package.json", folders))
    if modules in (["pytest"], ["unittest"]):
        yield from _test_files(words, folders)


def _test_files(words: Sequence[str], folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield the test files that the words of a test runner name, and those that it takes of its own folder."""
    for word in words:
        name = word.partition("::")[0]
        yield from ((file, "code", ()) for file in existing(name, folders) if file.suffix == ".py")
    for folder in folders[:2]:
        yield from ((file, "code", ()) for file in sorted(folder.glob("conftest.py")))
        yield from ((file, "code", ()) for file in sorted(folder.glob("test_*.py"))[:_MAX_FOLDERS])


def _module_files(modules: Iterable[str]) -> Iterator[str]:
    for module in modules:
        path = module.replace(".", "/")
        yield from (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")
        while "/" in path:
            path = path.rpartition("/")[0]
            yield f"{path}/__init__.py"


def _code_files(name: str, folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield a file of code, and what it imports of its own folder."""
    for file in existing(name, folders):
        yield file, "code", ()
        content = content_of(file)
        yield from _imported_files((content or b"").decode("utf-8", "replace"), [file.parent])


def _imported_files(code: str, folders: Sequence[Path]) -> Iterator[_FileToRead]:
    """Yield the files beside the code that it imports: one step, for a longer one is a project of its own."""
    places = (found for part in _chunks_of_lines(code) for found in _IMPORTS.finditer(part))
    for found in islice(places, _MAX_IMPORTS):
        if found[1]:
            names = [found[1], *(f"{found[1]}{end}" for end in (".js", ".mjs", ".cjs", ".ts", "/index.js"))]
        else:
            module = (found[2] or found[5]).strip(".")
            inner = re.findall(r"\w+", found[3] or found[4] or "")[:_MAX_FOLDERS]  # of these, some may be modules, too
            names = list(_module_files([module, *(f"{module}.{one}".strip(".") for one in inner)]))
        yield from ((file, "imported", ()) for name in names for file in existing(name, folders))


def _chunks_of_lines(text: str) -> Iterator[str]:
    """Yield whole lines, some 64 KB at a time: one search over a megabyte would stop every thread."""
    place = 0
    while place < len(text):
        end = text.rfind("\n", place, place + _PART_LENGTH) if len(text) - place > _PART_LENGTH else len(text)
        end = end if end > place else place + _PART_LENGTH
        yield text[place:end]
        place = end


def _repositories(place: Path) -> list[Path]:
    """Return the folder of a repository; for a worktree or a submodule, the one that its `.git` names, and its own."""
    if place.is_dir():
        return [place]
    found = re.match(r"gitdir:[ \t]*([^\n]+)", (content_of(place) or b"").decode("utf-8", "replace"))
    if found is None:
        return []
    own = place.parent / found[1].strip()
    shared = (content_of(own / "commondir") or b"").decode("utf-8", "replace").strip()
    return [own, *([own / shared] if shared else [])]
