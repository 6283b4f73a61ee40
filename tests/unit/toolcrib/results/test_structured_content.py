"""Structured content that is shortened stays valid for the schema of its tool."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.json import dumps
from toolcrib.core.result import ToolResult
from toolcrib.results.artifacts import Artifacts
from toolcrib.results.limit import Limiter, LimitOptions
from toolcrib.results.redaction.redactor import Redactor
from toolcrib.results.structured_content import shorten

ROOM = 600

ROWS: list[dict[str, Any]] = [{"id": number, "text": "word " * 20} for number in range(100)]
ROW: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "text": {"type": "string", "minLength": 1}},
    "required": ["id", "text"],
    "additionalProperties": False,
}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def size(value: Any) -> int:
    return len(dumps(value))


def test_a_list_of_rows_keeps_its_first_rows_whole() -> None:
    short = shorten({"rows": ROWS, "total": 100}, obj(rows={"type": "array", "items": ROW}, total={}), ROOM)
    assert short == {"rows": ROWS[: len(short["rows"])], "total": 100}
    assert len(short["rows"]) == 4


def test_one_long_text_is_cut_in_its_place_and_marked() -> None:
    short = shorten({"page": "line\n" * 1000, "url": "x://y"}, obj(page={"type": "string"}, url={}), ROOM)
    assert short["url"] == "x://y"
    assert short["page"].endswith("…")
    assert ("line\n" * 1000).startswith(short["page"].removesuffix("…"))
    assert ROOM - 20 < size(short) <= ROOM


def test_the_room_is_shared_by_what_is_large_and_small_members_stay_whole() -> None:
    value = {"a": "a" * 5000, "small": {"k": [1, 2, 3]}, "b": "b" * 5000}
    short = shorten(value, obj(a={}, b={}, small={}), ROOM)
    assert (short["small"], abs(len(short["a"]) - len(short["b"])) < 10, size(short) <= ROOM) == (
        value["small"],
        True,
        True,
    )


def test_optional_members_go_before_what_the_schema_requires() -> None:
    value = {**{f"extra{number}": "x" * 50 for number in range(50)}, "kept": "k" * 300}
    short = shorten(value, {"required": ["kept"], "properties": {"kept": {"const": "k" * 300}}}, ROOM)
    assert (short["kept"], size(short) <= ROOM, len(short) < 10) == ("k" * 300, True, True)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param({"type": "array", "items": ROW, "minItems": 9}, ROWS, id="more items than fit whole"),
        pytest.param({"contains": {"const": 7}}, [*range(500)], id="contains near the beginning"),
        pytest.param({"contains": {"const": "z"}, "minContains": 1}, ["z", *map(str, range(500))], id="contains first"),
        pytest.param({"dependentRequired": {"a": ["z"]}}, {"a": 1, "m": "m" * 900, "z": "z"}, id="dependent members"),
        pytest.param({"minProperties": 3}, {"a": "a" * 900, "b": "b" * 900, "c": "c" * 900}, id="least members"),
        pytest.param(
            obj(u={"type": "string", "format": "uri"}, t={}), {"u": "x://" + "y" * 200, "t": "t" * 900}, id="format"
        ),
        pytest.param(obj(s={"type": "string", "pattern": "z$"}), {"s": "s" * 300 + "z", "x": "x" * 900}, id="pattern"),
        pytest.param(
            {"oneOf": [obj(kind={"const": "a"}, a={"minLength": 9}), obj(kind={"const": "b"})]},
            {"kind": "a", "a": "a" * 900},
            id="branches",
        ),
        pytest.param(
            {"$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}, "t": {"minLength": 30}}, "required": ["t"]}},
             "$ref": "#/$defs/n"},
            {"t": "t" * 99, "next": {"t": "u" * 99, "next": {"t": "v" * 900}}},
            id="recursive",
        ),
        pytest.param(
            {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"m": "m" * 900, "a": 1, "b": 2}, id="if"
        ),
        pytest.param({"not": {"maxLength": 100}}, "n" * 900, id="not"),
        pytest.param(
            {"uniqueItems": True, "prefixItems": [{"minLength": 5}]}, ["a" * 300, *map(str, range(300))], id="prefix"
        ),
    ],
)  # fmt: skip
def test_what_the_schema_wants_stays(schema: dict[str, Any], value: Any) -> None:
    short = shorten(value, schema, ROOM)
    assert short is not None
    assert jsonschema_rs.is_valid(schema, short)
    assert size(short) <= ROOM < size(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": "c" * 900}, "c" * 900),
        ({"type": "array", "minItems": 900}, [1] * 900),
        ({"type": "string", "minLength": 900}, "s" * 900),
        ({"contains": {"const": "last"}}, [*map(str, range(900)), "last"]),
        ({"type": "integer"}, ["not what the schema says"] * 99),
    ],
)
def test_what_cannot_be_shorter_is_not_shortened(schema: dict[str, Any], value: Any) -> None:
    assert shorten(value, schema, ROOM) is None


# A random schema, and a value that is valid for it.

Pair = tuple[dict[str, Any], Any]
KEYS = st.sampled_from([*"abcdefgh"])


@st.composite
def texts(draw: st.DrawFn) -> Pair:
    text = draw(st.text(max_size=20)) * draw(st.sampled_from([1, 3, 40]))
    words = draw(st.sampled_from(["", "const", "enum", "pattern", "minLength", "both"]))
    schema: dict[str, Any] = {"type": "string"}
    if words == "const":
        schema["const"] = text
    elif words == "enum":
        schema["enum"] = ["other", text]
    elif words == "pattern":
        schema["pattern"] = "^[^§]*$" if "§" not in text else "§"
    elif words in ("minLength", "both"):
        schema["minLength"] = draw(st.integers(0, len(text)))
        if words == "both":
            schema["maxLength"] = len(text) + draw(st.integers(0, 3))
    return schema, text


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    item, value = draw(inner)
    value = [value] * draw(st.sampled_from([0, 1, 2, 7, 60]))
    schema: dict[str, Any] = {"type": "array", "items": item}
    if draw(st.booleans()):
        schema["minItems"] = draw(st.integers(0, len(value)))
    if value and draw(st.booleans()):
        first, other = draw(inner)
        schema |= {"prefixItems": [first], "contains": first}
        value = [other, *value]
    return schema, value


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    members = draw(st.dictionaries(KEYS, inner, max_size=6))
    value = {key: one for key, (_, one) in members.items()}
    schema: dict[str, Any] = {"type": "object", "properties": {key: one for key, (one, _) in members.items()}}
    if value:
        names = st.lists(st.sampled_from(sorted(value)), unique=True)
        schema["required"] = draw(names)
        if draw(st.booleans()):
            schema["dependentRequired"] = {draw(st.sampled_from(sorted(value))): draw(names)}
    if draw(st.booleans()):
        schema["minProperties"] = draw(st.integers(0, len(value)))
    extra = draw(st.sampled_from(["", "closed", "map"]))
    if extra == "closed":
        schema["additionalProperties"] = False
    elif extra == "map":
        other, one = draw(inner)
        schema["additionalProperties"] = other
        value |= {f"key{number}": one for number in range(draw(st.sampled_from([1, 5, 50])))}
    return schema, value


@st.composite
def branches(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    schema, value = draw(inner)
    other, _ = draw(inner)
    word = draw(st.sampled_from(["anyOf", "allOf", "$ref", "nullable"]))
    if word == "anyOf":
        return {"anyOf": [other, schema]}, value
    if word == "nullable":
        return {"anyOf": [schema, {"type": "null"}]}, value
    return ({"allOf": [schema, {}]}, value) if word == "allOf" else ({"allOf": [{"allOf": [schema]}]}, value)


SCALARS = st.one_of(
    texts(),
    st.integers(-(2**40), 2**40).map(lambda number: ({"type": "integer"}, number)),
    st.booleans().map(lambda flag: ({"type": "boolean"}, flag)),
)
PAIRS = st.recursive(SCALARS, lambda inner: st.one_of(arrays(inner), objects(inner), branches(inner)), max_leaves=12)


@pytest.mark.slow
@given(PAIRS, st.integers(50, 3000))
def test_a_shortened_value_is_valid_and_within_its_room(pair: Pair, room: int) -> None:
    schema, value = pair
    short = shorten(value, schema, room)
    if short is not None:
        assert jsonschema_rs.is_valid(schema, short)
        assert size(short) <= room
    else:
        assert size(value) > room, "what fits is never given up"


@pytest.mark.slow
@given(PAIRS)
async def test_a_limited_result_is_valid_within_the_limit_or_says_where_the_whole_is(pair: Pair) -> None:
    schema, value = pair
    artifacts = Artifacts(None)
    try:
        way = LimitOptions(schema=schema, read="read_artifact")
        limited = await Limiter(artifacts, Redactor()).apply(ToolResult(structured_content=value), 100, "ada", way)
        if size(value) <= 400:
            assert limited.structured_content == value
            return
        if limited.structured_content is not None:
            assert jsonschema_rs.is_valid(schema, limited.structured_content)
            assert size(limited.structured_content) <= 400
        _, whole = await artifacts.value(limited.meta["artifact"], "ada", 1 << 24)
        assert whole == dumps(value)
        assert limited.meta["artifact"] in limited.text
    finally:
        artifacts.close()
