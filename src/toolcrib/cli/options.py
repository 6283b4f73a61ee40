"""Options that commands share, and the settings that they name. Loads the configuration, not the crib."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import typer

from ..config import Settings, load

__all__ = ["AsJson", "ConfigFiles", "Wait", "run", "settings_of"]

T = TypeVar("T")

ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", "-c", help="mcpServers JSON or our YAML, instead of your own; repeatable.", metavar="FILE"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait for servers that are not known yet.", min=0)]


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` on an event loop of its own."""
    return anyio.run(main)


def settings_of(files: list[Path] | None, **overrides: Any) -> Settings:
    """Return the settings of `files`, or the user's and project's own; `None` among `overrides` is unset."""
    given: Mapping[str, Any] = overrides
    return load(files or (), given)
