"""Proxy listener: opens the socket of the proxy, hands it out of the sandbox, and becomes the command.

    listen.py CONTROL PORT PROGRAM [ARGUMENT …]

A socket belongs to the network it was made in, in any process: nothing has to stay inside to forward anything. It
imports the modules in C only, for it is in the way of every command that has the network (some 15 ms).
"""

from __future__ import annotations

import _socket
import os
import sys


def main(control: int, port: int, program: list[str]) -> None:
    """Listen on 127.0.0.1, send the socket over the descriptor `control`, run the program."""
    listening = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", port))
    listening.listen(128)
    handed = listening.fileno().to_bytes(4, sys.byteorder)
    outside = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, control)
    outside.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
    outside.close()
    signals = __import__("_signal")  # the C module: importing its Python wrapper takes some 5 ms
    # Python ignores these signals, and the executed program would inherit that
    for number in (signals.SIGPIPE, signals.SIGXFSZ):
        signals.signal(number, signals.SIG_DFL)
    os.execv(program[0], program)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
