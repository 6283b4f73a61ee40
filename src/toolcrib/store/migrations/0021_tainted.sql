-- The tool that brought untrusted content into the session which stored the record; empty for a clean one.
ALTER TABLE records ADD COLUMN tainted TEXT NOT NULL DEFAULT '';

-- The same for rows of guests: one for each marked row, which the tables of the guests do not have a column for.
CREATE TABLE tainted_rows (
    guest  TEXT NOT NULL,
    kind   TEXT NOT NULL,
    id     TEXT NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (guest, kind, id)
) WITHOUT ROWID;

ALTER TABLE events ADD COLUMN tainted TEXT NOT NULL DEFAULT '';
