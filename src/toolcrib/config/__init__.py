"""Configuration: the one floor that reads the environment and configuration files, ours and other programs'.

Names are loaded when they are used: the modules of files and directories alone take a tenth of the time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .directories import Directories
    from .loader import bare, load, servers_in
    from .settings import Settings

__all__ = ["Directories", "Settings", "bare", "load", "servers_in"]

_HOMES: Final = {"Directories": "directories", "Settings": "settings"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES.get(name, 'loader')}", __name__), name)
