"""YAML catalogs: `capabilities.yaml` as seed 004 has it, with code, commands, endpoints and MCP tools behind the entries."""

__all__: list[str] = []
