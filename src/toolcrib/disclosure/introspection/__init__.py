"""Seed 003: core tools at first; everything else is listed by `list` and activated by `schemas`."""

from .strategy import STRATEGY, UNCATEGORIZED, category_of, introspection

__all__ = ["STRATEGY", "UNCATEGORIZED", "category_of", "introspection"]
