"""Tool by which Claude Code asks for approval. The MCP server is `toolcrib.mcp.server`."""
