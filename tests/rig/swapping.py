"""A folder and a link to outside that change places while somebody reads: the race of T16."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rig.wait import PATIENCE
from toolcrib.workspace.safe_paths import exchange


@contextmanager
def swapping(folder: Path, outside: Path, *, pause: float = 0) -> Generator[None]:
    """Let a folder and a link to outside change places again and again, with `pause` seconds in between."""
    other = folder.with_name("other")
    other.symlink_to(outside)
    ended = threading.Event()

    def swap() -> None:
        top = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        while not (ended.wait(pause) if pause else ended.is_set()):
            exchange(folder.name, top, other.name, top)
        os.close(top)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(PATIENCE)
