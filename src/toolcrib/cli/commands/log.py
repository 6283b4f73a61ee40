"""`toolcrib log`: the calls that were made, from the store; `log verify`, `log export` and `log head`: their proof."""

from __future__ import annotations

import io
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import copy_context
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypeVar

import anyio
import typer

from ...config import Settings
from ...config.directories import here
from ...core.call import VIEW
from ...core.json import dumps, fields_of
from ...core.patterns import regex
from ...core.services.host import SESSIONS
from ...core.settings import seconds_of
from ...crib.storage import has_store, open_store
from ...errors import CODES, ToolFailure, UsageError
from ...store.calls import CallFilter, CallRow, Calls, Exported, verify_lines
from ...store.chain import Head, Verification
from ...store.store import Store
from ..actions import action_group
from ..options import AsJson, ConfigFiles, run, settings_of
from ..output import Column, emit_json, escape, local_time, note, out, print_raw, table

T = TypeVar("T")

_Row = tuple[CallRow, str]
"""A call, and the description of its session (may be empty)."""

_COLUMNS: Final[tuple[Column, ...]] = (
    ("TIME", "<"),
    ("TOOL", "<"),
    ("OUTCOME", "<"),
    ("MS", ">"),
    ("DECISION", "<"),
    ("FROM", "<"),
    ("CLIENT", "<"),
    ("PRINCIPAL", "<"),
    ("SESSION", "<"),
    ("ARGUMENTS", "<"),
)
_SCHEDULE: Final = "schedule"
"""Origin of the calls that a schedule makes."""
_CALLER: Final = ("FROM", "CLIENT", "PRINCIPAL", "SESSION")
_FOLDED: Final = 20
"""So many calls are read for one line: a schedule makes the same call again and again."""
_FOLLOW_SECONDS: Final = 0.5
"""Seconds between two looks for new calls."""
_BATCH: Final = 100_000
"""New calls that are read at once."""

_CALL: Final = regex(r"call_[0-9a-f]{10,}_[0-9a-f]+\S*")
_HEAD: Final = regex(r"(\d{1,18}):([0-9a-f]{64})")

log = action_group(
    "Show the calls that were made, newest first, and prove that no record was changed. Arguments are stored without "
    "secrets.\n\n"
    "`log TOOL` is `log list TOOL`.",
    default="list",
    takes_words=True,
)

_Since = Annotated[str, typer.Option("--since", help="30m, 2h, 7d, or a date.", metavar="TIME")]


