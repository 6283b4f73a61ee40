"""What a command reaches that may reach some hosts: those, by the programs that people use, and nothing beside them.

The servers are on this machine and named with their ports, as an operator names what is not public; what arrives is
seen at their end, and every way around the proxy is tried from inside.
"""

from __future__ import annotations

import hashlib
import io
import os
import socket
import sys
import textwrap
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from rig.sandbox import Run, needs_sandbox, needs_ssh
from toolcrib.core.sandbox import Reach

pytestmark = needs_sandbox

BASE = getattr(sys, "_base_executable", sys.executable)


@contextmanager
def serving(pages: dict[str, bytes]) -> Generator[tuple[int, list[str]]]:
    """Serve pages on this machine; give the port, and the requests that arrived."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(f"{self.headers['Host']} {self.path}")
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1], heard
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def only(port: int) -> Reach:
    return Reach(hosts=("pypi.example",), private=(f"127.0.0.1:{port}",))


async def test_a_request_reaches_the_host_that_was_named(run: Run) -> None:
    with serving({"/page": b"it is there"}) as (port, heard):
        outcome = await run(f"curl -sS http://127.0.0.1:{port}/page", network=only(port))

    assert (outcome.finished.status, outcome.text, outcome.refused) == (0, "it is there", ())
    assert heard == [f"127.0.0.1:{port} /page"]


async def test_a_tunnel_reaches_it_too(run: Run) -> None:
    with serving({"/page": b"it is there"}) as (port, _heard):
        outcome = await run(f"curl -sS --proxytunnel http://127.0.0.1:{port}/page", network=only(port))

    assert (outcome.text, outcome.refused) == ("it is there", ())


async def test_pip_downloads_from_an_index_that_was_named(run: Run, folder: Path) -> None:
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("tiny.py", "SAID = 'hello'\n")
        made.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        made.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("tiny-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.getvalue()).hexdigest()
    name = "tiny-1.0-py3-none-any.whl"
    link = f'<a href="/files/{name}#sha256={digest}">{name}</a>'.encode()
    with serving({"/simple/tiny/": link, f"/files/{name}": wheel.getvalue()}) as (port, heard):
        index = f"-i http://127.0.0.1:{port}/simple/ --no-cache-dir --disable-pip-version-check"
        outcome = await run(f"{BASE} -m pip download --no-deps {index} tiny", network=only(port))
        refused = await run(
            f"{BASE} -m pip download --no-deps --no-cache-dir --retries 0 --disable-pip-version-check"
            " -i https://other.example/simple/ tiny",
            network=only(port),
        )

    assert outcome.finished.status == 0, outcome.text
    assert (folder / name).read_bytes() == wheel.getvalue()
    assert len(heard) == 2
    assert refused.refused == ("other.example:443: it is not among the hosts that this command may reach",)


AROUND = """
import ctypes, os, socket, struct
PORT = {port}
def tried(name, do):
    try:
        do()
        print(name, "reached")
    except OSError as error:
        print(name, "no")
def connected(family, place, kind=socket.SOCK_STREAM):
    made = socket.socket(family, kind)
    made.settimeout(3)
    made.connect(place)
    if kind == socket.SOCK_DGRAM:
        made.send(b"x")
