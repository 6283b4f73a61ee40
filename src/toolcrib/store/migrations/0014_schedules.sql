-- Calls that are made later, once or again and again. `saved` is sealed: title, action, and the session of the creator.
CREATE TABLE schedules (
    id        TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    -- The configuration files of the creator: a process with other ones has other rules, and does not fire it.
    place     TEXT NOT NULL,
    -- active, paused, completed or cancelled.
    status    TEXT NOT NULL,
    -- once, cron or interval; what it is once, at which expression, or after how many seconds; and where its clock is.
    kind      TEXT NOT NULL,
    value     TEXT NOT NULL,
    zone      TEXT NOT NULL,
    saved     TEXT NOT NULL,
    -- Over trigger and action: an equal one is not added again.
    digest    TEXT NOT NULL,
    created   REAL NOT NULL,
    -- When the trigger was set: intervals count from here.
    start     REAL NOT NULL,
    next_run  REAL,
    -- When somebody asked for a run out of turn.
    asked     REAL,
    runs      INTEGER NOT NULL,
    last_run  REAL,
    outcome   TEXT NOT NULL,
    -- The running store that fires it now; empty between two runs.
    worker    TEXT NOT NULL,
    -- Grows with every claim: who holds an older number has lost it.
    claim     INTEGER NOT NULL,
    -- The time that it is fired for.
    due       REAL
);

CREATE INDEX schedules_of ON schedules (principal, digest);

CREATE INDEX schedules_open ON schedules (place, status) WHERE status IN ('active', 'paused');

-- The running stores that fire schedules.
CREATE TABLE schedulers (
    worker TEXT PRIMARY KEY,
    place  TEXT NOT NULL
);

-- What schedules had to say while there was no channel for it: for the next session of the principal.
CREATE TABLE messages (
    id        TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    created   REAL NOT NULL,
    saved     TEXT NOT NULL
);

CREATE INDEX messages_of ON messages (principal, created);
