"""Sources of tools, one file or folder a kind. Kinds do not import one another."""
