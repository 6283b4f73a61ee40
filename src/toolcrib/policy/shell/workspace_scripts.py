"""Files of the workspace that a command runs, read as what they are: shell text, or code of an interpreter.

Read are: a program named by a path, with the interpreter of its first line; the script of an interpreter; the recipes
of `make` and `just` that a run reaches; the scripts of a `package.json`; commands in the manifests of a few runners;
aliases, hooks and programs of git's configuration; and what these run in turn. A file that is too large, and one more
than are looked at, are answered as not read. Of code, the modules beside it are read that it imports, one step far; of
tests, those that are named or stand in the folder itself. Installed packages are not read, and a name that a program
computes is not found.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from ...core.json import read_json
from .configuration_files import believed_files, named_files, part_of
from .grammar import read_script
from .makefile_recipes import TooLarge, included_by, recipes
from .ninja_commands import included_by_ninja, ninja_commands
from .script import HOLE, Script, ShellCommand, literal
from .task_runners import task_files, tasks_in

__all__ = ["StartedFile", "is_same_program", "started_files"]

_MOST: Final = 32
"""Files of one command that are looked at."""
_MAX_CODE: Final = 1024 * 1024
"""Bytes of a file that are read."""
_MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of all files of one command."""
_FOLDERS: Final = 8
_CODE: Final = frozenset({".cjs", ".js", ".lua", ".mjs", ".php", ".pl", ".py", ".rb", ".ts"})
_SHEBANG: Final = re.compile(rb"#![ \t]*([^\n]{0,200})")
_SHELLS: Final = re.compile(r"(?:ba|da|a|z|k|mk|rba|fi)?sh")
_INTERPRETERS: Final = re.compile(r"(?:python|pypy|perl|ruby|node|lua|php|tclsh)[\d.]*|deno|bun|tsx|ts-node")
_PLAIN: Final = re.compile(r"m4|dc|sqlite3|gcc|g\+\+|cc|ed|ex|psql|mysql|mariadb")
"""Programs that take commands as bare words of a file."""
_SCRIPTED: Final = re.compile(
    r"Rscript|R|bb|celery|clj|clojure|cmake|coverage|crystal|dart|dotnet|elixir|escript|flask|ghci|go|groovy|guile"
    r"|gunicorn|hypercorn|ipython3?|java|jshell|julia|kotlinc?|latexmk|lualatex|nextflow|nim|nodemon|ocaml|octave|pipx"
    r"|phpunit|pm2|racket|run(?:ghc|haskell)|sbcl|scala(?:-cli)?|streamlit|swift|uvicorn|uvx?|zig|zx"
)
"""Further programs that run the code of a file that they are given."""
_WORDED: Final = re.compile(
    r"tclsh[\d.]*|wish|expect|gnuplot|ansible-playbook|bats|crontab|elvish|jupyter|logrotate|nu|papermill|robot|screen|supervisord|tmux"
    r"|xonsh"
)
"""Programs of whose files every word may be a command."""
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*(?::\w+(?:\(\))?)?", re.ASCII)
"""A module, or an object in one."""
_GENERATED: Final = re.compile(r"^//go:generate[ \t]+(.*)", re.MULTILINE)
_ENVIRONMENTS: Final = frozenset(
    "asdf bundle conda direnv doppler dotenv hatch mamba micromamba mise nix op pdm pipenv pixi poetry pyenv rbenv rye"
    " uv".split()
)
"""Programs that run another one in an environment: `poetry run python a.py`."""
_VALUE: Final = re.compile(r"[^\s=,:]*/[^\s=,:]*")
"""A path in the value of a variable: `GOFLAGS=-toolexec=./a.sh`."""
_CONTAINERS: Final = frozenset({"docker", "nerdctl", "podman"})
_MOUNTS: Final = ("-v", "--volume", "--mount")
_TAKERS: Final = frozenset(". at batch eval parallel source xargs".split())
"""Programs that run what a file or their input says."""
_GIVERS: Final = frozenset("awk cat cut envsubst gawk grep head mapfile readarray sed sort tac tail tr".split())
"""Programs whose output is the content of the files that they name."""
_MAKES: Final = re.compile(r"(?:[gbnp]|re)?make|just")
_PACKAGERS: Final = frozenset({"bun", "npm", "npm-run-all", "pnpm", "run-p", "run-s", "yarn"})
_MONOREPOS: Final = frozenset({"lerna", "nx", "turbo", "wsrun"})
"""Programs that run scripts of all folders."""
_EVERYWHERE: Final = ("-r", "-w", "--filter", "--recursive", "--workspace", "-F")
"""Options of package managers that run scripts of other folders."""
_IN_FOLDER: Final = frozenset(
    {"-C", "--chdir", "--cwd", "--dir", "--directory", "--prefix", "--project", "--project-directory", "--rootDir"}
)
_FOLDER_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "gradle": ("-p",),
    "gradlew": ("-p",),
    "just": ("-d",),
    "sudo": ("-D",),
    "task": ("-d",),
    "tox": ("-c",),
    "unshare": ("-w",),
}
"""Options for a folder of single programs."""
_MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")
_JUSTFILES: Final = ("justfile", "Justfile", ".justfile")
_FILED: Final = frozenset({"-f", "-C"})
_VALUED: Final = frozenset("-C -f -I -o -W --directory --file --makefile --justfile -j".split())
_INSTALLED: Final = tuple("preinstall install postinstall prepublish preprepare prepare postprepare".split())
_LIFECYCLE: Final = {
    **dict.fromkeys(("add", "ci", "i", "install", "rebuild", "link"), _INSTALLED),
    **dict.fromkeys(("it", "install-test"), (*_INSTALLED, "pretest", "test", "posttest")),
    **dict.fromkeys(
        ("publish", "pack"), tuple("prepublishOnly prepublish prepack prepare postpack publish postpublish".split())
    ),
    "restart": "prestop stop poststop prestart start poststart".split(),
}
"""Scripts that a sub-command of a package manager runs beside those of its own name."""
_UPWARDS: Final = frozenset(
    "bazel bazelisk bun bundle cargo devcontainer direnv docker docker-compose dune eslint git gradle gradlew jest just"
    " lefthook lerna mise mocha moon mvnw npm npx nx pdm pixi pnpm podman-compose poe poetry pre-commit prettier"
    " py.test pytest rake rubocop rye task turbo uv yarn".split()
)
"""Programs that look for their files in the folders above, too."""
_SHORT: Final = {"t": "test", "tst": "test"}
_MANIFESTS: Final = {"pre-commit": ".pre-commit-config.yaml", "tox": "tox.ini"}
"""Runner → file with its commands."""
_SETTING: Final = re.compile(
    r"^[ \t]*(?:commands?(?:_pre|_post)?|entry)[ \t]*[=:][ \t]*(.*(?:\n[ \t]+.*)*)", re.MULTILINE
)
_IMPORTS: Final = re.compile(
    r"(?:require\(|\bfrom|\bimport\(?)\s*[\"'](\.{1,2}/[^\"'\n]{1,200})[\"']"
    r"|(?:^|[;\n])[ \t]*from[ \t]+([\w.]+)[ \t]+import\b|(?:^|[;\n])[ \t]*import[ \t]+([\w.]+)"
)
_COMMENTS: Final = ("#", "//", ";", "<!--")
_PART: Final = 64 * 1024
_IMPORTED: Final = 16
"""Imports of one file that are looked at."""
_PROGRAMS: Final = ("node_modules/.bin", ".venv/bin")
_SECTION: Final = re.compile(r"^[ \t]*\[[ \t]*([\w.-]++)(?:[ \t]+\"([^\"]*+)\")?[^\]]*+\]")
_KEY: Final = re.compile(r"^[ \t]*([\w-]+)[ \t]*=[ \t]*(.*)$")
_STARTS: Final = re.compile(
    r"clean|smudge|process|textconv|command|driver|cmd|.*program|.*editor|pager|askpass|sshcommand|fsmonitor|external|helper"
)

