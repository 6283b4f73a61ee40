"""The default profile: all tools while they fit a budget, else core tools and the meta-tools that reach the rest."""

from .strategy import STRATEGY, adaptive

__all__ = ["STRATEGY", "adaptive"]
