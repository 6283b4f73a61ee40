"""What exists: the registry gathers it, a catalog is one immutable snapshot of it."""
