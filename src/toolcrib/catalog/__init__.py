"""Catalog of tools: the registry gathers it, a `Catalog` is one immutable snapshot."""
