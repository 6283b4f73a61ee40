"""Runs: the program of an agent does a task in the sandbox, on a branch of its own, and proves it."""
