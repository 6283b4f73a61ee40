"""What a person sees of arguments: all of it, and nothing that the eye would miss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.sanitize import is_hidden
from toolcrib.policy.questions import binding, shown_arguments, shown_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.long
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_shown_is_the_same_json_without_a_single_hidden_character(arguments: dict[str, Any]) -> None:
    shown = shown_arguments(arguments)

    assert json.loads(shown) == arguments
    assert not [char for char in shown if is_hidden(char) and char != "\n"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -rf \u202e/", "rm -rf \\u202e/"),
        ("pay\u0440al", "pay\\u0440al"),
        ("\u03bfpen", "\\u03bfpen"),
        ("\uff52m", "\\uff52m"),
        ("\u043f\u0440\u0438\u0432\u0435\u0442", "\u043f\u0440\u0438\u0432\u0435\u0442"),
        ("na\u00efve caf\u00e9 \u6771\u4eac", "na\u00efve caf\u00e9 \u6771\u4eac"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\tb\n", "a\tb\n"),
        ("Ah\u202f! 5\xa0%", "Ah\u202f! 5\xa0%"),
        ("файл\nсору", "файл\n\\u0441\\u043e\\u0440\\u0443"),
        ("\U000e0041", "\\U000e0041"),
        ("a.txt\ufe01\U000e0100", "a.txt\\ufe01\\U000e0100"),
        ("a\ufe0f.txt 1\ufe0f", "a\\ufe0f.txt 1\\ufe0f"),
        ("\u2764\ufe0f 1\ufe0f\u20e3", "\u2764\ufe0f 1\ufe0f\u20e3"),
        ("admin\u3164\u115f\uffa0\u2800\u034f", "admin\\u3164\\u115f\\uffa0\\u2800\\u034f"),
        ("a" + "\u0301" * 10, "a" + "\u0301" * 8 + "\\u0301" * 2),
        ("e\u0302\u0301 \u0e01\u0e34\u0e48", "e\u0302\u0301 \u0e01\u0e34\u0e48"),
    ],
    ids=(
        "bidi cyrillic greek fullwidth russian other ansi tab french line tag selectors loose emoji fillers pile marks"
    ).split(),
)
def test_what_deceives_stands_out_and_what_is_only_foreign_stays_readable(text: str, shown: str) -> None:
    assert shown_text(text) == shown


def test_the_binding_is_another_one_for_another_tool_argument_or_principal() -> None:
    bindings = [
        binding("d", {"a": 1, "b": 2}, "ada"),
        binding("d", {"b": 2, "a": 1}, "ada"),
        binding("d", {"a": 1, "b": 3}, "ada"),
        binding("e", {"a": 1, "b": 2}, "ada"),
        binding("d", {"a": 1, "b": 2}, "eve"),
    ]

    assert bindings[0] == bindings[1]
    assert len(set(bindings)) == 4


@pytest.mark.parametrize(
    ("text", "is_escaped"),
    [
        ("сору a.txt", True),
        ('{"host": "сосоа.рех"}', True),
        ("ΤΟΡ", True),
        ("сору файл", False),
        ("github.com\u2215x.org", True),
        ("rm\xa0-rf", True),
        ("github.com\uff0f\uff1ax.org", True),
        ("a\u2003\u2003b\xa0c", True),
        ("p\u0251ypal \u212aelvin", True),
        ("文件：名前。Déjà\xa0: m²", False),
        ("Ночь и сор, день и рост", False),
        ("Ελλάδα και ΤΟΡ", False),
        ("Größe, 名前", False),
    ],
)
def test_a_name_in_letters_that_all_look_latin_is_escaped_and_text_in_another_script_stays(
    text: str, is_escaped: bool
) -> None:
    assert shown_text(text).isascii() == is_escaped
