"""Clients of the user: which ones, Toolcrib's entry in their files, and what moves behind it."""
