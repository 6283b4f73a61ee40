-- Where relative paths and commands of the call begin: the same arguments have another effect elsewhere.
ALTER TABLE approvals ADD COLUMN folder TEXT NOT NULL DEFAULT '';
-- The hash of an open approval does not cover its folder, so it could not be used: it expires, and the call asks again.
UPDATE approvals SET expires = created WHERE state IN ('pending', 'approved');
