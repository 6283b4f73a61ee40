"""`toolcrib serve` over stdio, as a client starts it: the shim in front of the local daemon. POSIX only.

A client waits for this at the start of each of its sessions, so nothing is loaded here but configuration and sockets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..config.loading import load
from ..config.settings import Settings
from ..errors import UsageError
from ..server.local import Hello, Meeting, Order, private_directory
from ..server.pipes import take_stdio
from ..server.shim import Shim
from .quick import IDLE_SECONDS

__all__ = ["join"]


def join(
    files: Sequence[str],
    overrides: Mapping[str, Any],
    *,
    idle_seconds: float = IDLE_SECONDS,
    log_level: str = "info",
) -> int:
    """Relay between standard input and output and the daemon of this configuration; return the exit status.

    `overrides` are options that change what is served, by their names in the configuration file. Starts the daemon
    when there is none, and serves in this process where there can be none. Raises `UsageError` when a daemon does not
    come up, `ConfigError` for a broken configuration.
    """
    settings = load(files, overrides)
    try:
        meeting = Meeting.of(settings)
        logs = private_directory(settings.directories.state)
    except UsageError as error:
        _say(f"there is no place for a local daemon ({error}): serving in this process")
        _serve_here(settings, log_level)
        return 0
    order = Order(
        directory=str(meeting.directory),
        key=meeting.key,
        files=tuple(files),
        overrides=overrides,
        project=str(Path.cwd()),
        idle_seconds=idle_seconds,
        log=str(logs / f"daemon-{meeting.name}.log"),
        log_level=log_level,
        lock=-1,
        report=-1,
    )
    hello = Hello(
        key=meeting.key,
        version=version("toolcrib"),
        profile=settings.profile,
        mode=settings.mode,
        cwd=order.project,
        pid=os.getpid(),
    )
    return Shim(meeting=meeting, hello=hello, order=order, say=_say).run(*take_stdio())


def _serve_here(settings: Settings, log_level: str) -> None:
    serving: Any = import_module("toolcrib.cli.serving")
    serving.over_stdio(settings, log_level, *take_stdio())


def _say(text: str) -> None:
    sys.stderr.write(f"toolcrib: {text}\n")
    sys.stderr.flush()
