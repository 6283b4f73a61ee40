"""Sub-agents of a session: who they are, their roles and profiles, and the tools that manage them."""
