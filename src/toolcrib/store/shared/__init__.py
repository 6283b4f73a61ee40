"""Tables of guests that the members of a project share: schema, rows, and transactions with their events."""
