"""A forge: git over https and what gh asks of GitHub, with a certificate that only those trust who are told to.

The repositories are served by git itself (`git http-backend`). Names lead to it by `leading`, for the programs that
reach it ask us to look them up.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Answer = Callable[[dict[str, Any]], Any]
_CGI: Final = {
    "Content-Type": "CONTENT_TYPE",
    "Content-Encoding": "HTTP_CONTENT_ENCODING",
    "Git-Protocol": "GIT_PROTOCOL",
}


@dataclass(kw_only=True)
class Forge:
    """A running forge."""

    name: str
    root: Path
    """Its repositories."""
    ca_file: Path
    port: int = 0
    token: str = ""
    """Who has it may read and write; empty lets everybody."""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """What is answered to a question of GraphQL that holds this word, as `data`."""
    heard: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Method, path and `Authorization` of every request."""
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Questions of GraphQL."""

    @property
    def host(self) -> str:
        return f"{self.name}:{self.port}"

    def url(self, path: str) -> str:
        """Return the address of a repository."""
        return f"https://{self.host}/{path}"

    def said_by(self, words: Mapping[str, str], method: str, body: bytes) -> bytes:
        """Return what git's own server says to a request, status and headers in front."""
        path, _, query = words["path"].partition("?")
        given = {name: words[header] for header, name in _CGI.items() if header in words}
        environment = {
            "PATH": os.defpath,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "http.receivepack",
            "GIT_CONFIG_VALUE_0": "true",
            "GIT_CONFIG_KEY_1": "safe.directory",
            "GIT_CONFIG_VALUE_1": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": method,
            "REMOTE_USER": "somebody",
            "CONTENT_LENGTH": str(len(body)),
            **given,
        }
        return subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
        ).stdout


@contextmanager
def forge(folder: Path, name: str = "git.example", token: str = "") -> Generator[Forge]:
    """Run a forge of that name on loopback until the block ends."""
    (folder / "repositories").mkdir(parents=True)
    chain, certificate = authority(folder, name)
    running = Forge(name=name, root=folder / "repositories", ca_file=certificate, token=token)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(running))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    running.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def leading(names: Mapping[str, Sequence[str]]) -> Generator[list[str]]:
    """Let names lead to addresses, for whoever looks them up in this process; give the names that were looked up."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        if host not in names:
            raise OSError(f"{host} is unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in names[host]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio, "getaddrinfo", getaddrinfo)
        yield asked


def pull_requests(address: str) -> dict[str, Answer]:
    """Return the answers that gh needs to open a pull request of the repository `team/work`, with this address."""
    repository: dict[str, Any] = {
        "id": "R_1",
        "name": "work",
        "owner": {"login": "team"},
        "viewerPermission": "WRITE",
        "defaultBranchRef": {"name": "main"},
        "parent": None,
        "pullRequests": {"nodes": []},
    }
    return {
        "repository(": lambda _: {"repository": repository, "repo_000": repository},
        "repo_000": lambda _: {"repo_000": repository},
        "createPullRequest": lambda _: {"createPullRequest": {"pullRequest": {"id": "P_7", "url": address}}},
        "viewer": lambda _: {"viewer": {"login": "ann"}},
    }


def _handler(forge: Forge) -> type[BaseHTTPRequestHandler]:
    expected = base64.b64encode(f"x-access-token:{forge.token}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers["Content-Length"])))

        def _serve(self, body: bytes) -> None:
            credential = self.headers.get("Authorization", "")
            forge.heard.append((self.command, self.path, credential))
            if self.path.startswith("/api/"):
                self._say(200, _told(forge, json.loads(body)) if body else b"{}", {"Content-Type": "application/json"})
            elif forge.token and credential != f"Basic {expected}":
                self._say(401, b"", {"WWW-Authenticate": 'Basic realm="git"'})
            else:
                said = forge.said_by({**self.headers, "path": self.path}, self.command, body)
                head, _, rest = said.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
                self._say(int(headers.pop("Status", "200").split(" ")[0]), rest, headers)

        def _say(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


def _told(forge: Forge, question: dict[str, Any]) -> bytes:
    forge.asked.append(question)
    data: dict[str, Any] = {}
    for word, answer in forge.answers.items():
        if word in question["query"]:
            data |= answer(question)
    return json.dumps({"data": data}).encode()


def authority(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate for a name that nobody knows: the chain with its key, and what trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain, trusted = folder / "chain.pem", folder / "ca.pem"
    chain.write_bytes(pem + private)
    trusted.write_bytes(pem)
    return chain, trusted
