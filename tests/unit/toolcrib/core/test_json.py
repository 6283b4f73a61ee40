"""The intake of JSON: one depth, one size, and the readings that two parsers could differ in."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.json import MAX_DEPTH, JsonError, JsonTooDeep, JsonTooLarge, dumps, is_writable, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=40,
)


def nested(levels: int, kind: str, inner: Any = 1) -> Any:
    """Return `inner` inside so many arrays, objects or both in turn."""
    value = inner
    for level in range(levels):
        is_array = kind == "arrays" or (kind == "both" and level % 2)
        value = [value] if is_array else {"a": value}
    return value


@pytest.mark.parametrize("kind", ["arrays", "objects", "both"])
@pytest.mark.parametrize("padding", ["", "x" * 300, "x" * 5000, "[{" * 3000], ids=["bare", "300", "5000", "brackets"])
@pytest.mark.parametrize("strict", [False, True])
def test_the_depth_limit_is_exact_whatever_else_is_in_the_text(kind: str, padding: str, strict: bool) -> None:
    at_limit, deeper = (nested(levels, kind, padding) for levels in (MAX_DEPTH, MAX_DEPTH + 1))

    for text in (json.dumps(at_limit), json.dumps(at_limit, indent=1).encode()):
        assert read_json(text, limit=1 << 20, strict=strict) == at_limit
    for text in (json.dumps(deeper), json.dumps(deeper, indent=1).encode()):
        with pytest.raises(JsonTooDeep) as refused:
            read_json(text, limit=1 << 20, strict=strict)
        assert refused.value.value == deeper


@pytest.mark.parametrize("levels", [254, 255, 1023, 1024, 100_000])
def test_a_text_of_any_depth_is_refused_as_too_deep(levels: int) -> None:
    with pytest.raises(JsonTooDeep):
        read_json("[" * levels + "]" * levels)


def test_what_is_read_can_be_written_with_envelopes_of_the_same_depth_around_it() -> None:
    value = read_json(json.dumps(nested(MAX_DEPTH, "both")))

    assert orjson.loads(dumps(nested(100, "both", value))) == nested(100, "both", value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":1,"a":2}', "the key 'a' is given twice"),
        ('{"a":[{"b":1,"b":1}]}', "the key 'b' is given twice"),
        ('{"a": 1, "a": 1}', "the key 'a' is given twice"),
        ('{"a": ["x, \\"y\\": "], "a": ["x, \\"y\\": "]}', "the key 'a' is given twice"),
        ('{"a": 1, "b": 18446744073709551616}', "an integer beyond 64 bits"),
        ("18446744073709551616", "an integer beyond 64 bits"),
        ("-9223372036854775809", "an integer beyond 64 bits"),
        ("1" * 300, "an integer beyond 64 bits"),
    ],
)
def test_only_a_strict_reader_refuses_what_two_readers_could_take_differently(text: str, message: str) -> None:
    read_json(text)
    with pytest.raises(JsonError) as refused:
        read_json(text, strict=True)
    assert str(refused.value) == message


def test_a_text_above_its_limit_is_not_parsed() -> None:
    assert read_json(b'"12345678"', limit=10) == "12345678"
    with pytest.raises(JsonTooLarge):
        read_json(b"{" * 11, limit=10)


@pytest.mark.parametrize(
    "text", ['{"a": "x, \\"y\\": z", "b": [1, 2, "c, "]}', '{"\u00fc, ": "\u00fc", "b": {"c": null}}']
)
def test_a_strict_reader_keeps_the_spaces_inside_of_strings(text: str) -> None:
    assert read_json(text, strict=True) == json.loads(text)


@pytest.mark.slow
@given(VALUES, st.sampled_from([None, 1]))
def test_every_ordinary_value_comes_through_unchanged(value: Any, indent: int | None) -> None:
    assert read_json(json.dumps(value, indent=indent), strict=True) == value
    assert is_writable(value)


def test_a_value_of_python_is_writable_up_to_the_same_depth() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)

    found = [is_writable(nested(levels, "both")) for levels in (MAX_DEPTH, MAX_DEPTH + 1, 5000)]
    assert (found, is_writable(cycle), is_writable(object())) == ([True, False, False], False, False)