_Found = tuple[Path, str, tuple[str, ...]]


class StartedFile(Struct, frozen=True, kw_only=True):
    """One file that a command runs, or one text of it. A field that does not apply is empty."""

    file: str
    script: Script | None = None
    """Commands of a shell text."""
    text: str = ""
    """Code of another language, or a shell text that cannot be parsed."""
    is_program: bool = False
    """A binary program: a copy or another name of one."""
    is_settings: bool = False
    """Settings, in which a value may be a command."""
    is_short: bool = False
    """Lines of a recipe or of a manifest, each a command: what an unknown program may start counts."""
    unread: bool = False
    """Too large, or not looked at any more."""


def started_files(scripts: Iterable[Script], bases: Sequence[Path]) -> Iterator[StartedFile]:
    """Yield what the commands of `scripts` start of the files in and below the folders `bases`, and above them.

    Above, up to the top of the repository, programs look that are known to do so.
    """
    scripts = tuple(scripts)
    above = _above(bases[0])
    waiting = deque(_places_of(scripts, bases))
    values = [one for script in scripts for value in script.values if "/" in value for one in _VALUE.findall(value)]
    waiting += [(ShellCommand(words=(literal(value),)), list(bases)) for value in values]
    fed = [word.text for script in scripts for word in script.files if word.known]
    if any(_PLAIN.fullmatch(command.name) for command, _ in waiting):
        for file in (file for name in fed for file in _existing(name, bases)):
            yield from _read(file, "plain", ())
    seen = set[tuple[str, tuple[str, ...]]]()
    size = 0
    while waiting:
        command, folders = waiting.popleft()
        folders = [*folders, *above] if command.name in _UPWARDS else folders
        for file, kind, names in _files_of(command, folders):
            if (key := (str(file), names)) in seen or (kind == "imported" and len(seen) >= _MOST):
                continue
            seen.add(key)
            size += len(_content(file) or b"")
            if len(seen) > 2 * _MOST or size > _MOST_BYTES:
                yield StartedFile(file=str(file), unread=True)
                return
            for found in _read(file, kind, names):
                yield found
                if found.script is not None:
                    waiting += _places_of([found.script], [*folders, file.parent])
                    yield from _fed_to(found.script, [*folders, file.parent])


