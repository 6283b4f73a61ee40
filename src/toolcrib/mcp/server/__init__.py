"""MCP server: parses, frames and tracks the requests of clients. `toolcrib.server` passes in what calls the crib."""
