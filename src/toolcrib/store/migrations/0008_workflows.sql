-- Runs of workflows that have not ended well: what their steps gave, sealed.
CREATE TABLE workflow_runs (
    id        TEXT NOT NULL,
    principal TEXT NOT NULL,
    state     TEXT NOT NULL,
    changed   REAL NOT NULL,
    PRIMARY KEY (principal, id)
) WITHOUT ROWID;

CREATE INDEX workflow_runs_by_age ON workflow_runs (changed);
