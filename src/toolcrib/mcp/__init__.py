"""MCP on the wire, for both sides. The wire is our own: docs/design/why.md has the figures."""
