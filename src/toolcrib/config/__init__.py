"""Configuration: the one floor that reads the environment and configuration files, ours and other programs'."""

from .directories import Directories
from .loading import bare, load, servers_in
from .settings import Settings

__all__ = ["Directories", "Settings", "bare", "load", "servers_in"]
