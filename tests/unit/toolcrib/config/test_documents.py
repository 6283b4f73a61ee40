"""The readers are strict and safe; the editors change one entry and leave every other byte alone."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from toolcrib.config.edits import insert_json, insert_toml, insert_yaml, remove_json, remove_toml, remove_yaml, set_yaml
from toolcrib.config.files import parse_json, parse_toml
from toolcrib.core.documents.yaml import parse_yaml
from toolcrib.errors import ConfigError

ENTRY = {"run": "x", "args": ["y"]}


def test_yaml_scalars_follow_the_core_schema_and_strings_stay_strings() -> None:
    node = parse_yaml(
        "{a: no, b: on, c: 2026-01-01, d: 0x1f, e: 12, f: 1.5, g: true, h: ~, i: '1', j: 1_000, k: 12:30}"
    )

    assert node.plain() == {
        "a": "no",
        "b": "on",
        "c": "2026-01-01",
        "d": "0x1f",
        "e": 12,
        "f": 1.5,
        "g": True,
        "h": None,
        "i": "1",
        "j": "1_000",
        "k": "12:30",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1\nb: *x", "line 2: aliases"),
        ("a: 1\na: 2", "line 2: 'a' stands here a second time"),
        ("[" * 5000, "nested deeper than 64"),
        ("{" * 1000, "nested deeper than 64"),
        ("a: !!python/object:os.system x", "the tag tag:yaml.org,2002:python/object:os.system is not supported"),
        ("a: 1\n---\nb: 2", "line 2: one document is expected"),
        ("[" + "a," * 500_000 + "]", "more than 20000 values"),
        ("? [a]\n: b", "a key must be a plain name"),
        ("a: b: c", "line 1: this is not YAML: mapping values are not allowed"),
        ("a: \x00", "this is not YAML"),
        ("<<: {a: 1}\n<<: {b: 1}", "'<<' stands here a second time"),
    ],
)
def test_yaml_that_is_broken_or_a_trap_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text)

    assert message in str(caught.value)


def test_json_may_have_comments_and_trailing_commas() -> None:
    text = '// top\n{"a": [1, 2,], /* b */ "b": {"c": "\\u00e4 // no comment",},}\n'

    assert parse_json(text).plain() == {"a": [1, 2], "b": {"c": "ä // no comment"}}


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":2}', '{"a" 1}', "[1", '{"a":01}', '"a', '{"a":"\\x"}', "[" * 100, "", "{} {}", "{'a':1}", "NaN"],
)
def test_json_that_is_broken_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f\.json:1: "):
        parse_json(text, "f.json")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{'a': 1}", 'has no "\'"$'),
        ('{"a": "b,\n"c": 1}', "a quote is missing$"),
        ('{"a": ', "not the end of the file$"),
        ('{"a": 1', "not the end of the file$"),
    ],
)
def test_json_that_is_broken_is_refused_with_what_is_wrong_there(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"^f\.json:1: .*{what}"):
        parse_json(text, "f.json")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "m": {\n    "t": {\n      "run": "x",\n      "args": [\n        "y"\n      ]\n    }\n  }\n}'),
        ('{"m":{"x":1}}', '{"m":{ "t": {"run": "x", "args": ["y"]}, "x":1}}'),
        ('{"m": null, "n": null}',
         '{"m": {\n  "t": {\n    "run": "x",\n    "args": [\n      "y"\n    ]\n  }\n}, "n": null}'),
        (
            '{\n\t"a": 1, // x\n\t/* c */ "m": {\n\t\t// first\n\t\t"x": 1, // t\n\t},\n}\n',
            ('{\n\t"a": 1, // x\n\t/* c */ "m": {\n\t\t"t": {\n\t\t\t"run": "x",\n\t\t\t"args": [\n\t\t\t\t"y"\n'
            '\t\t\t]\n\t\t},\n\t\t// first\n\t\t"x": 1, // t\n\t},\n}\n'),
        ),
        ('{\r\n    "a": 1\r\n}', ('{\r\n    "m": {\r\n        "t": {\r\n            "run": "x",\r\n            '
         '"args": [\r\n                "y"\r\n            ]\r\n        }\r\n    },\r\n    "a": 1\r\n}')),
    ],
)  # fmt: skip
def test_a_member_is_put_into_json_in_the_style_of_the_file(before: str, after: str) -> None:
    assert insert_json(before, ("m",), "t", ENTRY) == after


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("a", '{\n  "m": {\n    "b": 2, // note\n    "c": 3\n  }\n}'),
        ("b", '{\n  "m": {\n    "a": 1, // note\n    "c": 3\n  }\n}'),
        ("c", '{\n  "m": {\n    "a": 1,\n    "b": 2 // note\n  }\n}'),
    ],
)
def test_a_member_is_taken_out_of_json_with_its_comma(name: str, after: str) -> None:
    before = '{\n  "m": {\n    "a": 1,\n    "b": 2, // note\n    "c": 3\n  }\n}'

    assert remove_json(before, ("m",), name) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "m:\n  t:\n    run: x\n    args:\n    - y\n"),
        ("a: 1", "a: 1\nm:\n  t:\n    run: x\n    args:\n    - y\n"),
        ("m: {} # none\na: 1\n", "m: # none\n  t:\n    run: x\n    args:\n    - y\na: 1\n"),
        ("m:\n# none\n", "m:\n  t:\n    run: x\n    args:\n    - y\n# none\n"),
        (
            "m:\n    # x\n    x:\n        y: 1 # y\n\n# tail\na: 1\n",
            "m:\n    # x\n    x:\n        y: 1 # y\n    t:\n      run: x\n      args:\n      - y\n\n# tail\na: 1\n",
        ),
        ("m: {x: 1}\n", "m: {t: {run: x, args: [y]}, x: 1}\n"),
        ("m:\r\n  x: 1\r\n", "m:\r\n  x: 1\r\n  t:\r\n    run: x\r\n    args:\r\n    - y\r\n"),
    ],
)
def test_a_member_is_put_into_yaml_behind_the_others(before: str, after: str) -> None:
    assert insert_yaml(before, ("m",), "t", ENTRY) == after


def test_a_member_is_taken_out_of_yaml_with_what_belongs_to_it() -> None:
    before = "# top\nm:\n  a:\n    x: |\n      text\n\n  # about b\n  b: {y: 1}\nz: 1\n"

    assert remove_yaml(before, ("m",), "b") == "# top\nm:\n  a:\n    x: |\n      text\n\n  # about b\nz: 1\n"
    assert remove_yaml("m:\n  a: 1\nz: 1\n", ("m",), "a") == "m: {}\nz: 1\n"
    assert remove_yaml("m: {a: 1, b: 2}\n", ("m",), "a") == "m: {b: 2}\n"
    assert remove_yaml("m: {a: 1, b: 2}\n", ("m",), "b") == "m: {a: 1}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1 # one\nk: old  # why\nb: 2\n", "a: 1 # one\nk: 'yes'  # why\nb: 2\n"),
        ("k:\nb: 2\n", "k: 'yes'\nb: 2\n"),
        ("{a: 1, k: old, b: 2}\n", "{a: 1, k: 'yes', b: 2}\n"),
        ("k: |\n  long\n  text\nb: 2 # two\n", "b: 2 # two\nk: 'yes'\n"),
        ("k: [1, 2]\nb: 2\n", "b: 2\nk: 'yes'\n"),
        ('k: "q: #" # why\r\nb: 2\r\n', "k: 'yes' # why\r\nb: 2\r\n"),
        ("b: 2", "b: 2\nk: 'yes'\n"),
    ],
)
def test_a_value_is_set_in_yaml_where_it_stands(before: str, after: str) -> None:
    assert set_yaml(before, (), "k", "yes") == after


def test_a_table_is_put_at_the_end_of_toml_and_taken_out_with_its_inner_tables() -> None:
    before = 'model = "x"\n\n[m.a]\ncommand = "y" # c\n\n[m.a.env]\nK = "v"\n\n# about z\n[z]\n'
    after = f'{before}\n[m.t]\nrun = "x"\nargs = ["y"]\n'

    assert insert_toml(before, ("m",), "t", ENTRY) == after
    assert remove_toml(after, ("m",), "t") == before
    assert remove_toml(before, ("m",), "a") == 'model = "x"\n\n\n# about z\n[z]\n'


def test_a_table_of_toml_is_taken_out_of_a_file_with_its_own_line_ends() -> None:
    before = '[m.a]\r\ncommand = "y"\r\n'

    assert remove_toml(insert_toml(before, ("m",), "t", ENTRY), ("m",), "t") == before


@pytest.mark.parametrize("text", ['m.a.command = "y"\n', '[m]\na = {command = "y"}\n'], ids=["dotted", "inline"])
def test_a_table_of_toml_without_a_header_is_never_left_in_silence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f: m\.a: cannot be"):
        remove_toml(text, ("m",), "a", "f")


def test_text_that_only_looks_like_a_table_is_left_alone() -> None:
    before = 'a = """\n[m.t]\n"""\n'

    assert remove_toml(insert_toml(before, ("m",), "t", ENTRY), ("m",), "t") == before


def test_an_edit_that_would_touch_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"m\.t: cannot be changed without touching the rest: edit it by hand"):
        insert_toml('m = {a = {command = "x"}}\n', ("m",), "t", ENTRY)


def test_what_is_there_already_or_not_there_is_said() -> None:
    for insert, text in ((insert_json, '{"m": {"t": 1}}'), (insert_yaml, "m: {t: 1}"), (insert_toml, "[m.t]\n")):
        with pytest.raises(ConfigError, match=r"f: m\.t: is there already"):
            insert(text, ("m",), "t", ENTRY, "f")
    for remove, text in ((remove_json, "{}"), (remove_yaml, "m: {}"), (remove_toml, "")):
        with pytest.raises(ConfigError, match=r"f: m\.t: is not there"):
            remove(text, ("m",), "t", "f")


TEXT = some.text("ab\"'#:-{},[] \\\n\t\u00e4\U0001f600", max_size=6)
VALUE = some.recursive(
    some.none() | some.booleans() | some.integers(-999, 999) | TEXT,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
SERVERS = some.dictionaries(TEXT, VALUE, max_size=3)


@pytest.mark.slow
@given(
    servers=SERVERS, rest=some.dictionaries(TEXT, VALUE, max_size=3), entry=VALUE, indent=some.sampled_from([None, 4])
)
def test_json_edits_change_one_member_of_any_document(
    servers: dict[str, Any], rest: dict[str, Any], entry: Any, indent: int | None
) -> None:
    before = json.dumps({**rest, "m": servers}, indent=indent)

    after = insert_json(before, ("m",), "new", entry)

    assert parse_json(after).plain() == {**rest, "m": {**servers, "new": entry}}
    assert parse_json(remove_json(after, ("m",), "new")).plain() == {**rest, "m": servers}


@pytest.mark.slow
@given(
    servers=SERVERS,
    rest=some.dictionaries(TEXT, VALUE, max_size=3),
    entry=VALUE,
    flow=some.sampled_from([None, False, True]),
)
def test_yaml_edits_change_one_member_of_any_document(
    servers: dict[str, Any], rest: dict[str, Any], entry: Any, flow: bool | None
) -> None:
    before = yaml.safe_dump({**rest, "m": servers}, default_flow_style=flow, allow_unicode=True)

    after = insert_yaml(before, ("m",), "new", entry)

    assert parse_yaml(after).plain() == {**rest, "m": {**servers, "new": entry}}
    assert parse_yaml(remove_yaml(after, ("m",), "new")).plain() == {**rest, "m": servers}


@pytest.mark.parametrize("text", [b"a = " + b"[" * 100_000, b"a = " + b"[" * 600 + b"]" * 600, b"a = " + b"9" * 5000])
def test_toml_nested_or_numbered_beyond_measure_is_refused_with_its_file(text: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_toml(text, "config.toml")
    assert caught.value.file == "config.toml"
