"""The default: everything while it fits a budget, else core tools and the verbs that reach all the rest."""

from .strategy import STRATEGY, adaptive

__all__ = ["STRATEGY", "adaptive"]
