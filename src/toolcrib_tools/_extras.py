"""Imports of optional libraries, each with the extra of the package that installs it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolcrib.plugin import ToolFailure

__all__ = ["optional"]


def optional(module: str, extra: str) -> Any:
    """Return a module, loaded now. Raises `ToolFailure("unavailable")` with what to install where it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        raise ToolFailure(
            "unavailable",
            f"this needs the library {missing}, which is not installed here",
            hint=f"the operator can install the extra `{extra}`",
        ) from error
