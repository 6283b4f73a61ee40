"""Skill folders as a source of tools, by the Agent Skills format; also as resources for the MCP skills extension."""
