"""One file of the workspace that a command runs, read as what it is: shell text, code, settings or a program.

Of Makefiles, manifests and configurations the commands are taken that a run reaches; other text is kept as it stands.

Kinds, as `workspace_scripts` names them, and what is made of the file:

    program, shell             by its first line: shell text, make, code of another language; a NUL: a binary program
    code, imported             text in which a program's name may stand in quotes
    make, ninja, package, git  the commands that the given names (goals, scripts, aliases) reach
    tasks, manifest, generate  commands of a runner's document
    containers                 the steps of a Dockerfile
    settings, words, lines, plain   text in which a value, or any word, may be a command
    main, bin                  the files that a `package.json` names
    includes                   nothing of its own: only the files that it names count
"""

from __future__ import annotations

import filecmp
import fnmatch
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from ...core.json import as_mapping, read_json
from ...core.patterns import regex
from .configuration_files import FILE_TIME_GRANULARITY_NS, part_of
from .container_files import container_commands, is_container_file
from .grammar import read_script
from .makefile_recipes import TooLarge, included_by, recipes
from .ninja_commands import included_by_ninja, ninja_commands
from .script import Script
from .task_runners import tasks_in

_MAX_FILES: Final = 32
"""Files that one includes, or that a pattern means."""
_MAX_PATTERN_FOLDERS: Final = 1_000
"""Folders of one level in which a pattern is looked for."""
_MAX_DEPTH: Final = 32
_WILDCARD: Final = regex(r"[*?\[]")
_MAX_GIT_INCLUDES: Final = 8
"""Files that a configuration of git includes."""
_MAX_FILE_BYTES: Final = 1024 * 1024
"""Bytes of a file that are read."""
_CODE_SUFFIXES: Final = frozenset({".cjs", ".js", ".lua", ".mjs", ".php", ".pl", ".py", ".rb", ".ts"})
_SHEBANG: Final = regex(rb"#![ \t]*([^\n]{0,200})")
SHELLS: Final = regex(r"(?:ba|da|a|z|k|mk|rba|fi)?sh")
_GENERATED: Final = regex(r"^//go:generate[ \t]+(.*)", re.MULTILINE)
MAKES: Final = regex(r"(?:[gbnp]|re)?make|just")
_INSTALL_SCRIPTS: Final = tuple("preinstall install postinstall prepublish preprepare prepare postprepare".split())
_LIFECYCLE: Final = {
    **dict.fromkeys(("add", "ci", "i", "install", "rebuild", "link"), _INSTALL_SCRIPTS),
    **dict.fromkeys(("it", "install-test"), (*_INSTALL_SCRIPTS, "pretest", "test", "posttest")),
    **dict.fromkeys(
        ("publish", "pack"), tuple("prepublishOnly prepublish prepack prepare postpack publish postpublish".split())
    ),
    "restart": "prestop stop poststop prestart start poststart".split(),
}
"""Scripts that a sub-command of a package manager runs beside those of its own name."""
_NPM_ABBREVIATIONS: Final = {"t": "test", "tst": "test"}
_COMMAND_SETTING: Final = regex(
    r"^[ \t]*(?:commands?(?:_pre|_post)?|entry)[ \t]*[=:][ \t]*(.*(?:\n[ \t]+.*)*)", re.MULTILINE
)
_ARCHIVE_REMOVAL: Final = regex(r"\S{0,200}cmake -E rm -f \$TARGET_FILE && ")
"""The first step of a static library in what cmake writes for ninja: it takes away the old archive."""
_COMMENTS: Final = ("#", "//", ";", "<!--")
_SECTION: Final = regex(r"^[ \t]*\[[ \t]*([\w.-]++)(?:[ \t]+\"([^\"]*+)\")?[^\]]*+\]")
_KEY: Final = regex(r"^[ \t]*([\w-]+)[ \t]*=[ \t]*(.*)$")
_STARTS: Final = regex(
    r"clean|smudge|process|textconv|command|driver|cmd|.*program|.*editor|pager|askpass|sshcommand|fsmonitor|external|helper"
)


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


def is_same_program(file: Path, name: str) -> bool:
    """Whether a file is the program `name` of this machine, as a link, a copy or itself.

    Compares contents, which reads both files.
    """
    found = shutil.which(name)
    try:
        return file.resolve().name == name or (found is not None and filecmp.cmp(file, found, shallow=False))
    except OSError:
        return False


