"""Screen of the user who runs Toolcrib."""

from .observation import observe_screen

__all__ = ["observe_screen"]
