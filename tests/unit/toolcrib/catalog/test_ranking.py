"""What the ranking makes of words, queries and tools."""

import pytest

from toolcrib.catalog.ranking.query import QueryTerms, plan, relatives, saves_file
from toolcrib.catalog.ranking.terms import LEVELS, IndexEntry, document, read_lines, squash, stem, terms


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("create creates created creating", "creat"),
        ("generate generating generation generations generated", "generat"),
        ("relate relational relations", "relat"),
        ("hop hopping hopped hops", "hop"),
        ("hope hoped hoping hopes", "hope"),
        ("cry cries cried crying", "cri"),
        ("die dies died dying", "die"),
        ("fly flies", "fli"),
        ("agree agreed", "agre"),
        ("possible possibly possibility", "possibl"),
        ("triplicate triplicates", "triplic"),
        ("electricity electrical electric", "electr"),
        ("add added adding adds", "add"),
        ("internal internally", "internal"),
        ("universe universes", "univers"),
        ("psychology psychologist", "psycholog"),
        ("bus bus", "bus"),
        ("gas gas", "gas"),
        ("classes class", "class"),
        ("say says", "say"),
        ("youth youths", "youth"),
        ("rolling rolls roll", "roll"),
        ("controller controllers", "control"),
        ("adjustment adjustments", "adjust"),
        ("national nationally", "nation"),
        ("hopeful hopefully hopefulness", "hope"),
        ("formative formatively", "format"),
    ],
)
def test_inflections_of_a_word_have_one_stem(words: str, expected: str) -> None:
    assert {stem(word) for word in words.split()} == {expected}


@pytest.mark.parametrize("word", ["", "s", "is", "id", "news", "naïve", "日程", "v2", "e2e", "ss", "yyy", "ing", "eed"])
def test_words_without_a_suffix_to_take_are_their_own_stem(word: str) -> None:
    assert stem(word) == word


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("createIssue", ["creat", "issu", "createissu"]),
        ("HTTPServer_v2", ["http", "server", "v", "2", "httpserverv2"]),
        ("read-only files", ["read", "readon", "file"]),
        ("e-mail", ["mail", "email"]),
        ("获取天气", ["获取", "取天", "天气"]),
        ("天", ["天"]),
        ("get天气info", ["get", "天气", "info"]),
        ("GRÖSSE", ["grösse"]),
        ("Ｆｕｌｌ ｗｉｄｔｈ", ["full", "width"]),
        ("Größe der Bäume", ["grösse", "der", "bäume"]),
        ("the of and -- _ ' ", []),
    ],
)
def test_text_becomes_terms(text: str, expected: list[str]) -> None:
    assert terms(text)[: len(expected) or None] == expected


def test_names_are_compared_without_case_and_separators() -> None:
    assert (
        len({squash(name) for name in ("Create-Issue", "create_issue", "CREATEISSUE", "create issue", "create.issue")})
        == 1
    )
    assert squash("Straße") == squash("STRASSE")


def test_a_query_is_its_terms_without_words_of_asking() -> None:
    made = plan("Could you please help me list issues?")
    assert made == QueryTerms(
        whole="couldyoupleasehelpmelistissues",
        mentioned=(),
        weights={"list": 1.0, "issu": 1.0},
        related=made.related,
        neighbours=(("list", "issu"),),
        clauses=(),
        actions=made.actions,
    )
    assert {"get", "ticket"} < made.related.keys()
    assert made.related.keys().isdisjoint(made.weights)


def test_words_of_asking_count_when_nothing_else_is_said() -> None:
    assert plan("please help").weights == {"pleas": 1.0, "help": 1.0}


def test_values_count_little_and_their_kind_counts() -> None:
    weights = plan(
        'Save "blue whale" of https://ocean.example/whales to ~/notes/sea.md for Ann and ann@mail.example, 12'
    ).weights
    assert weights["save"] == 1.0
    assert weights["ann"] == pytest.approx(0.9)
    assert {weights[term] for term in ("blue", "ocean", "note", "sea", "md")} == {0.2}
    assert weights["12"] == pytest.approx(0.1)
    assert {weights[kind] for kind in ("url", "email")} == {0.5}
    assert plan("What is in ~/notes/sea.md?").weights["file"] == 0.5


