"""Writes of the HTTP listener: the head of a response goes with the beginning of its body."""

from __future__ import annotations

import asyncio
from typing import Any

from toolcrib.server.listener import JoinedWrites

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class _Connection(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.sent.append(b"closed")

    def abort(self) -> None:
        self.sent.append(b"aborted")


def _joined() -> tuple[JoinedWrites, list[bytes]]:
    connection = _Connection()
    return JoinedWrites(connection, asyncio.get_running_loop()), connection.sent


async def test_head_and_body_are_one_write_and_further_parts_are_their_own() -> None:
    joined, sent = _joined()
    joined.write(HEAD)
    joined.write(b"bo")
    joined.write(b"dy")
    await asyncio.sleep(0)

    assert sent == [HEAD + b"bo", b"dy"]


async def test_a_head_that_nothing_follows_is_sent_with_the_next_turn_of_the_event_loop() -> None:
    joined, sent = _joined()
    joined.write(HEAD)
    before = list(sent)
    await asyncio.sleep(0)

    assert (before, sent) == ([], [HEAD])


async def test_a_connection_that_closes_sends_its_head_first_and_one_that_is_cut_does_not() -> None:
    joined, sent = _joined()
    joined.write(HEAD)
    joined.close()
    joined.write(HEAD)
    joined.abort()
    await asyncio.sleep(0)

    assert sent == [HEAD, b"closed", b"aborted"]
