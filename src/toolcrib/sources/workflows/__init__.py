"""Workflows: several tool calls as one tool, outputs feeding arguments."""
