-- Listing a group, and counting a collection, without reading what the records hold.
CREATE INDEX records_by_group ON records (owner, collection, "group", updated);
