-- What each principal has used on each day (days since 1970, UTC), over all sessions and processes.
CREATE TABLE budgets (
    principal TEXT NOT NULL,
    day       INTEGER NOT NULL,
    calls     INTEGER NOT NULL,
    tokens    INTEGER NOT NULL,
    PRIMARY KEY (principal, day)
) WITHOUT ROWID;
