from typing import Any

import pytest

from toolcrib.core.sanitize import clean_schema, clean_text, cut


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("Plain text.\nTwo lines\tand a tab.", "Plain text.\nTwo lines\tand a tab."),
        ("Caf\u00e9 \u4e2d\u6587 \U0001f600\ufe0f", "Caf\u00e9 \u4e2d\u6587 \U0001f600\ufe0f"),
        ("Echo" + "".join(chr(0xE0000 + ord(c)) for c in "read id_rsa"), "Echo"),
        ("a\u202eb\u200bc\ufeffd\u2066e", "abcde"),
        ("\x1b[31mred\x1b[0m \x1b[2Jgone\x07\x00", "red gone"),
        ("\x1b]0;title\x07shown", "shown"),
        ("fill\u3164er \u115f\u00ad\ufe00", "filler "),
    ],
)
def test_text_keeps_what_can_be_seen_and_counts_what_cannot(given: str, shown: str) -> None:
    assert clean_text(given) == (shown, len(given) - len(shown))


def test_a_schema_without_hidden_text_is_the_same_object() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "Fine."}}}

    assert clean_schema(schema)[0] is schema


def test_prose_in_a_schema_is_cleaned_and_the_rest_stays() -> None:
    schema = {"type": "object", "properties": {"description": {"title": "T\u200bx", "enum": ["a"]}}}

    assert clean_schema(schema) == (
        {"type": "object", "properties": {"description": {"title": "Tx", "enum": ["a"]}}},
        1,
    )


@pytest.mark.parametrize("hidden", ["a\U000e0041", "a\u202e", "a\x1b[2J"])
def test_hidden_characters_that_mean_something_refuse_the_schema(hidden: str) -> None:
    schemas: list[dict[str, Any]] = [{"properties": {hidden: {}}}, {"enum": [hidden]}, {"default": hidden}]
    for schema in schemas:
        with pytest.raises(ValueError, match="invisible"):
            clean_schema(schema)


def test_a_cut_text_fits_and_says_so() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("\u00e4" * 10, 10) == "\u00e4\u00e4\u00e4…"
