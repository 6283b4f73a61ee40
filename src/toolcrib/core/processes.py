"""Processes of this machine, by their ids."""

from __future__ import annotations

import os


def is_alive(pid: int) -> bool:
    """Whether a process has this id; one of another user counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
