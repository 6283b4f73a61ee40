"""Finding files by their names, and lines by what is in them."""

from .grep import grep
from .names import search_files

__all__ = ["grep", "search_files"]
