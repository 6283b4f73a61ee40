import os
from pathlib import Path

import pytest

from toolcrib.mcp.client.spec import McpLimits
from toolcrib.mcp.stdio import Flood, LineReader, MessageBuffer, SpooledMessage

SMALL = McpLimits(noise_bytes=100, memory_bytes=1000, inline_bytes=5000, spool_bytes=20_000)


def read(reader: LineReader, data: bytes, step: int) -> list[bytes | SpooledMessage]:
    return [line for start in range(0, len(data), step) for line in reader.feed(data[start : start + step])]


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_lines_are_the_same_however_the_bytes_arrive(tmp_path: Path, step: int) -> None:
    reader = LineReader(SMALL, tmp_path)

    lines = read(reader, b'{"id":1}\nhello\n\n  {"id":2}\r\n[{"id":3}]\n{"id":', step)

    assert lines == [b'{"id":1}', b'  {"id":2}\r', b'[{"id":3}]']
    assert (reader.noise, reader.first_noise) == (1, b"hello")


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_what_is_no_message_is_counted_before_the_message_behind_it(tmp_path: Path, step: int) -> None:
    reader, data = LineReader(SMALL, tmp_path), b'a\nb\n{"id":1}\nc\n{"id":2}\nd\n'
    chunks = [data[start : start + step] for start in range(0, len(data), step)]

    counts = [(line, reader.noise) for chunk in chunks for line in reader.feed(chunk)]

    assert (counts, reader.noise) == ([(b'{"id":1}', 2), (b'{"id":2}', 3)], 4)


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_answer_behind_words_without_a_line_end_is_read_and_nothing_else_is(tmp_path: Path, step: int) -> None:
    reader = LineReader(SMALL, tmp_path)
    answers = [b'{"jsonrpc":"2.0","id":1,"result":{"id":{}}}', b'{ "id": 2, "error": {} }']
    others = [
        b'got {"jsonrpc":"2.0","id":3,"method":"ping"}',
        b'sent {"id":4,"result":{"a"',
        b'sent {"id":5,"result":{}} ok',
    ]
    whole = b'{"x":1,"id":6,"result":{"id":7,"result":{}}}'

    lines = read(reader, b"50 %" + answers[0] + b'\n{"level":"info"}' + answers[1] + b"\n" + b"\n".join(others), step)

    assert lines == answers
    assert read(reader, b"\n" + whole + b"\n", step) == [whole]
    assert reader.noise == len(others)


def test_a_message_above_the_memory_limit_is_read_back_when_it_may_be_parsed(tmp_path: Path) -> None:
    buffer = MessageBuffer(SMALL, tmp_path)
    line = b'{"id":1,"result":"' + b"x" * 4000 + b'"}'
    for start in range(0, len(line), 64):
        buffer.append(line[start : start + 64])

    assert buffer.take() == line
    assert list(tmp_path.iterdir()) == []


def test_a_line_above_the_inline_limit_stays_on_disk_for_nobody_else_to_read(tmp_path: Path) -> None:
    reader = LineReader(SMALL, tmp_path / "spill")
    line = b'{"id":1,"result":"' + b"x" * 6000 + b'"}'

    (big,) = read(reader, line + b"\n", 64)

    assert isinstance(big, SpooledMessage)
    assert (big.size, big.path.read_bytes()) == (len(line), line)
    assert (big.path.stat().st_mode & 0o777, big.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("step", [1, 64, 1000])
@pytest.mark.parametrize("size", [500, 6000])
def test_a_long_answer_behind_words_without_a_line_end_is_read(tmp_path: Path, step: int, size: int) -> None:
    reader = LineReader(SMALL, tmp_path)
    answer = b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * size + b'"}'

    lines = read(reader, b'50 % {"id":1,"method":"ping"}' + answer + b'\n{"id":2}\n', step)

    assert [one.path.read_bytes() if isinstance(one, SpooledMessage) else one for one in lines] == [answer, b'{"id":2}']


def test_a_line_above_the_largest_size_is_a_flood(tmp_path: Path) -> None:
    reader = LineReader(SMALL, tmp_path)

    with pytest.raises(Flood, match="above 20000 bytes"):
        read(reader, b'{"id":1,"result":"' + b"x" * 30_000, 64)
    reader.close()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("start", [b"yyyy", b'{"a":"', b"    ", b'["'])
def test_a_long_line_that_does_not_begin_as_a_message_is_a_flood(tmp_path: Path, start: bytes) -> None:
    with pytest.raises(Flood, match=r"^sent "):
        read(LineReader(SMALL, tmp_path), start + b"y" * 200, 64)


def test_reading_is_linear(tmp_path: Path) -> None:
    reader = LineReader(McpLimits(), tmp_path)
    began = os.times().user
    chunk = b"x" * 65536

    (big,) = read(reader, b'{"jsonrpc":"2.0","id":1,"result":"' + chunk * 640 + b'"}\n', len(chunk))

    assert isinstance(big, SpooledMessage)
    assert big.size > 40 * 1024 * 1024
    assert os.times().user - began < 0.5
