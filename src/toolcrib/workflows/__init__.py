"""Workflows: several tool calls as one tool, outputs feeding arguments. `crib.slice(Workflows)` adds them."""

from .workflows import Workflows

__all__ = ["Workflows"]
