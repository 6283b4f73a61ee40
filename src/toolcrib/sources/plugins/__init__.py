"""Plugins: tools with a life of their own."""
