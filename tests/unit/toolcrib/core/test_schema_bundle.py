"""Bundles: references to schemas that the operator has on disk work, all others stay refused."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.schema import bundle, compile_schema

URI = "https://schemas.example/"
KNOWN: dict[str, Any] = {
    URI + "number.json": {"type": "integer"},
    URI + "chain.json": {"properties": {"next": {"$ref": "number.json"}}},
    URI + "parts.json": {"$defs": {"word": {"type": "string"}, "named": {"$anchor": "here", "type": "boolean"}}},
    URI + "ring.json": {"properties": {"again": {"$ref": "ring.json"}, "n": {"$ref": "number.json"}}},
    URI + "moved.json": {"$id": URI + "real.json", "$defs": {"a": {"type": "null"}}, "$ref": "#/$defs/a"},
    URI + "no.json": False,
    URI + "tree.json": {
        "$id": URI + "tree.json",
        "$dynamicAnchor": "node",
        "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    },
}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"$ref": URI + "number.json"}, 1, "x"),
        ({"items": {"$ref": URI + "chain.json"}}, [{"next": 1}], [{"next": "x"}]),
        ({"$id": URI + "own.json", "items": {"$ref": "number.json"}}, [1], ["x"]),
        ({"$ref": URI + "parts.json#/$defs/word"}, "x", 1),
        ({"$ref": URI + "parts.json#here"}, True, 1),
        ({"$ref": URI + "ring.json"}, {"again": {"again": {"n": 1}}}, {"again": {"again": {"n": "x"}}}),
        ({"$ref": URI + "moved.json"}, None, 1),
        ({"properties": {"a": {"$ref": URI + "no.json"}}}, {"b": 1}, {"a": 1}),
        ({"$defs": {URI + "number.json": {}}, "items": {"$ref": URI + "number.json"}}, [1], ["x"]),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "properties": {"a": {"$ref": URI + "number.json"}},
            },
            {"a": 1},
            {"a": "x"},
        ),
        (
            {
                "$id": URI + "strict-tree.json",
                "$dynamicAnchor": "node",
                "$ref": "tree.json",
                "unevaluatedProperties": False,
            },
            {"children": [{"data": 1}]},
            {"children": [{"daat": 1}]},
        ),
    ],
)
def test_a_reference_to_a_known_schema_works(schema: dict[str, Any], good: Any, bad: Any) -> None:
    validator = compile_schema(bundle(schema, KNOWN), strict_extra=False)
    assert (validator.check(good), bool(validator.check(bad))) == ((), True)


def test_only_schemas_that_are_referred_to_become_a_part() -> None:
    schema = {"items": {"$ref": URI + "number.json"}}
    copy = {"$id": URI + "number.json", "type": "integer"}
    assert bundle(schema, KNOWN) == {**schema, "$defs": {URI + "number.json": copy}}


def test_a_schema_without_references_to_known_ones_is_the_same_object() -> None:
    own: dict[str, Any] = {
        "$id": URI + "number.json",
        "items": {"$ref": URI + "number.json#/$defs/a"},
        "$defs": {"a": {}},
    }
    inner: dict[str, Any] = {"$ref": "#/$defs/a", "$defs": {"a": {"enum": [{"b": 1}]}}}
    for schema in (own, inner, {"type": "object"}):
        assert bundle(schema, KNOWN) is schema


def test_an_unknown_reference_stays_refused() -> None:
    with pytest.raises(ValueError, match="unknown"):
        compile_schema(bundle({"$ref": URI + "unknown.json", "items": {"$ref": URI + "number.json"}}, KNOWN))


def test_a_part_of_a_schema_under_its_other_address_is_refused() -> None:
    for schema in (
        {"$ref": URI + "moved.json#/$defs/a"},
        {"allOf": [{"$ref": URI + "moved.json"}, {"$ref": URI + "moved.json#/$defs/a"}]},
    ):
        with pytest.raises(ValueError, match=r"real\.json"):
            bundle(schema, KNOWN)


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"items": schema}
    with pytest.raises(ValueError, match="nested"):
        bundle(schema, KNOWN)
