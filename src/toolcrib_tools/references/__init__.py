"""Documents that somebody chose for an agent to go by: listed, selected and checked; and the vector of a text."""

from .checking import compute_embedding, validate_reference
from .selecting import list_references, select_references

__all__ = ["compute_embedding", "list_references", "select_references", "validate_reference"]
