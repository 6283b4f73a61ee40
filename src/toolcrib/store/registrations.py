"""Registered tools of instances, restored after a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import ToolFailure
from .chain import Transaction
from .database import Connection
from .threads import Reader, Writer
from .vault import Vault

__all__ = ["RegistrationRow", "RegistrationRows"]

_PURPOSE: Final = "registration"
_PUT: Final = (
    "INSERT INTO registrations VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (instance, name) DO UPDATE SET"
    " definition = excluded.definition, way = excluded.way, principal = excluded.principal,"
    " accepted = excluded.accepted, registered = excluded.registered"
)
_SELECT: Final = "SELECT instance, name, definition, way, principal, accepted, registered FROM registrations"
_DELETE: Final = "DELETE FROM registrations WHERE instance = ? AND name = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRow:
    """One registration as it is kept."""

    instance: str
    name: str
    definition: Mapping[str, Any] | None
    """The registered definition, credentials included; None when it cannot be decrypted any more."""
    way: str
    """`library` or `rest`: what held for it then holds after a restart."""
    principal: str
    """The registering principal."""
    accepted: bool
    """Whether its definition was accepted as reviewed."""
    registered: float
    """Seconds since 1970."""


class RegistrationRows:
    """The registrations of one store; definitions are sealed by `vault`."""

    def __init__(self, writer: Writer, reader: Reader, vault: Vault) -> None:
        self._writer = writer
        self._reader = reader
        self._vault = vault

    async def put(self, row: RegistrationRow) -> None:
        """Keep one, in the place of an earlier one of the name. Durable on return; raises `ToolFailure("storage")`."""
        sealed = self._vault.seal(row.definition, _PURPOSE)
        values = (row.instance, row.name, sealed, row.way, row.principal, int(row.accepted), row.registered)
        await self._writer.run(_put, values, durable=True)

    async def remove(self, instance: str, name: str) -> None:
        """Forget one; unknown names are ignored. Durable on return; raises `ToolFailure("storage")`."""
        await self._writer.run(_remove, (instance, name), durable=True)

    async def all(self) -> list[RegistrationRow]:
        """Return every registration, oldest first. Raises `ToolFailure("storage")`."""

        def query(connection: Connection) -> list[Sequence[Any]]:
            return connection.execute(f"{_SELECT} ORDER BY registered, instance, name").fetchall()

        return [self._row(row) for row in await self._reader.read(query)]

    def _row(self, row: Sequence[Any]) -> RegistrationRow:
        instance, name, sealed, way, principal, accepted, registered = row
        try:
            definition = self._vault.open(sealed, _PURPOSE)
        except ToolFailure:
            definition = None
        return RegistrationRow(
            instance=instance,
            name=name,
            definition=definition,
            way=way,
            principal=principal,
            accepted=bool(accepted),
            registered=registered,
        )


def _put(transaction: Transaction, row: Sequence[Any]) -> None:
    transaction.execute(_PUT, row)


def _remove(transaction: Transaction, row: Sequence[str]) -> None:
    transaction.execute(_DELETE, row)
