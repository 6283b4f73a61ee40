-- Which migrations ran, and when (seconds since 1970).
CREATE TABLE schema_version (
    version INTEGER PRIMARY KEY,
    applied REAL NOT NULL
);

-- Every finished call, in the order it was recorded. `hash` covers the row and `prev`, the hash of the row before it.
CREATE TABLE calls (
    seq            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE,
    session        TEXT NOT NULL,
    principal      TEXT NOT NULL,
    origin         TEXT NOT NULL,
    tool           TEXT NOT NULL,
    requested      TEXT NOT NULL,
    decision       TEXT NOT NULL,
    rule           TEXT NOT NULL,
    arguments      TEXT NOT NULL,
    arguments_hash TEXT NOT NULL,
    definition     TEXT NOT NULL,
    outcome        TEXT NOT NULL,
    started        REAL NOT NULL,
    finished       REAL NOT NULL,
    latency_ms     REAL NOT NULL,
    result_bytes   INTEGER NOT NULL,
    result_hash    TEXT NOT NULL,
    prev           TEXT NOT NULL,
    hash           TEXT NOT NULL
);

-- Side-effecting calls that started and have not finished. `writer` is the running store that answers for them.
CREATE TABLE intents (
    id     TEXT PRIMARY KEY,
    writer TEXT NOT NULL,
    call   TEXT NOT NULL
) WITHOUT ROWID;

-- What a request with an idempotency key came to. `result` is NULL while the first call with that key runs.
CREATE TABLE receipts (
    principal    TEXT NOT NULL,
    key          TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    call         TEXT NOT NULL,
    writer       TEXT NOT NULL,
    created      REAL NOT NULL,
    result       TEXT,
    PRIMARY KEY (principal, key)
) WITHOUT ROWID;

CREATE INDEX receipts_by_age ON receipts (created);

-- Definitions that somebody accepted: what may be called without a new review.
CREATE TABLE pins (
    source     TEXT NOT NULL,
    tool       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    definition TEXT NOT NULL,
    accepted   REAL NOT NULL,
    accepted_by TEXT NOT NULL,
    PRIMARY KEY (source, tool)
) WITHOUT ROWID;

-- Small facts about the store itself: the head of the chain of calls.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
