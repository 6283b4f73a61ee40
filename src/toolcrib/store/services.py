"""Which process runs each service: one of those that share a store, as long as it is alive."""

from __future__ import annotations

from .chain import Transaction
from .database import Lease
from .threads import Writer


class ServiceRows:
    """The holders of services. Every method raises `ToolFailure("storage")` while the store cannot be used."""

    def __init__(self, writer: Writer, lease: Lease) -> None:
        self._writer = writer
        self._lease = lease

    async def claim(self, name: str) -> bool:
        """Make this process the holder of a service, unless another living one is; return whether it is now."""
        return await self._writer.run(_claim, self._lease, name, durable=True)

    async def release(self, name: str) -> None:
        """Leave a service to other processes."""
        await self._writer.run(_release, self._lease.id, name)


def _claim(transaction: Transaction, lease: Lease, name: str) -> bool:
    found = transaction.execute("SELECT worker FROM services WHERE name = ?", (name,)).fetchone()
    if found is not None and found[0] != lease.id and not lease.is_free(transaction, found[0]):
        return False
    if found is None or found[0] != lease.id:
        transaction.execute("DELETE FROM services WHERE name = ?", (name,))
        transaction.execute("INSERT INTO services (name, worker) VALUES (?, ?)", (name, lease.id))
    return True


def _release(transaction: Transaction, worker: str, name: str) -> None:
    transaction.execute("DELETE FROM services WHERE name = ? AND worker = ?", (name, worker))
