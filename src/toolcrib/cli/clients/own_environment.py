"""The program that a client's entry starts, by a path that stays: an installed environment, or one made for it.

An entry outlives the shell in which `toolcrib connect` was typed. Environments of `uv tool`, `pipx` and `pip` stay
where they are, and the entry names their program. A clone may be moved, and the environment of `uvx` or `pipx run` is
a cache: from there `connect` makes an environment in the user's data folder (`environments/VERSION-DIGEST`, with
`environment` a link to the current one) and the entry names its program.

Such an environment is a copy of the one that runs: the distributions that Toolcrib needs, file by file as their
`RECORD` lists them, linked where the file system can. So it needs no index and no network, and has the same versions.
The sources of an editable distribution are copied. The copy is built beside its place and tried before it counts; a
failure leaves everything as it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from ...config.directories import Places
from ...core.files import make_private_folder
from ...core.json import loads
from ...core.patterns import regex
from ...errors import UsageError

COMMAND_VARIABLE: Final = "TOOLCRIB_COMMAND"
"""Environment variable: the program that entries start, as `connect --command` names it."""

_DISTRIBUTION: Final = "toolcrib"
_PROGRAM: Final = "toolcrib.exe" if os.name == "nt" else "toolcrib"
_BIN: Final = "Scripts" if os.name == "nt" else "bin"
_LINK: Final = "environment"
_FOLDER: Final = "environments"
_TRY_SECONDS: Final = 120.0

_UNSERVED_EXTRAS: Final = frozenset(
    {"anthropic", "bench", "dev", "docs", "langchain", "openai", "openai-agents", "pydantic-ai", "test-peers"}
)
"""Extras for programs that use the library, or for work on Toolcrib itself: no gateway needs them."""

_CACHE_TAG: Final = "CACHEDIR.TAG"
"""The file that marks a folder as a cache (bford.info/cachedir); uv writes one."""

_REQUIREMENT: Final = regex(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?", re.DOTALL)
_SYSTEM: Final = regex(r"sys_platform\s*(==|!=)\s*['\"](\w+)['\"]")
_EXTRA: Final = regex(r"extra\s*==\s*['\"]([^'\"]+)['\"]")

_SCRIPT: Final = """\
#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
from toolcrib.cli.entry import main

