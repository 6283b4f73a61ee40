"""A screenshot by the desktop itself, over D-Bus (org.freedesktop.portal.Screenshot): the way that GNOME leaves open.

The desktop asks its user the first time, or each time; that is its own question, beside ours. Blocks, for a thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from toolcrib.plugin import ToolFailure

from .._extras import optional
from .window import EXTRA

__all__ = ["is_there", "screenshot"]

_NAME: Final = "org.freedesktop.portal.Desktop"
_PATH: Final = "/org/freedesktop/portal/desktop"
_SECONDS: Final = 5.0
"""For what the bus and the portal answer at once."""
_ASKED_SECONDS: Final = 45.0
"""For the user, whom the desktop may ask."""
_LARGEST: Final = 128 << 20
"""Bytes of a picture that is read."""


def is_there() -> bool:
    """Whether the session's bus has a portal, or would start one."""
    with suppress(ToolFailure), _bus() as bus:
        owned = _asked(bus, _jeepney().message_bus.NameHasOwner(_NAME))[0]
        return bool(owned) or _NAME in _asked(bus, _jeepney().message_bus.ListActivatableNames())[0]
    return False


def screenshot() -> bytes:
    """Return the picture that the desktop takes, as the file that it wrote, and leave none behind.

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


def _asked(bus: Any, message: Any) -> Any:
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
    _asked(bus, jeepney.message_bus.AddMatch(rule))
    with bus.filter(rule) as told:
        _asked(bus, jeepney.new_method_call(portal, "Screenshot", "sa{sv}", ("", options)))
        return bus.recv_until_filtered(told, timeout=_ASKED_SECONDS).body