def _above(folder: Path) -> Sequence[Path]:
    """Return the folders above up to the top of the repository; none outside of one."""
    folders = [folder, *islice(folder.parents, _FOLDERS)]
    tops = (place for place, one in enumerate(folders) if os.path.exists(one / ".git"))
    return folders[1 : next(tops, 0) + 1]


def _fed_to(script: Script, folders: Sequence[Path]) -> Iterator[StartedFile]:
    """Yield the files from which a script may take commands that it runs: `while read line; do $line; done < FILE`."""
    commands = tuple(script.every())
    if any(_MAKES.fullmatch(one.name) for one in commands):
        words = (word for value in script.values for word in value.split())  # that of MAKEFILES, perhaps
        for file in islice((file for word in words for file in _existing(word, folders)), _MOST):
            yield from _read(file, "make", ())
    if not any(not one.name or one.name in _TAKERS or _takes_input(one.name) for one in commands):
        return
    named = [word for one in commands if one.name in _GIVERS or one.name in _TAKERS for word in one.words[1:]]
    named += [*script.inputs, *(word for one in commands for word in one.files)]
    names = dict.fromkeys(word.text for word in named if word.known and not word.text.startswith("-"))
    for file in islice((file for name in names for file in _existing(name, folders)), _MOST):
        yield from _read(file, "plain", ())


def _takes_input(name: str) -> bool:
    return any(known.fullmatch(name) for known in (_SHELLS, _INTERPRETERS, _PLAIN))


def is_same_program(file: Path, name: str) -> bool:
    """Whether a file is the program `name` of this machine, as a link, a copy or itself."""
    found = shutil.which(name)
    try:
        return file.resolve().name == name or (found is not None and filecmp.cmp(file, found, shallow=False))
    except OSError:
        return False


