"""Plugin settings: folders, disabled plugins, and the settings of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.settings import Section, Texts, setting
from ..errors import ConfigError

__all__ = ["PluginSettings", "placed_plugins", "texts_of"]


class PluginSettings(Section):
    """The key `plugins`."""

    folders: tuple[Path, ...] = ()
    """Folders of plugins, beside the user's own (`plugins` in the configuration directory)."""
    disabled: Texts = ()
    """Plugins that are not exposed."""
    config: Mapping[str, Mapping[str, Any]] = setting({}, hidden=True)
    """Arguments of each plugin's `initialize`, by the plugin's name."""

    def texts(self) -> tuple[Mapping[str, str], ...]:
        """Return the texts of each plugin's configuration, by key: some are secrets."""
        return texts_of(self.config)


def texts_of(config: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, str], ...]:
    """Return the texts of each part of a configuration, by key."""
    return tuple({key: value for key, value in said.items() if isinstance(value, str)} for said in config.values())


def placed_plugins(plugins: PluginSettings, file: Path, *, project: bool) -> PluginSettings:
    """Return the plugins of `file`, with folders that count from its own.

    Raises `ConfigError` for folders in a file that came with a project: their code could change after it was confirmed.
    """
    if "folders" not in plugins.model_fields_set:
        return plugins
    if project and plugins.folders:
        message = "a project's configuration brings no plugins: name the folder in your own configuration"
        raise ConfigError(message, file=str(file), key="plugins.folders")
    folders = tuple(file.parent / folder.expanduser() for folder in plugins.folders)
    return plugins.model_copy(update={"folders": folders})
