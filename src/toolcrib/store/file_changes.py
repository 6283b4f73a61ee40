"""Pending file changes. Contents are kept once for each set, compressed and sealed.

A set is replaced as a whole, under the number of its version: of two writers the second gets False and reads again.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from ..core.workspace import MAX_PENDING, PendingChange, PendingKey, PendingSet
from ..errors import ToolFailure
from .chain import Transaction
from .database import Connection
from .readers import Reader
from .threads import Writer
from .vault import Vault

_COLUMNS: Final = PendingChange.__struct_fields__
_NAMES: Final = ", ".join(_COLUMNS)
_OWNED: Final = "WHERE principal = ? AND workspace = ? AND owner = ?"
_INSERT: Final = (
    f"INSERT INTO pending_changes (principal, workspace, owner, {_NAMES})"
    f" VALUES (?, ?, ?, {', '.join('?' * len(_COLUMNS))})"
)
_PUT_SET: Final = (
    "INSERT INTO pending_sets (principal, workspace, owner, files, version, changed) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (principal, workspace, owner) DO UPDATE SET files = excluded.files, version = excluded.version,"
    " changed = excluded.changed"
)
_PUT_CONTENT: Final = (
    "INSERT INTO pending_contents (principal, workspace, owner, digest, size, sealed) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (principal, workspace, owner, digest) DO NOTHING"
)
_SWEEP: Final = (
    f"DELETE FROM pending_contents {_OWNED} AND digest NOT IN (SELECT content FROM pending_changes {_OWNED})"
    f" AND digest NOT IN (SELECT before FROM pending_changes {_OWNED})"
)


class _Sealed(Struct, frozen=True):
    digest: str
    size: int
    text: str


class PendingChanges:
    """The pending changes of one store; a `core.workspace.PendingStore`."""

    def __init__(self, writer: Writer, reader: Reader, vault: Vault, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._vault = vault
        self._clock = clock

    async def get(self, key: PendingKey) -> PendingSet:
        """Return the pending changes; an empty set for an unknown key."""
        return await self._reader.read(partial(_get, key=key))

    async def version(self, key: PendingKey) -> int:
        """Return the version of the set, 0 for an unknown key."""
        return await self._reader.read(partial(_version, key=key))

    async def sets(self, principal: str) -> list[PendingSet]:
        """Return the sets of a principal that hold something, the newest first."""

        def query(connection: Connection) -> list[PendingSet]:
            sql = "SELECT workspace, owner FROM pending_sets WHERE principal = ? ORDER BY changed DESC, owner"
            found = connection.execute(sql, (principal,)).fetchall()
            keys = [PendingKey(principal=principal, workspace=place, owner=owner) for place, owner in found]
            return [one for key in keys if (one := _get(connection, key)).changes]

        return await self._reader.read(query)

    async def content(self, key: PendingKey, digest: str) -> bytes:
        """Return a content. Raises `ToolFailure("not_found")` for one that is not kept any more."""
        row = await self._reader.row(
            f"SELECT sealed FROM pending_contents {_OWNED} AND digest = ?", (*_of(key), digest)
        )
        if row is None:
            raise ToolFailure("not_found", "this pending content is gone: it was accepted or rejected meanwhile")
        return await to_thread.run_sync(self._opened, key, digest, str(row[0]))

    async def replace(self, new: PendingSet, contents: Mapping[str, bytes]) -> bool:
        """Store a set in place of its predecessor; False when that is no longer the newest version.

        Durable on return. Raises `ToolFailure("too_large")` when the contents have more than `MAX_PENDING` bytes.
        """
        if sum(map(len, contents.values())) > MAX_PENDING:
            raise _too_large()
        sealed = await to_thread.run_sync(partial(self._sealed, new.key, contents)) if contents else []
        return await self._writer.run(_replace, replace(new, changed=self._clock()), sealed, durable=True)

    def _sealed(self, key: PendingKey, contents: Mapping[str, bytes]) -> list[_Sealed]:
        return [
            _Sealed(
                digest,
                len(content),
                self._vault.seal(base64.b64encode(zlib.compress(content, 1)).decode("ascii"), _purpose(key, digest)),
            )
            for digest, content in contents.items()
        ]

    def _opened(self, key: PendingKey, digest: str, sealed: str) -> bytes:
        return zlib.decompress(base64.b64decode(self._vault.open(sealed, _purpose(key, digest))))


def _of(key: PendingKey) -> tuple[str, str, str]:
    return (key.principal, key.workspace, key.owner)


def _purpose(key: PendingKey, digest: str) -> str:
    return "\0".join(("pending", *_of(key), digest))


def _get(connection: Connection, key: PendingKey) -> PendingSet:
    sql = f"SELECT files, version, changed FROM pending_sets {_OWNED}"
    row = connection.execute(sql, _of(key)).fetchone()
    if row is None:
        return PendingSet(key=key)
    rows = connection.execute(f"SELECT {_NAMES} FROM pending_changes {_OWNED} ORDER BY path", _of(key)).fetchall()
    return PendingSet(key=key, files=row[0], version=row[1], changed=row[2], changes=tuple(map(_change, rows)))


def _version(connection: Connection, key: PendingKey) -> int:
    row = connection.execute(f"SELECT version FROM pending_sets {_OWNED}", _of(key)).fetchone()
    return int(row[0]) if row else 0


def _replace(transaction: Transaction, new: PendingSet, sealed: Sequence[_Sealed]) -> bool:
    """Write a set in place of its predecessor; contents that no change refers to any more go with the same commit."""
    of = _of(new.key)
    before = _get(transaction.connection, new.key)
    if before.version != new.version - 1:
        return False
    kept = {change.path: change for change in before.changes}
    wanted = {change.path: change for change in new.changes}
    for path in kept:
        if wanted.get(path) != kept[path]:
            transaction.execute(f"DELETE FROM pending_changes {_OWNED} AND path = ?", (*of, path))
    for path, change in wanted.items():
        if kept.get(path) != change:
            values = (getattr(change, name) for name in _COLUMNS)
            stored = [int(value) if isinstance(value, bool) else value for value in values]
            transaction.execute(_INSERT, (*of, *stored))
    for content in sealed:
        transaction.execute(_PUT_CONTENT, (*of, content.digest, content.size, content.text))
    transaction.execute(_SWEEP, (*of, *of, *of))
    held = transaction.execute(f"SELECT coalesce(sum(size), 0) FROM pending_contents {_OWNED}", of).fetchone()[0]
    if held > MAX_PENDING:
        raise _too_large()
    transaction.execute(_PUT_SET, (*of, new.files, new.version, new.changed))
    return True


def _too_large() -> ToolFailure:
    return ToolFailure(
        "too_large",
        f"the changes that wait for review would hold more than {MAX_PENDING >> 20} MiB",
        hint="ask the user to accept or reject some of them",
    )


def _change(values: Sequence[Any]) -> PendingChange:
    known = dict(zip(_COLUMNS, values, strict=True))
    known["implied"], known["applying"] = bool(known["implied"]), bool(known["applying"])
    return PendingChange(**known)
