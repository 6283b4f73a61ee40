-- Questions whether a call may run, and their answers. `sealed` is the call as it was saved, with its real arguments.
CREATE TABLE approvals (
    id         TEXT PRIMARY KEY,
    call       TEXT NOT NULL,
    principal  TEXT NOT NULL,
    session    TEXT NOT NULL,
    tool       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    source     TEXT NOT NULL,
    definition TEXT NOT NULL,
    hash       TEXT NOT NULL,
    -- As they are shown: secrets masked.
    arguments  TEXT NOT NULL,
    diff       TEXT NOT NULL,
    rule       TEXT NOT NULL,
    created    REAL NOT NULL,
    expires    REAL NOT NULL,
    -- pending, approved, denied, expired, cancelled or used.
    state      TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    decided_by TEXT NOT NULL,
    comment    TEXT NOT NULL,
    decided    REAL,
    -- 1: the caller left, and the call runs in the background once it is approved.
    gone       INTEGER NOT NULL,
    job        TEXT NOT NULL,
    ran        TEXT NOT NULL,
    -- The running store whose caller waits, or that makes the call for one who left.
    writer     TEXT NOT NULL,
    -- Sealed; empty once nobody needs them any more.
    sealed     TEXT NOT NULL,
    edited     TEXT NOT NULL,
    result     TEXT NOT NULL
);

CREATE INDEX approvals_of ON approvals (principal, state);

CREATE INDEX approvals_open ON approvals (state, expires);
