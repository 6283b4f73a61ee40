"""The instruments that the suites measure with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from rig import PATIENCE, ROOT, Hearing


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


_STARTS = """
import subprocess, sys
import pytest

def test_unmarked():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.process
def test_marked():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.full_size
def test_repeated():
    raise AssertionError
"""


@pytest.mark.process
def test_a_test_that_starts_a_process_unmarked_fails_and_a_repeated_claim_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_starts.py").write_text(_STARTS)
    options = ["-q", "-p", "conftest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--confcutdir", tmp_path, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed, 1 deselected" in done.stdout
    assert "::test_unmarked" in done.stdout
    assert "mark it with `@pytest.mark.process`" in done.stdout
