"""Requirements of tools on the machine and on the settings: optional libraries, by their extras, programs, keys.

Their checks are made of named functions and texts, so that tools are listed without an import of their modules.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from toolcrib.plugin import ToolFailure, as_mapping

_Setting = Callable[[str], Any]
Lacks = Callable[[_Setting], str]
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


def find_program(names: Sequence[str], config: Any) -> str:
    """Return the path of the first of some programs that is there, or of the `program` that a configuration names."""
    named = as_mapping(config).get("program")
    found = (shutil.which(name) for name in (names if named is None else (str(named),)))
    return next((program for program in found if program), "")


def lacks_library(module: str, extra: str) -> Lacks:
    """Return the check for the library `module`; it names the extra that installs it."""
    return partial(_library, module, extra)


def _library(module: str, extra: str, setting: _Setting) -> str:
    return "" if find_spec(module) is not None else f"the extra `{extra}`"


def lacks_program(name: str, names: Sequence[str] = (), *, section: str = "") -> Lacks:
    """Return the check for a program: under each of its `names`, or the one that its settings name."""
    return partial(_program, name, names or (name,), section)


def _program(name: str, names: Sequence[str], section: str, setting: _Setting) -> str:
    return "" if find_program(names, setting(section)) else f"the program {name}"


def lacks_setting(section: str, key: str, note: str = "") -> Lacks:
    """Return the check that the operator has set `tools.SECTION.KEY`."""
    return partial(_key, section, key, note)


def _key(section: str, key: str, note: str, setting: _Setting) -> str:
    return "" if as_mapping(setting(section)).get(key) else f"the setting tools.{section}.{key}{note}"


def lacks_any(*lacks: Lacks) -> Lacks:
    """Return the check for several things; it names the first that is missing."""
    return partial(_first, lacks)


def _first(lacks: Sequence[Lacks], setting: _Setting) -> str:
    return next(filter(None, (one(setting) for one in lacks)), "")


def lacks_unless_set(section: str, key: str, lacks: Lacks) -> Lacks:
    """Return the check `lacks`, for where the operator has not set `tools.SECTION.KEY`."""
    return partial(_unless_set, section, key, lacks)


def _unless_set(section: str, key: str, lacks: Lacks, setting: _Setting) -> str:
    return lacks(setting) if as_mapping(setting(section)).get(key) is None else ""
