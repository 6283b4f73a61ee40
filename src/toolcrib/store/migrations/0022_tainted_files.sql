-- Files that a session wrote after it had read untrusted content: by the digest of what they held. An empty digest
-- stands for everything in the folder `path` that was last changed before `noted`.
CREATE TABLE tainted_files (
    root    TEXT NOT NULL,
    path    TEXT NOT NULL,
    digest  TEXT NOT NULL,
    size    INTEGER NOT NULL,
    source  TEXT NOT NULL,
    session TEXT NOT NULL,
    noted   REAL NOT NULL,
    PRIMARY KEY (root, digest, path)
) WITHOUT ROWID;

-- Grows with each change, so that a process sees at once whether it knows all of them.
CREATE TABLE tainted_files_revision (revision INTEGER NOT NULL);
INSERT INTO tainted_files_revision (revision) VALUES (0);
