"""Tables of a guest: made, indexed and migrated as its schema says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...core.patterns import regex
from ...core.services.shared_storage import ROW_COLUMNS, Schema, Table
from ...errors import UsageError
from ..chain import Transaction
from ..records import merge_collection
from ..statements import TABLE_NAME

_JSON: Final = regex(r"\bJSON\b")


def migrate(transaction: Transaction, schema: Schema) -> None:
    """Bring the tables to the version of the schema. Raises `UsageError` when a newer guest wrote them.

    A new guest gets its newest tables at once; migrations are for those that have some. One transaction, so that a
    failure leaves the old version.
    """
    sql = "SELECT version FROM guest_schemas WHERE name = ?"
    found = transaction.execute(sql, (schema.name,)).fetchone()
    tables = [_created(schema, table) for table in schema.tables]
    indexes = [statement for table in schema.tables for statement in _indexed(schema, table)]
    if found is None:
        statements = [*tables, *indexes]
        transaction.execute("INSERT INTO guest_schemas (name, version) VALUES (?, ?)", (schema.name, schema.version))
    else:
        version = int(found[0])
        if version > schema.version:
            raise UsageError(
                f"storage: the tables of {schema.name} have version {version}, this one knows up to {schema.version}:"
                " upgrade it"
            )
        later = [number for number in sorted(schema.migrations) if number > version]
        migrated = [_migration(schema, statement) for number in later for statement in schema.migrations[number]]
        statements = [*tables, *migrated, *indexes] if later else []  # a table or an index that is there stays
        transaction.execute("UPDATE guest_schemas SET version = ? WHERE name = ?", (schema.version, schema.name))
    for statement in statements:
        transaction.connection.define(statement)
    for former, moves in schema.absorbs.items():
        if transaction.execute("DELETE FROM guest_schemas WHERE name = ?", (former,)).rowcount:
            _absorb(transaction, schema, former, moves)


def _absorb(transaction: Transaction, schema: Schema, former: str, moves: Sequence[str]) -> None:
    """Take over the tables of a guest that became a part of this one: its rows, marks and search records."""
    for statement in moves:
        transaction.connection.define(_migration(schema, statement))
    transaction.execute("UPDATE tainted_rows SET guest = ? WHERE guest = ?", (schema.name, former))
    for (project_id,) in transaction.execute("SELECT DISTINCT project_id FROM members").fetchall():
        merge_collection(transaction, text_key(former, project_id), text_key(schema.name, project_id))


def _migration(schema: Schema, statement: str) -> str:
    named = TABLE_NAME.sub(lambda match: f"{schema.name}_{match[1]}", statement)
    return _JSON.sub("TEXT", named)


def _created(schema: Schema, table: Table) -> str:
    columns = {**ROW_COLUMNS, **table.columns}
    lines = ", ".join(f'"{column}" {_JSON.sub("TEXT", kind)}' for column, kind in columns.items())  # `text` is a type
    return f"CREATE TABLE IF NOT EXISTS {full_name(schema, table)} ({lines})"


def _indexed(schema: Schema, table: Table) -> list[str]:
    name = full_name(schema, table)
    statements: list[str] = []
    for number, columns_of in enumerate((("project_id",), *table.indexes), 1):
        if number == 1 and any(columns[0] == "project_id" for columns in table.indexes):
            continue  # another one finds the rows of a project as well: each index is a page more that a write changes
        statements.append(f"CREATE INDEX IF NOT EXISTS {name}_by_{number} ON {name} ({', '.join(columns_of)})")
    for number, columns_of in enumerate(table.unique, 1):
        listed = ", ".join(columns_of)
        one = f"CREATE UNIQUE INDEX IF NOT EXISTS {name}_one_{number} ON {name} ({listed})"
        statements.append(f"{one} WHERE deleted_at IS NULL")
    return statements


def full_name(schema: Schema, table: Table) -> str:
    """Return the name of a table in the database."""
    return f"{schema.name}_{table.name}"


def text_key(schema: str, project_id: str) -> tuple[str, str]:
    """Return owner and collection of the search records of a project."""
    return f"project {project_id}", f"{schema} text"
