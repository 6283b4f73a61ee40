"""What runs in the background: granted calls whose callers were answered before they ended."""
