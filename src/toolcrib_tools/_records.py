"""Helpers of the tools: project of a call, atomic changes of records, values of unknown shape, dates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from toolcrib.plugin import Context, Record, Records, ToolFailure

ProjectId = Annotated[str, Field(max_length=200)]
"""Project argument of a tool: empty is that of the session."""

Values = dict[str, Any]
"""Content of a record."""

_TRIES: Final = 20
"""Attempts of a change that collides with others."""
_NAMED: Final = 20
_SHADOWS: Final = (".toolcrib", "shadows")


def project_of(ctx: Context, project_id: str) -> str:
    """Return the key of a project's records: its id, else the folder that the session works in.

    Empty if there is neither: what belongs to no project. The working copy of a task belongs to the folder that it
    was made of.
    """
    if project_id.strip():
        return project_id.strip()
    if ctx.workspace is None:
        return ""
    root = ctx.workspace.root
    for folder in (root, *root.parents):
        if (folder.parent.parent.name, folder.parent.name) == _SHADOWS:
            return str(Path(*folder.parts[:-3]))
    return str(root)


def own_project(ctx: Context) -> str:
    """Return the project id of the session's context; empty if the context names none."""
    return str(ctx.defaults.get("project_id") or "")


async def change(
    records: Records,
    id: str,
    make: Callable[[Values | None], Values],
    *,
    group: str,
    text: Callable[[Mapping[str, Any]], str] | None = None,
    title: Callable[[Mapping[str, Any]], str] | None = None,
) -> Record:
    """Store the result of `make` for the current value, or for None if there is no record.

    After a concurrent change, `make` is called again: no change is lost. `text` and `title` say what a search
    goes by.
    Raises what `make` raises, and `ToolFailure("conflict")` after too many collisions.
    """
    for attempt in range(_TRIES):
        found = await records.get(id)
        value = make(None if found is None else dict(found.value))
        try:
            searched = "" if text is None else text(value)
            named = "" if title is None else title(value)
            revision = 0 if found is None else found.revision
            return await records.put(id, value, group=group, text=searched, title=named, revision=revision)
        except ToolFailure as failure:
            if failure.code != "conflict" or attempt == _TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")


def finds(
    find: Callable[[Mapping[str, Any], Context], Awaitable[object]],
) -> Callable[[Mapping[str, Any], Context], Awaitable[None]]:
    """Return the `check` of a tool: `find` raises the failure of a record that does not exist."""

    async def check(arguments: Mapping[str, Any], ctx: Context) -> None:
        await find(arguments, ctx)

    return check


def date_of(seconds: float) -> str:
    """Return a time of seconds since 1970 in ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def names_of(names: list[str]) -> str:
    """Return the existing names, for the hint of a failure; one with characters that no terminal shows is quoted."""
    if not names:
        return "there are none yet"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    shown = (name if name.isprintable() else repr(name) for name in names[:_NAMED])
    return f"there are {', '.join(shown)}{more}"
