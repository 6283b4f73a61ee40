"""Files of a project that a program of it loads: imports, required files, scripts that a script runs.

They are found by the text of the program, without an interpreter: what it imports by a name that it computes is not
found. A module that is missing may come later in the place of one that an interpreter would find elsewhere, so that the
names of its standard library count, too. Installed packages are left out: a lock file pins them.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from ....core.patterns import regex

_MOST: Final = 2_000
"""Files of one server that are looked at."""
_MENTIONS: Final = 5_000
"""Imports, and words of scripts, of one file that are looked at."""
_MAX_BYTES: Final = 1024 * 1024
"""Size of a file whose text is looked at."""
_INSTALLED: Final = frozenset({"node_modules", "site-packages", "dist-packages", ".git"})
_PYTHON: Final = regex(r"python|pypy|\buv\b")
_SHELL: Final = regex(r"\b(?:ba|da|z|k|fi)?sh\b")
_NODE: Final = regex(r"\b(?:node|bun|deno|tsx|ts-node)\b")
_RECIPES: Final = frozenset("GNUmakefile makefile Makefile justfile Justfile .justfile".split())
_IMAGES: Final = ("Dockerfile", "Containerfile")
_OF_SERVICES: Final = regex(r"(?<![\w./-])[\w.-]*[\w./-]+")
"""Words of a compose file, without the signs between them."""
_OF_SCRIPT: Final = frozenset({".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx"})
_CODE: Final = frozenset(
    {*_OF_SCRIPT, ".py", ".pyw", ".pyc", ".so", ".sh", ".bash", ".rb", ".pl", ".pm", ".php", ".lua", ".jar", ".node"}
)
_IMPORT: Final = regex(r"(?:^|[;:])[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_FROM: Final = regex(r"(?:^|[;:])[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]{0,2000}\)|[^\n;#]*)", re.MULTILINE)
_BY_NAME: Final = regex(r"(?:import_module|__import__|run_module|find_spec)\(\s{0,20}[\"']([\w.]+)[\"']")
_REQUIRED: Final = regex(
    r"(?:\bfrom|\bimport|\brequire(?:_relative)?|\bresolve)\s{0,20}\(?\s{0,20}[\"'`](\.{0,2}/[^\"'`\n]{1,300}|\.{1,2})[\"'`]"
)
_BARE: Final = regex(
    r"(?:\bfrom|\bimport|\brequire(?:_relative)?)\s{0,20}\(?\s{0,20}"
    r"[\"'`]([\w@~][^\"'`\n:]{0,200})[\"'`]"
)
"""Imports by a name, which a search path (`NODE_PATH`, that of Lua) or an alias (`@/lib`) leads to a file."""
_ALIASED: Final = frozenset({".lua", ".mts", ".ts", ".tsx"})
"""Code whose names may mean files beside it, or of a `tsconfig.json`."""
_SETTINGS: Final = frozenset({"bunfig.toml", "deno.json", "deno.jsonc", "fastmcp.json"})
"""Settings of runners that name code."""
_TEXT: Final = regex(r"[\"'`]([^\"'`\s]{1,200})[\"'`]")
_WORDS: Final = regex(r"[\s;&|()`{}\"'<>=]+")
_SOURCING: Final = frozenset({".", "source", "include", "-include", "sinclude", "import"})
"""Words of scripts and recipes before a file that is read as a part of them."""
_LONGEST: Final = 1_000
"""Characters of a word that may be a path."""
_VARIABLE: Final = regex(r"(?:\$\w+|\$\{[^}]*\})?/(?=[^/])")
_ENDS: Final = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx", ".json", ".node", ".rb", ".lua")
_COMPILED: Final = {".js": (".ts", ".tsx"), ".mjs": (".mts",), ".cjs": (".cts",), ".jsx": (".tsx",)}
"""Source suffixes for the suffix of a compiled file."""


def loaded_by(files: Iterable[Path], places: Sequence[Path], root: Path) -> Iterator[Path]:
    """Yield what `files` load of the project in `root`, and what that loads in turn; `places` are search paths."""
    folders = _Folders()
    seen = set(files)
    waiting = deque(sorted(seen))
    while waiting and len(seen) < _MOST:
        file = waiting.popleft()
        for found in dict.fromkeys(_loads(file, places, root, folders)):
            if found not in seen and _is_ours(found, root):
                seen.add(found)
                waiting.append(found)
                yield found


def shadows(folder: Path) -> Iterator[Path]:
    """Yield the modules of a folder that have the name of one of Python's own, which they come before."""
    folders = _Folders()
    for name in folders.stems(folder) & sys.stdlib_module_names:
        yield from folders.modules(folder, name)


