"""Documents that somebody chose for an agent to go by: listed, selected and checked; and the vector of a text."""

from .selection import compute_embedding, list_references, select_references, validate_reference

__all__ = ["compute_embedding", "list_references", "select_references", "validate_reference"]
