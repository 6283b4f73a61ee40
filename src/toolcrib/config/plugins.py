"""Plugins as the configuration says them: where they are, which are not wanted, and what each is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError

__all__ = ["PluginSettings", "placed_plugins", "texts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The key `plugins`."""

    folders: tuple[Path, ...] = ()
    """Folders of plugins, beside the user's own (`plugins` in the configuration directory)."""
    disabled: tuple[str, ...] = ()
    """Plugins that are not exposed."""
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """By a plugin's name: what its `initialize` is given."""

    def texts(self) -> tuple[Mapping[str, str], ...]:
        """Return the texts of each plugin's configuration, by key: some are secrets."""
        return texts_of(self.config)


def texts_of(config: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, str], ...]:
    """Return the texts of each part of a configuration, by key."""
    return tuple({key: value for key, value in said.items() if isinstance(value, str)} for said in config.values())


def placed_plugins(values: Mapping[str, Any], file: Path, *, project: bool) -> Mapping[str, Any]:
    """Return what `file` says of plugins, with folders that count from its own.

    Raises `ConfigError` for folders in a file that came with a project: their code could change after it was confirmed.
    """
    folders = values.get("folders", ())
    if project and folders:
        message = "a project's configuration brings no plugins: name the folder in your own configuration"
        raise ConfigError(message, file=str(file), key="plugins.folders")
    return {**values, "folders": tuple(file.parent / Path(folder).expanduser() for folder in folders)}
