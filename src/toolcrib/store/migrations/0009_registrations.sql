-- Tools that were registered for one instance and outlive a restart. A definition may hold a credential: it is sealed.
CREATE TABLE registrations (
    instance   TEXT NOT NULL,
    name       TEXT NOT NULL,
    definition TEXT NOT NULL,
    way        TEXT NOT NULL,
    principal  TEXT NOT NULL,
    accepted   INTEGER NOT NULL,
    registered REAL NOT NULL,
    PRIMARY KEY (instance, name)
) WITHOUT ROWID;
