"""The effective and the canonical form of arguments: what runs, and what is shown and recorded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.call import canonical_arguments, complete_arguments, effective_arguments
from toolcrib.core.json import canonical
from toolcrib.core.tool import Tool

OPTIONS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "depth": {"type": "integer", "default": 1},
        "only": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "project": {"type": "string"},
        "args": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        "remote": {"type": "string", "default": "origin"},
        "owner": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": "nobody"},
        "options": OPTIONS,
        "steps": {"type": "array", "items": OPTIONS},
    },
    "required": ["path"],
}
ONE_OF: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "oneOf": [{"required": ["command"]}, {"required": ["note"]}],
}


def tool_of(schema: dict[str, Any]) -> Tool:
    return Tool(name="edit", source="fs", local_name="edit", input_schema=schema)


EDIT = tool_of(SCHEMA)
WHOLE = {"path": "a", "args": None, "remote": "origin", "owner": "nobody"}


@pytest.mark.parametrize(
    ("given", "effective", "shown"),
    [
        ({"path": "a"}, WHOLE, {"path": "a", "remote": "origin", "owner": "nobody"}),
        (WHOLE, WHOLE, {"path": "a", "remote": "origin", "owner": "nobody"}),
        ({**WHOLE, "args": []}, {**WHOLE, "args": []}, {**WHOLE, "args": []}),
        ({"path": "a", "owner": None}, {**WHOLE, "owner": None}, {"path": "a", "remote": "origin", "owner": None}),
        (
            {"path": "a", "options": {}, "steps": [{"only": None}, {"depth": 2, "only": "x"}]},
            {
                **WHOLE,
                "options": {"depth": 1, "only": None},
                "steps": [{"depth": 1, "only": None}, {"depth": 2, "only": "x"}],
            },
            {
                "path": "a",
                "remote": "origin",
                "owner": "nobody",
                "options": {"depth": 1},
                "steps": [{"depth": 1}, {"depth": 2, "only": "x"}],
            },
        ),
    ],
    ids=["left out", "written out", "not the default", "null that is no default", "nested"],
)
def test_only_a_null_that_is_the_default_is_left_out_of_the_canonical_form(
    given: dict[str, Any], effective: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert complete_arguments(EDIT, given) == (effective, ())
    assert effective_arguments(EDIT, given) == effective
    assert canonical_arguments(EDIT, effective) == shown
    assert complete_arguments(EDIT, shown) == (effective, ())


def test_a_context_value_comes_before_the_defaults_of_the_schema_and_only_for_a_declared_argument() -> None:
    session = {"project": "p1", "remote": "fork", "unknown": 1}

    assert complete_arguments(EDIT, {"path": "a"}, session) == ({**WHOLE, "project": "p1", "remote": "fork"}, ())
    assert effective_arguments(EDIT, {"path": "a"}, session) == {**WHOLE, "project": "p1", "remote": "fork"}


def test_a_null_default_that_would_spoil_the_call_is_neither_filled_in_nor_left_out() -> None:
    tool = tool_of(ONE_OF)

    assert effective_arguments(tool, {"command": "ls"}) == {"command": "ls"}
    assert canonical_arguments(tool, {"note": None}) == {}
    assert canonical_arguments(tool, {"command": "ls"}) == {"command": "ls"}


def test_arguments_that_are_not_valid_are_judged_with_their_defaults() -> None:
    assert effective_arguments(EDIT, {"remote": 7}) == {"remote": 7, "args": None, "owner": "nobody"}


def test_what_is_no_json_is_shown_as_it_is() -> None:
    odd = {"path": object()}

    assert canonical_arguments(EDIT, odd)["path"] is odd["path"]
    assert canonical_arguments(EDIT, "text") == "text"


parts = st.fixed_dictionaries({}, optional={"depth": st.integers(0, 3), "only": st.none() | st.just("x")})
calls = st.fixed_dictionaries(
    {"path": st.just("a")},
    optional={
        "args": st.none() | st.lists(st.just("x"), max_size=2),
        "remote": st.sampled_from(["origin", "fork"]),
        "owner": st.none() | st.just("nobody"),
        "options": parts,
        "steps": st.lists(parts, max_size=3),
    },
)


@pytest.mark.slow
@given(arguments=calls, context=st.sampled_from([{}, {"owner": "context"}, {"args": ["context"], "other": 1}]))
def test_each_form_determines_the_other(arguments: dict[str, Any], context: dict[str, Any]) -> None:
    effective = effective_arguments(EDIT, arguments, context)
    shown = canonical_arguments(EDIT, effective, context)

    assert effective_arguments(EDIT, effective, context) is effective
    assert canonical(effective_arguments(EDIT, shown, context)) == canonical(effective)


def test_a_null_that_a_context_value_would_replace_is_shown_and_kept() -> None:
    context = {"args": ["context"]}
    effective = effective_arguments(EDIT, {"path": "a", "args": None}, context)

    assert effective["args"] is None
    assert canonical_arguments(EDIT, effective, context) == {**canonical_arguments(EDIT, effective), "args": None}
