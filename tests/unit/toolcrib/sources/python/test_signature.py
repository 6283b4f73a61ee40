"""From a signature and a docstring to a schema, and from arguments to the values a function was written for."""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
import typing_extensions
from pydantic import BaseModel, Field, field_validator

from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.sources.python.signature import declared_signature, read_signature

CONTEXT = Context(call_id="c", session_key="s", principal="p")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    sku: str
    amount: int = Field(default=1, gt=0, description="How many")


@dataclass
class Address:
    street: str
    country: str = "DE"


class Filter(TypedDict):
    text: str
    limit: NotRequired[int]


class Found(typing_extensions.TypedDict):
    by: Filter
    total: int


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    return read_signature(function).input_schema["properties"]


def test_plain_types_defaults_and_what_is_required() -> None:
    def search(query: str, limit: int = 10, exact: bool = False, boost: float | None = None) -> None: ...

    assert read_signature(search).input_schema == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "default": 10},
            "exact": {"type": "boolean", "default": False},
            "boost": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        },
        "required": ["query"],
    }


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def ping() -> None: ...

    assert read_signature(ping).input_schema == {"type": "object", "additionalProperties": False, "properties": {}}


def test_models_dataclasses_typed_dicts_enums_and_literals_are_described() -> None:
    def order(items: list[Item], to: Address, find: Filter, colour: Colour, speed: Literal["slow", "fast"]) -> None: ...

    schema = read_signature(order).input_schema

    assert schema["properties"] == {
        "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "to": {"$ref": "#/$defs/Address"},
        "find": {"$ref": "#/$defs/Filter"},
        "colour": {"$ref": "#/$defs/Colour"},
        "speed": {"type": "string", "enum": ["slow", "fast"]},
    }
    assert schema["$defs"]["Item"] == {
        "type": "object",
        "properties": {
            "sku": {"type": "string"},
            "amount": {"type": "integer", "default": 1, "exclusiveMinimum": 0, "description": "How many"},
        },
        "required": ["sku"],
    }
    assert schema["$defs"]["Filter"]["required"] == ["text"]
    assert schema["$defs"]["Colour"] == {"type": "string", "enum": ["red", "blue"]}


def test_a_typed_dict_of_one_kind_may_have_those_of_the_other_kind_in_it() -> None:
    def find(again: Found) -> Found: ...

    signature = read_signature(find)

    assert signature.input_schema["$defs"]["Found"]["properties"]["by"] == {"$ref": "#/$defs/Filter"}
    assert signature.output_schema is not None
    assert signature.output_schema["properties"] == {"by": {"$ref": "#/$defs/Filter"}, "total": {"type": "integer"}}


def test_fields_and_texts_say_more_than_types() -> None:
    def take(
        n: Annotated[int, Field(ge=1, le=5, description="How many")],
        old: int = Field(3, description="Old"),
        at: Annotated[str, "Where"] = "",
    ) -> None:
        """Take.

        Args:
            at: not this text
        """

    assert properties(take) == {
        "n": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many"},
        "old": {"type": "integer", "default": 3, "description": "Old"},
        "at": {"type": "string", "default": "", "description": "Where"},
    }


def test_names_that_a_model_class_would_not_allow_are_arguments_like_any_other() -> None:
    def query(schema: str, json: int, model_config: str, _private: str = "x", copy: bool = True) -> str:
        return f"{schema}{json}{model_config}{_private}{copy}"

    signature = read_signature(query)
    arguments = signature.arguments({"schema": "s", "json": 1, "model_config": "m"}, CONTEXT)

    assert query(**arguments) == "s1mxTrue"


GOOGLE = """Find things.

    Looks everywhere,
    twice.

    Args:
        query (str): What to find,
            in a few words: not more.
        limit: How many.

    Returns:
        What was found.

    Raises:
        ValueError: never

    Examples:
        >>> find("x")
    """
NUMPY = """Find things.

    Looks everywhere,
    twice.

    Parameters
    ----------
    query : str
        What to find,
        in a few words: not more.
    limit : int, optional
        How many.

    Returns
    -------
    list
        What was found.

    Examples
    --------
    >>> find("x")
    """
