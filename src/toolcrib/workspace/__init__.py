"""Workspaces: the disk inside declared folders, pending changes laid over it, and working copies of tasks."""
