"""Pipes to child processes: order and number of the writes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator

import pytest

from toolcrib.system.child_processes import PipeWriter

MORE_THAN_A_PIPE = 3 * 1024 * 1024


@pytest.fixture
def pipe() -> Generator[tuple[int, int]]:
    """The reading and the writing end."""
    ours = os.pipe()
    for end in ours:
        os.set_blocking(end, False)
    yield ours
    for end in ours:
        os.close(end)


def _arrived(end: int) -> bytes:
    try:
        return os.read(end, 1 << 20)
    except BlockingIOError:
        return b""


async def test_what_is_not_sent_at_once_arrives_together_and_in_order(pipe: tuple[int, int]) -> None:
    writer = PipeWriter(pipe[1])
    writer.write(b"first ", at_once=False)
    before = (_arrived(pipe[0]), writer.written)
    writer.write(b"second ")
    writer.write(b"third", at_once=False)
    await asyncio.sleep(0)

    assert before == (b"", 0)
    assert _arrived(pipe[0]) == b"first second third"
    assert (writer.queued, writer.written) == (0, 18)


async def test_what_a_pipe_does_not_take_follows_in_order_once_it_is_read(pipe: tuple[int, int]) -> None:
    writer, received = PipeWriter(pipe[1]), bytearray()
    for letter in b"abc":
        writer.write(bytes([letter]) * (MORE_THAN_A_PIPE // 3), at_once=False)
    while len(received) < MORE_THAN_A_PIPE:
        received += _arrived(pipe[0])
        await asyncio.sleep(0)

    assert received == b"".join(bytes([letter]) * (MORE_THAN_A_PIPE // 3) for letter in b"abc")
    assert writer.queued == 0


async def test_a_writer_that_was_stopped_writes_nothing_more(pipe: tuple[int, int]) -> None:
    writer = PipeWriter(pipe[1])
    writer.write(b"waits", at_once=False)
    writer.stop()
    writer.write(b"late")
    await asyncio.sleep(0)

    assert (_arrived(pipe[0]), writer.written) == (b"", 0)
