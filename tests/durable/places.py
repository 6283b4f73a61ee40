"""Where a store may be kept, for the suites that every place must pass."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import psycopg
import pytest

from toolcrib.core.call import Call
from toolcrib.core.permission import Decision
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.store.store import Store

TOOL = Tool(name="git__commit", source="git", local_name="commit")
SESSION = SessionState(key="s1", principal="ada")
DONE = ToolResult(content=({"type": "text", "text": "done"},), structured_content={"n": 1}, meta={"call": "c1"})
SHARED: Final = ["file", "postgres"]
EVERYWHERE: Final = [*SHARED, "memory"]
EMPTY: Final = "empty postgres"
"""A database without the tables of a store, which the others have."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a store is kept, and a way past it for tests that play the intruder."""

    where: Path | str | None

    def open(self, **options: Any) -> Store:
        return Store.open(self.where, **options)

    def tamper(self, *statements: str) -> list[Any]:
        """Run statements beside the store; return the rows of the last one."""
        rows: list[Any] = []
        if isinstance(self.where, str):
            with psycopg.connect(self.where, autocommit=True) as session:
                for statement in statements:
                    cursor = session.execute(statement.encode())
                    rows = cursor.fetchall() if cursor.description else []
            return rows
        with closing(sqlite3.connect(cast("Path", self.where), isolation_level=None)) as connection:
            for statement in statements:
                rows = connection.execute(statement).fetchall()
        return rows

    def hash_of(self, seq: int) -> str:
        """The hash of a recorded call, as exports and heads have it."""
        ((digest,),) = self.tamper(f"SELECT hash FROM calls WHERE seq = {seq}")
        return digest.hex() if isinstance(digest, bytes) else digest


def has_table(place: Place, table: str) -> bool:
    try:
        place.tamper(f"SELECT * FROM {table}")
    except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
        return False
    return True


def make_call(number: int = 1, *, tool: str = "git__commit", session: SessionState = SESSION) -> Call:
    return Call(
        id=f"call-{number}",
        name=tool,
        arguments={"message": "hello", "n": number},
        session=session,
        origin="mcp",
        tool=TOOL if tool == TOOL.name else Tool(name=tool, source="x", local_name=tool),
        decision=Decision(effect="allow", rule="mode autonomous"),
        started=time.monotonic(),
    )


everywhere = pytest.mark.parametrize("place", EVERYWHERE, indirect=True)
empty = pytest.mark.parametrize("place", ["file", EMPTY], indirect=True)
shared = pytest.mark.parametrize("place", SHARED, indirect=True)


async def run_call(store: Store, call: Call) -> None:
    """Begin and end a call with side effects."""
    await store.calls.intend(call)
    await store.calls.finish(call, DONE)
