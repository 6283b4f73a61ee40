"""Everything, always: for small catalogs and for clients that hold definitions back themselves. Seed 002's catalog."""

from .strategy import STRATEGY, flat

__all__ = ["STRATEGY", "flat"]
