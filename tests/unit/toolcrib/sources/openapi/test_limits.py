"""A description that was made to take long, or to take all memory, costs its own operations and nobody else's."""

from collections.abc import Mapping
from typing import Any

import pytest

from peers.api import described
from toolcrib.core.tool import Tool
from toolcrib.sources.openapi.convert import Api, Picks, convert
from toolcrib.sources.openapi.description import parse
from toolcrib.sources.openapi.parameters import Sent


def _converted(paths: Mapping[str, Any], **more: Any) -> Api:
    return convert(parse(described(paths, **more), "test"), Picks(), Sent(), "api")


def _only(paths: Mapping[str, Any], **more: Any) -> Tool:
    api = _converted(paths, **more)
    assert [problem.message for problem in api.problems] == []
    (tool,) = api.tools
    return tool


def _post(schema: Any) -> dict[str, Any]:
    return {"operationId": "op", "requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}


@pytest.mark.parametrize("keyword", ["additionalProperties", "not", "propertyNames"])
def test_a_schema_that_refers_to_itself_below_any_keyword_is_kept_as_a_reference(keyword: str) -> None:
    tree = {"type": "object", keyword: {"$ref": "#/components/schemas/Tree"}}

    tool = _only(
        {"/x": {"post": _post({"type": "object", "properties": {"tree": {"$ref": "#/components/schemas/Tree"}}})}},
        components={"schemas": {"Tree": tree}},
    )

    assert tool.input_schema["properties"] == {"tree": {"$ref": "#/$defs/Tree"}}
    assert tool.input_schema["$defs"] == {"Tree": {"type": "object", keyword: {"$ref": "#/$defs/Tree"}}}


@pytest.mark.slow
def test_a_long_chain_of_definitions_takes_at_most_its_own_operation_away() -> None:
    chain = {f"S{n}": {"not": {"$ref": f"#/components/schemas/S{n + 1}"}} for n in range(2_000)}
    paths = {"/bad": {"post": _post({"$ref": "#/components/schemas/S0"})}, "/good": {"get": {"operationId": "good"}}}

    api = _converted(paths, components={"schemas": chain | {"S2000": {"type": "string"}}})

    assert list(api.operations) == ["good"]
    assert [problem.code for problem in api.problems] == ["bad_operation"]


def test_parts_of_parts_that_multiply_do_not_keep_anybody_busy() -> None:
    parts = {f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{n + 1}"}] * 30} for n in range(8)}
    paths = {"/bad": {"post": _post({"$ref": "#/components/schemas/S0"})}, "/good": {"get": {"operationId": "good"}}}

    api = _converted(paths, components={"schemas": parts | {"S8": {"type": "object", "properties": {"q": {}}}}})

    assert list(api.operations) == ["good"]
    assert [problem.code for problem in api.problems] == ["bad_operation"]


@pytest.mark.parametrize(("count", "reason"), [(3_000, "to describe; 65,536 are taken"), (6_000, "more than 5,000")])
def test_an_operation_whose_arguments_are_endless_is_told_and_not_offered(count: int, reason: str) -> None:
    schema = {"type": "object", "properties": {f"property{n}": {"type": "string"} for n in range(count)}}

    api = _converted({"/bad": {"post": _post(schema)}, "/good": {"get": {"operationId": "good"}}})

    assert list(api.operations) == ["good"]
    assert reason in api.problems[0].message
