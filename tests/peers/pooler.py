"""Pooler of PostgreSQL in transaction mode: each transaction gets the session that became idle last."""

from __future__ import annotations

import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

_QUERY_ENDS: Final = (b"Q", b"S")
_FIRST_PROCESS: Final = 1_000_000


@contextmanager
def pooled(url: str, folder: Path) -> Generator[str]:
    """Give the URL of a pooler in front of `url`, which has its socket in `folder`."""
    with psycopg.connect(url) as session:
        server = f"{session.info.host}/.s.PGSQL.{session.info.port}"
    idle: list[socket.SocketIO] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / ".s.PGSQL.1"))
        listener.listen()
        Thread(target=_accept, args=(listener, server, idle), daemon=True).start()
        yield make_conninfo(url, host=str(folder), port=1)
        listener.shutdown(socket.SHUT_RDWR)
    for session in idle:
        session.close()


def _accept(listener: socket.socket, server: str, idle: list[socket.SocketIO]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        Thread(target=_serve, args=(_stream(client), server, idle), daemon=True).start()


def _stream(link: socket.socket) -> socket.SocketIO:
    with link:  # the stream keeps it open
        return link.makefile("rwb", buffering=0)


def _serve(client: socket.SocketIO, server: str, idle: list[socket.SocketIO]) -> None:
    link = socket.socket(socket.AF_UNIX)
    link.connect(server)
    session = _stream(link)
    size = _exactly(client, 4)
    session.write(size + _exactly(client, struct.unpack("!I", size)[0] - 4))
    _answer(session, client)
    idle.insert(0, session)
    linked: socket.SocketIO | None = None
    with client:
        while (kind := client.read(1)) and kind != b"X":
            linked = linked or idle.pop()
            linked.write(kind + _body(client))
            if kind in _QUERY_ENDS and _answer(linked, client) == b"I":
                idle.append(linked)
                linked = None


def _answer(session: socket.SocketIO, client: socket.SocketIO) -> bytes:
    """Pass on messages to the one that says that the session is ready, and return its transaction status."""
    while True:
        kind, body = session.read(1), _body(session)
        if kind == b"K":  # a pooler has process ids of its own
            body = body[:4] + struct.pack("!I", _FIRST_PROCESS) + body[8:]
        client.write(kind + body)
        if kind == b"Z":
            return body[4:]


def _body(stream: socket.SocketIO) -> bytes:
    size = _exactly(stream, 4)
    return size + _exactly(stream, struct.unpack("!I", size)[0] - 4)


def _exactly(stream: socket.SocketIO, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += stream.read(size - len(data)) or b""
    return data
