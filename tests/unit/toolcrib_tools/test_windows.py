"""Reading in windows gives what reading the whole file gives, and costs a few chunks of memory."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolcrib.plugin import ToolFailure
from toolcrib_tools._workspace.file_text import SAMPLE, Encoding, decoded, encoding_of
from toolcrib_tools._workspace.pages import Page, TextFile, describe, page_of

MIB = 1 << 20


class Held:
    """An open file in memory."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self._content = content

    def read_at(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size]


def whole(content: bytes, encoding: str, first: int, limit: int, room: int) -> tuple[Encoding, int, str, Page]:
    """Read a page with the whole file in memory: what windows have to equal."""
    found = None if encoding else encoding_of(content)
    if found is None or not found.by_bytes:
        text = decoded(content, encoding, path="x")
        content, codec, named = text.raw.encode("utf-8", "replace"), "utf-8", text.encoding
    else:
        if b"\0" in content:
            decoded(content, path="x")  # raises
        content, codec, named = content[len(found.mark) :], found.name, found
    lines: list[tuple[int, str, int]] = []
    parts = content.split(b"\n")
    for number, part in enumerate(parts if parts[-1] else parts[:-1], 1):
        raw = part.removesuffix(b"\r")
        try:
            line = raw.decode(codec)
        except UnicodeDecodeError:
            line = raw.decode("latin-1")
        lines.append((number, line, len(line)))
    crlf, every = content.count(b"\r\n"), content.count(b"\n")
    ends = ("CRLF" if crlf == every else "mixed" if crlf else "LF") if every else ""
    return named, len(lines), ends, page_of(lines[first - 1 :], limit=limit, room=room, numbers=False)


def windowed(
    content: bytes, encoding: str, first: int, limit: int, room: int, chunk: int
) -> tuple[Encoding, int, str, Page]:
    text = TextFile(Held(content), encoding, path="x", chunk=chunk)
    page = page_of(text.lines(first, room), limit=limit, room=room, numbers=False)
    return text.encoding, text.total, text.ends.title, page


def outcome(read: Callable[[], object]) -> object:
    """Return what comes back, or code and message of the refusal."""
    try:
        return read()
    except ToolFailure as failure:
        return failure.code, failure.message, failure.hint


PARTS = [
    *(b"a", b"\n", b"\r\n", b"\r", b"\0", b"\x01", b"\x81", b"\x9d", b"\xff", b"plain text ", b"long " * 20),
    *(
        "é€😀ж".encode(),
        "é".encode()[:1],
        "é€".encode("utf-16-le"),
        "a\nb\r\n".encode("utf-16-le"),
        b"\xd8\x00",
        b"\xdc",
    ),
    *("あ".encode("shift_jis"), "あ".encode("iso2022_jp"), b"+AGE-"),
]
MARKS = [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE]
CODECS = ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"]
NAMED = [
    "",
    "",
    "",
    "utf-8",
    "utf-16",
    "utf-32",
    "latin-1",
    "cp1252",
    "ascii",
    "shift_jis",
    "gb18030",
    "iso2022_jp",
    "utf-7",
]
CONTENTS = st.one_of(
    st.tuples(st.sampled_from(MARKS), st.lists(st.sampled_from(PARTS), max_size=12)).map(
        lambda made: made[0] + b"".join(made[1])
    ),
    st.tuples(st.text(max_size=40), st.sampled_from(CODECS), st.sampled_from(MARKS)).map(
        lambda made: made[2] + made[0].encode(made[1], "replace")
    ),
    st.binary(max_size=40),
)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(
    content=CONTENTS,
    encoding=st.sampled_from(NAMED),
    first=st.integers(1, 6),
    limit=st.integers(1, 4),
    room=st.integers(1, 60),
    chunk=st.integers(1, 9),
)
@example(content=b"one\r\ntwo\rthree\r", encoding="", first=1, limit=9, room=60, chunk=4)
@example(content="é".encode() * 20, encoding="", first=1, limit=9, room=10, chunk=3)
@example(content=b"x" * 30 + b"\xff\r\nend", encoding="utf-8", first=1, limit=9, room=10, chunk=3)
@example(content=codecs.BOM_UTF16_LE + b"a\0\n\0b", encoding="", first=1, limit=9, room=10, chunk=2)
@example(content=codecs.BOM_UTF8, encoding="", first=1, limit=9, room=10, chunk=1)
def test_a_page_read_in_windows_is_the_page_of_the_whole_file(
    content: bytes, encoding: str, first: int, limit: int, room: int, chunk: int
) -> None:
    expected = outcome(lambda: whole(content, encoding, first, limit, room))

    assert outcome(lambda: windowed(content, encoding, first, limit, room, chunk)) == expected


