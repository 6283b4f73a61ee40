"""Redaction: how secrets are found, and what replaces them."""