main()
"""
"""A script for sh and Python: a first line that names Python by its path may be neither long nor hold a blank."""


class EntryProgram(Struct, frozen=True, kw_only=True):
    """Program that an entry starts."""

    path: str
    """Absolute, unless there is no installed program at all."""
    kind: Literal["given", "installed", "clone", "temporary", "own"]
    """`clone` and `temporary`: the environment that runs may be gone tomorrow, so that one is to be made."""

    @property
    def is_lasting(self) -> bool:
        """Whether an entry may name it as it is."""
        return self.kind not in ("clone", "temporary")


def entry_program(places: Places, command: str | None = None) -> EntryProgram:
    """Return the program that entries start: `command`, else that of the variable, else that of this environment.

    Raises `UsageError` when the program that was named cannot be started.
    """
    given = command or places.environ.get(COMMAND_VARIABLE)
    if given:
        found = shutil.which(os.path.expanduser(given), path=places.environ.get("PATH"))
        if found is None:
            option = "--command" if command else COMMAND_VARIABLE
            raise UsageError(f"{option}: there is no program {given!r} that can be started")
        return EntryProgram(path=str(Path(found).absolute()), kind="given")
    return running_program(places)


def running_program(places: Places) -> EntryProgram:
    """Return the program of the environment that runs."""
    own = own_program(places)
    if own.is_file() and Path(sys.prefix).resolve() == own.parent.parent.resolve():
        return EntryProgram(path=str(own), kind="own")
    return EntryProgram(path=_running_program(), kind=_kind_of_environment())


def own_program(places: Places) -> Path:
    """Return the program of the environment that `make_environment` makes; it need not be there."""
    return places.directories.data / _LINK / _BIN / _PROGRAM


def make_environment(places: Places) -> Path:
    """Copy the environment that runs into the user's data folder and return its program.

    One that is there already and has the same content is used again. Raises `UsageError`, with the reason, where it
    cannot be made; then everything is as it was.
    """
    data = places.directories.data
    try:
        if os.name == "nt":
            raise _Unable("links to folders need a privilege on Windows")
        make_private_folder(data / _FOLDER)
        chosen = _chosen()
        place = data / _FOLDER / _name_of(chosen)
        if not (place / "pyvenv.cfg").is_file():
            _build(place, chosen.values())
        _point(data / _LINK, place)
    except (OSError, _Unable, subprocess.SubprocessError) as error:
        raise UsageError(f"no environment can be made in {data}: {error}") from error
    return own_program(places)


def outdated_program(places: Places) -> Path | None:
    """Return the program that `make_environment` made, where what runs has changed since; None where it has not."""
    made = own_program(places)
    if not made.is_file() or running_program(places).is_lasting:
        return None
    return made if made.parent.parent.resolve().name != _name_of(_chosen()) else None


def _chosen() -> dict[str, Distribution]:
    return needed_distributions(installed_distributions(), everything=_kind_of_environment() == "temporary")


def _name_of(chosen: Mapping[str, Distribution]) -> str:
    return f"{chosen[_DISTRIBUTION].version}-{_digest(chosen.values())}"


class _Unable(Exception):
    """Environment that cannot be copied; the message is the reason."""


def _running_program() -> str:
    with contextlib.suppress(PackageNotFoundError):
        for file in distribution(_DISTRIBUTION).files or ():
            if file.name == _PROGRAM and (found := Path(str(file.locate()))).is_file():
                return os.path.abspath(found)
    beside = Path(sys.executable).with_name(_PROGRAM)
    return str(beside) if beside.exists() else shutil.which(_PROGRAM) or _PROGRAM


def _kind_of_environment() -> Literal["installed", "clone", "temporary"]:
    prefix = Path(sys.prefix).resolve()
    if any((folder / _CACHE_TAG).is_file() for folder in prefix.parents) or "/.cache/pipx" in prefix.as_posix():
        return "temporary"
    try:
        source = _source(distribution(_DISTRIBUTION))
    except PackageNotFoundError:
        return "clone"  # it runs from a folder of sources
    return "clone" if source and (source.is_editable or prefix.is_relative_to(source.folder)) else "installed"


class _Source(Struct, frozen=True, kw_only=True):
    """The folder that a distribution was installed from (PEP 610)."""

    folder: Path
    is_editable: bool


def _source(found: Distribution) -> _Source | None:
    text = found.read_text("direct_url.json")
    direct: dict[str, Any] = loads(text) if text else {}
    if "dir_info" not in direct:
        return None
    folder = Path(unquote(urlsplit(str(direct["url"])).path)).resolve()
    return _Source(folder=folder, is_editable=direct["dir_info"].get("editable") is True)


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def installed_distributions() -> dict[str, Distribution]:
    """Return every distribution by its normalized name; the first on the path counts, as it does for imports."""
    found: dict[str, Distribution] = {}
    for one in distributions():
        found.setdefault(_name(one.metadata["Name"] or ""), one)
    if _DISTRIBUTION not in found:
        raise _Unable(f"{_DISTRIBUTION} is not installed in {sys.prefix}")
    return found


def needed_distributions(
    there: Mapping[str, Distribution], *, everything: bool = False, extras: frozenset[str] | None = None
) -> dict[str, Distribution]:
    """Return the distributions to copy: Toolcrib and its plugins with what they require.

    `extras` of ours are those that are whole when it is None. A requirement that is not installed is one for another
    system.
    """
    if everything:
        return dict(sorted(there.items()))
    plugins = [name for name, one in there.items() if any(p.group.startswith("toolcrib.") for p in one.entry_points)]
    chosen: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    wanted = [(name, frozenset[str]()) for name in plugins] + [
        (_DISTRIBUTION, _whole_extras(there) if extras is None else extras)
    ]
    while wanted:
        name, extras = wanted.pop()
        if name not in there or (name, extras) in seen:
            continue
        seen.add((name, extras))
        chosen[name] = there[name]
        wanted += _requirements(there[name], extras)
    return dict(sorted(chosen.items()))


def _requirements(one: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in one.requires or ():
        match = _REQUIREMENT.match(text)
        if match is None:
            continue
        system = _SYSTEM.search(match[3] or "")
        if system and (system[2] == sys.platform) != (system[1] == "=="):
            continue
        of_extra = _EXTRA.search(match[3] or "")
        if of_extra is None or _name(of_extra[1]) in extras:
            yield _name(match[1]), frozenset(_name(extra) for extra in (match[2] or "").split(",") if extra.strip())


def _whole_extras(there: Mapping[str, Distribution]) -> frozenset[str]:
    """Return the extras of ours of which every requirement is installed."""
    own = there[_DISTRIBUTION]
    every = {_name(extra) for extra in own.metadata.get_all("Provides-Extra") or ()} - _UNSERVED_EXTRAS
    base = {name for name, _ in _requirements(own, frozenset())}
    more = {extra: {name for name, _ in _requirements(own, frozenset({extra}))} - base for extra in every}
    return frozenset(extra for extra, names in more.items() if names and names <= there.keys())


def _digest(chosen: Iterable[Distribution]) -> str:
    """Return a hash that changes with the interpreter, a version, or a source file of an editable distribution."""
    parts = [sys.version, sys.base_prefix]
    for one in chosen:
        record = one.read_text("RECORD") or ""
        parts.append(f"{one.metadata['Name']} {one.version} {hashlib.sha256(record.encode()).hexdigest()}")
        for file, relative in _editable_files(one):
            state = file.stat()
            parts.append(f"{relative} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _build(place: Path, chosen: Iterable[Distribution]) -> None:
    """Build the environment beside `place`, try it, and rename it. It works there: only its script names the place."""
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    try:
        venv.EnvBuilder(symlinks=True, with_pip=False).create(staging)
        purelib = staging / Path(_site_packages()).relative_to(sys.prefix)
        purelib.mkdir(parents=True, exist_ok=True)
        for one in chosen:
            _copy(one, staging, purelib)
        quoted = "'" + str(place / _BIN / "python").replace("'", "'\"'\"'") + "'"
        script = staging / _BIN / _PROGRAM
        script.unlink(missing_ok=True)
        script.write_text(_SCRIPT.format(python=quoted))
        script.chmod(0o755)
        _try(staging)
        staging.rename(place)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _site_packages() -> str:
    import sysconfig  # it takes as long as everything else here, and is needed for a copy only

    return sysconfig.get_path("purelib")


def _copy(one: Distribution, prefix: Path, purelib: Path) -> None:
    if one.files is None:
        raise _Unable(f"{one.metadata['Name']} was installed without a list of its files (RECORD)")
    source = _source(one)
    is_editable = source is not None and source.is_editable
    for file in one.files:
        if is_editable and (file.suffix == ".pth" or file.name in ("RECORD", "direct_url.json")):
            continue
        found = Path(os.path.abspath(str(file.locate())))
        if not found.is_relative_to(sys.prefix) or not found.is_file():
            continue  # it was removed, or belongs to the system's Python
        target = prefix / found.relative_to(sys.prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent.name == _BIN and found.read_bytes()[:2] == b"#!":
            continue  # a script of another distribution: it would start the old environment
        if not target.exists():
            _link_or_copy(found, target)
    copied = False
    for file, relative in _editable_files(one):
        copied = True
        target = purelib / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    if is_editable and not copied:
        raise _Unable(f"{one.metadata['Name']} is editable and has no .pth file that names its sources")


def _link_or_copy(found: Path, target: Path) -> None:
    try:
        os.link(found, target)
    except OSError:
        shutil.copy2(found, target)


def _editable_files(one: Distribution) -> Iterator[tuple[Path, Path]]:
    """Yield the source files of an editable distribution, each with its path below `site-packages`."""
    source = _source(one)
    if source is None or not source.is_editable:
        return
    for file in one.files or ():
        if file.suffix != ".pth":
            continue
        for line in Path(str(file.locate())).read_text("utf-8").splitlines():
            root = Path(line)
            if root.is_absolute() and root.is_dir():
                yield from _modules(root)


def _modules(root: Path) -> Iterator[tuple[Path, Path]]:
    for entry in sorted(root.iterdir()):
        if entry.suffix == ".py":
            yield entry, entry.relative_to(root)
        elif (entry / "__init__.py").is_file():
            for file in sorted(entry.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    yield file, file.relative_to(root)


def _try(environment: Path) -> None:
    """Raise `_Unable` unless Toolcrib runs there, from its own files."""
    words = "import sys, toolcrib.cli.main as m; sys.exit(not m.__file__.startswith(sys.prefix))"
    done = subprocess.run(
        [environment / _BIN / "python", "-I", "-c", words],
        capture_output=True,
        text=True,
        timeout=_TRY_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()
        raise _Unable(f"Toolcrib does not run in the copy: {last[-1] if last else 'it loads other files'}")


def _point(link: Path, place: Path) -> None:
    """Let `link` name `place`, and remove the environments that are neither this nor the one before.

    What runs in the one before goes on: its script names it by its own path.
    """
    before = link.resolve()
    if before == place.resolve():
        return
    fresh = link.with_name(f"{link.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(Path(_FOLDER) / place.name, target_is_directory=True)
    fresh.replace(link)
    for entry in place.parent.iterdir():
        if entry not in (before, place) and not entry.name.startswith(".new-"):
            shutil.rmtree(entry, ignore_errors=True)
