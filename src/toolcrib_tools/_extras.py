"""Imports of optional libraries, each with the extra of the package that installs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from toolcrib.plugin import ToolFailure

__all__ = ["lacks_library", "lacks_program", "optional"]

_Lacks = Callable[[Callable[[str], Any]], str]
"""`@tool(lacks=…)`"""


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


def lacks_library(module: str, extra: str) -> _Lacks:
    """Return what tells that the library `module` is missing, by the extra of the package that installs it."""
    return lambda setting: "" if find_spec(module) is not None else f"the extra `{extra}`"


def lacks_program(name: str) -> _Lacks:
    """Return what tells that the program `name` is missing."""
    return lambda setting: "" if shutil.which(name) is not None else f"the program {name}"
