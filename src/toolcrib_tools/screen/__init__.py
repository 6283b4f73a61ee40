"""The screen of whoever runs Toolcrib."""

from .observing import observe_screen

__all__ = ["observe_screen"]
