"""`toolcrib results`: the long outputs that are kept for you; show one, search in one, remove one."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Final

import typer

from ..config import Settings
from ..core.session import LOCAL
from ..errors import UsageError
from ..results.artifacts import URI_PREFIX, Artifact, Artifacts, Page, SearchResult
from .open_crib import AsJson, ConfigFiles, run, settings_of
from .output import Column, emit_json, escape, note, out, table

__all__ = ["results"]

_COLUMNS: Final[tuple[Column, ...]] = (
    ("ID", "<"),
    ("BYTES", ">"),
    ("KEPT UNTIL", "<"),
    ("TRUST", "<"),
    ("FROM", "<"),
    ("TYPE", "<"),
)
_WORDS: Final = ("list", "show", "search", "rm")
_PAGE: Final = 12_000


def results(
    action: Annotated[str, typer.Argument(help="list, show, search or rm.")] = "list",
    id: Annotated[str, typer.Argument(help="The id of a result.")] = "",
    text: Annotated[str, typer.Argument(help="search: what to find.")] = "",
    offset: Annotated[int, typer.Option(help="show: the byte to begin at; negative counts from the end.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="How many results, bytes or lines.", min=1)] = None,
    principal: Annotated[str, typer.Option(help="Whose results.")] = LOCAL,
    raw: Annotated[bool, typer.Option("--raw", help="show: print text as it is, control characters too.")] = False,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the long results that are kept, newest first; show one, search in one, or remove one.

    A result that is too long for a model is kept whole, for `results: {keep: 7d, quota: 2GiB, each: 256MiB}`.
    """
    if action not in _WORDS:
        raise UsageError(f"there is no `results {action}`, only {', '.join(_WORDS)}")
    if action != "list" and not id:
        raise UsageError(f"`results {action}` needs the id of a result; `toolcrib results` lists them")
    if (action == "search") != bool(text):
        raise UsageError("a text to find goes with `results search ID TEXT`")
    settings = settings_of(config)
    artifacts, name = _open(settings), id.removeprefix(URI_PREFIX)
    if action == "list":
        _list(run(lambda: artifacts.recent(principal, limit or 50)), settings, as_json=as_json)
    elif action == "show":
        _show(run(lambda: artifacts.read(name, principal, offset, limit or _PAGE)), raw=raw, as_json=as_json)
    elif action == "search":
        _search(run(lambda: artifacts.search(name, principal, text, limit or 50)), as_json=as_json)
    else:
        removed = run(lambda: artifacts.remove(name, principal))
        note(f"removed {removed.id} ({removed.size} bytes)")


def _open(settings: Settings) -> Artifacts:
    return Artifacts(settings.directories.data / "artifacts", settings.results)


def _list(kept: list[Artifact], settings: Settings, *, as_json: bool) -> None:
    if as_json:
        emit_json([{name: value for name, value in asdict(one).items() if name != "owner"} for one in kept])
        return
    if not kept:
        note("no long result is kept")
        return
    table(_COLUMNS, [_row(one, settings.results.keep) for one in kept])


def _row(one: Artifact, keep: float) -> list[str]:
    until = datetime.fromtimestamp(min(one.created + keep, time.time() + keep)).strftime("%Y-%m-%d %H:%M")
    return [one.id, str(one.size), until, one.trust, one.source or "-", one.mime_type]


def _show(page: Page, *, raw: bool, as_json: bool) -> None:
    if as_json:
        emit_json(asdict(page))
        return
    out(page.text if raw else escape(page.text, lines=True))
    if page.next_offset is not None:
        note(f"{page.size - page.next_offset} bytes follow: --offset {page.next_offset}")


def _search(found: SearchResult, *, as_json: bool) -> None:
    if as_json:
        emit_json(asdict(found))
        return
    for hit in found.hits:
        out(f"{hit.line} @{hit.offset}: {escape(hit.text)}")
    if len(found.hits) < found.total:
        note(f"{found.total} lines found, the first {len(found.hits)} are shown")
