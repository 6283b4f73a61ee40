"""Screens of macOS (Quartz) and Windows (pywin32), and the choice of the screen backend."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from toolcrib.plugin import ToolFailure

from .._extras import optional
from .wayland import PROGRAMS, Wayland
from .window import EXTRA, Screen, Window, no_screen
from .x11 import X11

__all__ = ["screen_here"]

_NORMAL: Final = 0
"""The layer of ordinary windows in Quartz; the dock, menus and the like are above and below."""


def screen_here() -> Screen:
    """Return the screen of this machine. Raises `ToolFailure("unavailable")` if there is none."""
    if sys.platform == "darwin":
        return _Quartz()
    if sys.platform == "win32":
        return _Windows()
    return _unix()


def _unix() -> Screen:
    """Return X11, or Wayland where X11 is not there, or only beside it."""
    optional("Xlib.display", EXTRA)  # without the library the server cannot be asked
    server, why = X11(), no_screen("it is drawn by Wayland")
    try:
        if not server.is_hollow:
            return server
    except ToolFailure as failure:
        why = failure
    wayland = Wayland.detect()
    if wayland is not None:
        return wayland
    programs = ", ".join(PROGRAMS)
    raise ToolFailure(
        "unavailable",
        f"{why.message}; for a Wayland desktop there is no portal here, and none of {programs}",
        hint=why.hint,
    )


class _Quartz:
    """The screen of macOS. Titles and contents of windows need the permission to record the screen."""

    @property
    def is_flat(self) -> bool:
        """Every window is drawn for itself."""
        return False

    def windows(self) -> Sequence[Window]:
        """Return the ordinary windows on the screen, the topmost first, as the system lists them."""
        quartz = optional("Quartz", EXTRA)
        wanted = quartz.kCGWindowListOptionOnScreenOnly | quartz.kCGWindowListExcludeDesktopElements
        listed = quartz.CGWindowListCopyWindowInfo(wanted, quartz.kCGNullWindowID) or ()
        ordinary = [entry for entry in listed if entry.get("kCGWindowLayer", _NORMAL) == _NORMAL]
        return [_of_quartz(entry, is_active=entry is ordinary[0]) for entry in ordinary]

    def picture(self, window: Window | None = None) -> Any:
        """Return an image by `screencapture`, the system's own."""
        try:
            return optional("PIL.ImageGrab", EXTRA).grab(window=window.id if window else None)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ToolFailure("tool_error", f"screencapture took no picture: {error}") from None


def _of_quartz(entry: Any, *, is_active: bool) -> Window:
    bounds = entry["kCGWindowBounds"]
    return Window(
        id=int(entry["kCGWindowNumber"]),
        app=str(entry.get("kCGWindowOwnerName") or ""),
        title=str(entry.get("kCGWindowName") or ""),
        box=(int(bounds["X"]), int(bounds["Y"]), int(bounds["Width"]), int(bounds["Height"])),
        is_active=is_active,
    )


class _Windows:
    """The screen of Windows, all monitors together."""

    @property
    def is_flat(self) -> bool:
        """Every window is drawn for itself."""
        return False

    def windows(self) -> Sequence[Window]:
        """Return the windows with a title, the topmost first, as `EnumWindows` gives them."""
        gui, found = optional("win32gui", EXTRA), list[Window]()
        active = gui.GetForegroundWindow()

        def take(handle: int, _: None) -> bool:
            title = gui.GetWindowText(handle)
            if title and gui.IsWindowVisible(handle) and not gui.IsIconic(handle):
                left, top, right, bottom = gui.GetWindowRect(handle)
                box = (left, top, right - left, bottom - top)
                found.append(Window(id=handle, app=_program(handle), title=title, box=box, is_active=handle == active))
            return True

        gui.EnumWindows(take, None)
        return found

    def picture(self, window: Window | None = None) -> Any:
        """Return an image of the screen, or of a window."""
        grabber = optional("PIL.ImageGrab", EXTRA)
        try:
            return grabber.grab(window=window.id) if window else grabber.grab(all_screens=True)
        except OSError as error:
            raise ToolFailure("tool_error", f"the screen cannot be read: {error}") from None


def _program(handle: int) -> str:
    """Return the program of a window on Windows; empty if it is unknown."""
    errors, psutil = optional("pywintypes", EXTRA), optional("psutil", EXTRA)
    try:
        _, process = optional("win32process", EXTRA).GetWindowThreadProcessId(handle)
        return str(psutil.Process(process).name()).removesuffix(".exe")
    except (errors.error, psutil.Error):
        return ""
