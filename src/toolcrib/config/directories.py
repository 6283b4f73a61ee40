"""Directories of one user (XDG) and of a project.

`Places` adds the environment and the platform. Standard library only, and little of it: every command loads this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import UsageError

PROJECT_FOLDER = ".toolcrib"
"""In a project's root: `config.yaml` for everybody who works on it, `local.yaml` for one machine (git-ignored)."""
OF_PROJECT: Final = ("config.yaml", "local.yaml")
"""The files of that folder."""


class Directories(NamedTuple):
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

    @property
    def sockets(self) -> list[Path]:
        """Sockets where daemons listen, or did: a killed one leaves its own. None where `su` left another's folder."""
        try:
            return sorted(self.runtime.glob("*.sock"))
        except OSError:
            return []

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Directories:
        """Read them from `environ`; a relative path counts as not set, as the XDG specification wants.

        Raises `UsageError` for a home that is relative, and for a folder whose name is not UTF-8.
        """
        home = _home(environ)

        def base(variable: str, default: Path, folder: str = "toolcrib") -> Path:
            given = _readable(variable, environ.get(variable, ""))
            return Path(given) / "toolcrib" if Path(given).is_absolute() else default / folder

        user = environ.get("USER") or environ.get("USERNAME") or str(os.getuid() if hasattr(os, "getuid") else "user")
        temporary = Path(_readable("TMPDIR", environ.get("TMPDIR") or environ.get("TEMP") or "/tmp"))
        return cls(
            home=home,
            config=base("XDG_CONFIG_HOME", home / ".config"),
            data=base("XDG_DATA_HOME", home / ".local" / "share"),
            state=base("XDG_STATE_HOME", home / ".local" / "state"),
            cache=base("XDG_CACHE_HOME", home / ".cache"),
            runtime=base("XDG_RUNTIME_DIR", temporary, f"toolcrib-{user}"),
        )


def _home(environ: Mapping[str, str]) -> Path:
    """Return the user's home; that of the account where no variable names one. An empty variable counts as not set."""
    variable = "HOME" if environ.get("HOME") else "USERPROFILE"
    if given := _readable(variable, environ.get(variable, "")):
        if not Path(given).is_absolute():
            raise UsageError(f"the variable {variable} is relative ({given!r}): set it to the path of your home folder")
        return Path(given)
    if os.environ.get("HOME") or os.name == "nt":
        return Path.home()
    import pwd  # POSIX only

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise UsageError("the variable HOME is not set, and this account has no home folder: set HOME") from None


def _readable(variable: str, value: str) -> str:
    """Return the value of a variable; raises `UsageError` for bytes that files and messages in UTF-8 cannot hold."""
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UsageError(f"the variable {variable} is not UTF-8 ({value!a}): name a folder whose path is")
    return value


class Places(NamedTuple):
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
    """Let `here` and `load` see the environment and the folder of another process of this user, in this context.

    A daemon carries out commands of other processes, each in a thread; `os.environ` and the working directory would be
    the daemon's own, and the same for all.
    """
    token = _asker.set((environ, project))
    try:
        yield
    finally:
        _asker.reset(token)


def here() -> Places:
    """Return the places of this process's user, for the working directory (see `answering_for`)."""
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
