from typing import Any

import pytest

from toolcrib.mcp.headers import header_paths, header_value, parameter_headers

REGION = {"type": "string", "x-mcp-header": "Region"}


def test_annotated_arguments_become_headers() -> None:
    nested = {"type": "object", "properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}}
    schema = {"type": "object", "properties": {"region": REGION, "deep": nested, "other": {"type": "string"}}}
    paths = header_paths(schema)

    assert paths == {("region",): "Region", ("deep", "flag"): "Flag"}
    assert parameter_headers(paths, {"region": "eu", "deep": {"flag": True}, "other": "x"}) == {
        "Mcp-Param-Region": "eu",
        "Mcp-Param-Flag": "true",
    }
    assert parameter_headers(paths, {"region": None}) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"x-mcp-header": "Root"},
        {"properties": {"a": {"type": "string", "x-mcp-header": "not a token"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 5}}},
        {"properties": {"a": {"type": "number", "x-mcp-header": "N"}}},
        {"properties": {"a": REGION, "b": {"type": "string", "x-mcp-header": "region"}}},
        {"properties": {"list": {"type": "array", "items": REGION}}},
        {"anyOf": [{"properties": {"a": REGION}}]},
        {"$defs": {"d": REGION}},
    ],
)
def test_an_annotation_that_the_specification_forbids_refuses_the_schema(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="x-mcp-header"):
        header_paths(schema)


def test_examples_and_values_are_not_searched_for_annotations() -> None:
    assert header_paths({"properties": {"a": {"default": REGION, "enum": [REGION]}}}) == {}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("plain value", "plain value"),
        ("gr\u00fc\u00df", "=?base64?Z3LDvMOf?="),
        (" edge", "=?base64?IGVkZ2U=?="),
        ("a\r\nb", "=?base64?YQ0KYg==?="),
        ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        ("", "=?base64??="),
    ],
)
def test_a_value_that_a_header_cannot_carry_is_wrapped(value: str, sent: str) -> None:
    assert header_value(value) == sent
