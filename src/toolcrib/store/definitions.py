"""Stored definitions: accepted definitions of tools (pins), and registered tools of instances.

A tool whose definition has another digest than its pin waits for a review. Registered tools are restored after a
restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from ..core.json import dumps, loads
from ..errors import ToolFailure
from .chain import Transaction
from .readers import Reader
from .threads import Writer
from .vault import Vault

_SELECT: Final = "SELECT source, tool, digest, definition, accepted, accepted_by FROM pins"

_PUT: Final = (
    "INSERT INTO pins VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (source, tool) DO UPDATE SET digest = excluded.digest,"
    " definition = excluded.definition, accepted = excluded.accepted, accepted_by = excluded.accepted_by"
)

_PURPOSE: Final = "registration"
_PUT_REGISTRATION: Final = (
    "INSERT INTO registrations VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (instance, name) DO UPDATE SET"
    " definition = excluded.definition, way = excluded.way, principal = excluded.principal,"
    " accepted = excluded.accepted, registered = excluded.registered"
)
_SELECT_REGISTRATIONS: Final = (
    "SELECT instance, name, definition, way, principal, accepted, registered FROM registrations"
)
_DELETE: Final = "DELETE FROM registrations WHERE instance = ? AND name = ?"


class Pin(Struct, frozen=True, kw_only=True):
    """One accepted definition."""

    source: str
    tool: str
    """The name that its source calls it."""
    digest: bytes
    definition: Mapping[str, Any]
    """The accepted definition, to show the difference later."""
    accepted: float
    """Seconds since 1970."""
    by: str
    """The principal that accepted it, or the option that did."""


class Pins:
    """The pins of one store."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def get(self, source: str, tool: str) -> Pin | None:
        """Return the pin of one tool."""
        row = await self._reader.row(f"{_SELECT} WHERE source = ? AND tool = ?", (source, tool))
        return _pin(row) if row else None

    async def all(self, source: str = "") -> list[Pin]:
        """Return every pin, or those of one source, by source and tool."""
        if source:
            return await self._reader.rows(_pin, f"{_SELECT} WHERE source = ? ORDER BY tool", (source,))
        return await self._reader.rows(_pin, f"{_SELECT} ORDER BY source, tool")

    async def stamp(self) -> tuple[int, float]:
        """Return a value that changes with every acceptance."""
        sql = "SELECT count(*), coalesce(max(accepted), 0.0) FROM pins"
        count, newest = await self._reader.row(sql)
        return int(count), float(newest)

    async def put(self, pins: Iterable[Pin]) -> None:
        """Accept definitions, all or none; an earlier pin of the same tool is replaced. Durable on return."""
        await self._writer.run(_put, _rows(pins), durable=True)

    def note(self, pins: Iterable[Pin]) -> None:
        """Accept definitions with one of the next commits, within 250 ms. Never waits, never raises."""
        self._writer.later(_put_pins, tuple(pins))

    async def remove(self, source: str, tools: Iterable[str]) -> None:
        """Forget the pins of these tools: they wait for a review again. Durable on return."""
        await self._writer.run(_remove, [(source, tool) for tool in tools], durable=True)


def _rows(pins: Iterable[Pin]) -> list[tuple[Any, ...]]:
    return [
        (pin.source, pin.tool, pin.digest.hex(), dumps(pin.definition).decode(), pin.accepted, pin.by) for pin in pins
    ]


def _put_pins(transaction: Transaction, pins: Sequence[Pin]) -> None:
    _put(transaction, _rows(pins))


def _put(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    for row in rows:
        transaction.execute(_PUT, row)


def _remove(transaction: Transaction, rows: Sequence[tuple[str, str]]) -> None:
    for row in rows:
        transaction.execute("DELETE FROM pins WHERE source = ? AND tool = ?", row)


def _pin(row: Sequence[Any]) -> Pin:
    source, tool, digest, definition, accepted, by = row
    return Pin(
        source=source,
        tool=tool,
        digest=bytes.fromhex(digest),
        definition=loads(definition),
        accepted=accepted,
        by=by,
    )


class RegistrationRow(Struct, frozen=True, kw_only=True):
    """One stored registration."""

    instance: str
    name: str
    definition: Mapping[str, Any] | None
    """The registered definition, credentials included; None when it cannot be decrypted any more."""
    way: str
    """`library` or `rest`: the rules of this way apply again after a restart."""
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
        await self._writer.run(_put_registration, values, durable=True)

    async def remove(self, instance: str, name: str) -> None:
        """Forget one; unknown names are ignored. Durable on return; raises `ToolFailure("storage")`."""
        await self._writer.run(_remove_registrations, (instance, name), durable=True)

    async def all(self) -> list[RegistrationRow]:
        """Return every registration, oldest first. Raises `ToolFailure("storage")`."""
        sql = f"{_SELECT_REGISTRATIONS} ORDER BY registered, instance, name"
        return [self._row(row) for row in await self._reader.rows(tuple[Any, ...], sql)]

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


def _put_registration(transaction: Transaction, row: Sequence[Any]) -> None:
    transaction.execute(_PUT_REGISTRATION, row)


def _remove_registrations(transaction: Transaction, row: Sequence[str]) -> None:
    transaction.execute(_DELETE, row)