def existing(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that a name means in these folders."""
    if len(name) < 1_000:
        name = os.path.expanduser(name) if name.startswith("~") else name
        paths = (os.path.normpath(os.path.join(folder, name)) for folder in folders)
        yield from (Path(path) for path in dict.fromkeys(paths) if os.path.isfile(path))


def executables_in(folder: Path) -> Iterator[Path]:
    """Yield the programs in a folder of git's hooks, samples left out."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if not name.endswith(".sample") and os.access(folder / name, os.X_OK) and (folder / name).is_file():
            yield folder / name


def read_started(file: Path, kind: str, names: tuple[str, ...]) -> Iterator[StartedFile]:
    """Yield what a file runs. `kind` is how a program reads it; `names` are the tasks, or the parts, that count.

    Never raises for a file that is missing or cannot be read: it is answered as `unread`.
    """
    name = str(file)
    content = content_of(file)
    if content is None:
        yield StartedFile(file=name, unread=True)
        return
    if kind in ("program", "code", "imported", "shell"):
        yield from _read_program(name, content, is_code=kind in ("code", "imported"))
        return
    text = content.decode("utf-8", "replace")
    if readers := _READERS.get(kind):
        yield from readers(file, text, names)
    elif commands := _BUILDERS.get(kind):
        yield from _read_built(name, lambda: commands(text, file.parent, names))
    elif kind in ("main", "bin"):
        yield from _files_of_package(file, content, kind)
    elif kind == "package":
        yield from _read_shell(name, "\n".join(_scripts_of_package(content, names)), is_short=True)
    elif kind == "git":
        hooks = re.search(r"(?im)^[ \t]*hookspath[ \t]*=[ \t]*\"?([^\"\n]+)", text)
        for hook in executables_in(file.parent.parent / hooks[1].strip()) if hooks else ():
            yield from read_started(hook, "program", ())
        paths = re.findall(r"(?im)^[ \t]*path[ \t]*=[ \t]*\"?([^\"\n]+)", text)[:_MAX_GIT_INCLUDES]
        included = [content_of(one) for part in paths for one in existing(part.strip(), [file.parent])]
        text = "\n".join([text, *(one.decode("utf-8", "replace") for one in included if one)])
        yield from _read_shell(name, "\n".join(_git_programs(text, names)))
    else:
        lines = [line.strip() for found in _COMMAND_SETTING.findall(text) for line in found.splitlines()]
        yield from _read_shell(name, "\n".join(lines), is_short=True)


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _read_text(file: Path, text: str, _: Sequence[str]) -> Iterator[StartedFile]:
    yield StartedFile(file=str(file), script=Script(), text=text)


def _read_lines(file: Path, text: str, _: Sequence[str]) -> Iterator[StartedFile]:
    yield StartedFile(file=str(file), script=Script(), text=_without_comments(text))


def _read_container_file(file: Path, text: str, _: Sequence[str]) -> Iterator[StartedFile]:
    for command in container_commands(text):
        yield from _read_shell(str(file), command, is_short=True)


def _read_settings(file: Path, text: str, names: Sequence[str]) -> Iterator[StartedFile]:
    if is_container_file(text):
        yield from _read_container_file(file, text, names)
        return
    lines = part_of(text, file.name, names[0]).splitlines()
    kept = "\n".join(line for line in lines if not line.lstrip().startswith(_COMMENTS))
    yield StartedFile(file=str(file), text=kept, is_settings=True, unread=len(text) >= _MAX_FILE_BYTES)


def _read_nothing(file: Path, text: str, names: Sequence[str]) -> Iterator[StartedFile]:
    yield from ()


def _read_go_generate(file: Path, text: str, _: Sequence[str]) -> Iterator[StartedFile]:
    yield from _read_shell(str(file), "\n".join(_GENERATED.findall(text)), is_short=True)


def _read_tasks(file: Path, text: str, names: Sequence[str]) -> Iterator[StartedFile]:
    """Yield what a run of tasks consists of; the whole document where it cannot be read."""
    program, *tasks = names
    texts = tasks_in(text, file.name, program, tasks)
    if texts is None:
        yield from _read_lines(file, text, ())
    else:
        yield from _read_shell(str(file), "\n".join(texts), is_short=True)


_READERS: Final[Mapping[str, Callable[[Path, str, Sequence[str]], Iterator[StartedFile]]]] = {
    "containers": _read_container_file,
    "generate": _read_go_generate,
    "includes": _read_nothing,
    "lines": _read_lines,
    "plain": _read_text,
    "settings": _read_settings,
    "tasks": _read_tasks,
    "words": _read_lines,
}


def _make_commands(text: str, folder: Path, goals: Sequence[str]) -> list[str]:
    return recipes(_with_included(text, folder, included_by), goals)


def _ninja_commands(text: str, folder: Path, goals: Sequence[str]) -> list[str]:
    return ninja_commands(_ARCHIVE_REMOVAL.sub("", _with_included(text, folder, included_by_ninja)))


_BUILDERS: Final = {"make": _make_commands, "ninja": _ninja_commands}


def _with_included(text: str, folder: Path, included: Callable[[str], Iterable[str]]) -> str:
    """Return a file with the files behind it that it includes."""
    texts, seen = [text], set[Path]()
    for one in texts:
        for part in included(one):
            if len(texts) > _MAX_FILES:
                break
            for file in globbed(folder, part.removeprefix("./")):
                if file not in seen and (content := content_of(file)):
                    seen.add(file)
                    texts.append(content.decode("utf-8", "replace"))
    return "\n".join(texts)


def globbed(folder: Path, pattern: str) -> list[Path]:
    """Return the files that a pattern means; below the root of the machine, none is looked for by a wildcard.

    Level by level, and of each level only so many: links that lead back multiply what `*/*/*/*` finds without an end.
    """
    if Path(pattern).is_absolute():
        return [file] if (file := Path(pattern)).is_file() else []
    found = [folder]
    for part in Path(pattern).parts[:_MAX_DEPTH]:
        if not _WILDCARD.search(part):
            found = [place / part for place in found]
            continue
        named = re.compile(fnmatch.translate(part))
        found = [place / name for place in found for name in sorted(_names_in(place)) if named.match(name)]
        del found[_MAX_PATTERN_FOLDERS:]
    return [one for one in found if os.path.lexists(one)][:_MAX_FILES]


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (OSError, ValueError):
        return []


def _files_of_package(manifest: Path, content: bytes, key: str) -> Iterator[StartedFile]:
    """Yield the files that a folder starts by its `package.json`: `main`, or those of `bin`."""
    try:
        found: Any = read_json(content)
    except ValueError:
        return
    value: Any = as_mapping(found).get(key)
    values = list(cast("dict[str, Any]", value).values())[:_MAX_GIT_INCLUDES] if isinstance(value, dict) else [value]
    for file in (file for one in values if isinstance(one, str) for file in existing(one, [manifest.parent])):
        yield from read_started(file, "code", ())


def _read_program(name: str, content: bytes, *, is_code: bool) -> Iterator[StartedFile]:
    shebang = _SHEBANG.match(content)
    if b"\0" in content[:1024]:
        yield StartedFile(file=name, is_program=True)
        return
    text = content.decode("utf-8", "replace")
    words = shebang[1].decode("utf-8", "replace").split() if shebang else []
    runs = [Path(word).name for word in words if not word.startswith("-")]
    if any(MAKES.fullmatch(word) for word in runs):
        yield from _read_built(name, lambda: recipes(text, ()), is_short=False)
    elif any(word in ("sed", "ed", "m4", "dc") for word in runs):
        yield StartedFile(file=name, script=Script(), text=text)
    elif is_code or (not any(map(SHELLS.fullmatch, runs)) if runs else Path(name).suffix in _CODE_SUFFIXES):
        yield StartedFile(file=name, text=text, unread=len(content) >= _MAX_FILE_BYTES)
    else:
        yield from _read_shell(name, text, unread=len(content) >= _MAX_FILE_BYTES)


def _read_built(name: str, commands: Callable[[], Sequence[str]], *, is_short: bool = True) -> Iterator[StartedFile]:
    try:
        yield from _read_shell(name, "\n".join(commands()), is_short=is_short)
    except TooLarge:
        yield StartedFile(file=name, unread=True)


def _read_shell(name: str, text: str, *, unread: bool = False, is_short: bool = False) -> Iterator[StartedFile]:
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
    scripts = as_mapping(as_mapping(found).get("scripts"))
    wanted = [_NPM_ABBREVIATIONS.get(name, name) for name in names]
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


def content_of(file: Path) -> bytes | None:
    """Return the beginning of a regular file; None when it cannot be read.

    At most `_MAX_FILE_BYTES` bytes. Kept as long as inode, change time and size are the same, unless the file was
    changed in the last `FILE_TIME_GRANULARITY_NS`: a second change could have the same time.
    """
    try:
        known = file.stat()
        if not stat.S_ISREG(known.st_mode):
            return None
        is_settled = time.time_ns() - known.st_ctime_ns > FILE_TIME_GRANULARITY_NS
        return (_read_cached if is_settled else _read_cached.__wrapped__)(
            str(file), known.st_ino, known.st_ctime_ns, known.st_size
        )
    except OSError:
        return None


@lru_cache(maxsize=16)
def _read_cached(file: str, inode: int, changed: int, size: int) -> bytes:
    """Read a file once for all rules; the other arguments differ when the file has changed."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        return stream.read(_MAX_FILE_BYTES)
