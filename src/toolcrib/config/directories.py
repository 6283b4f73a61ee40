"""Directories of one user (XDG) and of a project, and the record of project files that the user trusts.

`Places` adds the environment and the platform; nothing else of the configuration is loaded.

A cloned repository may bring a configuration that starts programs; it counts only once its user has confirmed
exactly this content. The record is ours (`$XDG_STATE_HOME/toolcrib/trusted.json`), outside of every project.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson

__all__ = [
    "OF_PROJECT",
    "PROJECT_FOLDER",
    "Directories",
    "Places",
    "Trust",
    "answering_for",
    "config_files",
    "here",
    "project_root",
]

PROJECT_FOLDER = ".toolcrib"
"""In a project's root: `config.yaml` for everybody who works on it, `local.yaml` for one machine (git-ignored)."""
OF_PROJECT: Final = ("config.yaml", "local.yaml")
"""The files of that folder."""

_MAX_FILES: Final = 5_000
"""Entries that are kept; the oldest go first."""

_NO_PINS: Final[Mapping[tuple[Path, str], Mapping[str, str]]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Directories:
    """The places of one user. Nothing is created here; who writes there makes the folder, mode 0700."""

    home: Path
    config: Path
    """`$XDG_CONFIG_HOME/toolcrib`: config.yaml."""
    data: Path
    """`$XDG_DATA_HOME/toolcrib`: the database, artifacts."""
    state: Path
    """`$XDG_STATE_HOME/toolcrib`: logs, trusted projects, backups of client configurations."""
    cache: Path
    """`$XDG_CACHE_HOME/toolcrib`: tool lists of servers."""
    runtime: Path
    """`$XDG_RUNTIME_DIR/toolcrib`: sockets of the local daemon."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Directories:
        """Read them from `environ`; a relative path counts as not set, as the XDG specification wants."""
        home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())

        def base(variable: str, default: Path, folder: str = "toolcrib") -> Path:
            given = environ.get(variable, "")
            return Path(given) / "toolcrib" if Path(given).is_absolute() else default / folder

        user = environ.get("USER") or environ.get("USERNAME") or str(os.getuid() if hasattr(os, "getuid") else "user")
        temporary = Path(environ.get("TMPDIR") or environ.get("TEMP") or "/tmp")
        return cls(
            home=home,
            config=base("XDG_CONFIG_HOME", home / ".config"),
            data=base("XDG_DATA_HOME", home / ".local" / "share"),
            state=base("XDG_STATE_HOME", home / ".local" / "state"),
            cache=base("XDG_CACHE_HOME", home / ".cache"),
            runtime=base("XDG_RUNTIME_DIR", temporary, f"toolcrib-{user}"),
        )


class Trust:
    """The record of one user, read once."""

    def __init__(self, directories: Directories) -> None:
        self._path = directories.state / "trusted.json"
        self._known = self._load()

    def covers(self, path: Path, content: bytes) -> bool:
        """Whether the user has confirmed exactly this `content` of `path`."""
        return self._known.get(_resolved(path)) == _content_digest(content)

    def pins(self, path: Path, server: str) -> Mapping[str, str]:
        """Return what the user confirmed of the files behind a server of the project's file `path`."""
        try:
            found: Any = orjson.loads(self._known.get(_behind(path, server), "{}"))
        except ValueError:
            return {}
        return cast("Mapping[str, str]", found) if isinstance(found, dict) else {}

    def confirm(
        self, confirmed: Iterable[tuple[Path, bytes]], pins: Mapping[tuple[Path, str], Mapping[str, str]] = _NO_PINS
    ) -> None:
        """Remember that the user has agreed to these files as they are now, and to `pins` of servers by name."""
        from . import files  # the shim, which a client waits for, reads no configuration

        given = tuple(confirmed)
        for path, _ in given:
            for gone in [known for known in self._known if known.startswith(_behind(path, ""))]:
                del self._known[gone]
        for (path, server), files_behind in pins.items():
            self._known[_behind(path, server)] = orjson.dumps(dict(files_behind)).decode()
        for path, content in given:
            self._known.pop(_resolved(path), None)
            self._known[_resolved(path)] = _content_digest(content)
        kept = dict(list(self._known.items())[-_MAX_FILES:])
        files.write(self._path, orjson.dumps(kept, option=orjson.OPT_INDENT_2))

    def _load(self) -> dict[str, str]:
        try:
            known: Any = orjson.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(known, dict):
            return {}
        return {path: str(digest) for path, digest in cast("dict[str, Any]", known).items()}


def _behind(path: Path, server: str) -> str:
    return f"{_resolved(path)}\0{server}"


def _resolved(path: Path) -> str:
    return str(path.resolve())


def _content_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Directories to look in: of one user, in one project."""

    directories: Directories
    environ: Mapping[str, str]
    project: Path
    platform: str = sys.platform
    """`linux`, `darwin` or `win32`, as Python names them."""

    @property
    def home(self) -> Path:
        """The user's home directory."""
        return self.directories.home

    @property
    def config(self) -> Path:
        """`$XDG_CONFIG_HOME`."""
        return self.directories.config.parent

    def application(self, name: str) -> Path:
        """The folder where a desktop application of this name keeps its settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support" / name
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming") / name
        return self.config / name


_asker: ContextVar[tuple[Mapping[str, str], Path] | None] = ContextVar("asker", default=None)
"""Environment and folder of the process that a context answers for; None for this process."""


@contextmanager
def answering_for(environ: Mapping[str, str], project: Path) -> Generator[None]:
    """Let `here` and `load` see the environment and the folder of another process of this user, in this context."""
    token = _asker.set((environ, project))
    try:
        yield
    finally:
        _asker.reset(token)


def here() -> Places:
    """Return where the user of this process keeps things, for the folder that it runs in (see `answering_for`)."""
    environ, project = _asker.get() or (os.environ, Path.cwd())
    return Places(directories=Directories.of(environ), environ=environ, project=project)


def config_files(directories: Directories, cwd: Path) -> list[Path]:
    """Return the files that are looked for, lowest precedence first, whether they exist or not."""
    root = project_root(cwd, directories.home)
    project = [root / PROJECT_FOLDER / name for name in OF_PROJECT] if root else []
    return [directories.config / "config.yaml", *project]


def project_root(cwd: Path, home: Path) -> Path | None:
    """Return the nearest folder, from `cwd` upwards, that holds `.toolcrib`; the home directory does not count."""
    for folder in (cwd, *cwd.parents):
        if folder == home:
            return None
        if (folder / PROJECT_FOLDER).is_dir():
            return folder
    return None