@log.command("list")
def list_calls(
    tool: Annotated[
        str, typer.Argument(metavar="TOOL", help="Only this tool; * stands for any text. Or the id of a call.")
    ] = "",
    outcome: Annotated[str, typer.Option("--outcome", help="ok, error, or a code such as denied.")] = "",
    principal: Annotated[str, typer.Option("--principal", help="Only calls of this principal.")] = "",
    client: Annotated[
        str, typer.Option("--client", help="Only calls of this MCP client: claude-code, claude-code/2.1, claude*.")
    ] = "",
    session: Annotated[
        str, typer.Option("--session", help="Only calls of this session, by its key or name.", metavar="KEY")
    ] = "",
    since: _Since = "",
    limit: Annotated[int, typer.Option("--limit", "-n", help="Number of calls.", min=1)] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Oldest first, then go on with new calls, until interrupted.")
    ] = False,
    views: Annotated[bool, typer.Option("--views", help="Also what pages of the console read.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the chain of records first.")] = False,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the calls that were made, newest first."""
    if outcome and outcome not in (*CODES, "ok", "error", "input_required"):
        raise UsageError(f"{outcome!r} is not an outcome; there are ok, error, input_required, {', '.join(CODES)}")
    id, tool = (tool, "") if _CALL.fullmatch(tool) else ("", tool)
    wanted = CallFilter(
        id=id,
        tool=tool,
        outcome=outcome,
        principal=principal,
        client=client,
        session=session,
        since=_moment(since),
        without="" if views else VIEW,
    )
    settings = settings_of(config)
    if verify:
        _tell(_checked(settings, None, None), as_json=False)
    if follow:
        run(lambda: _print_new(settings, wanted, limit, as_json=as_json))
    else:
        most = limit if as_json else limit * _FOLDED
        rows = _with_store(settings, lambda store: _about(store, store.calls.list(**wanted, limit=most)))
        _show(rows, limit, as_json=as_json)


async def new_calls(
    calls: Calls, wanted: CallFilter, limit: int, wait: Callable[[], Awaitable[None]]
) -> AsyncGenerator[CallRow]:
    """Yield the newest `limit` calls, oldest first, then new ones; `wait` is called if there are none."""
    found = await calls.list(**wanted, limit=limit)
    last = max((row.seq for row in found), default=0)
    while True:
        for row in reversed(found):
            yield row
        found = await calls.list(**wanted, after=last, limit=_BATCH)
        if found:
            last = found[0].seq
        else:
            await wait()


async def _print_new(settings: Settings, wanted: CallFilter, limit: int, *, as_json: bool) -> None:
    """Print one line a call until interrupted; a store that does not exist yet is waited for."""

    async def wait() -> None:
        await anyio.sleep(_FOLLOW_SECONDS)

    while not has_store(settings):
        await wait()
    async with open_store(settings) as store:
        async for row in new_calls(store.calls, wanted, limit, wait):
            out(dumps(fields_of(row)).decode() if as_json else one_line(row), verbatim=as_json)
            sys.stdout.flush()


def one_line(row: CallRow) -> str:
    """Return a call as one line without headings: who made it is named, and what is empty is left out."""
    cells = ((title, cell) for (title, _), cell in zip(_COLUMNS, _cells(row), strict=True) if cell)
    return escape("  ".join(f"{title.lower()} {cell}" if title in _CALLER else cell for title, cell in cells))


@log.command("verify")
def verify_log(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="An export; the store without one.")] = None,
    head: Annotated[str, typer.Option("--head", help="What `log head` printed before.", metavar="SEQ:HASH")] = "",
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Check that no record was changed, cut or moved."""
    _tell(_checked(settings_of(config), file, _known(head)), as_json=as_json)


@log.command("export")
def export_log(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Standard output for `-` or without one.")] = None,
    since: _Since = "",
    config: ConfigFiles = None,
) -> None:
    """Write the records as JSON lines that `log verify FILE` checks."""
    _export(settings_of(config), file, _moment(since))


