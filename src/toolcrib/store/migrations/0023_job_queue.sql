-- The rows themselves are the queue: a process takes those that no worker has, in turn between principals.
CREATE INDEX jobs_waiting ON jobs (principal, accepted, id) WHERE worker = '' AND ended IS NULL;

CREATE INDEX jobs_held ON jobs (principal) WHERE worker <> '' AND ended IS NULL;

DELETE FROM meta WHERE key = 'queue';