def tracked(file: Path, root: Path) -> bool:
    """Whether a file, or a file in a folder, came with the project: its repository tracks it.

    Installed files are not tracked, as a rule.
    """
    for folder in (root, *root.parents):
        try:
            index = (folder / ".git" / "index").read_bytes()
        except OSError:
            continue
        name = os.fsencode(os.path.relpath(file, folder))
        is_compressed = index[4:8] == b"\0\0\0\x04"  # names of this format lack what they share with the one before
        known = name.rpartition(b"/")[2] if is_compressed else name
        return known + b"\0" in index or known + b"/" in index
    return False


class _Folders:
    """Names in folders, each read once."""

    def __init__(self) -> None:
        self._known: dict[Path, frozenset[str]] = {}
        self._stems: dict[Path, frozenset[str]] = {}

    def names(self, folder: Path) -> frozenset[str]:
        if folder not in self._known:
            try:
                self._known[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._known[folder] = frozenset()
        return self._known[folder]

    def stems(self, folder: Path) -> frozenset[str]:
        """Return the names up to their first dot."""
        if folder not in self._stems:
            self._stems[folder] = frozenset(name.partition(".")[0] for name in self.names(folder))
        return self._stems[folder]

    def modules(self, folder: Path, name: str) -> Iterator[Path]:
        """Yield every file that Python may take for the module `name` of a folder."""
        names = self.names(folder)
        yield from (
            folder / one for one in names if one.startswith(f"{name}.") and one.endswith((".py", ".pyc", ".so"))
        )
        if name in names:
            inside = folder / name
            yield from (inside / one for one in self.names(inside) if one.startswith("__init__."))


def _is_ours(file: Path, root: Path) -> bool:
    return file.is_relative_to(root) and _INSTALLED.isdisjoint(file.parts) and file.is_file()


def _loads(file: Path, places: Sequence[Path], root: Path, folders: _Folders) -> Iterator[Path]:
    """Yield the paths that a file may load; some of them may be missing."""
    text = _text(file) if _is_ours(file, root) else ""
    if not text:
        return
    shebang = text.partition("\n")[0] if text.startswith("#!") else ""
    yield from _of_shebang(file, shebang, places)
    if file.suffix in (".py", ".pyw") or _PYTHON.search(shebang):
        yield from _imports(file, text, places, root, folders)
    elif file.name in _RECIPES or file.suffix in (".mk", ".sh", ".bash") or (shebang and _SHELL.search(shebang)):
        yield from _run_by(file, text, places)
        return
    elif file.suffix in (".yaml", ".yml") or file.name in _IMAGES:
        yield from _of_services(file, text)
        return
    elif file.name in _SETTINGS:
        yield from _named_code(file, text)
        return
    elif file.suffix in _OF_SCRIPT or file.suffix in (".rb", ".lua") or _NODE.search(shebang):
        yield from _of_script(file, text, places)
    for found in islice(_TEXT.finditer(text), _MENTIONS):
        if os.path.splitext(found[1])[1] in _CODE:
            name = found[1].lstrip("/")
            yield from (Path(os.path.normpath(place / name)) for place in (file.parent, *places))


def _of_shebang(file: Path, line: str, places: Sequence[Path]) -> Iterator[Path]:
    """Yield what the first line of a script names: an interpreter of the project, and what its options load."""
    for word in line[2:].split():
        yield from (Path(os.path.normpath(place / word.rpartition("=")[2])) for place in (*places, file.parent))


def _of_script(file: Path, text: str, places: Sequence[Path]) -> Iterator[Path]:
    """Yield what a program in JavaScript, Ruby or Lua requires; by a name only where a search path may lead to it."""
    for found in islice(_REQUIRED.finditer(text), _MENTIONS):
        yield from _required(Path(os.path.normpath(file.parent / found[1])))
    for found in islice(_BARE.finditer(text), _MENTIONS):
        name = found[1].replace(".", "/") if file.suffix == ".lua" else found[1]
        if file.suffix == ".rb":
            yield from _required(file.parent / name)
        is_alias = name.startswith(("@/", "~/"))
        for place in places if is_alias or file.suffix in _ALIASED else places[1:]:
            for base in (place, place / "src"):
                yield from _required(base / (name[2:] if is_alias else name))


def _named_code(file: Path, text: str) -> Iterator[Path]:
    """Yield the code that settings of a runner name."""
    for found in islice(_OF_SERVICES.finditer(text), _MENTIONS):
        if os.path.splitext(found[0])[1] in _CODE:
            yield Path(os.path.normpath(file.parent / found[0].lstrip("/")))


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES)
    except OSError:
        return ""
    return "" if b"\0" in content[:1024] else content.decode("utf-8", "replace")


