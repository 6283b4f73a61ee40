"""Bounds of the values that a conversation keeps for its placeholders."""

from __future__ import annotations

from toolcrib.core.json import with_texts
from toolcrib.core.kept_secrets import KeptSecrets, placeholders_in
from toolcrib.results.redaction.redactor import Redactor


def test_a_value_has_one_placeholder_and_remembers_each_source() -> None:
    kept = KeptSecrets()
    first, second = kept.keep("harbour-77", "mail"), kept.keep("harbour-77", "wiki")
    found = kept.get(first)
    assert first == second == kept.known("harbour-77")
    assert found is not None and (found.value, found.sources) == ("harbour-77", {"mail", "wiki"})


def test_an_hour_after_it_was_last_shown_a_value_is_dropped() -> None:
    now = [0.0]
    kept = KeptSecrets(lambda: now[0])
    old, shown_again = kept.keep("harbour-77", "mail"), kept.keep("velvet-66", "mail")
    now[0] = 3000.0
    kept.keep("velvet-66", "mail")
    now[0] = 3601.0
    assert (kept.get(old), kept.known("harbour-77"), kept.get(shown_again) is None) == (None, "", False)


def test_the_64_newest_values_are_kept_and_none_that_is_short_or_long() -> None:
    kept = KeptSecrets()
    names = [kept.keep(f"value-{number}", "mail") for number in range(65)]
    assert [kept.get(name) is None for name in names] == [True, *[False] * 64]
    assert (kept.keep("short", "mail"), kept.keep("x" * 4097, "mail")) == ("", "")


def test_only_whole_strings_are_placeholders() -> None:
    name = KeptSecrets().keep("harbour-77", "mail")
    arguments = {"a": name, "b": [{"c": name}], "d": f"psql {name}", "⟦": 1}
    assert list(placeholders_in(arguments)) == [(("a",), name), (("b", 0, "c"), name)]
    assert with_texts(arguments, lambda text: "X" if text == name else text) == {
        "a": "X",
        "b": [{"c": "X"}],
        "d": f"psql {name}",
        "⟦": 1,
    }
    assert list(placeholders_in({"a": "plain", "b": [{"c": "x"}], "d": 1})) == []


def test_a_placeholder_is_not_taken_for_a_secret() -> None:
    for number in range(50):
        name = KeptSecrets().keep(f"value-{number}", "mail")
        for text in ("{}", "password: {}", '{{"api_key": "{}"}}', "the password is {}.", "psql://a:{}@h", "pw={}"):
            assert Redactor().text(text.format(name)) == text.format(name)
