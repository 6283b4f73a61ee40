"""What a model reads of strangers is what a person would see."""

from __future__ import annotations

import pytest

from toolcrib.results.untrusted_text import hidden_characters, visible_json, visible_text


@pytest.mark.parametrize(
    "hidden",
    [
        "\x1b[31m", "\x1b]8;;x.example\x07", "\x9b1m", "\x00", "\x08", "\x7f", "\u200b", "\u200c",
        "\u200d", "\u2060", "\ufeff", "\u00ad", "\u202e", "\u202d", "\u2066", "\u2069", "\u061c", "\u180e", "\u034f",
        "\u3164", "\u2800", "\U000e0041", "\U000e0001", "\U000e0100", "\ufe01", "\u2028", "\ue000", "\ud800",
    ],
    ids=lambda text: f"U+{ord(text[-1]):04X}",
)  # fmt: skip
def test_what_nobody_sees_between_letters_is_taken_out_and_counted(hidden: str) -> None:
    assert visible_text(f"ab{hidden}cd") == ("abcd", len(hidden))


@pytest.mark.parametrize(
    "text",
    [
        "plain\n\ttext\r\n",
        "Grüße, 你好",
        "👨‍👩‍👧 and ❤️ and 1️⃣",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u05e9\u05dc\u05d5\u05dd\u200f (hello)",
        "\u0915\u094d\u200d\u0937",
        "🫩",
    ],
)
def test_what_does_its_work_stays(text: str) -> None:
    assert visible_text(text) == (text, 0)


def test_an_escape_that_never_ends_hides_nothing_of_what_follows() -> None:
    assert visible_text("a\x1b]never ended, and read")[0] == "anever ended, and read"


def test_json_is_looked_through_keys_too_and_untouched_where_nothing_is_hidden() -> None:
    value = {"a\u200b": ["x\x1b[0m", 1, None, {"b": "\u202ey"}], "c": True}
    assert visible_json(value) == ({"a": ["x", 1, None, {"b": "y"}], "c": True}, 6)
    plain = {"a": [1, "x"]}
    assert visible_json(plain)[0] is plain


def test_hidden_characters_are_named_with_their_numbers_the_most_frequent_first() -> None:
    given = {"a\u200b": ["\x1b[31mx\u200b", {"b": "\u202e\u3164\u2800\u034fy\x00 \n"}]}
    named = hidden_characters(given, visible_json(given)[0])
    assert list(named.items()) == [
        ("U+200B ZERO WIDTH SPACE", 2),
        ("U+0000 control", 1),
        ("U+001B control", 1),
        ("U+034F COMBINING GRAPHEME JOINER", 1),
        ("U+202E RIGHT-TO-LEFT OVERRIDE", 1),
        ("U+2800 BRAILLE PATTERN BLANK", 1),
        ("U+3164 HANGUL FILLER", 1),
    ]


def test_more_kinds_of_hidden_characters_than_are_named_are_counted_together() -> None:
    given = "".join(chr(0xE0041 + offset) for offset in range(20)) + "\u200b" * 2
    named = hidden_characters(given, visible_text(given)[0])
    assert (len(named), next(iter(named)), named["others"], sum(named.values())) == (
        9,
        "U+200B ZERO WIDTH SPACE",
        13,
        22,
    )


def test_text_without_hidden_characters_has_none_to_name() -> None:
    assert hidden_characters(["a\n\tb", "Grüße ❤️"], ["a\n\tb", "Grüße ❤️"]) == {}
