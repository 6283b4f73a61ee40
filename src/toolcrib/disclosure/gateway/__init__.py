"""Seed 001: three meta-tools before all others. Help goes from groups to one op, exec runs it, batch does both."""

from .view import STRATEGY

__all__ = ["STRATEGY"]
