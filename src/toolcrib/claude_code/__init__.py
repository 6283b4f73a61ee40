"""Gate for Claude Code: its own tools are decided by the rules, asked about and recorded like any tool of a crib."""
