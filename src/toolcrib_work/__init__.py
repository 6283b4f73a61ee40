"""Projects of a user: goals, plans, tasks, documents and what else belongs to them, in one graph.

These tools are guests: they import `toolcrib.plugin` and arrive by the entry point group `toolcrib.tools`.
"""

TOOLS_ARE_STATIC = True
