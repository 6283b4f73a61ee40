-- The hash by which a repetition of the job's call is known: whoever claims the job takes its idempotency key with it.
-- Empty where the call has no key of its own: a read, or one whose caller gave the key.
ALTER TABLE jobs ADD COLUMN request TEXT NOT NULL DEFAULT '';
