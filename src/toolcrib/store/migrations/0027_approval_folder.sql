-- Where relative paths and commands of the call begin: the same arguments have another effect elsewhere.
ALTER TABLE approvals ADD COLUMN folder TEXT NOT NULL DEFAULT '';
