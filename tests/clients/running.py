"""Run a client to its end, hear what it says, and leave nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rig import PATIENCE

Command = Sequence[str | Path]

_SECONDS: Final = PATIENCE * 3


def output(command: Command, env: Mapping[str, str], cwd: Path, *, typed: str = "", alone: bool = False) -> str:
    """Return what a command says, whatever its status; `alone` is its output without what it says on the side.

    `typed` is what stands on its input. It and all its children that stayed in its process group are gone then.
    Raises `subprocess.TimeoutExpired` when it does not end.
    """
    pipe = subprocess.PIPE
    aside = subprocess.DEVNULL if alone else subprocess.STDOUT
    with subprocess.Popen(
        command, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=aside, start_new_session=True
    ) as process:
        try:
            heard, _ = process.communicate(typed.encode(), timeout=_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return heard.decode(errors="replace")
