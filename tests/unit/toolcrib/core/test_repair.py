"""What models send, made into what the schema proves they meant; never more."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.schema import compile_schema, repair
from toolcrib.errors import ToolFailure

EDIT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "dry": {"type": "boolean"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "free": {"type": ["string", "integer"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
    },
    "$defs": {"Edit": {"type": "object", "properties": {"old_text": {"type": "string"}, "line": {"type": "integer"}}}},
}


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (None, {}),
        ("", {}),
        ('{"file_path": "a"}', {"file_path": "a"}),
        (b'{"file_path": "a"}', {"file_path": "a"}),
        (json.dumps('{"file_path": "a"}'), {"file_path": "a"}),
        ({"args": {"file_path": "a"}}, {"file_path": "a"}),
        ({"arguments": '{"file_path": "a"}'}, {"file_path": "a"}),
        ({"input": {"filePath": "a"}}, {"file_path": "a"}),
        ({"FilePath": "a"}, {"file_path": "a"}),
        ({"file-path": "a"}, {"file_path": "a"}),
        ({"tags": '["a", "b"]'}, {"tags": ["a", "b"]}),
        ({"edits": '[{"oldText": "a", "line": 1}]'}, {"edits": [{"old_text": "a", "line": 1}]}),
    ],
)
def test_what_the_schema_proves_is_repaired(sent: Any, meant: dict[str, Any]) -> None:
    assert repair(sent, EDIT)[0] == meant


@pytest.mark.parametrize(
    "sent",
    [
        {"file_path": "3"},
        {"file_path": '{"a": 1}'},
        {"free": "3"},
        {"count": "3"},
        {"count": "3.5"},
        {"ratio": "2.5"},
        {"dry": "true"},
        {"limit": "null"},
        {"count": "three"},
        {"count": "3 apples"},
        {"count": "0x10"},
        {"count": "9" * 30},
        {"ratio": "nan"},
        {"dry": "yes"},
        {"dry": "1"},
        {"tags": "a, b"},
        {"tags": '{"a": 1}'},
        {"tags": '["a"'},
        {"args": {"unknown": 1}},
        {"args": {"file_path": "a"}, "count": 1},
        {"filePath": "a", "FilePath": "b"},
        {"filePath": "a", "file_path": "b"},
        {"path": "a"},
    ],
)
def test_what_could_be_meant_otherwise_is_left_alone(sent: dict[str, Any]) -> None:
    assert repair(sent, EDIT) == (sent, ())


def test_right_arguments_come_back_as_the_same_object() -> None:
    sent = {"file_path": "a", "count": 1, "tags": ["x"], "edits": [{"line": 1}]}

    assert repair(sent, EDIT)[0] is sent


def test_every_change_is_told() -> None:
    sent = json.dumps({"params": {"filePath": "a", "edits": '[{"line": 7}]'}})

    assert repair(sent, EDIT)[1] == (
        "read the arguments from JSON text",
        "took the arguments out of 'params'",
        "took filePath for file_path",
        "read edits from text as array",
    )


def test_a_wrapping_key_that_is_an_argument_stays() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"input": {"type": "object"}}}

    assert repair({"input": {"a": 1}}, schema) == ({"input": {"a": 1}}, ())


def test_names_are_left_alone_where_any_name_is_welcome() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"file_path": {}},
        "additionalProperties": {"type": "string"},
    }

    assert repair({"filePath": "a"}, schema) == ({"filePath": "a"}, ())


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ('{"a": 1', "expecting ',' delimiter at line 1, column 8 (character 7)"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ('{"a":' * 100_000, "nested deeper than 128 levels"),
        ("[1, 2]", "the arguments must be an object, not array"),
        ("7", "the arguments must be an object, not integer"),
        (b"\xff", "the arguments are not UTF-8: bad byte at position 0"),
        ([1], "the arguments must be an object, not array"),
    ],
)
def test_what_is_no_object_is_refused_with_the_place(sent: Any, said: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        repair(sent, EDIT)

    assert (failure.value.code, said in failure.value.message) == ("invalid_arguments", True)


def test_an_unreadable_text_is_quoted_up_to_five_hundred_characters() -> None:
    with pytest.raises(ToolFailure) as failure:
        repair("{" + "x" * 2_000, EDIT)

    assert failure.value.message.endswith("received: {" + "x" * 499 + "…")


def test_a_text_above_the_limit_is_not_even_read() -> None:
    with pytest.raises(ToolFailure) as failure:
        repair("{" + " " * (1 << 20) + "}", EDIT)

    assert failure.value.code == "too_large"


values = st.dictionaries(
    st.sampled_from([*EDIT["properties"], "filePath", "args", "x"]),
    st.text('0123456789.-{}[]"truefalsn', max_size=8) | st.integers() | st.lists(st.text(max_size=3), max_size=2),
    max_size=4,
)


@pytest.mark.slow
@given(sent=values)
def test_valid_arguments_are_never_changed(sent: dict[str, Any]) -> None:
    if not compile_schema(EDIT).check(sent):
        assert repair(sent, EDIT) == (sent, ())


@pytest.mark.slow
@given(sent=values)
def test_repairing_twice_changes_nothing_more(sent: dict[str, Any]) -> None:
    once, _ = repair(sent, EDIT)

    assert repair(once, EDIT) == (once, ())


@pytest.mark.parametrize(
    "sent",
    [
        {f"k{number}": 1 for number in range(20_000)},
        "{" + ",".join(f'"k{number}": 1' for number in range(40_000)) + ', "k39999": 2}',
        {"arguments": {f"k{number}": 1 for number in range(20_000)}},
        {"K" * 2_000_000: 1},
    ],
    ids=["unknown names", "one name twice", "wrapped", "a long name"],
)
def test_what_no_honest_model_sends_is_looked_at_only_once(sent: Any) -> None:
    began = time.process_time()
    try:
        repair(sent, EDIT)
    except ToolFailure as failure:
        assert "'k39999' is given twice" in failure.message

    assert time.process_time() - began < 10, "seconds of this process alone: looked at twice, it would be minutes"


def test_arguments_that_are_too_large_come_back_as_they_came() -> None:
    large = {"edits": [{"Old-Text": "x" * 20}] * 40_000}

    assert repair(large, EDIT) == (large, ())
    assert repair({"edits": large["edits"][:2]}, EDIT)[0] == {"edits": [{"old_text": "x" * 20}] * 2}
