"""Seed 000: a dozen core tools, and categories that the model loads whole when it needs one."""

from .strategy import STRATEGY, categories, tiered

__all__ = ["STRATEGY", "categories", "tiered"]
