"""`call_tool` takes what models really send."""

from typing import Any

import pytest

from toolcrib.disclosure import meta_tools
from toolcrib.errors import ToolFailure

WANTED = ("git__log", {"max_count": 3})


def read(sent: Any, shown: str) -> tuple[str, Any]:
    meant = meta_tools.unwrap(sent, shown)
    assert meant.options == {}
    return meant.name, meant.arguments


@pytest.mark.parametrize(
    "sent",
    [
        {"name": "git__log", "arguments": {"max_count": 3}},
        {"name": "git__log", "args": {"max_count": 3}},
        {"tool": "git__log", "arguments": {"max_count": 3}},
        {"tool_name": "git__log", "input": {"max_count": 3}},
        {"name": "git__log", "max_count": 3},
        {"args": {"name": "git__log", "arguments": {"max_count": 3}}},
        '{"name": "git__log", "arguments": {"max_count": 3}}',
        {"arguments": '{"name": "git__log", "arguments": {"max_count": 3}}'},
        {"name": " git__log ", "arguments": {"max_count": 3}},
    ],
)
def test_every_shape_names_the_same_call(sent: Any) -> None:
    assert read(sent, "call_tool") == WANTED


def test_arguments_as_json_text_are_left_for_the_schema_to_judge() -> None:
    assert read({"name": "git__log", "arguments": '{"max_count": 3}'}, "call_tool") == (
        "git__log",
        '{"max_count": 3}',
    )


@pytest.mark.parametrize("sent", [{"name": "t"}, {"name": "t", "arguments": {}}, {"name": "t", "arguments": None}])
def test_no_arguments_are_an_empty_object(sent: Any) -> None:
    assert read(sent, "call_tool") == ("t", {})


def test_a_flat_call_may_have_an_argument_called_name() -> None:
    assert read({"tool": "greet", "name": "Ada"}, "call_tool") == ("greet", {"name": "Ada"})


@pytest.mark.parametrize("sent", [None, {}, [], "not json", {"arguments": {"a": 1}}, {"name": "  "}, {"name": 7}])
def test_a_call_that_names_no_tool_is_refused_with_an_example(sent: Any) -> None:
    with pytest.raises(ToolFailure) as caught:
        read(sent, "call_tool")
    assert (caught.value.code, "server__tool" in caught.value.hint) == ("invalid_arguments", True)


def test_the_declared_form_wins_over_an_argument_called_tool() -> None:
    sent = {"name": "shop__buy", "arguments": {"count": 1}, "tool": "hammer"}
    assert read(sent, "call_tool") == ("shop__buy", {"count": 1, "tool": "hammer"})


@pytest.mark.parametrize("flat", [{"input": "hello"}, {"args": ["ls"]}, {"params": 5}, {"input": "[1]"}])
def test_a_flat_argument_that_cannot_hold_the_others_is_an_argument_whatever_its_name(flat: dict[str, Any]) -> None:
    assert read({"name": "t", **flat}, "call_tool") == ("t", flat)