def _places_of(scripts: Sequence[Script], bases: Sequence[Path]) -> list[tuple[ShellCommand, list[Path]]]:
    """Return the commands, each with the folders that it may run in: those of `cd` and of options for a folder."""
    commands = [command for script in scripts for command in script.every()]
    folders = list(dict.fromkeys(bases))
    for command in commands:
        words = [word.text for word in command.words]
        if command.name in ("cd", "pushd"):
            named = [_behind_hole(word) for word in words[1:]]
            if any(HOLE in word for word in named):  # only the shell will know: folders that the text names elsewhere
                named += (text for script in scripts for text in script.values)
                named += (word.text for script in scripts for word in script.words())
        else:
            named = [*_behind(words, (*_IN_FOLDER, *_FOLDER_OF.get(command.name, ())))]
        for name in named:
            inner = [one for folder in folders if HOLE not in name for one in _folders_named(folder, name)]
            folders += [one for one in dict.fromkeys(inner) if one not in folders]
            del folders[_FOLDERS:]
    return [(command, folders) for command in commands]


def _folders_named(folder: Path, name: str) -> list[Path]:
    """Return the folders that a word means; below the root of the machine, none is looked for by a wildcard."""
    if "*" in name or "?" in name:
        return [] if name.startswith("/") else [one for one in islice(folder.glob(name), _MOST) if one.is_dir()]
    path = Path(os.path.normpath(folder / name))
    return [path] if path.is_dir() else []


def _behind(words: Sequence[str], options: Iterable[str]) -> Iterator[str]:
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


def _files_of(command: ShellCommand, folders: Sequence[Path], *, is_inner: bool = False) -> Iterator[_Found]:
    """Yield the files that one command runs, how each is read, and the names in it that are run.

    `is_inner`: another program may start it.
    """
    if not command.words:
        return
    name, first = command.name, _behind_hole(command.words[0].text)
    words = [text for word in command.words[1:] if HOLE not in (text := _behind_hole(word.text))]
    if "/" in first and not first.endswith("/") and not _is_installed(first):
        yield from ((file, "program", ()) for file in _existing(first, folders))
    elif first and HOLE not in first:
        yield from ((file, "program", ()) for inner in _PROGRAMS for file in _existing(f"{inner}/{first}", folders))
    if _WORDED.fullmatch(name):
        yield from ((file, "lines", ()) for word in words for file in _existing(word, folders))
    elif _INTERPRETERS.fullmatch(name):
        yield from _scripts_of_interpreter(words, folders)
    elif _SHELLS.fullmatch(name) or name in (".", "source"):
        scripts = (file for word in words if not word.startswith("-") for file in _existing(word, folders))
        yield from ((file, "program", ()) for file in islice(scripts, 1))
    elif _PLAIN.fullmatch(name):
        files = (file for word in words for file in _existing(word.removeprefix("@"), folders))
        yield from ((file, "plain", ()) for file in files)
    elif _SCRIPTED.fullmatch(name):
        modules = _module_files(word.partition(":")[0] for word in words if _NAME.fullmatch(word))
        files = (file for word in (*words, *modules) for file in _existing(word, folders))
        yield from ((file, "code", ()) for file in islice(files, _FOLDERS))
    yield from _files_of_runner(name, words, folders)
    yield from _files_of_tasks(name, words, folders)
    yield from _believed(name, words, folders)
    for place in range(1, len(command.words)) if name in _ENVIRONMENTS and not is_inner else ():
        inner = ShellCommand(words=command.words[place : place + _FOLDERS])
        yield from _files_of(inner, folders, is_inner=True)


