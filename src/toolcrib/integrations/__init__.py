"""Toolcrib inside the frameworks that users already have: one module each, imported by its own name."""
