"""Tools of the queue: one module a subject."""
