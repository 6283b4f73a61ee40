"""Options that commands share, and the settings that they name. The configuration is loaded when a command reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar, cast

import anyio
import typer

from ..core.json import read_json
from ..core.own_commands import FILES
from ..daemon.caller import Caller, current_caller
from ..errors import UsageError

if TYPE_CHECKING:  # the configuration is slow to load: for commands that read it
    from ..config import Settings

T = TypeVar("T")

_SHORTEST: Final = 4
"""Characters of an id, without its prefix, that suffice where one row alone begins so."""


def _kept(context: typer.Context, files: list[Path] | None) -> list[Path] | None:
    context.meta[FILES] = files or ()
    return files


ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        help="mcpServers JSON or our YAML, instead of your own; repeatable.",
        metavar="FILE",
        callback=_kept,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait for servers that are not known yet.", min=0)]


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=_Identified)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` on an event loop of its own. Raises `Abort` when the process goes away that a daemon does it for."""
    caller = current_caller()
    return anyio.run(main) if caller is None else anyio.run(_run_for, caller, main)


async def _run_for(caller: Caller, main: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `main`; cancel it, and raise `Abort`, when `caller` goes away."""
    loop, scope = asyncio.get_running_loop(), anyio.CancelScope()

    def interrupt() -> None:
        loop.call_soon_threadsafe(scope.cancel)

    with scope, caller.interrupting(interrupt):
        return await main()
    raise typer.Abort


def settings_of(files: list[Path] | None, **overrides: Any) -> Settings:
    """Return the settings of `files`, or the user's and project's own; `None` among `overrides` is unset."""
    from ..config import load

    given: Mapping[str, Any] = overrides
    return load(files or (), given)


def read_option(text: str, name: str) -> Any:
    """Return the JSON value of the option or argument `name`. Raises `UsageError`."""
    try:
        return read_json(text, strict=True)
    except ValueError as error:
        raise UsageError(f"{name}: {text[:80]!r} is not JSON: {error}") from error


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object of `--args`. Raises `UsageError`."""
    value = read_option(text, "--args")
    if not isinstance(value, dict):
        raise UsageError('--args takes a JSON object, such as \'{"path": "."}\'')
    return cast("dict[str, Any]", value)


def find_by_id(rows: Iterable[Row], id: str, prefix: str) -> Row | None:
    """Return the row of this id, or the only one whose id begins so, with or without the prefix of all ids.

    Raises `UsageError` if several begin so, and for a beginning that is too short.
    """
    digits = id.removeprefix(prefix)
    found = [row for row in rows if row.id.removeprefix(prefix).startswith(digits)]
    if found and len(digits) < _SHORTEST:
        raise UsageError(f"{id!r} is too short: give {_SHORTEST} characters of an id, or more")
    if len(found) > 1:
        raise UsageError(f"{id!r} is the beginning of {len(found)} ids: give more of it")
    return found[0] if found else None
