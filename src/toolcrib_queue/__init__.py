"""State of a queue of tasks for agents: projects with workspaces, agents, tasks with dependencies, claims, scheduler.

No tool uses it yet. It imports `toolcrib.plugin` and nothing else of Toolcrib, as the tools over it will.
"""
