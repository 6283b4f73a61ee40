-- Who may see the rows that guests keep for a project, the versions of the guests' tables, and the log of events.
CREATE TABLE members (
    project_id TEXT NOT NULL,
    principal  TEXT NOT NULL,
    role       TEXT NOT NULL,
    PRIMARY KEY (principal, project_id)
) WITHOUT ROWID;

CREATE INDEX members_by_project ON members (project_id);

CREATE TABLE guest_schemas (
    name    TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE events (
    id         INTEGER NOT NULL PRIMARY KEY,
    type       TEXT NOT NULL,
    project_id TEXT NOT NULL,
    actor      TEXT NOT NULL,
    payload    TEXT NOT NULL,
    time       REAL NOT NULL
);

CREATE INDEX events_by_project ON events (project_id, id);

-- How far each subscriber of the log has come.
CREATE TABLE event_positions (
    name     TEXT NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
