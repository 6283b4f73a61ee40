"""Sealed rows that the present key does not open: what waits in a store and cannot go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from ..errors import ToolFailure
from .database import Connection
from .vault import Vault, purpose_of

__all__ = ["unreadable"]

_WAITING: Final[tuple[tuple[str, Literal["approval", "job", "schedule"], str], ...]] = (
    ("job", "job", "SELECT id, saved FROM jobs WHERE ended IS NULL"),
    ("schedule", "schedule", "SELECT id, saved FROM schedules WHERE status IN ('active', 'paused')"),
    ("message", "schedule", "SELECT id, saved FROM messages"),
    ("approval", "approval", "SELECT id, sealed FROM approvals WHERE sealed <> '' AND expires > ?"),
)


def unreadable(connection: Connection, vault: Vault, now: float) -> Mapping[str, int]:
    """Count the jobs, schedules, messages and approvals that `vault` does not open; without kinds that it opens all."""
    found: dict[str, int] = {}
    for kind, purpose, sql in _WAITING:
        rows = connection.execute(sql, (now,) if "?" in sql else ()).fetchall()
        if count := sum(not _opens(vault, sealed, purpose_of(purpose, id)) for id, sealed in rows):
            found[kind] = count
    return found


def _opens(vault: Vault, sealed: str, purpose: str) -> bool:
    try:
        vault.open(sealed, purpose)
    except ToolFailure:
        return False
    return True
