"""A catalog that is changed keeps every line that somebody wrote."""

from pathlib import Path

import pytest

from toolcrib.config.own_file import add_entry, entry_added, entry_switched, switch_entry
from toolcrib.errors import ConfigError

TEXT = """\
# our tools

capabilities:   # all of them
  # the first
  - name: one   # a name
    type: TOOL
  - {name: two, level: 1}

  - name: three
    enabled: true  # for now
    description: |
      text

# what follows
skill_groups: {}
"""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("one", "  - name: one   # a name\n", "  - name: one   # a name\n    enabled: false\n"),
        ("two", "{name: two, level: 1}", "{name: two, enabled: false, level: 1}"),
        ("three", "enabled: true  # for now", "enabled: false  # for now"),
    ],
)
def test_an_entry_is_switched_off_and_nothing_else_changes(name: str, old: str, new: str) -> None:
    off = entry_switched(TEXT, name, enabled=False)

    assert off == TEXT.replace(old, new)
    assert entry_switched(entry_switched(off, name, enabled=True), name, enabled=False) == off


def test_an_entry_is_added_at_the_end_of_the_list() -> None:
    added = entry_added(TEXT, {"name": "four", "implementation": {"command": ["ls", "-l"]}})

    block = "  - name: four\n    implementation:\n      command:\n      - ls\n      - -l\n"
    assert added == TEXT.replace("      text\n", f"      text\n{block}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "capabilities:\n- name: a\n"),
        ("# only this\n", "# only this\ncapabilities:\n- name: a\n"),
        ("capabilities:\n# none yet\nx: 1\n", "capabilities:\n- name: a\n# none yet\nx: 1\n"),
        ("capabilities: []  # none\nx: 1\n", "capabilities:  # none\n- name: a\nx: 1\n"),
        ("- name: b", "- name: b\n- name: a\n"),
        ("x: 1\r\n", "x: 1\r\ncapabilities:\r\n- name: a\r\n"),
    ],
)
def test_an_entry_is_added_to_whatever_is_there(text: str, expected: str) -> None:
    assert entry_added(text, {"name": "a"}) == expected


@pytest.mark.parametrize(
    ("text", "entry", "problem"),
    [
        (TEXT, {"name": "one"}, "the entry 'one' is there already"),
        (TEXT, {}, "an entry needs a `name`"),
        ("capabilities: [{name: b}]\n", {"name": "a"}, r"written in `\[…\]`"),
        ("capabilities: 5\n", {"name": "a"}, "a list of entries was expected"),
    ],
)
def test_what_cannot_be_added_is_refused(text: str, entry: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        entry_added(text, entry)


def test_an_entry_that_is_not_there_cannot_be_switched() -> None:
    with pytest.raises(ConfigError, match="there is no entry four"):
        entry_switched(TEXT, "four", enabled=True)


def test_files_are_changed_in_place(tmp_path: Path) -> None:
    path = tmp_path / "capabilities.yaml"

    add_entry(path, {"name": "a", "priority": "high"})
    switch_entry(path, "a", enabled=False)

    assert path.read_text() == "capabilities:\n- name: a\n  enabled: false\n  priority: high\n"
    assert path.stat().st_mode & 0o777 == 0o600
