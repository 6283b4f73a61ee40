-- What records mean: vectors of one model for the passages of each, one behind the other. A search by meaning reads them.
CREATE TABLE record_vectors (
    owner      TEXT NOT NULL,
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    "group"    TEXT NOT NULL,
    model      TEXT NOT NULL,
    vectors    BLOB NOT NULL,
    PRIMARY KEY (owner, collection, "group", id)
) WITHOUT ROWID;

CREATE INDEX record_vectors_by_id ON record_vectors (owner, collection, id);