@log.command("head")
def print_head(config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Print what stands for all records: keep it elsewhere, and give it to `log verify --head`."""
    head = _with_store(settings_of(config), lambda store: store.calls.head()) or Head()
    if as_json:
        emit_json(fields_of(head))
    else:
        out(_text(head))


def _with_store(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T | None:
    """Do `work` with the store; None where nothing was ever recorded. Reading makes no file."""
    if not has_store(settings):
        return None

    async def main() -> T:
        async with open_store(settings) as store:
            return await work(store)

    return run(main)


async def _about(store: Store, listed: Awaitable[list[CallRow]]) -> list[_Row]:
    """Return the calls, each with the description of its session (may be empty)."""
    rows = await listed
    about: dict[tuple[str, str], str] = {}
    for key in {(row.principal, row.session) for row in rows}:
        described = await store.records.get((key[0], SESSIONS), key[1])
        about[key] = str(described.value.get("description", "")) if described else ""
    return [(row, about[row.principal, row.session]) for row in rows]


def _show(rows: list[_Row] | None, limit: int, *, as_json: bool) -> None:
    if as_json:
        emit_json(
            [{**fields_of(row), **({"session_description": about} if about else {})} for row, about in rows or ()]
        )
        return
    lines = folded(rows or [])[:limit]
    if any(about for _, about, _ in lines):
        table((*_COLUMNS[:-1], ("ABOUT", "<"), _COLUMNS[-1]), (_cells(row, about, times=n) for row, about, n in lines))
    elif lines:
        table(_COLUMNS, (_cells(row, times=times) for row, _, times in lines))
    else:
        note("no calls yet" if rows is None else "no such calls")


def folded(rows: list[_Row]) -> list[tuple[CallRow, str, int]]:
    """Return the calls, those of a schedule that follow their equal as one with their number: the newest stands."""
    lines: list[tuple[CallRow, str, int]] = []
    for row, about in rows:
        if lines and row.origin == _SCHEDULE and _what(row) == _what(lines[-1][0]):
            lines[-1] = (*lines[-1][:2], lines[-1][2] + 1)
        else:
            lines.append((row, about, 1))
    return lines


def _what(row: CallRow) -> tuple[str, ...]:
    return (row.tool, row.requested, row.outcome, row.decision, row.origin, row.session, row.arguments)


def _checked(settings: Settings, file: Path | None, known: Head | None) -> Verification:
    if file is not None:
        try:
            with (here().project / file).open("rb") as lines:
                return verify_lines(lines, known)
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    return _with_store(settings, lambda store: store.calls.verify(known)) or Verification(rows=0, head=Head())


def _tell(checked: Verification, *, as_json: bool) -> None:
    """Say what a check found. Raises `ToolFailure("storage")`, with its exit status, when the chain is broken."""
    if as_json:
        emit_json(fields_of(checked))
    if checked.problem:
        raise ToolFailure("storage", f"the record is broken at row {checked.seq}: {checked.problem}")
    if not as_json:
        dropped = f"; rows 1 to {checked.dropped} are not in it" if checked.dropped else ""
        note(f"the chain of {checked.rows} records is whole{dropped}; its head is {_text(checked.head)}")


def _export(settings: Settings, file: Path | None, moment: float) -> None:
    """Write to `file`, whole or not at all and for its owner only, or to standard output."""
    if file is None or file == Path("-"):
        done = _written(settings, _Output(), moment)
    else:
        place = here().project / file
        fresh = place.with_name(f"{place.name}.{secrets.token_hex(4)}.new")
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
                done = _written(settings, stream, moment)
            fresh.replace(place)
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}") from error
        finally:
            fresh.unlink(missing_ok=True)
    note(f"{done.rows} records" + (f", from row {done.first} to {_text(done.head)}" if done.rows else ""))


class _Output(io.BytesIO):
    """Standard output of the command, for whole lines of text, from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._context = copy_context()

    def write(self, data: Any) -> int:
        """Print `data`, which holds whole characters."""
        self._context.run(print_raw, bytes(data).decode())
        return len(data)


def _written(settings: Settings, stream: BinaryIO, moment: float) -> Exported:
    done = _with_store(settings, lambda store: store.calls.export(stream, since=moment))
    return done or Exported(rows=0, first=0, head=Head())


def _known(text: str) -> Head | None:
    if not text:
        return None
    if match := _HEAD.fullmatch(text):
        return Head(seq=int(match[1]), hash=match[2])
    raise UsageError("--head takes what `toolcrib log head` printed, such as 120:5feceb66…, with all 64 digits")


def _text(head: Head) -> str:
    return f"{head.seq}:{head.hash}"


def _cells(row: CallRow, *about: str, times: int = 1) -> tuple[str, ...]:
    name = row.tool if row.requested in ("", row.tool) else f"{row.tool} (as {row.requested})"
    name += f" ×{times:,}" if times > 1 else ""
    session = row.session.split("/", 2)[-1] if row.origin == "rest" else row.session  # not profile and mode before it
    caller = (row.origin, row.client, row.principal, session, *about)
    return (local_time(row.started), name, row.outcome, f"{row.latency_ms:.1f}", row.decision, *caller, row.arguments)


def _moment(text: str) -> float:
    """Seconds since 1970 of `30m` ago or of a date; 0 for none."""
    if not text:
        return 0.0
    if (seconds := seconds_of(text)) is not None:
        return time.time() - seconds
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise UsageError(f"--since takes 30m, 2h, 7d or a date such as 2026-11-21, not {text!r}") from error
