"""MCP servers as sources of tools, over the wire of every revision from 2024-11-05 to 2026-07-28.

`source` one server as a `Source` · `tool_list` its listed tools, each checked by itself, and the last good list on
disk. The wire is in `mcp.client`.

Nothing is imported here: `source` brings the HTTP client with it.
"""
