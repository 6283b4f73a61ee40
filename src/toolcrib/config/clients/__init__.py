"""MCP clients and their configuration files: places and formats, servers in them, our entry, permissions."""
