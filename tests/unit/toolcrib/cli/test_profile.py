"""`toolcrib profile`: what is listed, shown and checked, against the tools that there are."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from toolcrib.disclosure import profiles
from toolcrib.errors import CODES

from .conftest import User

pytestmark = pytest.mark.process

NONE = dict.fromkeys(("git", "project", "agent", "hooks", "memory", "files", "system"))
MINE: dict[str, Any] = {"extends": "tiered", "name": "mine", "core": ["notes__search_notes"], "categories": NONE}


def test_the_list_counts_what_a_session_sees_at_first(owner: User) -> None:
    listed = {entry["name"]: entry for entry in owner.reads("profile", "list")}

    assert list(listed) == list(profiles.BUILT_IN)
    fields = {"name", "description", "strategy", "progressive", "verbs", "tools", "tokens", "tokenizer"}
    assert set(listed["flat"]) == fields
    assert listed["tiered"]["verbs"][:2] == ["browse_tools", "load_tools"]
    assert 0 < listed["introspection"]["tokens"] < listed["flat"]["tokens"]


def test_the_list_is_a_table_with_strategy_verbs_and_tokens(owner: User) -> None:
    lines = owner.types("profile", "list").stdout.splitlines()

    assert lines[0].split() == ["PROFILE", "STRATEGY", "TOOLS", "TOKENS", "VERBS"]
    assert [line.split()[0] for line in lines[1 : 1 + len(profiles.BUILT_IN)]] == list(profiles.BUILT_IN)
    assert "o200k" in lines[-1]


def test_own_profiles_are_listed_beside_the_built_in_ones(owner: User) -> None:
    owner.has(".config/toolcrib/profiles/mine.yaml", MINE)

    assert owner.reads("profile", "list")[-1]["name"] == "mine"


def test_a_profile_is_shown_with_what_it_says_and_what_it_lacks(owner: User) -> None:
    file = str(owner.has("mine.yaml", {**MINE, "categories": {"hats": "Hats", "git": "Branches"}}))
    shown = owner.reads("profile", "show", file)
    text = owner.types("profile", "show", file).stdout

    assert (shown["strategy"], shown["envelope"], shown["lifetime"]) == ("tiered", "error", "interaction")
    assert shown["not_provided"]["categories"] == ["hats"]
    assert shown["categories"]["git"] in text
    assert "lifetime: interaction" in text


@pytest.mark.parametrize("name", profiles.BUILT_IN)
def test_a_profile_as_it_is_shown_is_a_file_that_says_the_same(owner: User, name: str) -> None:
    text = owner.types("profile", "show", name).stdout

    assert profiles.build(yaml.safe_load(text), file="shown.yaml") == profiles.load(name)


def test_a_profile_that_names_only_what_is_there_passes(owner: User) -> None:
    file = owner.has("mine.yaml", MINE)
    result = owner.types("profile", "check", str(file))

    assert (result.exit_code, result.stdout) == (0, "mine: every tool and category that it names is there\n")
    assert owner.reads("profile", "check", str(file)) == {"profile": "mine", "ok": True, "not_provided": {}}


@pytest.mark.parametrize("name", profiles.BUILT_IN)
def test_a_profile_of_ours_names_no_tool_that_is_not_there(user: User, name: str) -> None:
    assert user.reads("profile", "check", name) == {"profile": name, "ok": True, "not_provided": {}}
    assert name not in user.types("profile", "show", name).stderr


def test_the_categories_of_a_gateway_are_the_groups_of_its_ops(owner: User) -> None:
    shipped = dict.fromkeys(("onto", "util", "cal"))
    mine = {"extends": "gateway", "name": "mine", "options": {"ops": {"calculate": "sums.number.calculate"}}}
    good = owner.has("good.yaml", {**mine, "categories": {**shipped, "sums": "Sums"}})
    wrong = owner.has("wrong.yaml", {**mine, "categories": {**shipped, "sum": "Sums", "time": "no group"}})

    assert owner.reads("profile", "check", str(good)) == {"profile": "mine", "ok": True, "not_provided": {}}
    assert owner.types("profile", "check", str(wrong)).stdout.splitlines() == [
        "mine: categories: no source provides 'sum'",
        "mine: categories: no source provides 'time'",
    ]


def test_a_check_fails_on_tools_names_and_categories_that_no_source_provides(owner: User) -> None:
    wrong = {"core": ["notes__serch"], "categories": {**NONE, "hats": "Hats"}, "names": {"n": "nope"}}
    file = owner.has("mine.yaml", {**MINE, **wrong})
    result = owner.types("profile", "check", str(file))

    assert result.exit_code == CODES["not_found"].exit
    assert result.stdout.splitlines() == [
        "mine: core: no source provides 'notes__serch'",
        "mine: names: no source provides 'n'",
        "mine: categories: no source provides 'hats'",
    ]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"strategy": "tierd"}, "unknown strategy 'tierd'; did you mean tiered?"),
        ({"verbs": {"brows": "b"}}, "unknown verb 'brows'; did you mean browse"),
        ({"envelope": "eror"}, "unknown envelope 'eror'; did you mean error?"),
    ],
)
def test_a_check_fails_on_words_that_do_not_exist_with_the_nearest(
    owner: User, wrong: Mapping[str, Any], told: str
) -> None:
    file = owner.has("mine.yaml", {**MINE, **wrong})
    result = owner.types("profile", "check", str(file))

    assert (result.exit_code, result.stdout) == (2, "")
    assert str(file) in result.stderr
    assert told in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "tierd"), "unknown profile 'tierd'; did you mean tiered"),
        (("check", "./nowhere.yaml"), "nowhere.yaml: cannot be read"),
        (("show",), "Missing argument 'NAME|FILE'"),
        (("list", "tiered"), "(tiered)"),
    ],
)
def test_what_cannot_be_looked_at_says_what_to_do(owner: User, words: tuple[str, ...], told: str) -> None:
    result = owner.types("profile", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_trusting_a_project_confirms_its_profiles(owner: User) -> None:
    owner.has("project/.toolcrib/config.yaml", "{}")
    owner.has("project/.toolcrib/profiles/ours.yaml", {**MINE, "name": "ours"})
    before = [entry["name"] for entry in owner.reads("profile", "list")]
    confirmed = owner.types("trust")

    assert ("ours" in before, confirmed.exit_code) == (False, 0)
    assert "profiles/ours.yaml" in confirmed.stdout
    assert owner.reads("profile", "list")[-1]["name"] == "ours"
