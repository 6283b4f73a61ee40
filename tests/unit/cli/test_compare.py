"""`toolcrib compare`: a table, JSON and a chart of what the user's own tools cost."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from toolcrib.disclosure.profiles import BUILT_IN

from .conftest import User


def test_every_profile_is_a_row_beside_the_full_list(owner: User) -> None:
    told = owner.reads("compare")

    assert [row["profile"] for row in told["profiles"]] == ["full list", *BUILT_IN]
    assert all(
        set(row) == {"profile", "tools", "shown", "read", "sent", "turns", "reached"} for row in told["profiles"]
    )
    assert (told["tokenizer"], told["queries"] > 0) == ("o200k", True)


def test_queries_and_profiles_can_be_chosen_and_the_chart_is_an_image(owner: User) -> None:
    queries = owner.has("queries.jsonl", json.dumps({"query": "search the notes", "tool": "notes__search_notes"}))
    chart = queries.with_name("chart.svg")

    result = owner.types("compare", "--queries", str(queries), "--profile", "flat", "--svg", str(chart))

    assert result.exit_code == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[:3]] == ["PROFILE", "full", "flat"]
    drawn = ElementTree.fromstring(chart.read_text("utf-8"))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"full list", "flat"} <= {node.text for node in drawn.iter("{http://www.w3.org/2000/svg}text")}


def test_a_line_that_is_no_query_is_named(owner: User) -> None:
    queries = owner.has("queries.jsonl", '{"query": "a", "tool": "b"}\n{"query": 3}\n')

    result = owner.types("compare", "--queries", str(queries))

    assert result.exit_code == 2
    assert 'queries.jsonl:2: takes {"query": text, "tool": name}' in result.stderr
