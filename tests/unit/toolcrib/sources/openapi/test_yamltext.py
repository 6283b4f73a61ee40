"""YAML descriptions are read as their authors meant them, and what would hurt is refused at once."""

from typing import Any

import pytest

from toolcrib.sources.openapi.yaml_reader import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("200: ok\nno: yes\ndate: 2020-01-01", {"200": "ok", "no": "yes", "date": "2020-01-01"}),
        (
            "a: 1\nb: -1.5e3\nc: ~\nd: true\ne: '1'\nf: 0x10",
            {"a": 1, "b": -1500.0, "c": None, "d": True, "e": "1", "f": "0x10"},
        ),
        ("a: &x {k: 1}\nb: *x\nc: [*x, *x]", {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}, {"k": 1}]}),
        ("base: &b {a: 1, b: 2}\nmore:\n  <<: *b\n  b: 3", {"base": {"a": 1, "b": 2}, "more": {"a": 1, "b": 3}}),
        ("a: &x 1\nb:\n  <<: [{k: 1}, {k: 2, l: 3}]", {"a": 1, "b": {"k": 1, "l": 3}}),
        ("a: !!str 1\nb: |\n  text\n", {"a": "1", "b": "text\n"}),
        ("", None),
        ("- 1\n- [a, b]", [1, ["a", "b"]]),
    ],
)
def test_values_are_what_version_1_2_says(text: str, value: Any) -> None:
    assert read_yaml(text) == value


def bomb() -> str:
    levels = [f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 10)}]" for number in range(1, 12)]
    return "\n".join(["l0: &l0 [x, x, x, x, x, x, x, x, x, x]", *levels])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (bomb(), "more than 1,000,000 values"),
        ("a: &a [*a]", "nothing is called *a here"),
        ("a: *nobody", "nothing is called *nobody here"),
        ("a: 1\na: 2", "line 2: 'a' stands here a second time"),
        ("? [a]\n: 1", "a key must be a plain name"),
        ("a: !!python/object/apply:os.system [x]", "the tag tag:yaml.org,2002:python/object/apply:os.system"),
        ("a: !secret x", "the tag !secret is not supported"),
        ("a: 1\n---\nb: 2", "here a second one begins"),
        ("[" * 200, "nested deeper than 100 levels"),
        ("a:\n  <<: 1", "<< takes a mapping"),
        ("a: [1\nb", "line 3: "),
        ("a: \x01", "not YAML"),
    ],
)
def test_what_would_hurt_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"line \d|YAML") as caught:
        read_yaml(text)

    assert reason in str(caught.value)


@pytest.mark.slow
def test_a_large_document_counts_each_value_once_however_deep_it_lies() -> None:
    depth = 20
    keys = "".join(f"{'  ' * level}k{level}:\n" for level in range(depth))
    lines = "".join(f"{'  ' * depth}v{number}: {number}\n" for number in range(60_000))

    found = read_yaml(keys + lines)

    for level in range(depth):
        found = found[f"k{level}"]
    assert len(found) == 60_000