def described(content: bytes) -> tuple[str, str, str, int]:
    """Describe a file with the whole of it in memory."""
    mark = hashlib.sha256(content).hexdigest()
    with contextlib.suppress(ToolFailure):
        text = decoded(content)
        raw = text.raw.encode("utf-8", "replace")
        return mark, text.encoding.title, text.line_ends, raw.count(b"\n") + (bool(raw) and not raw.endswith(b"\n"))
    return mark, "binary", "", 0


def described_in_windows(content: bytes, chunk: int) -> tuple[str, str, str, int]:
    found = describe(Held(content), chunk=chunk)
    if found.encoding is None:
        return found.sha256, "binary", "", 0
    return found.sha256, found.encoding.title, found.ends.title, found.ends.lines


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(content=CONTENTS, chunk=st.integers(1, 9))
@example(content=codecs.BOM_UTF8 + b"a\r\n", chunk=2)
@example(content=codecs.BOM_UTF16_LE + b"a\0\n\0\0\xd8", chunk=3)
def test_the_facts_of_a_file_found_in_windows_are_those_of_the_whole_file(content: bytes, chunk: int) -> None:
    assert described_in_windows(content, chunk) == described(content)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    content=CONTENTS,
    mark=st.sampled_from(["", "\ufeff"]),
    wide=st.booleans(),
    chunk=st.integers(SAMPLE - 2, SAMPLE + 2),
)
@example(content=b"\xff\n", mark="", wide=False, chunk=SAMPLE)
@example(content=b"\x81\0", mark="", wide=False, chunk=SAMPLE)
def test_what_lies_beyond_the_sample_that_tells_the_encoding_is_read_as_in_the_whole_file(
    content: bytes, mark: str, wide: bool, chunk: int
) -> None:
    lines = (mark + "line\n" * (SAMPLE // 5)).encode("utf-16-le" if wide else "utf-8")
    content, first = lines + content, SAMPLE // 5

    expected = outcome(lambda: whole(content, "", first, 5, 100))
    assert outcome(lambda: windowed(content, "", first, 5, 100, chunk)) == expected
    assert described_in_windows(content, chunk) == described(content)


def test_a_large_file_in_an_encoding_that_needs_the_whole_text_is_refused_with_the_limit() -> None:
    with pytest.raises(ToolFailure, match="8,388,608 may be read") as failure:
        TextFile(Held(b"a" * (8 * MIB + 1)), "utf-7", path="a.txt")

    assert failure.value.code == "too_large"


MEASURED = """
import codecs, json, resource, sys
from pathlib import Path

import anyio

from toolcrib import Toolcrib
from toolcrib_tools import files

MIB = 1 << 20
folder = Path(sys.argv[1])
KINDS = {
    "text": b"0123456789abcde\\n" * (MIB // 16),
    "line": b"x" * MIB,
    "binary": bytes(range(256)) * (MIB // 256),
    "wide": "0123456\\n".encode("utf-16-le") * (MIB // 16),
}
for name, block in KINDS.items():
    with (folder / name).open("wb") as file:
        file.write((codecs.BOM_UTF16_LE + block[2:]) if name == "wide" else block)
        for _ in range(99):
            file.write(block)
(folder / "small").write_text("one\\n")


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def main():
    async with Toolcrib(memory=True) as crib:
        crib.add(files)
        session = crib.session(profile="flat", mode="autonomous", workspace=folder)
        told = {}

        async def call(tool, name, **arguments):
            result = await session.call(tool, {"path": name, **arguments})
            told[f"{tool} {name}"] = result.error.code if result.error else result.text[-120:]

        await call("read_file", "small")
        await call("file_info", "small")
        start = peak()
        for name in KINDS:
            await call("read_file", name, offset=-3)
            await call("file_info", name)
        single = peak()
        for tool in ("read_file", "file_info"):
            async with anyio.create_task_group() as group:
                for name in (*KINDS, *KINDS):
                    group.start_soon(call, tool, name)
        print(json.dumps({"one": single - start, "eight": peak() - start, "told": told}))


anyio.run(main)
"""


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.process
def test_a_hundred_mebibytes_cost_sixteen_and_eight_such_files_at_once_a_hundred_and_twenty_eight(
    tmp_path: Path,
) -> None:
    ran = subprocess.run([sys.executable, "-c", MEASURED, tmp_path], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    measured: dict[str, Any] = json.loads(ran.stdout)
    told = measured["told"]
    assert "line 1 has 104857600 characters and is cut" in told["read_file line"]
    assert "of 6553600; go on with offset=" in told["read_file text"]
    assert "encoding utf-16-le with a byte order mark" in told["read_file wide"]
    assert told["read_file binary"] == "tool_error"
    assert '"lines":6553600' in told["file_info text"].replace(" ", "")
    assert (measured["one"] <= 16, measured["eight"] <= 128) == (True, True), measured
