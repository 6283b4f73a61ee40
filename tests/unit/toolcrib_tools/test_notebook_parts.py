"""The parts of notebooks that need no kernel: what is shown of a value, and of a variable, and at which pace."""

from __future__ import annotations

import base64
import sys
import time
from types import ModuleType
from typing import Any

import pytest

from toolcrib_tools.notebook.cells import Output
from toolcrib_tools.notebook.inside import MOST_MEDIA, MOST_TEXT, chosen, pieces, shortened
from toolcrib_tools.notebook.pace import pace
from toolcrib_tools.notebook.variables import described
from toolcrib_tools.shell.processes import plain

# What is handed on of a value


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"text/plain": "1"}, {"text/plain": "1"}),
        ({"text/plain": "  a\n0 1", "text/html": "<table>"}, {"text/plain": "  a\n0 1"}),
        ({"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>"}, {"text/html": "<b>"}),
        (
            {"text/plain": "<x.Plot object at 0x7f00>", "application/json": {"a": [1]}},
            {"application/json": '{"a": [1]}'},
        ),
        ({"text/plain": "text", "text/markdown": "# text"}, {"text/markdown": "# text"}),
        ({"text/plain": "<Figure>", "image/png": "AB\nCD\n"}, {"image/png": "ABCD"}),
        ({"application/x-odd": "?"}, {"text/plain": "a value that is shown as application/x-odd"}),
        ({}, {"text/plain": "a value that is shown as nothing"}),
    ],
)
def test_a_value_is_handed_on_in_the_format_that_reads_best(data: dict[str, Any], shown: dict[str, Any]) -> None:
    assert chosen(data) == shown


def test_what_is_too_large_is_cut_and_says_so() -> None:
    image = chosen({"image/png": "A" * (MOST_MEDIA + 1)})
    text = chosen({"text/plain": "x" * (MOST_TEXT + 5)})

    assert image == {"text/plain": "[an image (image/png) of 4,194,305 base64 characters: too large to be shown]"}
    assert text["text/plain"].endswith("x\n[… 5 characters left out …]")
    assert shortened("abcdefgh", 4) == "ab\n[… 4 characters left out …]\ngh"
    assert "".join(pieces("y" * 200_000)) == "y" * 200_000


# What is told of a cell


async def output_of(*events: dict[str, Any]) -> Output:
    output = Output()
    for event in events:
        await output.add(event)
    return output


async def test_text_is_told_in_order_and_a_line_that_was_written_over_only_as_it_ended() -> None:
    output = await output_of(
        {"event": "stream", "name": "stdout", "text": "10 %\r50 %\r100 %\ndo"},
        {"event": "stream", "name": "stdout", "text": "ne"},
        {"event": "stream", "name": "stderr", "text": "oh\n"},
        {"event": "data", "data": {"text/plain": "42"}},
    )

    assert output.content(["a note"]) == [{"type": "text", "text": "100 %\ndone\n[stderr]\noh\n42\n[a note]"}]


async def test_values_and_images_beyond_the_limit_are_left_out_and_told() -> None:
    values = await output_of(*({"event": "data", "data": {"text/plain": str(number)}} for number in range(300)))
    large = base64.b64encode(b"x" * 5_000_000).decode()
    images = await output_of(*({"event": "data", "data": {"image/png": large}} for _ in range(2)))

    (said,) = values.content([])
    assert said["text"].splitlines()[-2:] == ["199", "[more than 200 values: the rest is not shown]"]
    (said,) = images.content([])
    assert said["text"].splitlines()[1] == "[an image (image/png) left out: a cell shows 8, of 6 MiB]"


@pytest.mark.parametrize(
    "event",
    [
        {"event": "data", "data": "no mapping"},
        {"event": "data"},
        {"event": "stream", "name": 5, "text": None},
        {"event": "error", "name": [], "text": {}},
        {"event": "unheard of"},
        {},
    ],
)
async def test_an_event_that_no_kernel_sends_breaks_nothing(event: dict[str, Any]) -> None:
    output = await output_of(event, {"event": "stream", "name": "stdout", "text": "\nafter"})

    assert output.content([])[0]["text"].endswith("after")


def test_a_line_without_an_end_is_made_plain_at_once() -> None:
    started = time.process_time()

    assert plain("a\r" + "x" * 1_000_000 + "\r\n" + "\r" * 100_000 + "b\rc") == f"{'x' * 1_000_000}\nc"
    assert time.process_time() - started < 5


# Variables


class Hostile:
    """Every way in which Python asks a value for what it is ends the test; pytest asks none of them."""

    def _fail(self, *_: object) -> Any:
        raise AssertionError("it was asked")

    __repr__ = __str__ = __len__ = __iter__ = __format__ = __bool__ = __dir__ = _fail


class Named(str):
    def __repr__(self) -> str:
        raise AssertionError("it was asked")


HOSTILE = Hostile()


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (None, {"type": "NoneType", "value": "None"}),
        (10**100, {"type": "int", "value": repr(10**100)}),
        (1 << 10_000, {"type": "int", "value": "an integer of 10,001 bits"}),
        ("it's", {"type": "str", "value": '"it\'s"', "size": 4}),
        ((1,), {"type": "tuple", "value": "(1,)", "size": 1}),
        ([[[[1]]]], {"type": "list", "value": "[[[…]]]", "size": 1}),
        ({"a": {"b": {"c": 1}}}, {"type": "dict", "value": "{'a': {'b': {…}}}", "size": 1}),
        (range(3), {"type": "range", "value": "range(0, 3)", "size": 3}),
        (HOSTILE, {"type": "Hostile", "value": "<Hostile>"}),
        ([HOSTILE, Named("x")], {"type": "list", "value": "[<Hostile>, <Named>]", "size": 2}),
        (Hostile, {"type": "type", "value": "class Hostile"}),
        (len, {"type": "builtin_function_or_method", "value": "function len"}),
        (sys, {"type": "module", "value": "module 'sys'"}),
        (ModuleType("m" * 500), {"type": "module", "value": f"module '{'m' * 111}…"}),
    ],
    ids=range(14),
)
def test_a_variable_is_told_without_asking_its_value_anything(value: Any, row: dict[str, Any]) -> None:
    assert described("x", value) == {"name": "x", **row}


def test_arrays_and_tables_are_told_with_their_shape() -> None:
    numpy: Any = pytest.importorskip("numpy")

    assert described("x", numpy.zeros((3, 4))) == {
        "name": "x", "type": "ndarray", "value": "ndarray of float64", "size": "3 × 4",
    }  # fmt: skip


# The pace


def test_what_is_printed_is_sent_piece_by_piece() -> None:
    class Stream:
        def __init__(self) -> None:
            self.did: list[str | int] = []

        def write(self, text: str) -> None:
            self.did.append(len(text))

        def flush(self) -> None:
            self.did.append("flush")

    pace(Stream)
    stream, other = Stream(), Stream()

    assert stream.write("x" * 1_300_000) == 1_300_000
    assert stream.write("y" * 300_000) == 300_000
    other.write("z")

    piece = 512 * 1024
    assert stream.did == [piece, "flush", piece, "flush", 1_300_000 - 2 * piece, 300_000, "flush"]
    assert other.did == [1]