@pytest.mark.parametrize(
    "query",
    [
        "Summarise the article and save it to ./notes/sea.md",
        "read the wiki, then draft an introduction in /docs/intro.md.",
        "The report should be written to C:\\reports\\june",
    ],
)
def test_who_saves_to_a_path_asks_for_a_file_to_be_written(query: str) -> None:
    made = plan(query)
    assert (made.weights["write"], made.weights["file"]) == (1.0, 1.0)
    assert ("write", "file") in made.neighbours
    assert {"write", "file"} < made.clauses[-1].keys()


@pytest.mark.parametrize(
    "query",
    [
        "Save the contact Ann Lee",
        "Read /docs/intro.md and write a summary",
        "Save the page https://ocean.example/a/b.html",
        "Save the contact. Then open /docs/intro.md",
    ],
)
def test_who_saves_elsewhere_does_not(query: str) -> None:
    assert not saves_file(query)
    assert "write" not in plan(query).weights or "write" in query


def test_a_query_that_is_one_quoted_text_is_no_value() -> None:
    assert plan("'list open issues'").weights == {"list": 1.0, "open": 1.0, "issu": 1.0}


def test_repeated_words_count_by_their_square_root() -> None:
    assert plan("file file file file").weights == {"file": 2.0}


def test_several_sentences_are_kept_apart() -> None:
    first, second = plan("Read the file. Send the message!").clauses
    assert {"read", "file"} < first.keys()
    assert {"send", "messag"} < second.keys()
    assert "send" not in first


def test_identifiers_in_a_query_are_mentions() -> None:
    assert plan("use get_forecast or readFile of git__status, not real-time OpenAI").mentioned == (
        "getforecast",
        "readfile",
        "gitstatus",
    )


@pytest.mark.parametrize(
    "query", ["", " ", "\0", "?" * 10_000, "a" * 100_000, "x " * 100_000, "'\"`" * 5000, "/" * 20_000]
)
def test_a_plan_of_nonsense_is_small(query: str) -> None:
    made = plan(query)
    assert len(made.weights) + len(made.neighbours) + len(made.clauses) < 10


def test_names_weigh_more_than_parameters_more_than_descriptions_more_than_small_print() -> None:
    levels = document(
        IndexEntry(
            name="s__alpha",
            leaf="alpha",
            source="delta",
            description="beta and several more words\n\nArgs:\n    x: epsilon",
            schema={"properties": {"gamma": {"description": "zeta", "enum": ["eta"]}}},
        )
    ).levels
    order = sorted(["alpha", "gamma", "beta", "epsilon", "zeta"], key=lambda word: -levels[stem(word)])
    assert order == ["alpha", "gamma", "beta", "zeta", "epsilon"]
    assert all(0 < level <= LEVELS for level in levels.values())


def test_what_is_nested_in_a_schema_is_read() -> None:
    schema = {
        "properties": {
            "outer": {"type": "array", "items": {"properties": {"inner": {"anyOf": [{"enum": ["deepest"]}, {}]}}}}
        }
    }
    assert {"outer", "inner", "deepest"} <= document(
        IndexEntry(name="x", leaf="x", source="", schema=schema)
    ).levels.keys()


def test_no_tool_is_read_beyond_its_measure() -> None:
    long = " ".join(f"word{n}x" for n in range(5000))
    schema = {"properties": {f"p{n}q": {"description": long} for n in range(5000)}}
    made = document(
        IndexEntry(name="x", leaf=long, source=long, title=long, description=long, tags=(long,), schema=schema)
    )
    assert len(made.levels) < 8000


def test_relatives_point_both_ways_and_close_ones_count_more() -> None:
    known = relatives()
    assert dict(known["mail"])["email"] == dict(known["email"])["mail"] == 1.0
    assert dict(known["hotel"])["flight"] == dict(known["flight"])["hotel"] < 1.0
    assert all(one != other for one, row in known.items() for other, _ in row)


def test_groups_of_relatives_hold_single_words_and_none_twice() -> None:
    for line in [*read_lines("synonyms.txt"), *read_lines("topics.txt")]:
        words = line.split()
        assert len(words) == len(set(words)) > 1, line
        assert all(word.isalnum() and word.islower() for word in words), line
