-- What tools remember for their owners: notes, tasks, plans. A search goes by the words of a record.
CREATE TABLE records (
    owner      TEXT NOT NULL,
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    "group"    TEXT NOT NULL,
    value      TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    created    REAL NOT NULL,
    updated    REAL NOT NULL,
    words      INTEGER NOT NULL,
    PRIMARY KEY (owner, collection, id)
) WITHOUT ROWID;

CREATE TABLE record_words (
    owner      TEXT NOT NULL,
    collection TEXT NOT NULL,
    word       TEXT NOT NULL,
    id         TEXT NOT NULL,
    times      INTEGER NOT NULL,
    PRIMARY KEY (owner, collection, word, id)
) WITHOUT ROWID;

-- The next number of each collection: never given twice, even when the record is gone.
CREATE TABLE record_numbers (
    owner      TEXT NOT NULL,
    collection TEXT NOT NULL,
    number     INTEGER NOT NULL,
    PRIMARY KEY (owner, collection)
) WITHOUT ROWID;
