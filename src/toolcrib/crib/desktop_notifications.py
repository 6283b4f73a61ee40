"""Desktop notifications of calls that wait for approval: `notify-send`, or `osascript` on macOS, where there is one."""

from __future__ import annotations

import html
import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import anyio

from ..core.permission import Approval

__all__ = ["DesktopNotifier"]

_LOG: Final = logging.getLogger(__name__)
_SECONDS: Final = 5.0
_AT_ONCE: Final = 3
"""Notifications on their way; more than these are dropped: the questions wait in the store all the same."""
_DESKTOP: Final = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which a desktop session of Linux has at least one."""
_NEEDED: Final = (*_DESKTOP, "HOME", "PATH", "XAUTHORITY", "XDG_RUNTIME_DIR")
_SCRIPT: Final = (
    "-e",
    "on run argv",
    "-e",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "-e",
    "end run",
)


class DesktopNotifier:
    """Shows that a call waits. One for a crib; without a desktop it shows nothing. Never raises."""

    def __init__(self, environ: Mapping[str, str], platform: str = sys.platform) -> None:
        """`environ` says where programs are, and whether there is a desktop."""
        self._is_mac = platform == "darwin"
        self._environ = {name: environ[name] for name in _NEEDED if name in environ}
        self._running = 0

    async def show(self, asked: Approval) -> None:
        """Show the tool and the command that answers; arguments stay where the question is answered."""
        program = self._program()
        if program is None or self._running >= _AT_ONCE:
            return
        title, text = "Toolcrib: a call waits for approval", f"{asked.tool}: toolcrib approvals show {asked.id}"
        # What a desktop takes for markup is only text here.
        words = [*_SCRIPT, title, text] if self._is_mac else ["--app-name=Toolcrib", "--", title, html.escape(text)]
        self._running += 1
        try:
            with anyio.move_on_after(_SECONDS):
                await anyio.run_process(
                    [program, *words],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                    env=self._environ,
                )
        except OSError as error:
            _LOG.warning("the desktop notification of approval %s failed: %s", asked.id, error)
        finally:
            self._running -= 1

    def _program(self) -> str | None:
        """Return what shows notifications, None where nothing does."""
        path = self._environ.get("PATH")
        if self._is_mac:
            return shutil.which("osascript", path=path)
        has_desktop = any(self._environ.get(name) for name in _DESKTOP)
        return shutil.which("notify-send", path=path) if has_desktop else None
