-- Calls that go on after their callers were answered. `saved` is sealed, and wiped at the end; `result` went through every step of its
-- call.
CREATE TABLE jobs (
    id         TEXT PRIMARY KEY,
    principal  TEXT NOT NULL,
    session    TEXT NOT NULL,
    call       TEXT NOT NULL,
    tool       TEXT NOT NULL,
    source     TEXT NOT NULL,
    status     TEXT NOT NULL,
    accepted   REAL NOT NULL,
    ended      REAL,
    saved      TEXT NOT NULL,
    -- 1: it may run again after a crash or a passing failure.
    repeatable INTEGER NOT NULL,
    -- 1: it goes on where it was when it is begun again after a crash, which is no reason to repeat what failed.
    resumable  INTEGER NOT NULL,
    -- The running store that carries it; empty while it waits in the queue.
    worker     TEXT NOT NULL,
    -- The running store that put it into the queue under this claim; empty where nobody has.
    offered    TEXT NOT NULL,
    -- Grows whenever it changes hands: who holds an older number has lost it.
    claim      INTEGER NOT NULL,
    -- The attempt that was begun last; 0 before the first.
    attempt    INTEGER NOT NULL,
    -- 1: its principal wants it cancelled.
    cancel     INTEGER NOT NULL,
    progress   TEXT NOT NULL,
    output     TEXT NOT NULL,
    result     TEXT
);

CREATE INDEX jobs_open ON jobs (accepted) WHERE ended IS NULL;

CREATE INDEX jobs_of ON jobs (principal, ended);