def _files_of_tasks(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[_Found]:
    operands = tuple(_operands(words))
    for one in task_files(name):
        if name != "cargo" or operands[:1] == ("make",):
            yield from ((file, "tasks", (name, *operands)) for file in _existing(one.name, folders))
    if name == "go" and "generate" in operands:
        patterns = ("*.go", "*/*.go", "*/*/*.go")
        found = (file for folder in folders for pattern in patterns for file in _globbed(folder, pattern))
        yield from ((file, "generate", ()) for file in islice(found, _IMPORTED))
    if name in _CONTAINERS and any(word.startswith(_MOUNTS) for word in words):
        inside = (word.rpartition("/")[2] for word in words if word.startswith("/"))
        yield from ((file, "program", ()) for one in inside if one for file in _existing(one, folders))


def _believed(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[_Found]:
    """Yield the files that a program believes, and those that they name in turn."""
    if name.startswith(("python", "pypy")):
        module = next(_behind(words, ("-m",)), "")
        name, words = module, words[words.index(module) + 1 :] if module in words else ()
    if name.startswith("pip") and not any(word.startswith((".", "-e")) for word in words):
        return
    for one in believed_files(name, words, folders):
        yield one.path, one.kind, (one.part,)
        is_script = one.path.suffix in (".js", ".cjs", ".mjs", ".ts")
        if (is_script or one.kind in ("settings", "includes")) and (content := _content(one.path)):
            text = part_of(content.decode("utf-8", "replace"), one.path.name, one.part)
            for named in named_files(text, tuple(dict.fromkeys((one.path.parent, *folders)))):
                is_read = one.kind != "includes" or named.kind == "settings"
                yield from [(named.path, "imported" if named.kind == "code" else named.kind, ("",))] * is_read


def _files_of_runner(name: str, words: Sequence[str], folders: Sequence[Path]) -> Iterator[_Found]:
    operands = tuple(_operands(words))
    if _MAKES.fullmatch(name):
        named = [*_behind(words, ("-f", "--file", "--makefile", "--justfile"))]
        for one in named or (_JUSTFILES if name == "just" else _MAKEFILES):
            yield from ((file, "make", operands) for file in _existing(one, folders))
    elif name in _PACKAGERS or name in _MONOREPOS:
        patterns = ("*/package.json", "packages/*/package.json")
        inner = (one for folder in folders[:2] for pattern in patterns for one in _globbed(folder, pattern))
        is_everywhere = name in _MONOREPOS or any(word.startswith(_EVERYWHERE) for word in words)
        files = [*_existing("package.json", folders), *(inner if is_everywhere else ())]
        yield from ((file, "package", operands) for file in files)
    elif name in ("node", "deno"):
        scripts = tuple(_behind(words, ("--run",)) if name == "node" else operands)
        yield from ((file, "package", scripts) for file in _existing("package.json", folders) if scripts)
    elif name in ("pytest", "py.test"):
        yield from _tests(words, folders)
    elif name == "git":
        named = (".git", *_behind(words, ("--git-dir",)))
        for place in (found for folder in folders for one in named for found in _repositories(folder / one)):
            yield from ((file, "git", tuple(words)) for file in _existing("config", [place]))
            yield from ((file, "program", ()) for file in _hooks(place / "hooks"))
    elif name in ("ninja", "ninja-build", "samu"):
        files = ("build.ninja", *_behind(words, ("-f",)))
        yield from ((file, "ninja", ()) for one in files for file in _existing(one, folders))
    if name in _MANIFESTS:
        yield from ((file, "manifest", ()) for file in _existing(_MANIFESTS[name], folders))


def _behind_hole(text: str) -> str:
    """Return the end of a path that begins with a part that only the shell will know: `$(dirname "$0")/lib.sh`."""
    if text.startswith("~+/"):
        return f".{text[2:]}"
    before, hole, behind = text.rpartition(HOLE)
    return f".{behind}" if hole and behind.startswith("/") and "/" not in before else text


def _is_installed(path: str) -> bool:
    """Whether a path is that of a program of the machine: links of a workspace to one are not."""
    return path.startswith("/") and Path(path).parent.name in ("bin", "sbin", "libexec")


def _existing(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    if len(name) < 1_000:
        name = os.path.expanduser(name) if name.startswith("~") else name
        paths = (os.path.normpath(os.path.join(folder, name)) for folder in folders)
        yield from (Path(path) for path in dict.fromkeys(paths) if os.path.isfile(path))


def _operands(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        takes = before in _VALUED or before in _IN_FOLDER or (before[1:].isalpha() and f"-{before[-1]}" in _FILED)
        if not word.startswith("-") and "=" not in word and not (before.startswith("-") and takes):
            yield word
        before = word


def _scripts_of_interpreter(words: Sequence[str], folders: Sequence[Path]) -> Iterator[_Found]:
    """Yield the script of an interpreter (its first file or folder, or a module) and its imports."""
    modules = list(_behind(words, ("-m",)))[:1]
    code = "\n".join(_behind(words, ("-c", "-e", "-p", "--eval", "--print")))
    loaded = [f"{one}{end}" for one in _behind(words, ("-r", "--require", "--import")) for end in ("", ".rb", ".js")]
    yield from (one for name in loaded for one in _code_of(name, folders))
    yield from _imported(code, folders)
    for name in _module_files(modules):
        yield from _code_of(name, folders)
    for word in words:
        if word.startswith("-") or (modules and not word.endswith(".py") and modules[0] != "unittest"):
            continue
        found = list(_existing(word, folders))
        for end in ("/__main__.py", "/index.js", "/index.mjs", ".js", ".py") if not found else ():
            found += _existing(f"{word.rstrip('/')}{end}", folders)
        yield from (one for file in found for one in _code_of(str(file), folders))
        if found:
            return
        yield from ((file, "main", ()) for file in _existing(f"{word}/package.json", folders))
    if modules in (["pytest"], ["unittest"]):
        yield from _tests(words, folders)


def _tests(words: Sequence[str], folders: Sequence[Path]) -> Iterator[_Found]:
    """Yield the test files that the words of a test runner name, and those that it takes of its own folder."""
    for word in words:
        name = word.partition("::")[0]
        yield from ((file, "code", ()) for file in _existing(name, folders) if file.suffix == ".py")
    for folder in folders[:2]:
        yield from ((file, "code", ()) for file in sorted(folder.glob("conftest.py")))
        yield from ((file, "code", ()) for file in sorted(folder.glob("test_*.py"))[:_FOLDERS])


def _module_files(modules: Iterable[str]) -> Iterator[str]:
    for module in modules:
        path = module.replace(".", "/")
        yield from (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")
        while "/" in path:
            path = path.rpartition("/")[0]
            yield f"{path}/__init__.py"


def _code_of(name: str, folders: Sequence[Path]) -> Iterator[_Found]:
    """Yield a file of code, and what it imports of its own folder."""
    for file in _existing(name, folders):
        yield file, "code", ()
        content = _content(file)
        yield from _imported((content or b"").decode("utf-8", "replace"), [file.parent])


def _imported(code: str, folders: Sequence[Path]) -> Iterator[_Found]:
    """Yield the files beside the code that it imports: one step, for a longer one is a project of its own."""
    places = (found for part in _parts(code) for found in _IMPORTS.finditer(part))
    for found in islice(places, _IMPORTED):
        if found[1]:
            names = [found[1], *(f"{found[1]}{end}" for end in (".js", ".mjs", ".cjs", ".ts", "/index.js"))]
        else:
            names = list(_module_files([(found[2] or found[3]).strip(".")]))
        yield from ((file, "imported", ()) for name in names for file in _existing(name, folders))


def _parts(text: str) -> Iterator[str]:
    """Yield whole lines, some 64 KB at a time: one search over a megabyte would stop every thread."""
    place = 0
    while place < len(text):
        end = text.rfind("\n", place, place + _PART) if len(text) - place > _PART else len(text)
        end = end if end > place else place + _PART
        yield text[place:end]
        place = end


def _repositories(place: Path) -> list[Path]:
    """Return the folder of a repository; for a worktree or a submodule, the one that its `.git` names, and its own."""
    if place.is_dir():
        return [place]
    found = re.match(r"gitdir:[ \t]*([^\n]+)", (_content(place) or b"").decode("utf-8", "replace"))
    if found is None:
        return []
    own = place.parent / found[1].strip()
    shared = (_content(own / "commondir") or b"").decode("utf-8", "replace").strip()
    return [own, *([own / shared] if shared else [])]


def _hooks(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if not name.endswith(".sample") and os.access(folder / name, os.X_OK) and (folder / name).is_file():
            yield folder / name


def _read(file: Path, kind: str, names: tuple[str, ...]) -> Iterator[StartedFile]:
    name = str(file)
    content = _content(file)
    if content is None:
        yield StartedFile(file=name, unread=True)
        return
    if kind in ("program", "code", "imported", "shell"):
        yield from _program(name, content, is_code=kind in ("code", "imported"))
        return
    text = content.decode("utf-8", "replace")
    if readers := _READERS.get(kind):
        yield from readers(file, text, names)
    elif commands := _BUILDERS.get(kind):
        yield from _made(name, lambda: commands(text, file.parent, names))
    elif kind == "main":
        yield from _main(file, content)
    elif kind == "package":
        yield from _shell(name, "\n".join(_scripts_of_package(content, names)), is_short=True)
    elif kind == "git":
        hooks = re.search(r"(?im)^[ \t]*hookspath[ \t]*=[ \t]*\"?([^\"\n]+)", text)
        for hook in _hooks(file.parent.parent / hooks[1].strip()) if hooks else ():
            yield from _read(hook, "program", ())
        paths = re.findall(r"(?im)^[ \t]*path[ \t]*=[ \t]*\"?([^\"\n]+)", text)[:_FOLDERS]
        included = [_content(one) for part in paths for one in _existing(part.strip(), [file.parent])]
        text = "\n".join([text, *(one.decode("utf-8", "replace") for one in included if one)])
        yield from _shell(name, "\n".join(_git_programs(text, names)))
    else:
        lines = [line.strip() for found in _SETTING.findall(text) for line in found.splitlines()]
        yield from _shell(name, "\n".join(lines), is_short=True)


def _uncommented(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _plain(file: Path, text: str, _: Sequence[str]) -> Iterator[StartedFile]:
    yield StartedFile(file=str(file), script=Script(), text=text)


def _lines(file: Path, text: str, _: Sequence[str]) -> Iterator[StartedFile]:
    yield StartedFile(file=str(file), script=Script(), text=_uncommented(text))


def _settings(file: Path, text: str, names: Sequence[str]) -> Iterator[StartedFile]:
    lines = part_of(text, file.name, names[0]).splitlines()
    kept = "\n".join(line for line in lines if not line.lstrip().startswith(_COMMENTS))
    yield StartedFile(file=str(file), text=kept, is_settings=True, unread=len(text) >= _MAX_CODE)


def _none(file: Path, text: str, names: Sequence[str]) -> Iterator[StartedFile]:
    yield from ()


def _generate(file: Path, text: str, _: Sequence[str]) -> Iterator[StartedFile]:
    yield from _shell(str(file), "\n".join(_GENERATED.findall(text)), is_short=True)


def _tasks(file: Path, text: str, names: Sequence[str]) -> Iterator[StartedFile]:
    """Yield what a run of tasks consists of; the whole document where it cannot be read."""
    program, *tasks = names
    texts = tasks_in(text, file.name, program, tasks)
    if texts is None:
        yield from _lines(file, text, ())
    else:
        yield from _shell(str(file), "\n".join(texts), is_short=True)


_READERS: Final[Mapping[str, Callable[[Path, str, Sequence[str]], Iterator[StartedFile]]]] = {
    "generate": _generate,
    "includes": _none,
    "lines": _lines,
    "plain": _plain,
    "settings": _settings,
    "tasks": _tasks,
    "words": _lines,
}


def _of_make(text: str, folder: Path, goals: Sequence[str]) -> list[str]:
    return recipes(_with_included(text, folder, included_by), goals)


def _of_ninja(text: str, folder: Path, goals: Sequence[str]) -> list[str]:
    return ninja_commands(_with_included(text, folder, included_by_ninja))


_BUILDERS: Final = {"make": _of_make, "ninja": _of_ninja}


def _with_included(text: str, folder: Path, included: Callable[[str], Iterable[str]]) -> str:
    """Return a file with the files behind it that it includes."""
    texts, seen = [text], set[Path]()
    for one in texts:
        for part in included(one):
            if len(texts) > _MOST:
                break
            for file in _globbed(folder, part.removeprefix("./")):
                if file not in seen and (content := _content(file)):
                    seen.add(file)
                    texts.append(content.decode("utf-8", "replace"))
    return "\n".join(texts)


def _globbed(folder: Path, pattern: str) -> list[Path]:
    """Return the files that a pattern means; below the root of the machine, none is looked for by a wildcard."""
    if Path(pattern).is_absolute():
        return [file] if (file := Path(pattern)).is_file() else []
    try:
        return sorted(islice(folder.glob(pattern.replace("**", "*")), _MOST))  # make knows no `**`
    except (ValueError, OSError):
        return []


def _main(manifest: Path, content: bytes) -> Iterator[StartedFile]:
    """Yield the file that a folder starts by its `package.json`."""
    try:
        found: Any = read_json(content)
    except ValueError:
        return
    main: Any = cast("dict[str, Any]", found).get("main") if isinstance(found, dict) else None
    for file in _existing(main, [manifest.parent]) if isinstance(main, str) else ():
        yield from _read(file, "code", ())


def _program(name: str, content: bytes, *, is_code: bool) -> Iterator[StartedFile]:
    shebang = _SHEBANG.match(content)
    if b"\0" in content[:1024]:
        yield StartedFile(file=name, is_program=True)
        return
    text = content.decode("utf-8", "replace")
    words = shebang[1].decode("utf-8", "replace").split() if shebang else []
    runs = [Path(word).name for word in words if not word.startswith("-")]
    if any(_MAKES.fullmatch(word) for word in runs):
        yield from _made(name, lambda: recipes(text, ()), is_short=False)
    elif any(word in ("sed", "ed", "m4", "dc") for word in runs):
        yield StartedFile(file=name, script=Script(), text=text)
    elif is_code or (not any(map(_SHELLS.fullmatch, runs)) if runs else Path(name).suffix in _CODE):
        yield StartedFile(file=name, text=text, unread=len(content) >= _MAX_CODE)
    else:
        yield from _shell(name, text, unread=len(content) >= _MAX_CODE)


def _made(name: str, commands: Callable[[], Sequence[str]], *, is_short: bool = True) -> Iterator[StartedFile]:
    try:
        yield from _shell(name, "\n".join(commands()), is_short=is_short)
    except TooLarge:
        yield StartedFile(file=name, unread=True)


def _shell(name: str, text: str, *, unread: bool = False, is_short: bool = False) -> Iterator[StartedFile]:
    """Yield a shell text, and its lines for a search where it cannot be parsed as a whole."""
    if not text.strip() and not unread:
        return
    script = read_script(text)
    is_whole = bool(script.commands) and "it cannot be parsed as bash" not in script.doubts
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    yield StartedFile(
        file=name, script=script, text="" if is_whole else "\n".join(lines), unread=unread, is_short=is_short
    )


def _scripts_of_package(content: bytes, names: Sequence[str]) -> list[str]:
    """Return the scripts of a `package.json` that these words of a package manager run."""
    try:
        found: Any = read_json(content)
    except ValueError:
        return []
    known: Any = cast("dict[str, Any]", found).get("scripts") if isinstance(found, dict) else None
    scripts: Mapping[str, Any] = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    wanted = [_SHORT.get(name, name) for name in names]
    run = [one for name in wanted for one in (f"pre{name}", name, f"post{name}")]
    run += [one for name in wanted or ["install"] for one in _LIFECYCLE.get(name, ())]
    return [script for name in dict.fromkeys(run) if isinstance(script := scripts.get(name), str)]


def _git_programs(text: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the values of a configuration of git that name programs: of the aliases, those that are used."""
    section, used, pairs = "", {word.lower() for word in words}, list[tuple[str, str, str]]()
    for line in text.replace("\\\n", "").splitlines():
        if found := _SECTION.match(line):
            section, line = ".".join(filter(None, (found[1].lower(), found[2]))), line[found.end() :]
        if pair := _KEY.match(line):
            pairs.append((section, pair[1].lower(), pair[2].strip().strip('"').replace('\\"', '"')))
    for _ in range(3):  # an alias may name another one
        named = [value for inner, key, value in pairs if inner.startswith("alias") and key in used]
        used |= {word.lower() for value in named for word in value.split()}
    for inner, key, value in pairs:
        if inner.startswith("alias"):
            if key in used or inner.partition(".")[2] in used:
                yield value.removeprefix("!") if value.startswith("!") else f"git {value}"
        elif _STARTS.fullmatch(key):
            yield value.removeprefix("!")


def _content(file: Path) -> bytes | None:
    """Return the beginning of a regular file; None when it cannot be read."""
    try:
        known = file.stat()
        return (
            _cached(str(file), known.st_ino, known.st_ctime_ns, known.st_size) if stat.S_ISREG(known.st_mode) else None
        )
    except OSError:
        return None


@lru_cache(maxsize=16)
def _cached(file: str, inode: int, changed: int, size: int) -> bytes:
    """Read a file once for all rules; the other arguments tell when it is another one."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        return stream.read(_MAX_CODE)
