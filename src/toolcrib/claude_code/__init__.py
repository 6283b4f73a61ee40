"""Gate for Claude Code: its own tools are decided by the rules, asked about and recorded like any tool of a crib.

    Claude Code ── hook process (`cli.processes.hook`) ──> daemon: hook ──┐
    Claude Code ── permission prompt tool, over MCP ─────> approve_tool ──┴─> gate ──> pipeline ──> allow or deny

Nothing of Claude Code's tools runs here: a granted call ends with the word "allow", and Claude Code runs it.
"""
