"""Windows, and the interface of a screen backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from toolcrib.plugin import ToolFailure

__all__ = ["EXTRA", "Screen", "Window", "no_screen"]

EXTRA: Final = "screen"
"""The extra that brings the libraries."""

_Box = tuple[int, int, int, int]
"""Left, top, width and height, in pixels of the screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window that can be seen."""

    id: int
    """Identifier of the window system."""
    app: str
    title: str
    box: _Box
    is_active: bool = False
    """It has the keyboard."""

    @property
    def name(self) -> str:
        """The window in words."""
        return f"{self.app}: {self.title}" if self.app and self.title else self.app or self.title

    def overlaps(self, other: Window) -> bool:
        """True if two windows share a part of the screen."""
        (left, top, width, height), (other_left, other_top, other_width, other_height) = self.box, other.box
        beside = left >= other_left + other_width or other_left >= left + width
        return not beside and top < other_top + other_height and other_top < top + height


class Screen(Protocol):
    """One system's way to its screen. Every method blocks, and is for a thread.

    Raises `ToolFailure`: `unavailable` where the system does not give what is asked for, `tool_error` where it fails.
    """

    @property
    def is_flat(self) -> bool:
        """True if the picture of a window includes the windows above it."""
        ...

    def windows(self) -> Sequence[Window]:
        """Return the windows that can be seen, the topmost first."""
        ...

    def picture(self, window: Window | None = None) -> Any:
        """Return an image of Pillow: of a window, or of the whole screen."""
        ...


def no_screen(why: str) -> ToolFailure:
    """Return the error for a machine without a screen."""
    return ToolFailure(
        "unavailable",
        f"there is no screen to look at: {why}",
        hint="run Toolcrib in the user's desktop session, not as a service or over ssh",
    )
