-- What a conversation keeps between its calls (taint, answers, loaded tools), for every process that serves it.
CREATE TABLE conversations (
    principal TEXT NOT NULL,
    key       TEXT NOT NULL,
    state     TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    used      REAL NOT NULL,
    PRIMARY KEY (principal, key)
) WITHOUT ROWID;

CREATE INDEX conversations_by_use ON conversations (used);
