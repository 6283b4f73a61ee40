"""`toolcrib log`: the calls that were made, from the store."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Final

import typer

from ..errors import CODES, ToolFailure, UsageError
from ..store.calls import CallRow
from ..store.store import Store
from .output import Column, emit_json, note, table
from .running import AsJson, run, settings_of

__all__ = ["log"]

_COLUMNS: Final[tuple[Column, ...]] = (
    ("TIME", "<"),
    ("TOOL", "<"),
    ("OUTCOME", "<"),
    ("MS", ">"),
    ("DECISION", "<"),
    ("FROM", "<"),
    ("ARGUMENTS", "<"),
)

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def log(
    tool: Annotated[str, typer.Argument(help="Only this tool; * stands for anything.")] = "",
    outcome: Annotated[str, typer.Option(help="ok, error, or a code such as denied.")] = "",
    session: Annotated[str, typer.Option(help="Only this session.")] = "",
    since: Annotated[str, typer.Option(help="30m, 2h, 7d, or a date.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many, newest first.", min=1)] = 50,
    verify: Annotated[bool, typer.Option("--verify", help="Check the chain of records for changes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the calls that were made, newest first. Arguments are stored without secrets."""
    if outcome and outcome not in (*CODES, "ok", "error", "input_required"):
        raise UsageError(f"{outcome!r} is no outcome; there are ok, error, input_required, {', '.join(CODES)}")
    moment = _moment(since)
    path = settings_of(None).directories.data / "toolcrib.db"

    async def rows() -> list[CallRow]:
        async with Store.open(path) as store:
            if verify:
                await _verify(store)
            return await store.calls.list(tool=tool, session=session, outcome=outcome, since=moment, limit=limit)

    found = run(rows) if path.exists() else []
    if as_json:
        emit_json([asdict(row) for row in found])
    elif found:
        table(_COLUMNS, (_cells(row) for row in found))
    else:
        note("no calls yet" if not path.exists() else "no such calls")


async def _verify(store: Store) -> None:
    checked = await store.calls.verify()
    if checked.problem:
        raise ToolFailure("storage", f"the record is broken at row {checked.seq}: {checked.problem}")
    note(f"the chain of {checked.rows} records is whole")


def _cells(row: CallRow) -> tuple[str, ...]:
    name = row.tool if row.requested in ("", row.tool) else f"{row.tool} (as {row.requested})"
    started = datetime.fromtimestamp(row.started).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return (started, name, row.outcome, f"{row.latency_ms:.1f}", row.decision, row.origin, row.arguments)


def _moment(text: str) -> float:
    """Seconds since 1970 of `30m` ago or of a date; 0 for none."""
    if not text:
        return 0.0
    if ago := re.fullmatch(r"(\d{1,6})([smhd])", text):
        return time.time() - timedelta(seconds=int(ago.group(1)) * _UNITS[ago.group(2)]).total_seconds()
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise UsageError(f"--since takes 30m, 2h, 7d or a date such as 2026-11-21, not {text!r}") from error
