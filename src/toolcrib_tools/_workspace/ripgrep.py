"""ripgrep, where it is installed: which files there are, and in which of them a pattern could be.

It only names files. What is in them is read through the workspace, which says what may be read.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from unicodedata import category

import anyio
from anyio import to_thread

__all__ = ["names_of", "ripgrep"]

_MOST_BYTES: Final = 16 * 1024 * 1024
"""Of names; some 200,000 of them."""
_LONGEST: Final = 30_000
"""Characters of one argument: Linux takes 128 KiB in one, and a character has up to 4 bytes."""
_COMMON: Final = (
    *("--no-config", "--no-messages", "--color=never", "--null", "--no-follow"),
    *("--no-require-git", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-parent"),
)
"""What a user's or a repository's settings could change is set, so that a search gives the same on every machine."""


def ripgrep() -> str | None:
    """Return the program, None where there is none."""
    return shutil.which("rg")


async def names_of(program: str, arguments: Sequence[str], root: Path, inner: str) -> tuple[list[str], bool] | None:
    """Run it in `root` on the folder `inner`; return the files it names, relative to `root`, and whether that is all.

    None when it failed: it cannot read every pattern that we can.
    """
    command = [program, *_COMMON, *arguments, "--", f"./{inner}" if inner else "./"]
    if any("\0" in word or len(word) > _LONGEST for word in command):
        return None
    process = await anyio.open_process(
        command, cwd=root, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    pieces: list[bytes] = []
    size = 0
    async with process:
        if process.stdout is not None:
            async for piece in process.stdout:
                pieces.append(piece)
                size += len(piece)
                if size > _MOST_BYTES:
                    process.kill()
                    break
        status = await process.wait()
    is_whole = size <= _MOST_BYTES
    if status > 1 and not pieces:
        return None
    return await to_thread.run_sync(_names, pieces, abandon_on_cancel=True), is_whole


def _names(pieces: Sequence[bytes]) -> list[str]:
    """Return the names that paths can say, in no order that matters; the last one may be cut."""
    return [name for raw in b"".join(pieces).split(b"\0")[:-1] if (name := _name(raw))]


def _name(raw: bytes) -> str:
    """Return a name below the root; empty for one that no path can say: no UTF-8, or with control characters in it."""
    try:
        name = raw.decode().removeprefix("./")
    except UnicodeDecodeError:
        return ""
    is_plain = name.isprintable() or not any(category(character) == "Cc" for character in name)
    return name if is_plain else ""
