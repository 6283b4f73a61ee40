"""A browser: pages that are made by scripts, read and worked with as a person does, in the sandbox."""

from .sessions import browser

__all__ = ["browser"]
