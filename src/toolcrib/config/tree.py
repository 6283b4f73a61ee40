"""Moved to `core.tree`."""

from ..core.tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, Member, Node, Path, unique, without

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Member", "Node", "Path", "unique", "without"]
