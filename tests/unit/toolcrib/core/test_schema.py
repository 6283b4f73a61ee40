"""Schemas: errors that can be acted on, defaults, limits that hold for whatever a stranger sends."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.schema import FieldError, ValidatorCache, compile_schema, example, join_path, split_path
from toolcrib.core.tool import Tool

FILE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "maximum": 9, "default": 3},
        "mode": {"enum": ["read", "write"]},
        "options": {"anyOf": [{"$ref": "#/$defs/Options"}, {"type": "null"}]},
    },
    "required": ["file_path"],
    "$defs": {
        "Options": {
            "type": "object",
            "properties": {
                "depth": {"type": "integer", "default": 1},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Options"}},
            },
        }
    },
}


def told(schema: Mapping[str, Any], value: Any, *, strict_extra: bool = True) -> list[str]:
    return [str(error) for error in compile_schema(schema, strict_extra=strict_extra).check(value)]


def nested(levels: int, inside: Any, key: str = "a") -> Any:
    for _ in range(levels):
        inside = {key: inside}
    return inside


# Errors


def test_a_good_value_has_no_errors() -> None:
    assert told(FILE, {"file_path": "a", "options": {"children": [{"depth": 2}]}}) == []


def test_every_wrong_field_is_told_with_its_path() -> None:
    value = {"file_path": "", "count": 10, "mode": "append", "options": {"children": [{}, {"depth": "deep"}]}}

    assert told(FILE, value) == [
        "file_path: must have at least 1 characters",
        "count: must be at most 9",
        'mode: must be one of "read", "write"',
        "options.children[1].depth: must be integer, not string",
    ]


def test_an_error_says_what_was_expected_and_not_what_was_sent() -> None:
    (error,) = compile_schema(FILE).check({"file_path": "a", "count": "hunter2"})

    expected = FieldError(path="count", keyword="type", message="must be integer, not string", expected="integer")
    assert error == expected
    assert error.to_json() == {
        "path": "count",
        "keyword": "type",
        "message": "must be integer, not string",
        "expected": "integer",
    }


def test_a_missing_argument_is_named() -> None:
    assert told(FILE, {}) == ["file_path: is required"]


def test_an_unknown_argument_gets_the_nearest_declared_one() -> None:
    assert told(FILE, {"file_path": "a", "cuont": 1}) == [
        "cuont: is not an argument of this tool; did you mean 'count'?"
    ]


@pytest.mark.parametrize(("given", "meant"), [("opt", "did you mean 'options'?"), ("name", "which takes file_path")])
def test_an_abbreviated_argument_gets_the_whole_one_and_a_far_one_the_list(given: str, meant: str) -> None:
    assert meant in told(FILE, {"file_path": "a", given: 1})[0]


def test_an_unknown_argument_unlike_any_other_gets_the_list() -> None:
    assert told(FILE, {"file_path": "a", "zzz": 1}) == [
        "zzz: is not an argument of this tool, which takes file_path, count, mode, options"
    ]


def test_alternatives_of_other_types_are_told_as_one_type_error() -> None:
    assert told(FILE, {"file_path": "a", "options": 7}) == ["options: must be object or null, not integer"]


def test_alternatives_that_all_fail_say_what_each_wants() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"id": {}, "name": {}},
        "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
    }

    assert told(schema, {}) == ["arguments: fits none of 2 alternatives: (1) id is required (2) name is required"]


SPOKEN: list[tuple[Any, Any, str]] = [
    ({"const": 1}, 2, "must be 1"),
    ({"pattern": "^a"}, "b", "must match the pattern ^a"),
    ({"pattern": r"\S"}, " ", "must not be blank"),
    ({"multipleOf": 5}, 7, "must be a multiple of 5"),
    ({"uniqueItems": True}, [1, 1], "must not have the same item twice"),
    ({"oneOf": [{}, {}]}, 1, "fits more than one of the alternatives; exactly one must fit"),
    ({"not": {"type": "integer"}}, 1, "is what the schema excludes"),
    (
        {"anyOf": [{"properties": {"a": {}}, "additionalProperties": False}, {"required": ["b"]}]},
        {"c": 1},
        "fits none of 2 alternatives: (1) does not take c (2) b is required",
    ),
    ({"propertyNames": {"maxLength": 1}}, {"long": 1}, "has a name that must have at most 1 characters"),
    (False, 1, "is what the schema excludes"),
]


@pytest.mark.parametrize(("schema", "value", "message"), SPOKEN)
def test_each_keyword_speaks_plainly(schema: Any, value: Any, message: str) -> None:
    assert [error.message for error in compile_schema(schema).check(value)] == [message]


@pytest.mark.parametrize("path", [(), ("a", "b", 0), (2, 3), ("", "a b", 'say "x"', "]", "\\", 1), ("a.b", "[0]", "é")])
def test_a_written_path_can_be_read_again(path: tuple[str | int, ...]) -> None:
    assert split_path(join_path(path)) == [*path]


def test_a_name_that_is_no_unicode_does_not_stop_the_answer() -> None:
    assert split_path(join_path(["\ud800", "b"]))[-1] == "b"


# What the schema leaves open


def test_extra_arguments_are_refused_when_the_schema_says_nothing_of_them() -> None:
    silent: dict[str, Any] = {"type": "object", "properties": {"a": {}}}

    assert told(silent, {"b": 1}) == ["b: is not an argument of this tool, which takes a"]
    assert told(silent, {"b": 1}, strict_extra=False) == []


@pytest.mark.parametrize(
    "opening",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^b": {}}},
        {"required": ["b"]},
    ],
)
def test_extra_arguments_are_taken_when_the_schema_welcomes_them(opening: dict[str, Any]) -> None:
    assert told({"type": "object", "properties": {"a": {}}, **opening}, {"b": 1}) == []


def test_a_schema_without_properties_takes_anything() -> None:
    assert told({"type": "object"}, {"b": 1}) == []


def test_properties_of_a_combined_schema_are_not_extra() -> None:
    combined: dict[str, Any] = {"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}

    assert told(combined, {"a": 1, "b": 2}) == []
    assert told(combined, {"other": 1}) == ["other: is not an argument of this tool, which takes a, b"]


# What no schema can allow


@pytest.mark.parametrize(
    ("value", "told_as"),
    [
        ({"a": float("nan")}, "a: must be a finite number"),
        ({"a": [1, float("inf")]}, "a[1]: must be a finite number"),
        ({"a": b"bytes"}, "a: is bytes, which JSON does not know"),
        ({"a": {1, 2}}, "a: is set, which JSON does not know"),
        ({1: "a"}, "arguments: has a name that is int, not text"),
        ({"a": "\ud800"}, "a: is not valid Unicode"),
        ({"a": 1 << 64}, "a: must be a number of at most 64 bits; send it as text if you can"),
        (nested(65, 1), "a: is nested deeper than 64 levels"),
        ({"a": "x" * (1 << 20)}, "arguments: the arguments have 1,048,584 bytes, 1,048,576 are allowed"),
    ],
    ids=["nan", "infinite", "bytes", "set", "number as a name", "surrogate", "bignum", "deep", "large"],
)
def test_what_is_not_json_is_an_error_whatever_the_schema(value: Any, told_as: str) -> None:
    assert told({}, value) == [told_as]


def test_the_largest_depth_is_allowed() -> None:
    assert told({}, nested(64, 1)) == []


def test_a_hundred_errors_are_enough() -> None:
    schema: dict[str, Any] = {"type": "array", "items": {"type": "string"}}

    assert len(compile_schema(schema).check([1] * 500)) == 100


# Defaults


def test_defaults_are_filled_at_every_level_and_the_input_is_left_alone() -> None:
    value = {"file_path": "a", "options": {"children": [{}, {"depth": 5}]}}

    filled = compile_schema(FILE).fill(value)

    assert filled == {
        "file_path": "a",
        "count": 3,
        "options": {"depth": 1, "children": [{"depth": 1}, {"depth": 5}]},
    }
    assert value == {"file_path": "a", "options": {"children": [{}, {"depth": 5}]}}


def test_a_value_with_nothing_to_fill_comes_back_itself() -> None:
    whole = {"file_path": "a", "count": 1}
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}

    assert compile_schema(FILE).fill(whole) is whole
    assert compile_schema(plain).fill(whole) is whole


def test_a_default_that_its_own_type_refuses_is_not_filled_in() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"type": "string", "default": None}, "b": {"enum": [1], "default": 2}}
    }

    assert compile_schema(schema).fill({}) == {}


def test_a_filled_default_is_not_shared_between_calls() -> None:
    validator = compile_schema({"properties": {"tags": {"type": "array", "default": []}}})

    validator.fill({})["tags"].append("x")

    assert validator.fill({}) == {"tags": []}


def test_a_required_argument_with_a_default_may_be_left_out() -> None:
    schema: dict[str, Any] = {"properties": {"n": {"type": "integer", "default": 1}}, "required": ["n"]}

    assert compile_schema(schema).accept({}) == ({"n": 1}, ())


def test_a_default_that_would_spoil_a_good_value_is_left_out() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    }

    assert compile_schema(schema).accept({"a": 1}) == ({"a": 1}, ())


def test_errors_are_about_what_was_sent_and_not_about_defaults() -> None:
    value, errors = compile_schema(FILE).accept({"file_path": 1})

    assert (value, [str(error) for error in errors]) == ({"file_path": 1}, ["file_path: must be string, not integer"])


# Broken and hostile schemas


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strng"}, "broken schema at type: 'strng' fits none of 2 alternatives"),
        ({"properties": {"a": {"pattern": "(a"}}}, "broken schema at properties.a.pattern: '(a' must be a valid regex"),
        ({"$ref": "#/$defs/none"}, "broken schema: Pointer '/$defs/none' does not exist"),
        ({"a": {1, 2}}, "the schema is not JSON"),
        ({"enum": [[1]] * 30_000}, "the schema has more than 20,000 nodes"),
        ({"description": "x" * (1 << 20)}, "the schema has 1,048,594 bytes, 1,048,576 are allowed"),
        (nested(70, {}, "not"), "the schema is nested deeper than 64 levels"),
        ({"pattern": "((a{100}){100}){100}"}, "broken schema at pattern"),
    ],
    ids=["type", "pattern", "ref", "no JSON", "nodes", "bytes", "depth", "regex size"],
)
def test_a_broken_schema_is_refused_with_its_reason(schema: Any, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason.replace("(", r"\(").replace("$", r"\$")):
        compile_schema(schema)


def test_no_reference_is_ever_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        for uri in (f"http://127.0.0.1:{server.getsockname()[1]}/schema.json", "file:///etc/hostname"):
            with pytest.raises(ValueError, match="references outside the schema are not followed"):
                compile_schema({"$ref": uri})
        with pytest.raises(BlockingIOError):
            server.accept()


def doubling(links: int, keyword: str) -> dict[str, Any]:
    """Each definition refers twice to the next."""
    twice = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(links)}
    return {"$defs": {**twice, f"d{links}": {"type": "object"}}, "$ref": "#/$defs/d0"}


def doubling_below(links: int) -> dict[str, Any]:
    """The same, one level of the value deeper with every link."""
    twice = {f"d{i}": {"anyOf": [{"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}}] * 2} for i in range(links)}
    return {"$defs": {**twice, f"d{links}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def doubling_behind_escapes(links: int) -> dict[str, Any]:
    """The same by references with an escaped slash; a cheap definition has the name that they would have unescaped."""
    twice = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/g%2Fd{i + 1}"}] * 2} for i in range(links)}
    cheap = {f"g/d{i}": {"type": "object"} for i in range(links + 1)}
    return {"$defs": {"g": {**twice, f"d{links}": {"type": "object"}}, **cheap}, "$ref": "#/$defs/g%2Fd0"}


@pytest.mark.parametrize(
    "schema", [doubling(40, "allOf"), doubling(40, "oneOf"), doubling_below(40), doubling_behind_escapes(40)]
)
def test_a_schema_that_doubles_its_work_is_refused_before_it_is_compiled(schema: dict[str, Any]) -> None:
    started = time.process_time()

    with pytest.raises(ValueError, match=r"the schema looks [\d,]+ times at one value"):
        compile_schema(schema)
    assert time.process_time() - started < 0.5


TWICE = {
    "anyOf": [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {}}, "required": ["a"]},
    ]
}


@pytest.mark.parametrize("levels", [3, 10, 20, 60])
def test_a_recursive_alternative_is_refused_quickly_however_deep_the_value(levels: int) -> None:
    started = time.process_time()

    assert len(compile_schema(TWICE).check(nested(levels, 7))) == 1
    assert time.process_time() - started < 1


HOSTILE: dict[str, tuple[Any, Any]] = {
    "catastrophic pattern": ({"pattern": "^(a+)+$"}, "a" * 50_000 + "b"),
    "with look-around": ({"pattern": "^(?=.*x)(a+)+$"}, "a" * 50_000 + "b"),
    "failures without end": ({"type": "array", "items": {"anyOf": [{"required": ["a"]}] * 50}}, [{}] * 20_000),
    "unique items": ({"uniqueItems": True}, [{"k": i} for i in range(10_000)] * 2),
}


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "value"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_schema_answers_within_two_seconds(schema: Any, value: Any) -> None:
    started = time.process_time()

    assert compile_schema(schema).check(value) != ()
    assert time.process_time() - started < 2


def test_a_pattern_with_look_around_works() -> None:
    schema: dict[str, Any] = {"pattern": "^(?!tmp/).*$"}

    assert told(schema, "src/a") == []
    assert told(schema, "tmp/a") == ["arguments: must match the pattern ^(?!tmp/).*$"]


def test_older_drafts_are_read_as_what_they_are_and_unknown_ones_as_the_newest() -> None:
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}
    unknown = {"$schema": "https://example.com/dialect", "exclusiveMinimum": 1}

    assert told(draft_4, 1) == ["arguments: must be more than 1"]
    assert told(unknown, 1) == ["arguments: must be more than 1"]


# Examples


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (FILE, {"file_path": "text"}),
        ({"properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}, {"a": "x"}),
        ({"properties": {"a": {"type": "integer", "minimum": 5}}, "required": ["a"]}, {"a": 5}),
        ({"properties": {"a": {"type": "number", "multipleOf": 4}}, "required": ["a"]}, {"a": 4}),
        ({"properties": {"a": {"type": "string", "format": "date"}}, "required": ["a"]}, {"a": "2026-01-31"}),
        (
            {"properties": {"a": {"type": "array", "items": {"type": "boolean"}, "minItems": 1}}, "required": ["a"]},
            {"a": [True]},
        ),
        ({"properties": {"a": {"pattern": "^z", "examples": ["zed"]}}, "required": ["a"]}, {"a": "zed"}),
        ({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": "text"}),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}, "required": ["a"]}, {"a": ["text"]}),
        ({"properties": {"a": {"type": "array", "items": {"pattern": "^z"}}}, "required": ["a"]}, {"a": []}),
        ({"examples": [{"a": 1}], "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ({"type": "object"}, {}),
    ],
)
def test_an_example_is_small_and_valid(schema: dict[str, Any], shown: dict[str, Any]) -> None:
    assert example(schema) == shown
    assert compile_schema(schema).check(shown) == ()


def test_where_no_example_is_found_the_nearest_guess_is_shown() -> None:
    assert example({"properties": {"a": {"type": "string", "pattern": "^\\d{3}$"}}, "required": ["a"]}) == {"a": "text"}


def test_an_example_of_a_recursive_schema_ends() -> None:
    tree = {"properties": {"next": {"$ref": "#"}}, "required": ["next"]}

    assert "next" in example(tree)


# The cache


def tool(number: int) -> Tool:
    return Tool(name=f"t{number}", source="s", local_name=f"t{number}", input_schema={"const": {"n": number}})


def test_the_cache_keeps_the_validators_used_last() -> None:
    cache = ValidatorCache(size=2)
    first, second = cache.of(tool(1)), cache.of(tool(2))

    assert cache.of(tool(1)) is first
    cache.of(tool(3))
    assert cache.of(tool(1)) is first
    assert cache.of(tool(2)) is not second


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.floats(-5, 5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)


def some_of(**optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return cast("st.SearchStrategy[dict[str, Any]]", st.fixed_dictionaries({}, optional=cast("Any", optional)))


schemas = st.recursive(
    some_of(type=st.sampled_from(["object", "string", "integer"]), default=json_values),
    lambda inner: some_of(
        properties=st.dictionaries(st.sampled_from(["a", "b"]), inner), items=inner, default=json_values
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(schema=schemas, value=json_values)
def test_filling_twice_is_filling_once_and_what_was_given_stays(schema: dict[str, Any], value: Any) -> None:
    validator = compile_schema(schema)
    filled = validator.fill(value)

    assert validator.fill(filled) == filled
    if isinstance(value, dict):
        assert cast("dict[str, Any]", value).keys() <= filled.keys()


@pytest.mark.slow
@given(schema=schemas, value=json_values)
def test_an_accepted_value_is_valid(schema: dict[str, Any], value: Any) -> None:
    validator = compile_schema(schema)
    accepted, errors = validator.accept(value)

    assert validator.check(accepted) == errors


def _shaped(levels: int, kinds: str) -> dict[str, Any]:
    value: Any = 1
    for level in range(levels - 1):
        value = [value, "[{"] if kinds[level % len(kinds)] == "[" else {"a": value, "b": '"}]\\'}
    return {"a": value, "more": [{}] * 100}


@pytest.mark.parametrize("kinds", ["[", "{", "[{", "[[{"])
@pytest.mark.parametrize("levels", [2, 31, 33, 63, 64, 65, 66, 120])
def test_depth_counts_whatever_stands_beside_and_in_texts(levels: int, kinds: str) -> None:
    errors = compile_schema({"type": "object"}).check(_shaped(levels, kinds))

    assert [error.keyword for error in errors] == (["limit"] if levels > 64 else [])


def test_values_that_are_no_numbers_are_found_beside_nulls() -> None:
    found = compile_schema({"type": "object"}).check({"a": None, "b": [1.5, None, float("nan")]})

    assert [(error.path, error.keyword) for error in found] == [("b[2]", "json")]