tried("loopback", lambda: connected(socket.AF_INET, ("127.0.0.1", PORT)))
tried("loopback6", lambda: connected(socket.AF_INET6, ("::1", PORT)))
tried("any", lambda: connected(socket.AF_INET, ("0.0.0.0", PORT)))
tried("public", lambda: connected(socket.AF_INET, ("1.1.1.1", 443)))
tried("metadata", lambda: connected(socket.AF_INET, ("169.254.169.254", 80)))
tried("udp", lambda: connected(socket.AF_INET, ("1.1.1.1", 53), socket.SOCK_DGRAM))
tried("name", lambda: socket.getaddrinfo("example.com", 443))
tried("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
tried("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried("abstract", lambda: connected(socket.AF_UNIX, "\\0{abstract}"))
tried("netns", lambda: os.setns(os.open("/proc/1/ns/net", os.O_RDONLY)) if hasattr(os, "setns") else ctypes.CDLL(None,
      use_errno=True).setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0) and (_ for _ in ()).throw(OSError()))
for descriptor in range(3, 64):
    try:
        print("inherited", descriptor, os.readlink(f"/proc/self/fd/{{descriptor}}")) if os.isatty(descriptor) or \\
            os.fstat(descriptor) and "socket" in os.readlink(f"/proc/self/fd/{{descriptor}}") else None
    except OSError:
        pass
"""


async def test_there_is_no_way_around_the_proxy(run: Run, folder: Path) -> None:
    abstract = f"toolcrib-test-{os.getpid()}"
    with serving({"/": b"x"}) as (port, heard), socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{abstract}")
        unix.listen()
        (folder / "around.py").write_text(AROUND.format(port=port, abstract=abstract))

        outcome = await run("python3 around.py", network=only(port))

    names = "loopback loopback6 any public metadata udp name raw packet abstract netns"
    assert outcome.text == "".join(f"{name} no\n" for name in names.split())
    assert heard == []


SAID = """
import socket
for head in {heads!r}:
    with socket.create_connection(("127.0.0.1", 3128)) as made:
        made.sendall(head.encode())
        print(made.recv(100).split(b"\\r\\n")[0].decode())
"""


async def test_the_proxy_itself_leads_nowhere_else(run: Run, folder: Path) -> None:
    """What `tests/unit/toolcrib/net/test_proxy.py` tries in full, once from inside."""
    with serving({"/": b"x"}) as (port, heard), serving({"/": b"x"}) as (other, unheard):
        heads = [
            *(
                f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"
                for host in (f"127.0.0.1:{other}", "[::1]:22", "a.b:22")
            ),
            f"GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n",
            "GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
            f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{other}\r\n\r\n",
        ]
        (folder / "say.py").write_text(SAID.format(heads=heads))

        outcome = await run("python3 say.py", network=only(port))

    assert outcome.text == "HTTP/1.1 403 Refused by the sandbox\n" * 5 + "HTTP/1.1 400 Bad request\n"
    assert [said.partition(": ")[0] for said in outcome.refused] == [
        f"127.0.0.1:{other}", "[::1]:22", "a.b:22", f"localhost:{port}", "169.254.169.254:80",
    ]  # fmt: skip
    assert (heard, unheard) == ([], [])


async def test_each_command_has_its_own_hosts(run: Run) -> None:
    with serving({"/": b"one"}) as (first, _), serving({"/": b"two"}) as (second, _heard):
        reach = (
            f"curl -sS http://127.0.0.1:{first}/; curl -sS -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{second}/"
        )
        one = await run(reach, network=only(first))
        none = await run(f"env | grep -i proxy; {reach}", network=Reach())

    assert one.text == "one403"
    assert ("proxy" in none.text.lower(), none.finished.status != 0) == (False, True)


async def test_what_a_command_serves_itself_it_finds_without_the_proxy(run: Run) -> None:
    script = """
        python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 &
        until curl -sS -o /dev/null http://localhost:8000/ 2>/dev/null; do sleep 0.05; done
        curl -sS http://localhost:8000/ | grep -c Directory
    """
    outcome = await run(textwrap.dedent(script), network=Reach(hosts=("pypi.example",)))

    assert outcome.text.strip().isdecimal(), outcome.text
    assert outcome.refused == ()


async def test_a_command_is_the_same_with_a_way_out_as_without(run: Run) -> None:
    """Nothing stays of the program that opens the way: no process, no descriptor, no signal that is ignored."""
    text = (
        "ls /proc/self/fd | wc -l; grep SigIgn /proc/self/status; ps -e -o comm= > p; sort p; yes | head -1;"
        " ulimit -u -n"
    )
    with_it = await run(text, network=Reach(hosts=("pypi.example",)))
    without = await run(text)

    assert with_it.text == without.text


@needs_ssh
async def test_ssh_goes_through_the_proxy_by_itself(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        heard: list[bytes] = []

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(100))
                connection.sendall(b"SSH-2.0-test\r\n")

        thread = Thread(target=answer, daemon=True)
        thread.start()
        outcome = await run(
            f"ssh -o BatchMode=yes -p {port} 127.0.0.1 true; ssh -o BatchMode=yes git.example true",
            network=only(port),
        )
        thread.join(60)

    assert heard[0].startswith(b"SSH-2.0-OpenSSH")
    assert "git.example:22 was not reached: 403 Refused by the sandbox" in outcome.text
    assert outcome.refused == ("git.example:22: it is not among the hosts that this command may reach",)
