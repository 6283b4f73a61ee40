"""Names that every API accepts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.catalog.names import MAX_NAME, MAX_WHOLE, declared, portable, qualify
from toolcrib.core.similar import nearest

WHOLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,127}$")
FLOOR = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,39}$")


def test_a_slash_becomes_an_underscore_and_never_vanishes() -> None:
    assert portable("issues/create") == "issues_create"


def test_a_tool_is_named_after_its_source_and_itself() -> None:
    assert qualify("git", "git_status") == "git__git_status"


def test_a_source_without_prefix_keeps_its_names() -> None:
    assert qualify("everything", "test_simple_text", prefix=False) == "test_simple_text"


def test_two_long_names_with_the_same_beginning_stay_apart() -> None:
    own = ("a_very_long_tool_name_that_goes_on_and_on_one", "a_very_long_tool_name_that_goes_on_and_on_two")
    whole = [qualify("server", local) for local in own]
    short = [declared(name, "server", local) for name, local in zip(whole, own, strict=True)]
    assert whole == [f"server__{local}" for local in own]
    assert [len(name) for name in short] == [MAX_NAME, MAX_NAME]
    assert len({*short}) == 2


def test_a_name_longer_than_mcp_allows_is_shortened_in_the_catalog_too() -> None:
    assert len(qualify("server", "a" * 200)) == MAX_WHOLE


@pytest.mark.long
@pytest.mark.slow
@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=80), st.booleans())
def test_every_name_is_accepted_everywhere_and_always_the_same(source: str, local: str, prefix: bool) -> None:
    name = qualify(source, local, prefix=prefix)
    assert WHOLE.match(name)
    assert FLOOR.match(declared(name, source, local))
    assert name == qualify(source, local, prefix=prefix)


def test_the_nearest_name_is_offered_first() -> None:
    assert nearest("git_stauts", ["git_log", "git_status", "time_now"], n=1) == ["git_status"]


def test_a_leaf_name_finds_the_whole_one() -> None:
    assert nearest("convert_time", ["time__convert_time", "git__log"]) == ["time__convert_time"]


def test_a_name_that_shares_nothing_gets_no_offer() -> None:
    assert nearest("zzzz", ["git_log", "git_status"]) == []


@pytest.mark.parametrize(
    ("name", "names", "near"),
    [
        ("file", ["view_profile", "regenerate_profile", "write_file", "readFile"], ["readFile", "write_file"]),
        ("delegate", ["delete_note", "delete_template", "deletePrompt"], []),
        ("wbe", ["web", "git"], ["web"]),
        ("weird", ["required", "word"], ["word"]),
        ("tiem", ["items", "time"], ["time"]),
    ],
)
def test_a_name_that_only_shares_letters_is_not_offered(name: str, names: list[str], near: list[str]) -> None:
    assert nearest(name, names) == near
