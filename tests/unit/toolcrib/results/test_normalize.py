"""What a Python function returns becomes MCP content, or a failure that says where it cannot."""

import base64
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from toolcrib.core.json import dumps
from toolcrib.core.result import ToolResult
from toolcrib.errors import ToolFailure
from toolcrib.results.normalize import to_result


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Point:
    x: int
    label: str


class Size(NamedTuple):
    width: int
    height: int


class User(BaseModel):
    name: str
    joined: date = Field(serialization_alias="joinedAt")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        (True, "true"),
        (42, "42"),
        (2**70, str(2**70)),
        (1.5, "1.5"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (Colour.RED, "red"),
        (Level.HIGH, "3"),
        (b"utf-8 \xc3\xa4", "utf-8 ä"),
        (bytearray(b"bytes"), "bytes"),
        (b"BMW and ID3 are words", "BMW and ID3 are words"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        (Decimal("1.10"), "1.10"),
        (date(2026, 11, 21), "2026-11-21"),
    ],
)
def test_a_simple_value_becomes_text(value: Any, text: str) -> None:
    assert to_result(value) == ToolResult.of_text(text)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ({"a": [1, None, True]}, {"a": [1, None, True]}),
        ([], []),
        ({}, {}),
        ((1, 2), [1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (Point(1, "a"), {"x": 1, "label": "a"}),
        (Size(2, 3), {"width": 2, "height": 3}),
        (User(name="ada", joined=date(2026, 1, 2)), {"name": "ada", "joinedAt": "2026-01-02"}),
        ([User(name="ada", joined=date(2026, 1, 2))], [{"name": "ada", "joinedAt": "2026-01-02"}]),
        ({"when": datetime(2026, 1, 2, 3, 4, tzinfo=UTC)}, {"when": "2026-01-02T03:04:00+00:00"}),
        ({"for": timedelta(minutes=1.5)}, {"for": 90.0}),
        (
            {"id": UUID(int=1), "path": PurePosixPath("/a"), "sum": Decimal("0.1")},
            {"id": str(UUID(int=1)), "path": "/a", "sum": "0.1"},
        ),
        ({"nan": math.nan, "inf": math.inf, "none": None}, {"nan": "NaN", "inf": "Infinity", "none": None}),
        ({2: "a", None: "b", True: "c", Colour.RED: "d"}, {"2": "a", "null": "b", "true": "c", "red": "d"}),
        ({"big": 2**70}, {"big": str(2**70)}),
        ({"raw": b"text", "blob": b"\xff\xfe"}, {"raw": "text", "blob": base64.b64encode(b"\xff\xfe").decode()}),
        ({"bad \udfff": "\ud800"}, {"bad \ufffd": "\ufffd"}),
        ({"type": "text", "text": "data of that shape"}, {"type": "text", "text": "data of that shape"}),
    ],
)
def test_a_structure_becomes_structured_content_and_the_same_as_json_text(value: Any, plain: Any) -> None:
    assert to_result(value) == ToolResult.of_text(dumps(plain).decode(), structured_content=plain)


@pytest.mark.parametrize(
    ("data", "kind", "mime_type"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(8), "image", "image/png"),
        (b"\xff\xd8\xff\xe0" + bytes(8), "image", "image/jpeg"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio", "audio/wav"),
    ],
)
def test_bytes_of_a_picture_or_a_sound_become_that_block(data: bytes, kind: str, mime_type: str) -> None:
    encoded = base64.b64encode(data).decode()

    assert to_result(data).content == ({"type": kind, "data": encoded, "mimeType": mime_type},)


def test_other_bytes_become_a_resource() -> None:
    (block,) = to_result(b"%PDF-1.7\x00\xff").content

    resource: Mapping[str, Any] = block["resource"]
    assert (block["type"], resource["mimeType"], base64.b64decode(resource["blob"])) == (
        "resource",
        "application/pdf",
        b"%PDF-1.7\x00\xff",
    )


def test_content_blocks_and_finished_results_pass_as_they_are() -> None:
    blocks = [
        {"type": "text", "text": "see"},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
    ]
    finished = ToolResult.failed("tool_error", "no")

    assert to_result(blocks) == ToolResult(content=tuple(blocks))
    assert to_result(finished) is finished


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "the returned value (object) cannot be turned into JSON"),
        ({"a": [1, {"b": object()}]}, "the returned value at $.a[1].b (object) cannot be turned into JSON"),
        ([lambda: None], "the returned value at $[0] (function) cannot be turned into JSON"),
        ({(1, 2): "x"}, "the returned value (tuple) cannot be the key of a JSON object"),
        ({1: "x", "1": "y"}, "the returned value (dict) has two keys that are both written '1'"),
    ],
)
def test_what_cannot_be_json_is_named_with_its_type_and_place(value: Any, message: str) -> None:
    with pytest.raises(ToolFailure) as refused:
        to_result(value)

    assert (refused.value.code, refused.value.message) == ("tool_error", message)


def test_a_cycle_and_a_bottomless_structure_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append({"self": cycle})
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]

    with pytest.raises(ToolFailure, match=r"at \$\[0\].self \(list\) contains itself"):
        to_result(cycle)
    with pytest.raises(ToolFailure, match="nested deeper than 128 levels"):
        to_result(deep)


def test_what_occurs_twice_without_a_cycle_is_fine() -> None:
    shared = {"n": math.nan}

    assert to_result([shared, shared]).structured_content == [{"n": "NaN"}, {"n": "NaN"}]


def test_the_result_does_not_change_with_the_returned_object() -> None:
    value = {"items": [1]}
    result = to_result(value)
    value["items"].append(2)

    assert result.structured_content == {"items": [1]}


@pytest.mark.slow
@given(st.dictionaries(st.text(), JSON))
def test_plain_json_comes_through_unchanged(value: dict[str, Any]) -> None:
    assert to_result(value).structured_content == value
