"""What functions of a data analyst return: pictures, arrays and tables, with the libraries that are here."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from toolcrib.core.result import ToolResult
from toolcrib.results.normalize import to_result
from toolcrib.sources.python.signature import read_signature

RED = Image.new("RGB", (2, 2), "red")


def returned(value: Any, declared: Any = Any) -> ToolResult:
    def make() -> Any: ...

    make.__annotations__["return"] = declared
    return read_signature(make).result(value)


def drawn(**options: int) -> bytes:
    buffer = io.BytesIO()
    RED.save(buffer, "PNG", **options)
    return buffer.getvalue()


def encoded(png: bytes) -> dict[str, str]:
    return {"type": "image", "data": base64.b64encode(png).decode(), "mimeType": "image/png"}


class Figure:
    """As Matplotlib's."""

    def savefig(self, file: io.BytesIO, format: str) -> None:
        RED.save(file, format)


class Broken:
    def _repr_png_(self) -> bytes:
        raise ValueError("nothing is drawn")

    def __str__(self) -> str:
        return "a broken picture"


class Index:
    """Names of rows, as pandas has them."""


RangeIndex = type("RangeIndex", (), {})


class Frame:
    """As a DataFrame of pandas: two rows, named or not."""

    shape = (2, 1)
    columns = ("a",)

    def __init__(self, index: Any) -> None:
        self.index = index

    def reset_index(self) -> Frame:
        return NamedFrame(RangeIndex())

    def to_json(self, orient: str, date_format: str, double_precision: int) -> str:
        assert (orient, date_format, double_precision) == ("records", "iso", 15)
        return '[{"a":1.5},{"a":null}]'


class NamedFrame(Frame):
    def to_json(self, orient: str, date_format: str, double_precision: int) -> str:
        return '[{"index":"x","a":1.5},{"index":"y","a":null}]'


class Large(Frame):
    shape = (100_001, 1)

    def __str__(self) -> str:
        return "0 1.5\n..."


@pytest.mark.parametrize("declared", [Any, Image.Image])
def test_a_picture_of_pillow_is_a_picture(declared: Any) -> None:
    assert returned(RED, declared) == ToolResult(content=(encoded(drawn(compress_level=1)),))
    assert to_result(RED) == ToolResult(content=(encoded(drawn(compress_level=1)),))


def test_a_photograph_stays_one_and_a_large_picture_becomes_one() -> None:
    buffer = io.BytesIO()
    RED.save(buffer, "JPEG")

    (block,) = returned(Image.open(buffer)).content
    (large,) = returned(Image.effect_noise((2000, 2000), 100)).content

    assert [block["mimeType"], large["mimeType"]] == ["image/jpeg", "image/jpeg"]


def test_a_figure_is_drawn() -> None:
    assert returned(Figure()) == ToolResult(content=(encoded(drawn()),))


def test_pictures_inside_of_a_value_are_numbered_in_its_text_and_come_after_it() -> None:
    picture = encoded(drawn(compress_level=1))

    assert returned([RED, "caption"]) == ToolResult(
        content=({"type": "text", "text": '["[picture 1]","caption"]'}, picture)
    )
    assert returned({"before": RED, "after": RED}, dict[str, Any]) == ToolResult(
        content=({"type": "text", "text": '{"before":"[picture 1]","after":"[picture 2]"}'}, picture, picture),
        structured_content={"before": "[picture 1]", "after": "[picture 2]"},
    )


def test_a_picture_that_cannot_be_drawn_is_a_text() -> None:
    assert returned(Broken()) == ToolResult.of_text("a broken picture")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.arange(6).reshape(2, 3), "[[0,1,2],[3,4,5]]"),
        (np.array([1.5, float("nan")]), "[1.5,null]"),
        (np.array(["2026-01-02"], dtype="datetime64[s]"), '["2026-01-02T00:00:00"]'),
        (np.array([1 + 2j]), '["(1+2j)"]'),
        (np.int64(3), "3"),
        ({"mean": np.float32(1.5), "ok": np.bool_(True), "of": np.array([1])}, '{"mean":1.5,"ok":true,"of":[1]}'),
        (Frame(RangeIndex()), '[{"a":1.5},{"a":null}]'),
        (Frame(Index()), '[{"index":"x","a":1.5},{"index":"y","a":null}]'),
        (Large(RangeIndex()), "Large of shape (100001, 1); an excerpt:\n0 1.5\n..."),
    ],
)
def test_arrays_and_tables_are_json(value: Any, text: str) -> None:
    assert (returned(value).content, returned(value).structured_content) == (ToolResult.of_text(text).content, None)


def test_a_large_array_is_its_shape_and_an_excerpt() -> None:
    text = returned(np.zeros((400, 400))).text

    assert text.startswith("ndarray of shape (400, 400); an excerpt:\n[[0. 0. 0. ... 0. 0. 0.]\n")
    assert len(text) < 300


def test_arrays_in_a_declared_result_are_structured_content() -> None:
    assert returned({"of": np.arange(2)}, dict[str, Any]).structured_content == {"of": [0, 1]}
    assert to_result({"of": np.arange(2), "n": np.int64(1)}).structured_content == {"of": [0, 1], "n": 1}
