"""What a desktop is made of: a real X server without a monitor (Xvfb) with windows, a real D-Bus with a portal.

Where it cannot be had, tests are skipped and say why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from Xlib import X, Xatom
from Xlib.display import Display

from rig.pipes import Hearing

SIZE: Final = (640, 480)
_SERVER: Final = shutil.which("Xvfb")
_BUS: Final = shutil.which("dbus-daemon")
_JEEPNEY: Final[Any] = import_module("jeepney")
"""It has no types."""
_PORTAL: Final = "org.freedesktop.portal.Desktop"
_LOOK_SECONDS: Final = 0.1

needs_x_server: Final = pytest.mark.skipif(_SERVER is None, reason="no X server on this machine: install Xvfb")

CHROMIUM: Final = next(filter(None, map(shutil.which, ("/usr/lib/chromium/chromium", "chromium"))), None)
needs_browser: Final = pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine: install chromium")

needs_bus: Final = pytest.mark.skipif(_BUS is None, reason="no D-Bus on this machine: install dbus-daemon")

needs_tesseract: Final = pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")


@dataclass(frozen=True, kw_only=True)
class Desktop:
    """One X server, and our own connection to it as a program that has windows."""

    name: str
    """What `DISPLAY` is for it."""
    display: Any

    def window(self, title: str, app: str, colour: int, box: tuple[int, int, int, int]) -> Any:
        """Open a window of one colour (0xRRGGBB) above the others, and return it once it is drawn."""
        screen = self.display.screen()
        window = screen.root.create_window(
            *box, 0, screen.root_depth, X.InputOutput, X.CopyFromParent, background_pixel=colour, override_redirect=True
        )
        window.change_property(
            self.display.intern_atom("_NET_WM_NAME"), self.display.intern_atom("UTF8_STRING"), 8, title.encode()
        )
        window.set_wm_class(app.lower(), app)
        window.map()
        self.display.sync()
        return window

    def picture(self, window: Any, image: Any) -> None:
        """Draw an image of Pillow in a window."""
        window.put_pil_image(window.create_gc(), 0, 0, image)
        self.display.sync()

    def manage(self, windows: list[Any], active: Any) -> None:
        """Say what a window manager says: which windows there are, the topmost last, and which one has the keyboard."""
        root = self.display.screen().root
        for name, numbers in (
            ("_NET_CLIENT_LIST_STACKING", [window.id for window in windows]),
            ("_NET_ACTIVE_WINDOW", [active.id]),
        ):
            root.change_property(self.display.intern_atom(name), Xatom.WINDOW, 32, numbers)
        self.display.sync()


@contextmanager
def desktop() -> Generator[Desktop]:
    """Start a server of `SIZE` pixels under a free name, and end it with the block."""
    assert _SERVER is not None
    reading, writing = os.pipe()
    words = [_SERVER, "-displayfd", str(writing), "-screen", "0", f"{SIZE[0]}x{SIZE[1]}x24", "-nolisten", "tcp"]
    server = subprocess.Popen(words, pass_fds=[writing], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as told:
            name = f":{Hearing(told).line().decode().strip()}"  # once it takes connections; nothing if it cannot start
        if name == ":":
            raise RuntimeError(f"Xvfb ended with status {server.wait(timeout=60)} before it had a display")
        display = Display(name)
        try:
            yield Desktop(name=name, display=display)
        finally:
            display.close()
    finally:
        server.terminate()
        server.wait(timeout=60)


@contextmanager
def portal(picture: Path, code: int = 0) -> Generator[str]:
    """Run a bus with a desktop on it that answers every wish for a screenshot with `picture`; yield the bus's address.

    `code` is what the desktop says of it: 1 is a no of its user.
    """
    assert _BUS is not None
    words = [_BUS, "--session", "--nofork", "--nopidfile", "--print-address=1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as bus:
        over = threading.Event()
        try:
            address = Hearing(bus.stdout).line().decode().strip()
            connection = import_module("jeepney.io.blocking").open_dbus_connection(bus=address)
            connection.send_and_get_reply(_JEEPNEY.message_bus.RequestName(_PORTAL), timeout=60)
            desktop = threading.Thread(target=_answer, args=(connection, picture, code, over))
            desktop.start()
            yield address
            over.set()
            desktop.join()
            connection.close()
        finally:
            bus.terminate()


def _answer(connection: Any, picture: Path, code: int, over: threading.Event) -> None:
    """Be the desktop: take the wish, name the request, and tell on it what came of it."""
    while not over.is_set():
        try:
            asked = connection.receive(timeout=_LOOK_SECONDS)
        except TimeoutError:
            continue
        fields = asked.header.fields
        if fields.get(_JEEPNEY.HeaderFields.member) != "Screenshot":
            continue
        sender = str(fields[_JEEPNEY.HeaderFields.sender]).removeprefix(":").replace(".", "_")
        _, options = asked.body
        path = f"/org/freedesktop/portal/desktop/request/{sender}/{options['handle_token'][1]}"
        connection.send(_JEEPNEY.new_method_return(asked, "o", (path,)))
        request = _JEEPNEY.DBusAddress(path, interface="org.freedesktop.portal.Request")
        results = {} if code else {"uri": ("s", picture.as_uri())}
        connection.send(_JEEPNEY.new_signal(request, "Response", "ua{sv}", (code, results)))
