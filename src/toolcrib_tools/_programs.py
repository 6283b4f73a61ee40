"""Files that a program needs, so that a sandbox can show those and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["parts"]

_NAMES: Final = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg", "share")


def parts(program: Path) -> tuple[Path, ...]:
    """Return the folders that a program needs, as far as known: its own and those of its link targets.

    Never the folder above them itself: that of `~/bin` is a home.
    """
    above = dict.fromkeys((program.parent.parent, program.resolve().parent.parent))
    return tuple(folder / name for folder in above for name in _NAMES)
