"""The client's pipe: standard input and output, made unreachable for other code, and copied to and from a socket.

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
from collections.abc import Iterator
from typing import Final

LISTENER: Final = "toolcrib client's input"
"""Name of the thread that reads the client's input. It may outlive `relay`, until the client's end is closed."""

_CHUNK: Final = 64 * 1024
_LONGEST: Final = 5 * 1024 * 1024
"""More bytes than a message may have (`core.json.MESSAGE_BYTES`): a line that is cut here is refused all the same."""


def take_stdio() -> tuple[int, int]:
    """Return private copies of standard input and output; later prints and inherited descriptors go elsewhere.

    Descriptor 0 reads nothing and 1 is standard error, so neither a stray `print` nor a child process can write between
    the messages of the protocol (security.md T36).
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, sink


def relay(source: int, sink: int, link: socket.socket) -> bool:
    """Copy from `source` to `link` and from `link` to `sink` until both have ended.

    Reading waits for writing, so a slow side slows the other down instead of filling memory. Returns whether the client
    ended first: it closed its end, or it no longer reads the answers.

    The process must end soon after, or keep `source` open until the thread `LISTENER` has ended: a thread that waits
    for the client cannot be woken, and a closed descriptor may belong to another file by the time it reads.
    """
    ended = threading.Event()
    threading.Thread(target=_copy_in, args=(source, sink, link, ended), name=LISTENER, daemon=True).start()
    try:
        while chunk := link.recv(_CHUNK):
            write_all(sink, chunk)
    except BrokenPipeError:
        return True
    except ConnectionError:
        pass
    return ended.is_set()


def _copy_in(source: int, sink: int, link: socket.socket, ended: threading.Event) -> None:
    """Copy the client's input; its end is passed on, so that pending requests are still answered.

    If the client has gone altogether, closing the link makes the daemon cancel.
    """
    # A link that the other thread has closed is an OSError, or a ValueError where it is registered.
    with contextlib.suppress(OSError, ValueError):
        while chunk := os.read(source, _CHUNK):
            link.sendall(chunk)
        ended.set()
        link.shutdown(socket.SHUT_WR)
        wait_for_end(link, sink)


def wait_for_end(link: socket.socket, sink: int) -> None:
    """Wait until the client has gone altogether, and shut the link down then. A link that is closed ends the wait."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError, ValueError):
        listener = select.poll()
        listener.register(sink, 0)
        listener.register(link, 0)
        listener.poll()
        link.shutdown(socket.SHUT_RDWR)


def read_lines(source: int) -> Iterator[bytes]:
    """Yield the lines of the client without line ends, blank ones left out, until it closes its end.

    Of a line above `_LONGEST` its beginning and its end are kept, which may have the id of a request.
    """
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(source, _CHUNK):
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            parts.append(line)
            if whole := b"".join(parts).strip():
                yield whole
            parts, size = [], 0
        if size < _LONGEST:
            parts.append(rest)
            size += len(rest)
        else:
            parts[-1] = (parts[-1] + rest)[-_CHUNK:]
    if whole := b"".join(parts).strip():
        yield whole


def write_all(sink: int, data: bytes) -> None:
    """Write all of `data`. Raises `BrokenPipeError` when the client no longer reads."""
    view = memoryview(data)
    while view:
        view = view[os.write(sink, view) :]
