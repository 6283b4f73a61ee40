"""Where tools come from, one file or folder a kind. Kinds do not see one another."""
