"""Logging in to MCP servers: `access` what a connection sends, and does when it is refused · `place` where logins are.

The protocol is in `net.oauth`; here is what of it lives as long as a server does.
"""

__all__: list[str] = []
