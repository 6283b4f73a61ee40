"""Directories of Toolcrib: the XDG directories, and the project's own folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PROJECT_FOLDER", "Directories"]

PROJECT_FOLDER = ".toolcrib"
"""In a project's root: `config.yaml` for everybody who works on it, `local.yaml` for one machine (git-ignored)."""


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
