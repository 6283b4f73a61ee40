"""The instruments that the suites measure with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import pytest

from rig import Hearing


@pytest.fixture
def ends() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as reader, os.fdopen(sink, "wb", buffering=0) as writer:
        yield reader, writer


def test_lines_that_arrive_together_are_heard_one_after_the_other(ends: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = ends
    hearing = Hearing(reader)
    writer.write(b"a notification\nthe answer\nand a beg")
    heard = [hearing.line(), hearing.line()]
    writer.write(b"inning\n")

    assert [*heard, hearing.line()] == [b"a notification\n", b"the answer\n", b"and a beginning\n"]


def test_silence_is_told_with_what_was_heard_and_nothing_of_it_is_lost(ends: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = ends
    hearing = Hearing(reader)
    writer.write(b"half a ")
    with pytest.raises(TimeoutError, match="nothing came any more after b'half a '"):
        hearing.line(0.01)
    writer.write(b"line\nlast words")
    writer.close()

    assert [hearing.line(), hearing.line(), hearing.line()] == [b"half a line\n", b"last words", b""]


def test_words_are_waited_for_and_a_pipe_that_ends_without_them_says_so(ends: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = ends
    hearing = Hearing(reader)
    writer.write(b"one\ntwo words\nthree")

    assert hearing.line() == b"one\n"
    assert hearing.until(b"words") == b"two words\nthree"
    writer.write(b"four")
    writer.close()
    with pytest.raises(EOFError, match=r"without b'more' after b'four'"):
        hearing.until(b"more")


def test_the_rest_is_all_there_is(ends: tuple[IO[bytes], IO[bytes]]) -> None:
    reader, writer = ends
    hearing = Hearing(reader)
    writer.write(b"one\ntwo\n" + b"x" * 10_000)
    writer.close()

    assert (hearing.line(), hearing.rest()) == (b"one\n", b"two\n" + b"x" * 10_000)
