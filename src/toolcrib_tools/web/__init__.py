"""Web tools: pages as text, posts to an address, searches."""

from .fetch import web_fetch, web_post
from .search import web_search

__all__ = ["web_fetch", "web_post", "web_search"]
