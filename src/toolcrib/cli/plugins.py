"""`toolcrib plugins` and `toolcrib plugin new`: what was loaded from where, and a beginning for another one."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from ..crib.plugins import PluginState
from ..errors import UsageError
from .new_plugin import files_of
from .output import Column, emit_json, note, out, table
from .running import AsJson, ConfigFiles, opened, run, settings_of

__all__ = ["Action", "plugin", "plugins"]

_COLUMNS: Final[tuple[Column, ...]] = (
    ("PLUGIN", "<"),
    ("STATE", "<"),
    ("TOOLS", ">"),
    ("FROM", "<"),
    ("WHY", "<"),
)
_WAIT: Final = 35.0
"""Seconds: a little more than a plugin may take to begin."""
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


class Action(StrEnum):
    """What is done."""

    NEW = "new"


def plugins(config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """List the plugins, whatever became of them: by entry point `toolcrib.plugins` and from folders."""
    settings = replace(settings_of(config), servers=(), openapi=(), catalogs=(), skills=None)

    async def found() -> tuple[PluginState, ...]:
        async with opened(settings, wait=_WAIT) as crib:
            return crib.plugins.all

    listed = run(found)
    if as_json:
        emit_json([asdict(plugin) for plugin in listed])
    elif listed:
        table(_COLUMNS, ((p.name, p.state, str(p.tools), p.origin, p.error) for p in listed))
    else:
        note("no plugins; `toolcrib plugin new NAME` writes one")


def plugin(
    action: Annotated[Action, typer.Argument(help="new: write a plugin.")],
    name: Annotated[str, typer.Argument(help="Letters, digits and dashes: weather, my-tools.")],
    folder: Annotated[Path, typer.Option(help="Where its folder is made.")] = Path(),
) -> None:
    """Write a plugin that works and is tested: a package with an entry point, one tool, and its tests."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a plugin: small letters and digits, with single dashes between")
    target = folder / name
    if target.exists():
        raise UsageError(f"{target} exists already; nothing was written")
    for path, text in files_of(name).items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    out(f"{target} is written. Next: pip install --editable {target}, then toolcrib plugins")
