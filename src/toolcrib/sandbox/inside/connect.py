"""Proxy connector: joins its input and output to a host through the proxy, as ssh's `ProxyCommand` expects.

connect.py PROXY-PORT HOST PORT
"""

from __future__ import annotations

import os
import socket
import sys
import threading

__all__ = ["main"]

_PIECE = 65536
_HEAD = 65536


def main(proxy: int, host: str, port: int) -> int:
    """Copy both ways until the other side ends; return the exit status."""
    name = f"[{host}]" if ":" in host else host
    with socket.create_connection(("127.0.0.1", proxy)) as far:
        far.sendall(f"CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
        head = b""
        # byte by byte: the bytes after the head belong to the other side
        while not head.endswith(b"\r\n\r\n") and len(head) < _HEAD:
            piece = far.recv(1)
            if not piece:
                break
            head += piece
        status = head.partition(b"\r\n")[0].decode("latin-1")
        if status.split(" ")[1:2] != ["200"]:
            sys.stderr.write(f"{name}:{port} was not reached: {status.partition(' ')[2] or 'no answer'}\n")
            return 1
        threading.Thread(target=_send, args=(far,), daemon=True).start()
        while piece := far.recv(_PIECE):
            _write(piece)
    return 0


def _send(far: socket.socket) -> None:
    while piece := os.read(0, _PIECE):
        far.sendall(piece)
    far.shutdown(socket.SHUT_WR)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
