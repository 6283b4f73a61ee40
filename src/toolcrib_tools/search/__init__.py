"""Search for files by name, and for lines by content."""

from .grep import grep
from .names import search_files

__all__ = ["grep", "search_files"]
