"""Skills are read without a warning where the format's own validator (PyPI `skills-ref`) finds nothing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from skills_ref.validator import validate  # pyright: ignore[reportMissingTypeStubs]

from toolcrib.errors import ConfigError
from toolcrib.sources.skill_folder import read_skill

DOCUMENTS = {
    "plain": "---\nname: a-skill\ndescription: d\n---\nbody",
    "all fields": (
        "---\nname: a-skill\ndescription: d\nlicense: MIT\ncompatibility: c\nallowed-tools: Bash(git:*) Read\n"
        "metadata:\n  version: 1.0\n---\n"
    ),
    "tools as a list": "---\nname: a-skill\ndescription: d\nallowed-tools:\n- Read\n- Write\n---\n",
    "folded description": "---\nname: a-skill\ndescription: >\n  long\n  text\n---\n",
    "comment": "---\n# a comment\nname: a-skill # another\ndescription: d\n---\n",
    "no frontmatter": "body only",
    "no end": "---\nname: a-skill\ndescription: d\n",
    "blank line first": "\n---\nname: a-skill\ndescription: d\n---\n",
    "empty frontmatter": "---\n---\n",
    "dashes inside": "---\nname: a-skill\ndescription: one --- two\n---\n",
    "a list": "---\n- a\n---\n",
    "a word": "---\nhello\n---\n",
    "no name": "---\ndescription: d\n---\n",
    "empty name": "---\nname:\ndescription: d\n---\n",
    "no description": "---\nname: a-skill\n---\n",
    "blank description": "---\nname: a-skill\ndescription: '  '\n---\n",
    "other name": "---\nname: another\ndescription: d\n---\n",
    "upper case": "---\nname: A-Skill\ndescription: d\n---\n",
    "underscore": "---\nname: a_skill\ndescription: d\n---\n",
    "two hyphens": "---\nname: a--skill\ndescription: d\n---\n",
    "hyphen last": "---\nname: a-skill-\ndescription: d\n---\n",
    "unknown key": "---\nname: a-skill\ndescription: d\npriority: high\n---\n",
    "duplicate key": "---\nname: a-skill\nname: a-skill\ndescription: d\n---\n",
    "flow list": "---\nname: a-skill\ndescription: d\nallowed-tools: [Read]\n---\n",
    "flow mapping": "---\nname: a-skill\ndescription: d\nmetadata: {a: b}\n---\n",
    "anchor": "---\nname: a-skill\ndescription: &x d\n---\n",
    "alias": "---\nname: a-skill\ndescription: &x d\nlicense: *x\n---\n",
    "tag": "---\nname: a-skill\ndescription: !!str d\n---\n",
    "colon": "---\nname: a-skill\ndescription: Use when: asked\n---\n",
    "unclosed quote": "---\nname: a-skill\ndescription: 'd\n---\n",
    "number as description": "---\nname: a-skill\ndescription: 5\n---\n",
    "null as description": "---\nname: a-skill\ndescription: ~\n---\n",
    "list as description": "---\nname: a-skill\ndescription:\n- d\n---\n",
    "mapping as license": "---\nname: a-skill\ndescription: d\nlicense:\n  a: b\n---\n",
    "uneven mappings": "---\nname: a-skill\ndescription: d\nlicense:\n  a: b\nmetadata:\n    a: b\n---\n",
    "list as compatibility": "---\nname: a-skill\ndescription: d\ncompatibility:\n- x\n---\n",
    "long compatibility": f"---\nname: a-skill\ndescription: d\ncompatibility: {'c' * 501}\n---\n",
    "description at the limit": f"---\nname: a-skill\ndescription: {'d' * 1024}\n---\n",
    "description over the limit": f"---\nname: a-skill\ndescription: {'d' * 1025}\n---\n",
    "windows newlines": "---\r\nname: a-skill\r\ndescription: d\r\n---\r\nbody",
}


LENIENT = ("blank line first", "unknown key", "flow list", "flow mapping", "anchor", "tag", "uneven mappings")
"""Documents that the validator refuses, although their meaning is clear."""


def is_clean(folder: Path) -> bool:
    try:
        return read_skill(folder).warnings == ()
    except ConfigError:
        return False


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_validator_and_we_agree_on_a_document(tmp_path: Path, document: str) -> None:
    folder = tmp_path / "a-skill"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(DOCUMENTS[document].encode())

    assert is_clean(folder) == (validate(folder) == [] or document in LENIENT)


@pytest.mark.parametrize(
    "name", ["a", "a" * 64, "a" * 65, "größe", "数据-分析", "a.b", "ﬁ", "-a", "a-", "1", "a b", "É"]
)
def test_the_validator_and_we_agree_on_a_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n", encoding="utf-8")

    assert is_clean(folder) == (validate(folder) == [])


def test_the_validator_and_we_agree_on_a_folder_without_a_skill_and_on_a_file_in_lower_case(tmp_path: Path) -> None:
    empty, lower = tmp_path / "empty", tmp_path / "lower"
    empty.mkdir()
    lower.mkdir()
    (lower / "skill.md").write_text("---\nname: lower\ndescription: d\n---\n")

    assert (is_clean(empty), validate(empty) == []) == (False, False)
    assert (is_clean(lower), validate(lower)) == (True, [])


LINES = some.sampled_from(
    (
        *("name: a-skill", "description: d", "description: |\n  a\n  b", "license: MIT", "allowed-tools: Read Write"),
        *("metadata:\n  a: 'b'\n  c: \"d\"", "compatibility: ''", "x: y", "metadata: []", "name: 'a-skill'", ""),
        *("# comment", "  indented: x", "- item", "key:value", "description:d", "license: {}", "metadata:\n- a"),
    )
)


@pytest.mark.slow
@given(lines=some.lists(LINES, max_size=6))
def test_what_the_validator_accepts_is_read_without_a_warning(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("skills") / "a-skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\n" + "\n".join(lines) + "\n---\nbody", encoding="utf-8")

    assert is_clean(folder) or validate(folder)
