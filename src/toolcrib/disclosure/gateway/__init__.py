"""Seed 001: three verbs in front of everything. Help goes from groups to one op, exec runs it, batch does both."""

from .view import STRATEGY

__all__ = ["STRATEGY"]
