"""The client's pipe: standard input and output taken out of everybody else's reach, and copied to and from a socket.

Standard library only, with threads that block: the descriptors belong to the client too, and making them non-blocking
would change them for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
from typing import Final

__all__ = ["LISTENER", "relay", "take_stdio"]

LISTENER: Final = "toolcrib client's input"
"""Name of the thread that reads what the client says. It may outlive `relay`, until the client's end is closed."""

_CHUNK: Final = 64 * 1024


def take_stdio() -> tuple[int, int]:
    """Return private copies of standard input and output; what is printed or inherited from now on goes elsewhere.

    Descriptor 0 reads nothing and 1 is standard error, so neither a stray `print` nor a child process can put
    anything between the messages of the protocol (security.md T36).
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, sink


def relay(source: int, sink: int, link: socket.socket) -> bool:
    """Copy from `source` to `link` and from `link` to `sink` until there is nothing more to copy.

    Reading waits for writing, so a slow side slows the other down instead of filling memory. Returns whether the
    client ended first: it closed its end, or it no longer reads the answers.

    The process ends soon after, or keeps `source` open until the thread `LISTENER` has ended: nothing can wake a thread
    that waits for the client, and a descriptor that is closed under it is another file's number by the time it reads.
    """
    ended = threading.Event()
    threading.Thread(target=_copy_in, args=(source, sink, link, ended), name=LISTENER, daemon=True).start()
    try:
        while chunk := link.recv(_CHUNK):
            _write_all(sink, chunk)
    except BrokenPipeError:
        return True
    except ConnectionError:
        pass
    return ended.is_set()


def _copy_in(source: int, sink: int, link: socket.socket, ended: threading.Event) -> None:
    """Copy what the client says; its end is passed on, so that what it asked is still answered.

    Unless it is gone altogether: then closing the link tells the daemon to cancel.
    """
    # A link that the other thread has closed by now is an OSError, or a ValueError where it is registered.
    with contextlib.suppress(OSError, ValueError):
        while chunk := os.read(source, _CHUNK):
            link.sendall(chunk)
        ended.set()
        link.shutdown(socket.SHUT_WR)
        if sys.platform != "win32":
            listener = select.poll()
            listener.register(sink, 0)
            listener.register(link, 0)
            listener.poll()
            link.shutdown(socket.SHUT_RDWR)


def _write_all(sink: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sink, view) :]
