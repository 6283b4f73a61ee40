"""YAML catalogs, as seed 004 has them: `capabilities.yaml` with code, commands, endpoints and MCP tools behind it."""
