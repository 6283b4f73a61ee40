"""What a search and a description tell a model of a tool."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.schema import compile_schema
from toolcrib.core.tool import Annotations, Guidance, Tool
from toolcrib.disclosure import signatures


def tool(schema: dict[str, Any], **other: Any) -> Tool:
    return Tool(
        name="s__t", source="s", local_name="t", description="Does it. In detail.", input_schema=schema, **other
    )


def args(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


CLOSED = {"additionalProperties": False}
LONG = {"type": "string", "description": "word " * 100}
NUMBER = {"type": "number"}
MODELS = {
    "$defs": {
        "C": {"enum": ["r", "w"]},
        "P": args(["x"], x=NUMBER, y={"anyOf": [{"$ref": "#/$defs/C"}, {"type": "null"}]}) | CLOSED,
        "T": {"type": "array", "items": {"$ref": "#/$defs/T"}},
    }
}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (args(), "s__t()"),
        (args(["a"], b={"type": "integer"}, a={"type": "string"}), "s__t(a: string, b?: integer)"),
        (args(["m"], m={"enum": ["r", "w"]}), 's__t(m: "r"|"w")'),
        (args(["t"], t={"type": "array", "items": {"type": "string"}}), "s__t(t: string[])"),
        (args(["n"], n={"anyOf": [{"type": "integer"}, {"type": "null"}]}), "s__t(n: integer|null)"),
        (args(["n"], n={"type": ["integer", "null"]}), "s__t(n: integer|null)"),
        (args(["e"], e={"type": "array", "items": args(old={}, new={})}), "s__t(e: {old, new}[])"),
        (args(["e"], e={"type": "array", "items": {"enum": ["r", "w"]}}), 's__t(e: ("r"|"w")[])'),
        (args(["p"], p={"type": "array", "prefixItems": [NUMBER, {"type": "string"}]}), "s__t(p: [number, string])"),
        (args(["x"], x={}), "s__t(x: any)"),
        (
            args(["c", "p"], c={"$ref": "#/$defs/C"}, p={"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}) | MODELS,
            's__t(c: "r"|"w", p: {x, y}|null)',
        ),
        (args(["p"], p={"allOf": [{"$ref": "#/$defs/P"}], "description": "A point."}) | MODELS, "s__t(p: {x, y})"),
        (args(["t"], t={"$ref": "#/$defs/T"}) | MODELS, f"s__t(t: any{'[]' * 7})"),
        (
            args(None, **{f"o{i}": dict[str, Any]() for i in range(8)}),
            f"s__t({', '.join(f'o{i}?: any' for i in range(6))}, +2 optional)",
        ),
    ],
)
def test_a_signature_shows_names_types_and_what_may_be_left_out(schema: dict[str, Any], shown: str) -> None:
    assert signatures.signature(tool(schema)) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"to": {"x": "far"}}, ['to.x takes {"type":"number"}']),
        ({"to": {"x": 1, "z": 1}}, ['to takes {x: number, y?: "r"|"w"|null}']),
        ({"to": {"x": 1}, "odd.name": "x"}, ['["odd.name"] takes {"type":"integer","description":"How many."}']),
        ({"to": {"x": 1}, "via": [{"x": 1}, {}]}, ['via[1].x takes {"type":"number"}']),
        ({"to": {"x": 1}, "either": {"x": "far"}}, ["either takes {x: number}|{x: string, b: integer}"]),
        ({"to": {"x": 1}, "long": 1}, ["long takes string"]),
        (
            {"too": {"x": 1}},
            [
                "s__t takes (to: {x, y}, odd.name?: integer, via?: {x, y}[], either?: {x}|{x, b}, long?: string)",
                'to takes {x: number, y?: "r"|"w"|null}',
            ],
        ),
    ],
)
def test_wrong_arguments_are_answered_with_what_the_wrong_parts_take(given: dict[str, Any], shown: list[str]) -> None:
    properties: dict[str, Any] = {
        "to": {"$ref": "#/$defs/P"},
        "odd.name": {"type": "integer", "description": "How many."},
        "via": {"type": "array", "items": {"$ref": "#/$defs/P"}},
        "either": {"anyOf": [args(["x"], x=NUMBER), args(["x", "b"], x=LONG, b={"type": "integer"})]},
        "long": LONG,
    }
    one = tool(args(["to"], **properties) | MODELS)
    errors = compile_schema(one.input_schema).check(given)

    assert signatures.correction(one, errors).splitlines() == [*shown, 'example: {"to":{"x":1}}']


def test_a_line_warns_of_what_changes_the_world_and_of_nothing_else() -> None:
    reads = Annotations(read_only=True, destructive=False)
    assert signatures.line(tool(args(), annotations=reads)) == "s__t() Does it."
    assert signatures.line(tool(args())) == "s__t() [destructive] Does it."


def test_the_example_of_a_tool_comes_first_and_else_one_is_made_that_its_schema_accepts() -> None:
    schema = args(["path", "count"], path={"type": "string"}, count={"type": "integer", "minimum": 3})
    made = signatures.call_example(tool(schema))
    assert compile_schema(schema).check(dict(made)) == ()
    assert signatures.call_example(tool(schema, guidance=Guidance(examples=[{"path": "a", "count": 5}]))) == {
        "path": "a",
        "count": 5,
    }


def test_a_description_holds_the_whole_schema_and_the_advice() -> None:
    text = signatures.describe(tool(args(["a"], a={"type": "string"}), guidance=Guidance(policy={"dont": ["guess"]})))
    assert '"required":["a"]' in text
    assert '"dont":["guess"]' in text
