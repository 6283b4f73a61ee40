"""Screen of an X11 server: windows as the window manager lists them (EWMH), pictures from the server."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from toolcrib.plugin import ToolFailure

from .._extras import optional
from .window import EXTRA, Window, no_screen

__all__ = ["X11"]

_VIEWABLE: Final = 2
_INPUT_ONLY: Final = 2
_Z_PIXMAP: Final = 2
"""The words of the X11 protocol: `GetWindowAttributes`, `CreateWindow`, `GetImage`."""
_ALL_PLANES: Final = 0xFFFFFFFF
_BYTES_A_PIXEL: Final = 4
_MOST: Final = 500
"""Windows that are looked at."""


class X11:
    """The screen that `DISPLAY` names. Holds no connection between its calls."""

    @property
    def is_flat(self) -> bool:
        """True where no compositor draws every window for itself."""
        with _open_display() as display:
            manager = display.intern_atom(f"_NET_WM_CM_S{display.get_default_screen()}")
            return not display.get_selection_owner(manager)

    @property
    def is_hollow(self) -> bool:
        """True for the X server beside a Wayland desktop, which does not show that desktop."""
        with _open_display() as display:
            return bool(display.has_extension("XWAYLAND"))

    def windows(self) -> Sequence[Window]:
        """Return the windows, the topmost first; those without a name and a program are menus and the like."""
        with _open_display() as display:
            return [window for window in _windows(display) if window.name]

    def picture(self, window: Window | None = None) -> Any:
        """Return an image of the whole screen, or of what of a window is on it."""
        if window is None:
            grabber = optional("PIL.ImageGrab", EXTRA)
            try:
                return grabber.grab(xdisplay="")  # the empty name is the display of the environment, and nothing else
            except OSError as error:
                raise no_screen(str(error)) from None
        with _open_display() as display:
            return _picture(display, window)


@contextmanager
def _open_display() -> Generator[Any]:
    errors = optional("Xlib.error", EXTRA)
    display: Any = None
    try:
        display = optional("Xlib.display", EXTRA).Display()
        yield display
    except errors.DisplayNameError as error:
        is_named = "names none that there can be" if error.display else "is not set"
        raise no_screen(f"the variable DISPLAY {is_named}") from None
    except (errors.DisplayError, errors.ConnectionClosedError, errors.XauthError, OSError) as error:
        raise no_screen(f"X11 says: {error}") from None
    except errors.XError as error:
        raise ToolFailure("tool_error", f"the window is gone, or cannot be seen: {type(error).__name__}") from None
    finally:
        if display is not None:
            with suppress(errors.ConnectionClosedError):
                display.close()


def _windows(display: Any) -> Iterator[Window]:
    root, errors = display.screen().root, optional("Xlib.error", EXTRA)
    listed = _numbers(display, root, "_NET_CLIENT_LIST_STACKING")
    if listed is None:  # no window manager, or a simple one
        listed = [child.id for child in root.query_tree().children]
    active = _numbers(display, root, "_NET_ACTIVE_WINDOW") or [0]
    for id in reversed(listed[-_MOST:]):
        try:
            window = _window(display, id, is_active=id == active[0])
        except errors.XError:  # closed meanwhile
            continue
        if window is not None:
            yield window


def _window(display: Any, id: int, *, is_active: bool) -> Window | None:
    """Describe a window; None for an invisible one."""
    found, root = display.create_resource_object("window", id), display.screen().root
    attributes = found.get_attributes()
    if attributes.map_state != _VIEWABLE or attributes.win_class == _INPUT_ONLY:
        return None
    shape, place = found.get_geometry(), root.translate_coords(found, 0, 0)
    kind = found.get_wm_class() or ("", "")
    utf8 = display.intern_atom("UTF8_STRING")
    title = found.get_full_text_property(display.intern_atom("_NET_WM_NAME"), utf8) or found.get_wm_name() or ""
    return Window(
        id=id,
        app=kind[1] or kind[0],
        title=title if isinstance(title, str) else title.decode("utf-8", "replace"),
        box=(place.x, place.y, shape.width, shape.height),
        is_active=is_active,
    )


def _numbers(display: Any, window: Any, name: str) -> list[int] | None:
    """Return the value of a property; None if there is none."""
    found = window.get_full_property(display.intern_atom(name), 0)
    return None if found is None else list(found.value)


def _picture(display: Any, window: Window) -> Any:
    """Read what of a window is on the screen. Asks for no more: the server refuses what lies beside it."""
    screen = display.screen()
    left, top, width, height = window.box
    x, y = max(0, -left), max(0, -top)
    width = min(width, screen.width_in_pixels - left) - x
    height = min(height, screen.height_in_pixels - top) - y
    if width <= 0 or height <= 0:
        raise ToolFailure("tool_error", f"{window.name!r} lies beside the screen")
    source = display.create_resource_object("window", window.id)
    read = source.get_image(x, y, width, height, _Z_PIXMAP, _ALL_PLANES)
    if len(read.data) != width * height * _BYTES_A_PIXEL:
        raise ToolFailure("unavailable", f"the screen has {read.depth} bits a pixel, and 24 can be read")
    return optional("PIL.Image", EXTRA).frombytes("RGB", (width, height), read.data, "raw", "BGRX")
