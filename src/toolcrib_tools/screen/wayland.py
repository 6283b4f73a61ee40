"""Screens of a Wayland desktop, through a program or the desktop portal (D-Bus)."""

from __future__ import annotations

import io
import secrets
import shutil
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from toolcrib.plugin import ToolFailure

from .._extras import optional
from .window import EXTRA, Window

__all__ = ["PROGRAMS", "Wayland", "is_there", "screenshot"]

_NAME: Final = "org.freedesktop.portal.Desktop"
_PATH: Final = "/org/freedesktop/portal/desktop"
_SECONDS: Final = 5.0
"""For what the bus and the portal answer at once."""
_ASKED_SECONDS: Final = 45.0
"""For the user, whom the desktop may ask."""
_LARGEST: Final = 128 << 20
"""Bytes of a picture that is read."""


def is_there() -> bool:
    """True if the session's bus has a portal, or would start one."""
    with suppress(ToolFailure), _bus() as bus:
        owned = _call_portal(bus, _jeepney().message_bus.NameHasOwner(_NAME))[0]
        return bool(owned) or _NAME in _call_portal(bus, _jeepney().message_bus.ListActivatableNames())[0]
    return False


def screenshot() -> bytes:
    """Return the desktop's screenshot, and delete the file that it wrote.

    Raises `ToolFailure`: `unavailable` where there is no portal, `denied` where the user says no, `timeout`.
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


_FILE: Final = "{file}"
PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "grim": (_FILE,),
    "gnome-screenshot": ("-f", _FILE),
    "spectacle": ("-n", "-b", "-f", "-o", _FILE),
}
"""Arguments by program: for the compositors of wlroots, for GNOME, for KDE."""
_wayland_SECONDS: Final = 30.0
_REASON_CHARACTERS: Final = 500
"""Characters of what a program says that fails."""


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
                words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_wayland_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ToolFailure("timeout", f"{name} did not answer within {_wayland_SECONDS:.0f} s") from None
        except OSError as error:
            raise ToolFailure("tool_error", f"{name} cannot be run: {error.strerror}") from None
        if ended.returncode or not file.exists():
            reason = (ended.stderr or ended.stdout).decode(errors="replace").strip()[:_REASON_CHARACTERS]
            raise ToolFailure("tool_error", f"{name} took no picture: {reason or f'exit status {ended.returncode}'}")
        return file.read_bytes()
