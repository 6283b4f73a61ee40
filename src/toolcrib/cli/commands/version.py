"""`toolcrib version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

from ..options import AsJson
from ..output import emit_json, out


def version(as_json: AsJson = False) -> None:
    """Print the version."""
    number, python, system = installed("toolcrib"), platform.python_version(), platform.system()
    if as_json:
        emit_json({"version": number, "python": python, "system": system})
    else:
        out(f"toolcrib {number} (Python {python}, {system})")
