-- Changes of files that wait for review, one set for each session or task in each workspace.
CREATE TABLE pending_sets (
    principal TEXT NOT NULL,
    workspace TEXT NOT NULL,
    owner     TEXT NOT NULL,
    -- `review` or `audit`: how they were made.
    files     TEXT NOT NULL,
    -- Grows with every change of the set: who read an older one must read again.
    version   INTEGER NOT NULL,
    changed   REAL NOT NULL,
    PRIMARY KEY (principal, workspace, owner)
);

CREATE TABLE pending_changes (
    principal TEXT NOT NULL,
    workspace TEXT NOT NULL,
    owner     TEXT NOT NULL,
    path      TEXT NOT NULL,
    -- file, folder or gone
    kind      TEXT NOT NULL,
    -- SHA-256 of the content, a key of pending_contents; empty for what has none.
    content   TEXT NOT NULL,
    size      INTEGER NOT NULL,
    -- Permissions of the file; -1 for those that a new file gets.
    mode      INTEGER NOT NULL,
    -- The state of the disk that the change was made for, and its content where that is kept.
    base      TEXT NOT NULL,
    before    TEXT NOT NULL,
    -- 1: a folder that was made on the way to a file.
    implied   INTEGER NOT NULL,
    -- 1: accepted, and being written to the disk.
    applying  INTEGER NOT NULL,
    changed   REAL NOT NULL,
    PRIMARY KEY (principal, workspace, owner, path)
);

-- `sealed` is compressed and sealed: what a tool writes may be a secret.
CREATE TABLE pending_contents (
    principal TEXT NOT NULL,
    workspace TEXT NOT NULL,
    owner     TEXT NOT NULL,
    digest    TEXT NOT NULL,
    size      INTEGER NOT NULL,
    sealed    TEXT NOT NULL,
    PRIMARY KEY (principal, workspace, owner, digest)
);
