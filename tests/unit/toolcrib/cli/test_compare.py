"""`toolcrib compare`: a table, and JSON, of what the user's own tools cost."""

from __future__ import annotations

import json

import pytest

from toolcrib.disclosure.profiles import BUILT_IN

from .conftest import User

pytestmark = pytest.mark.process


@pytest.mark.long
def test_every_profile_is_a_row_beside_the_full_list(owner: User) -> None:
    told = owner.reads("compare")

    assert [row["profile"] for row in told["profiles"]] == ["full list", *BUILT_IN]
    assert all(
        set(row) == {"profile", "tools", "shown", "read", "sent", "turns", "reached"} for row in told["profiles"]
    )
    assert (told["tokenizer"], told["queries"] > 0) == ("o200k", True)


def test_queries_and_profiles_can_be_chosen(owner: User) -> None:
    queries = owner.has("queries.jsonl", json.dumps({"query": "search the notes", "tool": "notes__search_notes"}))

    result = owner.types("compare", "--queries", str(queries), "--profile", "flat")

    assert result.exit_code == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[:3]] == ["PROFILE", "full", "flat"]


def test_a_line_that_is_no_query_is_named(owner: User) -> None:
    queries = owner.has("queries.jsonl", '{"query": "a", "tool": "b"}\n{"query": 3}\n')

    result = owner.types("compare", "--queries", str(queries))

    assert result.exit_code == 2
    assert 'queries.jsonl:2: takes {"query": text, "tool": name}' in result.stderr


@pytest.mark.long
def test_a_comparison_leaves_no_calls_in_the_users_records(owner: User) -> None:
    owner.types("call", "calculate", "expression=1+1")

    compared = owner.reads("compare")

    assert compared["queries"] > 0
    assert [call["tool"] for call in owner.reads("log")] == ["calculate"]


def test_queries_for_tools_that_do_not_exist_are_told_and_left_out(owner: User) -> None:
    good = {"query": "search the notes", "tool": "notes__search_notes"}
    lines = [json.dumps(good), json.dumps({**good, "tool": "notes__serch_notes"})]
    both = owner.has("both.jsonl", "\n".join(lines))
    none = owner.has("none.jsonl", lines[1])

    measured = owner.types("compare", "--queries", str(both), "--profile", "flat")
    failed = owner.types("compare", "--queries", str(none), "--profile", "flat")

    assert (measured.exit_code, failed.exit_code) == (0, 2)
    assert "there is no tool 'notes__serch_notes', its queries are left out" in measured.stderr
    assert "did you mean notes__search_notes?" in measured.stderr
    assert measured.stdout.splitlines()[-1].startswith("1 query from")
    assert "none.jsonl: has no query that a tool answers" in failed.stderr


def test_a_catalog_that_cannot_be_read_is_left_out_and_the_status_says_so(owner: User) -> None:
    broken = owner.has("api.yaml", "openapi: 3.0.0\npaths: [")

    result = owner.types(
        "compare", "--catalog", str(broken), "--catalog", "missing.yaml", "--profile", "flat", "--json"
    )

    assert result.exit_code == 7
    facts = json.loads(result.stdout)
    assert facts["left_out"] == ["missing.yaml", "api"]
    assert [row["profile"] for row in facts["profiles"]] == ["full list", "flat"]
