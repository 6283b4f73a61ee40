"""`open_system_preferences`: opens the page of the system settings where the user gives a permission.

It only opens the page: the user decides there. What is started is a program of the desktop, by a name of the lists
below, and nothing that a model wrote.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import anyio

from toolcrib.plugin import LOCAL, Context, ToolFailure, tool

_Permission = Literal[
    "accessibility", "automation", "bluetooth", "camera", "contacts", "calendars", "files", "full_disk_access",
    "input_monitoring", "location", "microphone", "network", "notifications", "photos", "privacy", "reminders",
    "screen_recording", "speech_recognition",
]  # fmt: skip

_MACOS: Final = "x-apple.systempreferences:com.apple.preference.security?Privacy_"
_PANES: Final[Mapping[str, str]] = {
    "accessibility": "Accessibility",
    "automation": "Automation",
    "bluetooth": "Bluetooth",
    "camera": "Camera",
    "contacts": "Contacts",
    "calendars": "Calendars",
    "files": "FilesAndFolders",
    "full_disk_access": "AllFiles",
    "input_monitoring": "ListenEvent",
    "location": "LocationServices",
    "microphone": "Microphone",
    "photos": "Photos",
    "reminders": "Reminders",
    "screen_recording": "ScreenCapture",
    "speech_recognition": "SpeechRecognition",
}
"""The pages of Privacy & Security in macOS."""
_OTHER_PANES: Final[Mapping[str, str]] = {
    "network": "x-apple.systempreferences:com.apple.preference.network",
    "notifications": "x-apple.systempreferences:com.apple.preference.notifications",
    "privacy": "x-apple.systempreferences:com.apple.preference.security?Privacy",
}
_WINDOWS: Final[Mapping[str, str]] = {
    "accessibility": "easeofaccess",
    "bluetooth": "bluetooth",
    "camera": "privacy-webcam",
    "contacts": "privacy-contacts",
    "calendars": "privacy-calendar",
    "files": "privacy-documents",
    "full_disk_access": "privacy-broadfilesystemaccess",
    "location": "privacy-location",
    "microphone": "privacy-microphone",
    "network": "network-status",
    "notifications": "notifications",
    "photos": "privacy-pictures",
    "privacy": "privacy",
    "reminders": "privacy-tasks",
    "screen_recording": "privacy-graphicscaptureprogrammatic",
    "speech_recognition": "privacy-speech",
}
"""`ms-settings:` of Windows 10 and 11."""
_GNOME: Final[Mapping[str, str]] = {
    "accessibility": "universal-access",
    "bluetooth": "bluetooth",
    "camera": "privacy",
    "location": "privacy",
    "microphone": "privacy",
    "network": "network",
    "notifications": "notifications",
    "screen_recording": "privacy",
    "privacy": "privacy",
}
_KDE: Final[Mapping[str, str]] = {
    "accessibility": "kcm_access",
    "bluetooth": "kcm_bluetooth",
    "network": "kcm_networkmanagement",
    "notifications": "kcm_notifications",
    "privacy": "kcm_recentFiles",
}
_DESKTOPS: Final[Mapping[str, Mapping[str, str]]] = {
    "gnome-control-center": _GNOME,
    "systemsettings": _KDE,
    "xfce4-settings-manager": {},
    "cinnamon-settings": {},
    "mate-control-center": {},
}
"""The settings of desktops by program, with the pages that they have; without one the first page opens."""
_START: Final = """
"$@" >/dev/null 2>&1 </dev/null &
pid=$!
sleep 2
kill -0 "$pid" 2>/dev/null || wait "$pid"
"""
"""Starts a program that stays open, and waits two seconds for one that fails at once."""
_SECONDS: Final = 30.0


@tool(
    op="x.system.preferences",
    category="system",
    kind="write",
    open_world=False,
    idempotent=True,
    approval="always",
    tags=["settings", "privacy", "permission", "grant", "macos", "windows", "gnome", "kde"],
    examples=[{"permission": "screen_recording"}],
    policy={
        "do": ["Tell the user what to switch on there, and why, before you open it."],
        "edge_cases": ["It only opens the page. A desktop that has no such page opens its settings."],
    },
)
async def open_system_preferences(permission: _Permission, ctx: Context) -> dict[str, Any]:
    """Open the system's settings at the page of a permission, for the user to grant it.

    Args:
        permission: Which permission is missing.
    """
    if ctx.principal != LOCAL:
        raise ToolFailure("denied", "the settings are opened for the user who runs this Toolcrib, not for its clients")
    if sys.platform == "darwin":
        page = f"{_MACOS}{_PANES[permission]}" if permission in _PANES else _OTHER_PANES[permission]
        await _run(["open", page])
        return {"permission": permission, "opened": page}
    if sys.platform == "win32":
        page = f"ms-settings:{_WINDOWS.get(permission, 'privacy')}"
        await anyio.to_thread.run_sync(os.startfile, page)
        return {"permission": permission, "opened": page}
    words = _desktop(permission)
    await _run(["/bin/sh", "-c", _START, "start", *words])
    return {"permission": permission, "opened": " ".join(words), "page": len(words) > 1}


def _desktop(permission: str) -> Sequence[str]:
    """Return the command that opens the page. Raises `ToolFailure("unavailable")` without a desktop with settings."""
    program = next((name for name in _DESKTOPS if shutil.which(name)), None)
    if program is None:
        raise ToolFailure(
            "unavailable",
            f"none of the settings programs known here is installed: {', '.join(_DESKTOPS)}",
            hint="tell the user what to allow, and where",
        )
    page = _DESKTOPS[program].get(permission)
    return (program,) if page is None else (program, page)


async def _run(words: Sequence[str]) -> None:
    """Run a program of the desktop. Raises `ToolFailure` when it does not start."""
    name = words[4] if words[0] == "/bin/sh" else words[0]
    try:
        with anyio.fail_after(_SECONDS):
            ended = await anyio.run_process(words, stderr=subprocess.STDOUT, check=False, start_new_session=True)
    except TimeoutError:
        raise ToolFailure("timeout", f"{name} did not answer within {_SECONDS:.0f} s") from None
    except OSError as error:
        raise ToolFailure("tool_error", f"{name} cannot be run: {error.strerror}") from None
    if ended.returncode:
        output = ended.stdout.decode(errors="replace").strip()[:500] or f"exit status {ended.returncode}"
        raise ToolFailure("tool_error", f"{name} did not open: {output}", hint="is there a desktop session here?")
