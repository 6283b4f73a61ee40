"""The switch of `toolcrib guard`: a file in the user's configuration folder, read anew at every decision."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from . import files
from .directories import Directories

_NAME: Final = "guard"


class GuardSwitch:
    """Whether entries that `connect` wrote with the guard off are strict all the same, in every process of the user."""

    def __init__(self, directories: Directories) -> None:
        """Read nothing: `is_on` looks each time, so that a daemon that runs follows a switch at once."""
        self.file: Path = directories.config / _NAME

    def is_on(self) -> bool:
        """Whether it is on: the file is there, or cannot be looked at; a link to nothing is there."""
        try:
            os.lstat(self.file)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def turn(self, on: bool) -> bool:
        """Turn it on or off; return whether that changed anything."""
        was = self.is_on()
        if on:
            files.write(self.file, b"on\n")
        else:
            self.file.unlink(missing_ok=True)
        return was != on
