"""Screens of X11, Wayland (a program or the desktop portal), macOS and Windows, and the choice of one."""

from __future__ import annotations

import io
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from toolcrib.plugin import ToolFailure

from .._extras import optional

EXTRA: Final = "screen"
"""The extra that brings the libraries."""

_Box = tuple[int, int, int, int]
"""Left, top, width and height, in pixels of the screen."""

_VIEWABLE: Final = 2
_INPUT_ONLY: Final = 2
_Z_PIXMAP: Final = 2
"""The words of the X11 protocol: `GetWindowAttributes`, `CreateWindow`, `GetImage`."""
_ALL_PLANES: Final = 0xFFFFFFFF
_BYTES_A_PIXEL: Final = 4
_MOST: Final = 500
"""Windows that are looked at."""

_NAME: Final = "org.freedesktop.portal.Desktop"
_PATH: Final = "/org/freedesktop/portal/desktop"
_SECONDS: Final = 5.0
"""For what the bus and the portal answer at once."""
_ASKED_SECONDS: Final = 45.0
"""For the user, whom the desktop may ask."""
_LARGEST: Final = 128 << 20
"""Bytes of a picture that is read."""

_FILE: Final = "{file}"
PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "grim": (_FILE,),
    "gnome-screenshot": ("-f", _FILE),
    "spectacle": ("-n", "-b", "-f", "-o", _FILE),
}
"""Arguments by program: for the compositors of wlroots, for GNOME, for KDE."""
_WAYLAND_SECONDS: Final = 30.0
_REASON_CHARACTERS: Final = 500
"""Characters of what a program says that fails."""

_NORMAL: Final = 0
"""The layer of ordinary windows in Quartz; the dock, menus and the like are above and below."""


class Window(Struct, frozen=True, kw_only=True):
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


def is_there() -> bool:
    """True if the session's bus has a portal, or would start one."""
    with suppress(ToolFailure), _bus() as bus:
        owned = _call_portal(bus, _jeepney().message_bus.NameHasOwner(_NAME))[0]
        return bool(owned) or _NAME in _call_portal(bus, _jeepney().message_bus.ListActivatableNames())[0]
    return False


def screenshot() -> bytes:
    """Return the desktop's screenshot, and delete the file that it wrote.

    Raises `ToolFailure`: `unavailable` if there is no portal, `denied` where the user says no, `timeout`.
    """
    with _bus() as bus:
        code, results = _response(bus)
    if code or "uri" not in results:
        raise ToolFailure("denied" if code == 1 else "tool_error", f"the portal took no picture (response {code})")
    file = Path(unquote(urlsplit(str(results["uri"][1])).path))
    try:
        with file.open("rb") as picture:
            return picture.read(_LARGEST)
    except OSError as error:
        raise ToolFailure("tool_error", f"the portal's picture cannot be read: {error.strerror}") from None
    finally:
        with suppress(OSError):
            file.unlink()


def _jeepney() -> Any:
    return optional("jeepney", EXTRA)


@contextmanager
def _bus() -> Generator[Any]:
    wrappers, opening = optional("jeepney.wrappers", EXTRA), optional("jeepney.io.blocking", EXTRA)
    bus: Any = None
    try:
        bus = opening.open_dbus_connection(bus="SESSION")
        yield bus
    except TimeoutError:
        raise ToolFailure("timeout", "the portal did not answer in time") from None
    except (OSError, KeyError, RuntimeError, wrappers.DBusErrorResponse) as error:
        raise ToolFailure("unavailable", f"the session's bus has no portal: {error}") from None
    finally:
        if bus is not None:
            bus.close()


def _call_portal(bus: Any, message: Any) -> Any:
    """Return the body of the answer."""
    answer = bus.send_and_get_reply(message, timeout=_SECONDS)
    return optional("jeepney.wrappers", EXTRA).unwrap_msg(answer)


def _response(bus: Any) -> tuple[int, dict[str, Any]]:
    """Ask for a picture, and return code and results of the request; its signal is listened to before it is made."""
    jeepney, token = _jeepney(), f"toolcrib_{secrets.token_hex(8)}"
    sender = bus.unique_name.removeprefix(":").replace(".", "_")
    rule = jeepney.MatchRule(
        type="signal", interface="org.freedesktop.portal.Request", path=f"{_PATH}/request/{sender}/{token}"
    )
    portal = jeepney.DBusAddress(_PATH, bus_name=_NAME, interface="org.freedesktop.portal.Screenshot")
    options = {"handle_token": ("s", token), "interactive": ("b", False)}
    _call_portal(bus, jeepney.message_bus.AddMatch(rule))
    with bus.filter(rule) as signals:
        _call_portal(bus, jeepney.new_method_call(portal, "Screenshot", "sa{sv}", ("", options)))
        return bus.recv_until_filtered(signals, timeout=_ASKED_SECONDS).body


class Wayland:
    """The screen by the first of several ways that works."""

    def __init__(self, ways: Sequence[Callable[[], bytes]]) -> None:
        """Each way returns a picture as PNG, or raises `ToolFailure`."""
        self._ways = ways

    @classmethod
    def detect(cls) -> Wayland | None:
        """Return the screen by the programs that are installed and the portal; None if there is neither."""
        programs = [partial(_by_program, path) for path in map(shutil.which, PROGRAMS) if path]
        ways = [*programs, *([screenshot] if is_there() else [])]
        return cls(ways) if ways else None

    @property
    def is_flat(self) -> bool:
        """True: windows are not accessible."""
        return True

    def windows(self) -> Sequence[Window]:
        """Raise: the protocol does not tell."""
        raise ToolFailure(
            "unavailable",
            "a Wayland desktop does not list its windows",
            hint="look at the whole screen: leave app and window_title out",
        )

    def picture(self, window: Window | None = None) -> Any:
        """Return an image of the whole screen. Raises `ToolFailure` with what every way says."""
        if window is not None:
            self.windows()
        failures: list[ToolFailure] = []
        for way in self._ways:
            try:
                return _read(way())
            except ToolFailure as failure:
                failures.append(failure)
        raise ToolFailure(failures[-1].code, "; ".join(failure.message for failure in failures))


def _read(data: bytes) -> Any:
    try:
        image = optional("PIL.Image", EXTRA).open(io.BytesIO(data), formats=("PNG", "JPEG"))
        image.load()
    except OSError as error:
        raise ToolFailure("tool_error", f"the picture of the screen is broken: {error}") from None
    return image


def _by_program(program: str) -> bytes:
    """Have one of `PROGRAMS`, given by its path, write a picture."""
    name = Path(program).name
    with TemporaryDirectory(prefix="toolcrib-screen-") as folder:
        file = Path(folder) / "screen.png"
        words = [program, *(word.replace(_FILE, str(file)) for word in PROGRAMS[name])]
        try:
            ended = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_WAYLAND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ToolFailure("timeout", f"{name} did not answer within {_WAYLAND_SECONDS:.0f} s") from None
        except OSError as error:
            raise ToolFailure("tool_error", f"{name} cannot be run: {error.strerror}") from None
        if ended.returncode or not file.exists():
            reason = (ended.stderr or ended.stdout).decode(errors="replace").strip()[:_REASON_CHARACTERS]
            raise ToolFailure("tool_error", f"{name} took no picture: {reason or f'exit status {ended.returncode}'}")
        return file.read_bytes()


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
