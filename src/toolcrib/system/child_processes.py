"""Child processes: the environment that they may see, and the reaper that ends them when this process is gone.

The reaper is a helper that reads process-group ids from a pipe. When the pipe ends, because we closed it or because we
were killed in any way, it ends every group that is still on its list: SIGTERM, half a second, SIGKILL. One helper
serves all servers of this process; it starts with the first and ends with the last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

__all__ = ["Reaper", "clean_environment", "shared_reaper"]

_INHERITED: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "NODE_EXTRA_CA_CERTS"}
    | {"SSL_CERT_DIR", "SSL_CERT_FILE", "SYSTEMROOT", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
)
"""What a child may see of our environment; everything else, tokens above all, stays here."""


def clean_environment(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: the harmless part of `ours`, and what its configuration says."""
    kept = {key: value for key, value in ours.items() if key in _INHERITED or key.startswith("LC_")}
    kept.setdefault("PATH", os.defpath)
    return {**kept, **theirs}


_log = logging.getLogger(__name__)

_PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)
groups = set()
while True:
    line = sys.stdin.buffer.readline()
    if not line: break
    if line[:1] == b"+": groups.add(int(line[1:]))
    elif line[:1] == b"-": groups.discard(int(line[1:]))
def send(what):
    for group in list(groups):
        try: os.killpg(group, what)
        except OSError: groups.discard(group)
if groups:
    time.sleep(0.3); send(signal.SIGTERM)
    for _ in range(10):
        time.sleep(0.1); send(0)
        if not groups: break
    send(signal.SIGKILL)
"""


class Reaper:
    """The helper process, from the first group to the last."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._holders = 0
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self) -> None:
        """Keep the helper, once it runs, until `release`: a server that restarts does not restart it too."""
        self._holders += 1

    def release(self) -> None:
        """Undo one `hold`."""
        self._holders -= 1
        self._stop_when_idle()

    def watch(self, group: int) -> None:
        """Have `group` ended if we vanish. Starts the helper when it is not there."""
        self._groups.add(group)
        if self._process is None or self._process.poll() is not None:
            self._start()
        else:
            self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        """`group` is gone."""
        self._groups.discard(group)
        self._say(f"-{group}\n")
        self._stop_when_idle()

    @property
    def pid(self) -> int | None:
        """The helper's process id while it runs."""
        return None if self._process is None else self._process.pid

    def _start(self) -> None:
        if not sys.executable:
            _log.warning("no Python executable is known: servers that ignore the end of their input may outlive us")
            return
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
        null = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=null, stderr=null, env={}, cwd="/", start_new_session=True
            )
        except OSError as error:
            _log.warning("the helper that ends left-over servers cannot start: %s", error)
            return
        for group in self._groups:
            self._say(f"+{group}\n")

    def _say(self, line: str) -> None:
        pipe = self._process.stdin if self._process is not None else None
        if pipe is not None:
            with contextlib.suppress(OSError):
                os.write(pipe.fileno(), line.encode())

    def _stop_when_idle(self) -> None:
        if self._process is None or self._holders > 0 or self._groups:
            return
        process, self._process = self._process, None
        if process.stdin is not None:
            process.stdin.close()
        process.kill()
        process.wait()


_reaper = Reaper()


def shared_reaper() -> Reaper:
    """The one of this process."""
    return _reaper
