"""Folders of a crib: those of the user's directories, or a temporary one for a crib without them."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path

from ..config.directories import Directories

__all__ = ["Folders"]


class Folders:
    """Where the parts of one crib keep files."""

    def __init__(self, home: Directories | None) -> None:
        """Create nothing: the part that first puts a file there makes the folder, mode 0700."""
        self.home = home
        self._temporary = Path(tempfile.gettempdir()) / f"toolcrib-{secrets.token_hex(8)}"

    @property
    def cache(self) -> Path | None:
        """The folder for what can be made anew; None where nothing is kept."""
        return self.home.cache if self.home else None

    @property
    def artifacts(self) -> Path | None:
        """The folder of large outputs; None is a temporary one."""
        return self.home.data / "artifacts" if self.home else None

    @property
    def spill(self) -> Path:
        """The folder of results that are too large for memory; removed with the crib."""
        return self._temporary / "spill"

    @property
    def plugins(self) -> Path:
        """The folder in which each plugin has one of its own."""
        return (self.home.data if self.home else self._temporary) / "plugins"

    @property
    def own_plugins(self) -> Path | None:
        """The folder of the user's own plugins."""
        return self.home.config / "plugins" if self.home else None

    def for_tools(self, kept: bool) -> Path:
        """Return the folder below which tools have theirs: `kept` over a restart, or for what can be made anew."""
        base = self._temporary if self.home is None else self.home.data if kept else self.home.cache
        return base / "tools"

    def remove_temporary(self) -> None:
        """Remove the temporary folder."""
        shutil.rmtree(self._temporary, ignore_errors=True)
