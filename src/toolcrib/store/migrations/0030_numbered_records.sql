-- Records go by numbers, and their collections too: as keys of each word, their names were most of a store.
CREATE TABLE record_collections (
    number INTEGER NOT NULL PRIMARY KEY,
    owner  TEXT NOT NULL,
    name   TEXT NOT NULL,
    last   INTEGER NOT NULL, -- The last number that was an id: never given twice, even when the record is gone.
    UNIQUE (owner, name)
);

INSERT INTO record_collections (number, owner, name, last)
SELECT row_number() OVER (ORDER BY owner, collection), owner, collection, max(number) FROM (
    SELECT owner, collection, number FROM record_numbers
    UNION ALL SELECT DISTINCT owner, collection, 0 FROM records
) AS found GROUP BY owner, collection;

-- Copies, as the new tables have the names of the old ones: SQLite takes a millisecond to rename a table.
CREATE TABLE old_records AS SELECT * FROM records;
CREATE TABLE old_words AS SELECT * FROM record_words;
CREATE TABLE old_vectors AS SELECT * FROM record_vectors;
DROP TABLE records;
DROP TABLE record_words;
DROP TABLE record_vectors;

CREATE TABLE records (
    number     INTEGER NOT NULL PRIMARY KEY,
    collection INTEGER NOT NULL,
    id         TEXT NOT NULL,
    "group"    TEXT NOT NULL,
    value      TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    created    REAL NOT NULL,
    updated    REAL NOT NULL,
    words      INTEGER NOT NULL,
    tainted    TEXT NOT NULL,
    UNIQUE (collection, id)
);

INSERT INTO records (number, collection, id, "group", value, revision, created, updated, words, tainted)
SELECT row_number() OVER (ORDER BY created, old.owner, old.collection, id), one.number, id, "group", value, revision, created,
    updated, words, tainted
FROM old_records AS old JOIN record_collections AS one ON one.owner = old.owner AND one.name = old.collection;

CREATE TABLE record_words (
    collection INTEGER NOT NULL,
    word       TEXT NOT NULL,
    record     INTEGER NOT NULL,
    times      INTEGER NOT NULL,
    PRIMARY KEY (collection, word, record)
) WITHOUT ROWID;

INSERT INTO record_words (collection, word, record, times)
SELECT new.collection, word, new.number, times FROM old_words AS old
JOIN record_collections AS one ON one.owner = old.owner AND one.name = old.collection
JOIN records AS new ON new.collection = one.number AND new.id = old.id;

CREATE TABLE record_vectors (
    collection INTEGER NOT NULL,
    "group"    TEXT NOT NULL,
    record     INTEGER NOT NULL,
    model      TEXT NOT NULL,
    vectors    BLOB NOT NULL,
    PRIMARY KEY (collection, "group", record)
) WITHOUT ROWID;

INSERT INTO record_vectors (collection, "group", record, model, vectors)
SELECT new.collection, new."group", new.number, model, vectors FROM old_vectors AS old
JOIN record_collections AS one ON one.owner = old.owner AND one.name = old.collection
JOIN records AS new ON new.collection = one.number AND new.id = old.id;

DROP TABLE old_records;
DROP TABLE old_words;
DROP TABLE old_vectors;
DROP TABLE record_numbers;

-- A search reads the number of words of every record, a list of a group its newest ones.
CREATE INDEX records_by_group ON records (collection, "group", updated, words);
CREATE INDEX record_words_by_record ON record_words (record);
CREATE INDEX record_vectors_by_record ON record_vectors (record);
