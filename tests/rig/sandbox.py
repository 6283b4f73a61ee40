"""The sandbox of this machine, for tests of what runs in it: where it cannot be had they are skipped, and say why."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from rig.wait import PATIENCE, eventually
from toolcrib.core.sandbox import Command, Finished, Sandbox
from toolcrib.sandbox.detection import find_sandbox

_, WHY_NOT = find_sandbox(os.environ)
"""Empty where there is one."""

LANDLOCK, _WHY_NO_LANDLOCK = find_sandbox({**os.environ, "PATH": "/nonexistent"}, landlock=True)
"""What holds commands where there is no bubblewrap; None where nothing does."""

needs_landlock: Final = pytest.mark.skipif(LANDLOCK is None, reason=f"no Landlock here: {_WHY_NO_LANDLOCK}")
needs_sandbox: Final = pytest.mark.skipif(bool(WHY_NOT), reason=f"no sandbox on this machine: {WHY_NOT}")


def _needs(program: str) -> pytest.MarkDecorator:
    there = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    return pytest.mark.skipif(there is None, reason=f"{program} is not installed")


needs_gh: Final = _needs("gh")
needs_ssh: Final = _needs("ssh")
needs_sshd: Final = _needs("sshd")
needs_filter: Final = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="the numbers of this machine's calls are not known"
)
needs_inotify: Final = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
needs_root: Final = pytest.mark.skipif(os.geteuid() != 0, reason="root alone is another user inside")
needs_groups: Final = pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/pids/cgroup.procs", os.W_OK), reason="no control groups that count processes"
)
needs_prlimit: Final = pytest.mark.skipif(
    sys.platform != "linux", reason="the limit of another process is set by prlimit(2), which Linux alone has"
)

SECRET: Final = "kept-from-commands-4711"
_STILL: Final = 50
"""Looks that find the same, in a second at least: what lives writes some twenty times meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command came to."""

    finished: Finished
    text: str
    """What it said, on both streams."""
    aside: tuple[str, ...]
    refused: tuple[str, ...]
    """What it wanted to reach and may not."""


Run = Callable[..., Coroutine[Any, Any, Outcome]]


async def outcome_of(sandbox: Sandbox, command: Command) -> Outcome:
    """Run a command without input to its end."""
    pieces: list[bytes] = []
    with anyio.fail_after(PATIENCE):
        async with sandbox.open(command) as running:
            await running.close_input()
            while piece := await running.read():
                pieces.append(piece[1])
            finished = await running.wait()
    text = b"".join(pieces).decode("utf-8", "replace")
    return Outcome(finished=finished, text=text, aside=tuple(running.aside), refused=tuple(running.refused))


async def stands_still(path: Path) -> None:
    """Return once a file that something was writing all the time is not written any more; fail when it always is."""
    seen: list[bytes] = []

    def is_still() -> bool:
        seen.append(path.read_bytes())
        return len(seen) > _STILL and len(set(seen[-_STILL:])) == 1

    await eventually(is_still)
