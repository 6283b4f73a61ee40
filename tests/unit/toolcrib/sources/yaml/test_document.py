"""What a catalog's text says is found whatever stands beside it, and every error names its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from toolcrib.errors import ConfigError
from toolcrib.sources.yaml.document import read_document

GOOD = """\
capabilities:
- name: one
  metadata:
    description: |
      - a text with a dash
      # and what looks like a comment
- name: two
  input_schema: {type: object}
- name: three
"""
ENTRIES = [
    {"name": "one", "metadata": {"description": "- a text with a dash\n# and what looks like a comment\n"}},
    {"name": "two", "input_schema": {"type": "object"}},
    {"name": "three"},
]


def _entries(text: str) -> list[object]:
    return [node.plain() for node in read_document(text, "c.yaml").entries]


def test_a_whole_document_gives_its_entries_with_their_lines() -> None:
    document = read_document(GOOD, "c.yaml")

    assert [node.plain() for node in document.entries] == ENTRIES
    assert [node.line for node in document.entries] == [2, 7, 9]
    assert document.broken == ()


def test_a_list_without_a_key_above_it_is_a_catalog_too() -> None:
    assert _entries("- name: a\n- name: b\n") == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ('  title: "never closed', "one"),
        ("  examples: [1, 2", "one"),
        ("  a: b: c", "one"),
        ("  tags: *nobody", "one"),
        ("  x: !!python/object:os.system y", "one"),
        ("\tapproval: always", "one"),
        ("  name: again", "one"),
        ("  x: \x07", "one"),
        ("}", ""),
        ("@", ""),
        ("some words", ""),
    ],
)
def test_a_broken_line_costs_at_most_the_entry_that_it_is_in(line: str, broken: str) -> None:
    lines = GOOD.splitlines()

    document = read_document("\n".join((*lines[:6], line, *lines[6:])), "c.yaml")

    left = [entry for entry in ENTRIES if entry["name"] != broken]
    assert [node.plain() for node in document.entries] == left
    assert len(document.broken) == 1
    assert document.broken[0].startswith(("c.yaml:7:", "c.yaml:8:", "c.yaml:2:"))


def test_lines_of_what_was_taken_apart_are_those_of_the_file() -> None:
    document = read_document("# one\n\n" + GOOD + '- name: "x\n- name: four\n  level: 1\n', "c.yaml")

    assert [(node.plain()["name"], node.line) for node in document.entries] == [
        ("one", 4),
        ("two", 9),
        ("three", 11),
        ("four", 13),
    ]


def test_sections_beside_a_broken_entry_are_still_there() -> None:
    document = read_document("tool_classification:\n  serial_only_tools: [a]\n" + GOOD + "- [\n", "c.yaml")

    assert document.sections["tool_classification"].plain() == {"serial_only_tools": ["a"]}
    assert len(document.entries) == 3


def test_a_broken_section_costs_no_entry() -> None:
    document = read_document("other: {a: [\n" + GOOD, "c.yaml")

    assert [node.plain() for node in document.entries] == ENTRIES
    assert "`other`" in document.broken[0]


def test_indented_lists_are_taken_apart_as_well() -> None:
    text = "capabilities:\n  - name: a\n    x: [\n  - name: b\nstray\n  - name: c\nlast: 1\n"

    assert _entries(text) == [{"name": "b"}, {"name": "c"}]


def test_bytes_that_are_no_text_cost_only_their_entry() -> None:
    text = b"capabilities:\n- name: a\n- name: \xff\xfe\n- name: c\n".decode("utf-8", "surrogateescape")

    document = read_document(text, "c.yaml")

    assert [node.plain() for node in document.entries] == [{"name": "a"}, {"name": "c"}]
    assert document.broken == ("c.yaml:3: is not UTF-8 text: save it as UTF-8 (this entry, from line 3, is left out)",)


@pytest.mark.parametrize("text", ["", "a: 1", "capabilities: 5", "just words"])
def test_what_is_no_catalog_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        read_document(text, "c.yaml")


def test_a_misspelt_list_of_entries_is_named() -> None:
    with pytest.raises(ConfigError, match="rename `capabilites`"):
        read_document("capabilites:\n- name: a\n", "c.yaml")


JUNK = some.text(some.characters(codec="utf-8", exclude_characters=":"), min_size=1, max_size=4)


@given(place=some.integers(GOOD.index("- name: one"), len(GOOD)), junk=JUNK)
@pytest.mark.slow
def test_whatever_strays_into_it_costs_only_what_is_next_to_it(place: int, junk: str) -> None:
    document = read_document(GOOD[:place] + junk + GOOD[place:], "c.yaml")

    there = [node.plain() for node in document.entries]
    hit = GOOD[:place].count("- name") - 1
    far = [entry for number, entry in enumerate(ENTRIES) if abs(number - hit) > 1]
    assert [entry for entry in there if entry in far] == far
    assert any(entry in there for entry in ENTRIES)


def bombs(size: int) -> dict[str, str]:
    """Return fourteen ways to keep a YAML reader busy (security.md T18)."""
    return {
        "a billion laughs": "a: &a [x, x]\n"
        + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(50))
        + "capabilities: []\n",
        "many values": "capabilities:\n" + "- a\n" * (size // 4 - 10),
        "many values behind an error": "capabilities:\n- [\n" + "- a\n" * (size // 4 - 10),
        "many stray lines": "capabilities:\n- name: a\n- [\n" + "@@\n" * (size // 3 - 20),
        "deep nesting": "capabilities: " + "[" * (size - 100),
        "deep blocks": "capabilities:\n" + "".join(" " * n + "a:\n" for n in range(1400)),
        "a long value": "capabilities:\n- name: " + "x" * (size - 100),
        "comments": "#\n" * (size // 2 - 20) + "capabilities: []\n",
        "a key again and again": "capabilities:\n- name: a\n" + "  x: 1\n" * (size // 7 - 20),
        "quotes that never close": "capabilities:\n- name: '" + "\n- name: '" * (size // 10 - 20),
        "merge keys": "capabilities:\n- <<: {a: 1}\n  <<: {b: 1}\n",
        "tags": "capabilities:\n- !!python/object/apply:os.system [ls]\n- name: b\n",
        "colons": "capabilities:\n- a" + ": a" * (size // 3 - 20),
        "spaces": " " * (size - 10),
    }


@pytest.mark.long
@pytest.mark.timeout(60)
@pytest.mark.parametrize("bomb", bombs(1 << 8))
def test_a_catalog_that_is_made_to_hurt_ends_soon_with_a_reason_or_as_what_it_is(bomb: str, full_size: bool) -> None:
    try:
        document = read_document(bombs(1 << 20 if full_size else 1 << 18)[bomb], "c.yaml")
    except ConfigError as error:
        assert "c.yaml" in str(error)
    else:
        assert len(document.entries) <= 1
        assert len(document.broken) <= 101
