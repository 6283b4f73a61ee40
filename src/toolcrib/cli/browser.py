"""Browser of the person at this terminal."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Mapping
from typing import Final

import anyio.to_thread

_SCREENS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which one is set where a browser can be shown; without one, `webbrowser` may start one of text here."""


def can_open_browser(environment: Mapping[str, str]) -> bool:
    """Whether a browser with a window can be opened from here."""
    return sys.platform in ("darwin", "win32") or any(environment.get(name) for name in _SCREENS)


async def open_browser(url: str) -> bool:
    """Open `url`, and return whether that was possible."""
    return await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
