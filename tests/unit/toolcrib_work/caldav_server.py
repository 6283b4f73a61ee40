"""Radicale in a thread of this process: a real CalDAV server that can be cut off, and a second client of it."""

from __future__ import annotations

import base64
import http.client
import re
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

PASSWORD = "correct horse"
USERS = 60


class CalendarServer:
    """The server, and what it was asked."""

    def __init__(self, application: Callable[..., Iterable[bytes]], folder: Path) -> None:
        """`folder` holds a folder for each user."""
        self._application = application
        self.folder = folder
        self.url = ""
        self.requests: list[str] = []
        """`METHOD path`, in their order."""
        self.broken: Callable[[str, str], bool] = lambda method, path: False
        """Whether a request gets `status` and does nothing."""
        self.status = "503 Service Unavailable"
        self.lost: Callable[[str, str], bool] = lambda method, path: False
        """Whether a request is carried out, and its response replaced by HTTP 503."""
        self.edited: Callable[[str, bytes], bytes] = lambda path, body: body
        """What becomes of a response; of the same length, or without one declared."""
        self._users = iter(range(USERS))

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append(f"{method} {path}")
        if self.broken(method, path):
            start(self.status, [("Content-Length", "0")])
            return []
        if not self.lost(method, path):
            environ.pop("HTTP_ACCEPT_ENCODING", "")  # what is edited is not compressed
            return [self.edited(path, part) for part in self._application(environ, start)]
        list(self._application(environ, _drop))
        start("503 Service Unavailable", [("Content-Length", "0")])
        return []

    def user(self) -> OtherClient:
        """Return a new user with one calendar."""
        self.requests.clear()
        self.broken = self.lost = lambda method, path: False
        self.edited = lambda path, body: body
        self.status = "503 Service Unavailable"
        client = OtherClient(self, f"user{next(self._users)}")
        client.request("MKCALENDAR", client.calendar)
        return client


class OtherClient:
    """Another program of the same user."""

    def __init__(self, server: CalendarServer, name: str) -> None:
        self.server = server
        self.name = name
        self.calendar = f"/{name}/home/"

    def request(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, dict[str, str], str]:
        """Send a request; its headers have `_` for `-`."""
        host = self.server.url.removeprefix("http://").rstrip("/")
        token = base64.b64encode(f"{self.name}:{PASSWORD}".encode()).decode()
        connection = http.client.HTTPConnection(host, timeout=10)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body.encode(), {"Authorization": f"Basic {token}", **sent})
        answer = connection.getresponse()
        text = answer.read().decode()
        found = {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
        return answer.status, found, text

    def put(self, name: str, data: str) -> None:
        """Write an event over whatever is there."""
        status, _, text = self.request("PUT", f"{self.calendar}{name}.ics", data, Content_Type="text/calendar")
        assert status in (201, 204), text

    def get(self, href: str) -> str:
        """Return an event; empty where it is gone."""
        status, _, text = self.request("GET", href)
        return text.replace("\r\n ", "").replace("\r\n", "\n") if status == 200 else ""

    def delete(self, href: str) -> None:
        """Delete an event."""
        assert self.request("DELETE", href)[0] in (200, 204)

    def events(self, calendar: str = "") -> list[str]:
        """Return the paths of the events of a calendar."""
        _, _, text = self.request("PROPFIND", calendar or self.calendar, Depth="1")
        return sorted(re.findall(r"<href>([^<]+\.ics)</href>", text))


def event(uid: str, title: str, start: str, *more: str) -> str:
    """Return an event as iCalendar; `start` is the rest of the line DTSTART."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//other//EN", "BEGIN:VEVENT", f"UID:{uid}"]
    lines += ["DTSTAMP:20261101T000000Z", f"SUMMARY:{title}", f"DTSTART{start}", *more]
    return "\r\n".join([*lines, "END:VEVENT", "END:VCALENDAR", ""])


def _drop(status: str, headers: list[tuple[str, str]], error: object = None) -> None:
    """Take the status and headers of a response that is lost."""


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Keep the output of tests free of requests."""


@contextmanager
def serve(folder: Path) -> Generator[CalendarServer]:
    """Serve on a free port of 127.0.0.1 until the end."""
    from radicale import config
    from radicale.app import Application

    passwords = folder / "passwords"
    passwords.write_text("".join(f"user{number}:{PASSWORD}\n" for number in range(USERS)))
    configuration = config.load()
    settings: dict[str, dict[str, Any]] = {
        "auth": {"type": "htpasswd", "htpasswd_filename": str(passwords), "htpasswd_encryption": "plain", "delay": "0"},
        "storage": {"filesystem_folder": str(folder / "collections"), "_filesystem_fsync": "False"},
        "logging": {"level": "critical"},
    }
    configuration.update(settings, "tests", privileged=True)
    server = CalendarServer(Application(configuration), folder / "collections" / "collection-root")
    listening = make_server("127.0.0.1", 0, server, handler_class=_Quiet)
    server.url = f"http://127.0.0.1:{listening.server_port}/"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join(10)
        listening.server_close()
