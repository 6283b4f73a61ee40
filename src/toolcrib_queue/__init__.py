"""A queue of tasks for agents: projects with workspaces, agents with profiles, tasks with dependencies, hooks.

These tools are guests: they import `toolcrib.plugin` and arrive by the entry point group `toolcrib.tools`.
"""
