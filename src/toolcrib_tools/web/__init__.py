"""The web: pages as text, what is sent to an address, searches."""

from .fetching import web_fetch
from .posting import web_post
from .searching import web_search

__all__ = ["web_fetch", "web_post", "web_search"]
