"""The ways in: MCP over HTTP and over lines. Light to import; each module loads what it needs."""