SPHINX = """Find things.

    Looks everywhere,
    twice.

    :param str query: What to find,
        in a few words: not more.
    :param limit: How many.
    :type limit: int
    :returns: What was found,
        in order.
    :raises ValueError: never
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_docstrings_describe_the_tool_and_its_arguments(docstring: str) -> None:
    def find(query: str, limit: int = 1) -> None: ...

    find.__doc__ = docstring
    signature = read_signature(find)

    assert signature.input_schema["properties"] == {
        "query": {"type": "string", "description": "What to find, in a few words: not more."},
        "limit": {"type": "integer", "default": 1, "description": "How many."},
    }
    shown = "Find things.\n\nLooks everywhere,\ntwice."
    example = "" if docstring is SPHINX else '\n\nExamples:\n>>> find("x")'
    assert signature.description.replace("    >>>", ">>>") == shown + example


def test_a_docstring_that_begins_with_the_arguments_describes_them() -> None:
    def find(query: str) -> None:
        """
        Args:
            query: What to find.
        """

    signature = read_signature(find)

    assert (signature.description, signature.input_schema["properties"]["query"]["description"]) == (
        "",
        "What to find.",
    )


@pytest.mark.parametrize(
    "docstring", ["Note: this is text.", "One\n\nArgs are nice: really", "a: b\nc: d", ":return", ""]
)
def test_text_that_only_looks_like_a_section_stays_in_the_description(docstring: str) -> None:
    def odd(a: int = 1) -> None: ...

    odd.__doc__ = docstring

    assert read_signature(odd).description == docstring


def test_the_context_is_given_and_not_shown() -> None:
    def whoami(maybe: Context | None = None, *, name: str = "x") -> None: ...

    signature = read_signature(whoami)

    assert list(signature.input_schema["properties"]) == ["name"]
    assert signature.arguments({}, CONTEXT)["maybe"] is CONTEXT


def test_arguments_become_the_types_of_the_annotations() -> None:
    def take(item: Item, colour: Colour, day: date, file: Path, price: Decimal, tags: set[str]) -> None: ...

    given = {
        "item": {"sku": "a"},
        "colour": "blue",
        "day": "2026-01-31",
        "file": "/tmp/x",
        "price": 1.5,
        "tags": ["x"],
    }
    assert read_signature(take).arguments(given, CONTEXT) == {
        "item": Item(sku="a", amount=1),
        "colour": Colour.BLUE,
        "day": date(2026, 1, 31),
        "file": Path("/tmp/x"),
        "price": Decimal("1.5"),
        "tags": {"x"},
    }


def test_whole_numbers_with_a_point_are_integers_where_a_schema_declares_them() -> None:
    def page(**given: Any) -> None: ...

    numbers = {"count": {"type": "integer"}, "limit": {"type": ["integer", "null"]}, "share": {"type": "number"}}
    signature = declared_signature(page, {"type": "object", "properties": {**numbers, "any": {}}})

    taken = signature.arguments({"count": 5.0, "limit": 2.0, "share": 1.0, "any": 3.0}, CONTEXT)

    assert [(name, type(value)) for name, value in taken.items()] == [
        ("count", int),
        ("limit", int),
        ("share", float),
        ("any", float),
    ]


def test_a_default_that_is_no_number_of_json_is_left_out() -> None:
    def wait(at_most: float = float("inf"), step: float = 0.5) -> None: ...

    assert properties(wait) == {"at_most": {"type": "number"}, "step": {"type": "number", "default": 0.5}}


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    def collect(into: list[str] = []) -> None:  # noqa: B006 - the point of the test
        into.append("x")

    signature = read_signature(collect)
    collect(**signature.arguments({}, CONTEXT))

    assert signature.arguments({}, CONTEXT) == {"into": []}


def test_what_a_type_refuses_is_told_by_field_and_without_the_value() -> None:
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def check(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even")
            return value

    def take(even: Even) -> None: ...

    take.__annotations__["even"] = Even
    with pytest.raises(ToolFailure) as failure:
        read_signature(take).arguments({"even": {"n": 31337}}, CONTEXT)

    assert (failure.value.code, failure.value.message) == (
        "invalid_arguments",
        "the arguments do not fit: even.n: must be even",
    )


class Strange:
    """Nothing that JSON knows."""

    def method(self) -> None: ...


def star(*names: str) -> None: ...
def stars(**names: str) -> None: ...
def by_position(name: str, /) -> None: ...
def strange(good: int, bad: Strange) -> None: ...
def unknown(bad: Any) -> None: ...
def twice(one: Context, two: Context) -> None: ...


def value(bad: Any) -> None: ...


unknown.__annotations__["bad"] = "Missing"
value.__annotations__["bad"] = [int]

REFUSED: list[tuple[Callable[..., Any], str]] = [
    (star, "*names: a model must know every argument; name them, or take one list or dict"),
    (stars, "**names: a model must know every argument; name them, or take one list or dict"),
    (by_position, "name can only be given by position; models give names"),
    (strange, "parameter 'bad': "),
    (value, "parameter 'bad': [<class 'int'>] has no form in JSON"),
    (twice, "one and two both take the Context: one parameter is enough"),
    (Strange.method, "self: this is a method of a class"),
    (unknown, "its annotations cannot be read: name 'Missing' is not defined"),
]


@pytest.mark.parametrize(("function", "reason"), REFUSED)
def test_what_a_model_could_not_call_is_refused_with_the_parameter(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(UsageError) as error:
        read_signature(function)

    assert str(error.value).startswith(reason)


# Results


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (Item, Item(sku="a"), {"sku": "a", "amount": 1}),
        (Address, Address(street="b"), {"street": "b", "country": "DE"}),
        (Filter, {"text": "c"}, {"text": "c"}),
        (dict[str, int], {"d": 1}, {"d": 1}),
    ],
)
def test_a_result_that_is_an_object_is_structured_and_has_a_schema(
    annotation: Any, value: Any, structured: Any
) -> None:
    def make() -> Any: ...

    make.__annotations__["return"] = annotation
    signature = read_signature(make)

    assert signature.output_schema is not None
    assert signature.output_schema["type"] == "object"
    assert signature.result(value).structured_content == structured


@pytest.mark.parametrize(
    ("value", "text"),
    [("plain", "plain"), (None, "done"), (3, "3"), ([Item(sku="a")], '[{"sku":"a","amount":1}]'), (b"hi", "hi")],
)
def test_any_other_result_is_text(value: Any, text: str) -> None:
    def make() -> Any: ...

    signature = read_signature(make)

    assert (signature.output_schema, signature.result(value).text) == (None, text)


PNG = b"\x89PNG\r\n\x1a\n\0"
PICTURE = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}


@pytest.mark.parametrize("value", [PNG, bytearray(PNG), [PICTURE]])
@pytest.mark.parametrize("declared", [Any, bytes, list[dict[str, Any]]])
def test_a_picture_is_a_picture_as_bytes_and_as_content_blocks(value: Any, declared: Any) -> None:
    def make() -> Any: ...

    make.__annotations__["return"] = declared

    assert read_signature(make).result(value) == ToolResult(content=(PICTURE,))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("hello", "is str"),
        (["hello"], "has str at 0"),
        ([PICTURE, {**PICTURE, "data": PNG}], "has bytes as data at 1, which must be base64 text"),
    ],
)
def test_content_that_is_not_made_of_blocks_is_a_failure_of_the_tool(content: Any, reason: str) -> None:
    def make() -> ToolResult: ...

    with pytest.raises(ToolFailure) as failed:
        read_signature(make).result(ToolResult(content=content))

    assert (failed.value.code, failed.value.message) == (
        "tool_error",
        f"the tool ran, but the content of its result {reason}",
    )


def test_a_result_that_is_one_already_is_left_as_it_is() -> None:
    def make() -> ToolResult: ...

    result = ToolResult.failed("tool_error", "no")

    assert read_signature(make).result(result) is result


def test_a_result_that_is_not_what_it_declares_is_a_failure() -> None:
    def make() -> dict[str, int]: ...

    with pytest.raises(ToolFailure) as failure:
        read_signature(make).result({"a": "secret"})

    assert failure.value.message.startswith(
        "the tool ran, but its result does not match its declaration: a: Input should be"
    )
    assert "secret" not in failure.value.message