def _imports(file: Path, text: str, places: Sequence[Path], root: Path, folders: _Folders) -> Iterator[Path]:
    """Yield the modules that a Python program imports, with their packages."""
    above = [folder for folder in file.parents if folder.is_relative_to(root)]
    bases = [*above, *places, root / "src"]
    if "sys.path" in text:
        named = (Path(os.path.normpath(file.parent / found[1])) for found in islice(_TEXT.finditer(text), _MENTIONS))
        bases += [place for place in named if place.is_dir()]
    bases = tuple(dict.fromkeys(bases))
    for starts, name in islice(_modules_in(file, text, bases), _MENTIONS):
        for base in starts:
            yield from _module(base, name, folders)


def _modules_in(file: Path, text: str, bases: Sequence[Path]) -> Iterator[tuple[Sequence[Path], str]]:
    """Yield the dotted names of the modules that a program imports, and the folders where each is looked for."""
    for found in _IMPORT.finditer(text):
        yield from ((bases, name.split(" as ")[0].strip()) for name in found[1].split(","))
    for found in _BY_NAME.finditer(text):
        yield bases, found[1].strip(".")
    for found in _FROM.finditer(text):
        package = found[1].lstrip(".")
        dots = len(found[1]) - len(package)
        starts = [file.parents[dots - 1]] if 0 < dots <= len(file.parents) else bases
        names = [one.strip().split(" ")[0] for one in found[2].strip("() \t\r\n").split(",")]
        yield starts, package
        yield from ((starts, f"{package}.{name}".lstrip(".")) for name in names if name.isidentifier())


def _module(base: Path, name: str, folders: _Folders) -> Iterator[Path]:
    """Yield the files of a dotted module below a folder of the search path, and those of its packages."""
    folder = base
    for part in filter(None, name.split(".")):
        if part not in folders.stems(folder):
            return
        yield from folders.modules(folder, part)
        folder = folder / part


def _required(path: Path) -> Iterator[Path]:
    """Yield the files that a relative specifier of JavaScript or Ruby may mean."""
    yield path
    yield from (path.with_name(path.name + end) for end in _ENDS)
    yield from (path.with_suffix(end) for end in _COMPILED.get(path.suffix, ()))
    yield from (path / f"index{end}" for end in _ENDS)


def _of_services(file: Path, text: str) -> Iterator[Path]:
    """Yield the files that a compose file or one of an image names, and what builds the image of a folder there."""
    for found in islice(_OF_SERVICES.finditer(text), _MENTIONS):
        path = Path(os.path.normpath(file.parent / found[0]))
        yield path
        if path.is_dir():
            yield from (path / name for name in _IMAGES)


def _run_by(file: Path, text: str, places: Sequence[Path]) -> Iterator[Path]:
    """Yield the programs and sourced files that a shell script names."""
    left = _MENTIONS
    for line in text.splitlines():
        before = ""
        for word in _WORDS.split(line):
            left -= 1
            if left < 0:
                return
            if word.startswith("#"):
                break
            is_sourced, before = before in _SOURCING, word
            for path in _paths_of(word, (file.parent, *places)):
                if is_sourced or path.suffix in _CODE or (os.sep in word and os.access(path, os.X_OK)):
                    yield path


def _paths_of(word: str, places: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths that a word of a script may mean in each place, with and without a variable at its beginning."""
    name = _VARIABLE.sub("", word, count=1)
    if name and "\0" not in name and len(name) < _LONGEST:
        yield from (Path(os.path.normpath(place / one)) for place in places for one in dict.fromkeys((name, word)))
