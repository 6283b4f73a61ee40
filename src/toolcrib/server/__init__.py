"""Ways in: MCP over HTTP and over lines. Light to import; each module loads its dependencies on demand."""
