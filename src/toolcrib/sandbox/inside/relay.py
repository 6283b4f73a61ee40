"""MCP relay: joins its input and output to a Unix socket, for a client that starts its servers as programs.

relay.py SOCKET
"""

from __future__ import annotations

import os
import socket
import sys
import threading

__all__ = ["main"]

_PIECE = 65536


def main(path: str) -> None:
    """Copy both ways until the server ends; the end of the input is passed on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as far:
        far.connect(path)
        threading.Thread(target=_send, args=(far,), daemon=True).start()
        while piece := far.recv(_PIECE):
            _write(piece)


def _send(far: socket.socket) -> None:
    while piece := os.read(0, _PIECE):
        far.sendall(piece)
    far.shutdown(socket.SHUT_WR)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1])
