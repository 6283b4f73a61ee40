"""Headers of HTTP requests, and the refusal of a request with an HTTP status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from ..jsonrpc import INVALID_REQUEST

__all__ = ["Headers", "Refusal", "accepts_json_and_stream", "accepts_stream", "is_json"]

Headers = Mapping[bytes, bytes]
"""By lower-case name."""


class Refusal(Exception):
    """A request that is turned away with an HTTP status. `code` is the JSON-RPC error code in the body."""

    def __init__(
        self, status: int, message: str, *, code: int = INVALID_REQUEST, headers: Iterable[tuple[bytes, bytes]] = ()
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = tuple(headers)


@lru_cache(maxsize=256)
def is_json(content_type: bytes) -> bool:
    """Whether a body is declared to be JSON in UTF-8."""
    media, *parameters = (part.strip().lower() for part in content_type.split(b";"))
    charsets = [part for part in parameters if part.startswith(b"charset=")]
    return media == b"application/json" and all(
        part.strip(b'"') in (b"charset=utf-8", b'charset="utf-8') for part in charsets
    )


@lru_cache(maxsize=256)
def _media_types(accept: bytes) -> frozenset[bytes]:
    return frozenset(part.split(b";")[0].strip().lower() for part in accept.split(b","))


def accepts_stream(accept: bytes) -> bool:
    """Whether the client takes an event stream."""
    return not _media_types(accept).isdisjoint((b"text/event-stream", b"text/*", b"*/*"))


def accepts_json_and_stream(accept: bytes) -> bool:
    """Whether the client takes both JSON and an event stream, as the transport asks of every POST."""
    return accepts_stream(accept) and not _media_types(accept).isdisjoint(
        (b"application/json", b"application/*", b"*/*")
    )
