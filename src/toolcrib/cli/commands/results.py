"""`toolcrib results`: the long outputs that are kept for you; show one, search in one, remove one."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from ...config import Settings
from ...core.json import fields_of
from ...core.session import LOCAL
from ...results.artifacts import URI_PREFIX, Artifact, Artifacts
from ..actions import action_group
from ..options import AsJson, ConfigFiles, run, settings_of
from ..output import Column, emit_json, escape, note, out, table

_COLUMNS: Final[tuple[Column, ...]] = (
    ("ID", "<"),
    ("BYTES", ">"),
    ("KEPT UNTIL", "<"),
    ("TRUST", "<"),
    ("FROM", "<"),
    ("TYPE", "<"),
)
_PAGE: Final = 12_000
"""Bytes of one page of `show`."""

results = action_group(
    "List the long results that are kept, newest first; show one, search in one, or remove one.\n\n"
    "A result that is too long for a model is kept whole, for `results: {keep: 7d, quota: 2GiB, each: 256MiB}`.",
    default="list",
)

_Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a result; `toolcrib results` lists them.")]
_Principal = Annotated[str, typer.Option("--principal", help="The owner of the results.")]


@results.command("list")
def list_results(
    limit: Annotated[int, typer.Option("--limit", "-n", help="Number of results.", min=1)] = 50,
    principal: _Principal = LOCAL,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the kept results, newest first."""
    settings = settings_of(config)
    kept = run(lambda: _open(settings).recent(principal, limit))
    if as_json:
        emit_json([_as_json(one, settings.results.keep) for one in kept])
    elif kept:
        table(_COLUMNS, [_row(one, settings.results.keep) for one in kept])
    else:
        note("no long result is kept")


@results.command("show")
def show_result(
    id: _Id,
    offset: Annotated[int, typer.Option("--offset", help="First byte; a negative one counts from the end.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Number of bytes.", min=1)] = _PAGE,
    raw: Annotated[bool, typer.Option("--raw", help="Print the text as it is, control characters too.")] = False,
    principal: _Principal = LOCAL,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Print one page of a result."""
    page = run(lambda: _open(settings_of(config)).read(_name(id), principal, offset, limit))
    if as_json:
        emit_json(fields_of(page))
        return
    out(page.text if raw else escape(page.text, lines=True), verbatim=True)
    if page.next_offset is not None:
        note(f"{page.size - page.next_offset} bytes follow: --offset {page.next_offset}")


@results.command("search")
def search_result(
    id: _Id,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to find, in any case.")],
    limit: Annotated[int, typer.Option("--limit", "-n", help="Number of lines.", min=1)] = 50,
    principal: _Principal = LOCAL,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Print the lines of a result that contain a text, with their offsets."""
    found = run(lambda: _open(settings_of(config)).search(_name(id), principal, text, limit))
    if as_json:
        emit_json(fields_of(found))
        return
    for hit in found.hits:
        out(f"{hit.line} @{hit.offset}: {escape(hit.text)}", verbatim=True)
    if len(found.hits) < found.total:
        note(f"{found.total} lines found, the first {len(found.hits)} are shown")


@results.command("rm")
def remove_result(id: _Id, principal: _Principal = LOCAL, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Remove a result."""
    removed = run(lambda: _open(settings_of(config)).remove(_name(id), principal))
    if as_json:
        emit_json({"id": removed.id, "size": removed.size})
    else:
        note(f"removed {removed.id} ({removed.size} bytes)")


def _open(settings: Settings) -> Artifacts:
    return Artifacts(settings.directories.data / "artifacts", settings.results)


def _name(id: str) -> str:
    return id.removeprefix(URI_PREFIX)


def _as_json(one: Artifact, keep: float) -> dict[str, Any]:
    fields = {name: value for name, value in fields_of(one).items() if name != "owner"}
    return fields | {"kept_until": _kept_until(one, keep)}


def _kept_until(one: Artifact, keep: float) -> float:
    return min(one.created + keep, time.time() + keep)


def _row(one: Artifact, keep: float) -> list[str]:
    until = datetime.fromtimestamp(_kept_until(one, keep)).strftime("%Y-%m-%d %H:%M")
    return [one.id, str(one.size), until, one.trust, one.source or "-", one.mime_type]
