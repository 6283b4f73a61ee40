"""What a program is made of, so that a sandbox can show it and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["parts"]

_NAMES: Final = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg", "share")


def parts(program: Path) -> tuple[Path, ...]:
    """Return what a program is made of, as far as that can be told: the folders around it, and around what it links to.

    Never the folder above them itself: that of `~/bin` is a home.
    """
    above = dict.fromkeys((program.parent.parent, program.resolve().parent.parent))
    return tuple(folder / name for folder in above for name in _NAMES)
