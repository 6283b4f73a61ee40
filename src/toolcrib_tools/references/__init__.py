"""Reference documents for an agent: listed, selected and checked; and embeddings of text."""

from .selection import compute_embedding, list_references, select_references, validate_reference

__all__ = ["compute_embedding", "list_references", "select_references", "validate_reference"]
