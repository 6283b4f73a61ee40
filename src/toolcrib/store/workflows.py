"""Interrupted workflow runs: the results of their steps are kept, sealed, until they go on or for a day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .chain import Transaction
from .database import Connection
from .threads import Reader, Writer
from .vault import Vault

__all__ = ["WorkflowRuns"]

_LIFETIME: Final = 24 * 3600.0
"""As long as the receipts by which its steps are known."""
_PURPOSE: Final = "workflow"
_PUT: Final = (
    "INSERT INTO workflow_runs VALUES (?, ?, ?, ?) ON CONFLICT (principal, id)"
    " DO UPDATE SET state = excluded.state, changed = excluded.changed"
)


class WorkflowRuns:
    """The runs of one store, each known to its principal alone. `clock` gives seconds since 1970."""

    def __init__(self, writer: Writer, reader: Reader, vault: Vault, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._vault = vault
        self._clock = clock

    async def load(self, id: str, principal: str) -> Mapping[str, Any] | None:
        """Return the last saved state. Raises `ToolFailure("storage")` when it cannot be read."""

        def query(connection: Connection) -> str | None:
            sql = "SELECT state FROM workflow_runs WHERE principal = ? AND id = ? AND changed >= ?"
            row = connection.execute(sql, (principal, id, self._clock() - _LIFETIME)).fetchone()
            return row[0] if row else None

        sealed = await self._reader.read(query)
        return None if sealed is None else self._vault.open(sealed, _PURPOSE)

    async def save(self, id: str, principal: str, state: Mapping[str, Any]) -> None:
        """Keep `state`, on the disk. Raises `ToolFailure("storage")`."""
        now = self._clock()
        row = (id, principal, self._vault.seal(state, _PURPOSE), now)
        await self._writer.run(_save, row, now - _LIFETIME, durable=True)

    async def forget(self, id: str, principal: str) -> None:
        """Keep nothing of the run any more."""
        await self._writer.run(_forget, id, principal)


def _save(transaction: Transaction, row: tuple[str, str, str, float], oldest: float) -> None:
    transaction.execute("DELETE FROM workflow_runs WHERE changed < ?", (oldest,))
    transaction.execute(_PUT, row)


def _forget(transaction: Transaction, id: str, principal: str) -> None:
    transaction.execute("DELETE FROM workflow_runs WHERE principal = ? AND id = ?", (principal, id))
