"""Redaction of structured content beside its own JSON: one look at both, and as strict as a look at each."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.json import dumps
from toolcrib.core.result import ToolResult
from toolcrib.results.redaction.redactor import Redactor

REDACTOR = Redactor()
KEYS = st.sampled_from(["id", "title", "type_key", "state_key", "password", "api_key", "token", "value", "auth", "n"])
TEXTS = st.sampled_from(
    [
        "task.execute",
        "draft",
        "Paint the hull",
        "hunter2-Rk93xz!",
        "kX9vQ2mZ7pL4wR8tB6nJ",
        "password: kX9vQ2mZ7pL4wR8t",
        "the key is under the mat",
        "sk-proj-kX9vQ2mZ7pL4wR8tB6nJkX9vQ2mZ7pL4wR8tB6nJ",
        "a.b:c=d",
        "",
        "Grüße",
    ]
)
LEAVES = st.one_of(TEXTS, st.none(), st.booleans(), st.integers(0, 99))
VALUES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
        max_leaves=8,
    ),
    min_size=1,
    max_size=5,
)


@given(VALUES)
def test_a_quick_look_at_a_table_finds_what_a_walk_finds(value: Any) -> None:
    walked = REDACTOR.value({"it": value, "forces a walk": "\\"})["it"]

    assert REDACTOR.value(value) == walked


@given(VALUES)
def test_the_json_of_structured_content_is_cleaned_as_a_text_of_its_own_is(value: Any) -> None:
    text = dumps(value).decode()
    result = REDACTOR.result(ToolResult.of_text(text, structured_content=value))

    assert (result.text, result.structured_content) == (REDACTOR.text(text), REDACTOR.value(value))


def test_a_table_with_many_telling_keys_is_cleaned_of_the_one_that_is_a_secret() -> None:
    rows = [{f"token_{number}": "draft" for number in range(40)} for _ in range(3)]
    rows[2]["token_39"] = "kX9vQ2mZ7pL4wR8tB6nJ"
    cleaned = REDACTOR.value({"rows": rows})["rows"]
    assert cleaned[:2] == rows[:2]
    assert {key for key, value in cleaned[2].items() if value != "draft"} == {"token_39"}
    assert "kX9vQ2mZ7pL4wR8tB6nJ" not in cleaned[2]["token_39"]
