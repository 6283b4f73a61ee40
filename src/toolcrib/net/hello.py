"""Which host a TLS client asks for, read from its first message without taking part in the exchange."""

from __future__ import annotations

import ssl
from typing import Final

__all__ = ["Hello"]

_HANDSHAKE: Final = 0x16
_MOST: Final = 64 * 1024
"""Bytes; the first message of today's clients has some 2,000."""


class Hello:
    """Reads the first bytes of one connection, as they come. TLS itself is read by the library, in memory."""

    def __init__(self) -> None:
        self.name = ""
        """The host that is asked for; empty when it is not TLS, or names none."""
        self.is_unread = False
        """It looks like TLS, and nothing can be told of it: an old version of it, or none that our library knows."""
        self._is_heard = False
        self._read = 0
        self._incoming = ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = self._heard
        self._server = context.wrap_bio(self._incoming, ssl.MemoryBIO(), server_side=True)

    def is_over(self, data: bytes) -> bool:
        """Take more bytes; return whether nothing more has to be waited for."""
        if not data:
            return False
        if not self._read and data[0] != _HANDSHAKE:
            return True
        self._read += len(data)
        self._incoming.write(data)
        try:
            self._server.do_handshake()
        except ssl.SSLWantReadError:
            if self._read <= _MOST:
                return False
        except ssl.SSLError:  # we have no certificate to go on with
            pass
        self.is_unread = not self._is_heard
        return True

    def _heard(self, _server: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
        self._is_heard = True
        self.name = (name or "").rstrip(".").lower()
        return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
