-- A changed or removed record drops its words without reading those of all others in its collection.
CREATE INDEX record_words_by_id ON record_words (owner, collection, id);
