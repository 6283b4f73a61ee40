"""Places of one user in one project: directories, environment and platform. Loads nothing else of the configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .directories import Directories

__all__ = ["Places", "here"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look: one user, in one project."""

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


def here() -> Places:
    """Return where this process's user keeps things, for the folder that it runs in."""
    return Places(directories=Directories.of(os.environ), environ=os.environ, project=Path.cwd())
