"""Background jobs: granted calls whose callers were answered before they ended."""
