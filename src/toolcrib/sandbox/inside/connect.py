"""Connector: joins its input and output to a socket.

connect.py PROXY-PORT HOST PORT    a host through the proxy, as ssh's `ProxyCommand` expects
connect.py SOCKET                  an MCP server behind a Unix socket, for a client that starts servers as programs
"""

from __future__ import annotations

import os
import socket
import sys
import threading

_PIECE_BYTES = 65536
_MAX_HEAD_BYTES = 65536


def main(*arguments: str) -> int:
    """Copy both ways until the other side ends, passing on the end of the input; return the exit status."""
    if len(arguments) == 1:
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        far.connect(arguments[0])
    else:
        proxy, host, port = arguments
        far = socket.create_connection(("127.0.0.1", int(proxy)))
        if refusal := _ask_proxy(far, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"):
            sys.stderr.write(refusal)
            return 1
    threading.Thread(target=_send, args=(far,), daemon=True).start()
    while piece := far.recv(_PIECE_BYTES):
        _write(piece)
    return 0


def _ask_proxy(far: socket.socket, place: str) -> str:
    """Ask the proxy for a host; return why it was not reached, else empty."""
    far.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    head = b""
    # byte by byte: the bytes after the head belong to the other side
    while not head.endswith(b"\r\n\r\n") and len(head) < _MAX_HEAD_BYTES:
        piece = far.recv(1)
        if not piece:
            break
        head += piece
    status = head.partition(b"\r\n")[0].decode("latin-1")
    if status.split(" ")[1:2] == ["200"]:
        return ""
    return f"{place} was not reached: {status.partition(' ')[2] or 'no answer'}\n"


def _send(far: socket.socket) -> None:
    while piece := os.read(0, _PIECE_BYTES):
        far.sendall(piece)
    far.shutdown(socket.SHUT_WR)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
