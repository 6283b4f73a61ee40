-- A service of a guest runs in one process of those that share a store: the one that holds its row and is alive.
CREATE TABLE services (name TEXT PRIMARY KEY, worker TEXT NOT NULL);
