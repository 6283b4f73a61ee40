"""`toolcrib version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

from .output import out

__all__ = ["version"]


def version() -> None:
    """Print the version."""
    out(f"toolcrib {installed('toolcrib')} (Python {platform.python_version()}, {platform.system()})")
