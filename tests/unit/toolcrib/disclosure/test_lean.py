"""Input schemas without the marks of generators."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.disclosure.formats.reduced_schemas import lean_schema

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "lean"),
    [
        ({"$schema": DRAFT_7, "type": "object"}, {"type": "object"}),
        (
            {"title": "fetchArguments", "properties": {"max_length": {"title": "Max Length"}}},
            {"properties": {"max_length": {}}},
        ),
        (
            {"properties": {"a": {"properties": {"b": {"title": "B"}}}}},
            {"properties": {"a": {"properties": {"b": {}}}}},
        ),
        ({"properties": {"id": {"type": "string"}}, "$schema": DRAFT_7}, {"properties": {"id": {"type": "string"}}}),
    ],
)
def test_a_mark_that_tells_nothing_is_left_out(schema: dict[str, Any], lean: dict[str, Any]) -> None:
    assert lean_schema(schema) == lean


@pytest.mark.parametrize(
    "schema",
    [
        {"title": "A search", "properties": {"q": {"title": "What to look for"}}},
        {"$schema": DRAFT_7, "properties": {"pair": {"items": [{"type": "string"}]}}},
        {"$schema": DRAFT_7, "dependencies": {"a": ["b"]}},
        {"$schema": "http://json-schema.org/draft-04/schema#"},
        {"properties": {"title": {"type": "string"}}},
    ],
)
def test_what_tells_something_stays(schema: dict[str, Any]) -> None:
    assert lean_schema(schema) == schema
