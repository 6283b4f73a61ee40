"""The index finds tools by what a query says, and answers the same however it came to be."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.catalog.index import Hit, Index, IndexEntry
from toolcrib.errors import UsageError


def entry(name: str, description: str = "", **more: Any) -> IndexEntry:
    source, _, leaf = name.rpartition("__")
    return IndexEntry(name=name, leaf=leaf, source=source, description=description, **more)


CATALOG = (
    entry("github__create_issue", "Open a new issue in a repository", tags=("bug",)),
    entry("github__list_issues", "List the issues of a repository"),
    entry("github__close_issue", "Close an issue"),
    entry("gitlab__create_issue", "Open a new issue in a project"),
    entry("mail__sendMessage", "Send an email to somebody", schema={"properties": {"recipient": {}}}),
    entry("weather__get_forecast", "The weather of the next days", title="Weather forecast"),
    entry("files__read_file", "Read a file", schema={"properties": {"path": {"description": "Where it lies on disk"}}}),
    entry("files__export", "Export data", schema={"properties": {"format": {"enum": ["parquet", "csv"]}}}),
    entry("bazi__getLunar", "根据农历时间、性别来获取八字信息。"),
    entry("maps__search", "Find places", source_title="Cartographer", source_description="Geography and navigation"),
)


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(CATALOG)


def names(hits: list[Hit]) -> list[str]:
    return [hit.name for hit in hits]


def test_the_tool_that_does_what_is_asked_comes_first(index: Index) -> None:
    assert names(index.search("please open a new issue in my repository", 1)) == ["github__create_issue"]


@pytest.mark.parametrize(
    "query", ["github__create_issue", "GitHub create issue", "github.createIssue", "GITHUB-CREATE-ISSUE"]
)
def test_a_full_name_is_exact_whatever_its_case_and_separators(index: Index, query: str) -> None:
    hits = index.search(query)
    assert (hits[0].name, hits[0].exact) == ("github__create_issue", True)
    assert not any(hit.exact for hit in hits[1:])


def test_every_tool_with_the_leaf_name_that_is_asked_for_is_exact_and_stands_before_the_others(index: Index) -> None:
    hits = index.search("create-issue")
    assert {hit.name for hit in hits if hit.exact} == {"github__create_issue", "gitlab__create_issue"}
    assert [hit.exact for hit in hits] == sorted((hit.exact for hit in hits), reverse=True)


def test_a_tool_whose_name_is_all_stop_words_is_found_by_it() -> None:
    index = Index([entry("a__do_it"), entry("a__help")])
    assert names(index.search("do_it")) == ["a__do_it"]
    assert names(index.search("help")) == ["a__help"]


def test_a_tool_that_the_query_mentions_by_name_stands_before_better_descriptions(index: Index) -> None:
    hits = index.search("call get_forecast, then send an email and open an issue in the repository")
    assert hits[0] == Hit(name="weather__get_forecast", score=hits[0].score, exact=False)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("listing of issues", "github__list_issues"),
        ("mail somebody", "mail__sendMessage"),
        ("to whom: the recipient", "mail__sendMessage"),
        ("parquet", "files__export"),
        ("cartographer", "maps__search"),
        ("bug", "github__create_issue"),
        ("农历", "bazi__getLunar"),
        ("ｗｅａｔｈｅｒ", "weather__get_forecast"),
        ("fetch what lies on a disk", "files__read_file"),
    ],
)
def test_names_titles_tags_parameters_sources_and_other_scripts_are_searched(
    index: Index, query: str, expected: str
) -> None:
    assert names(index.search(query, 1)) == [expected]


@pytest.mark.parametrize("query", ["", "   ", "!!!", "\0", "knit a woollen scarf", "编织", "the of and"])
def test_a_query_that_fits_nothing_gets_nothing(index: Index, query: str) -> None:
    assert index.search(query) == []


def test_no_more_than_k_tools_are_returned(index: Index) -> None:
    assert [len(index.search("issue", k)) for k in (0, -1, 2, 100)] == [0, 0, 2, 4]


@pytest.mark.slow
def test_only_allowed_tools_are_returned_even_when_thousands_that_are_not_fit_better() -> None:
    crowd = [entry(f"s{n}__create_issue_{n}", "Create an issue") for n in range(4000)]
    index = Index([*crowd, entry("mine__note", "Maybe about an issue, among many other matters of the day")])
    assert names(index.search("create an issue", allowed=lambda name: name == "mine__note")) == ["mine__note"]


def test_a_name_that_is_not_allowed_is_not_even_an_exact_answer(index: Index) -> None:
    assert index.search("files__export", allowed=lambda name: not name.startswith("files")) == []


def test_repeating_words_does_not_lift_a_tool_over_the_one_that_is_named_for_the_job() -> None:
    stuffed = entry("evil__helper", "send email message " * 500, schema={"properties": {"send_email": {}}})
    index = Index([stuffed, *CATALOG])
    assert names(index.search("send an email message", 1)) == ["mail__sendMessage"]


def test_values_inside_a_request_do_not_choose_the_tool(index: Index) -> None:
    query = "Send 'close issue repository weather' to ann@issues.example and see https://issue.example/repository/close"
    assert names(index.search(query, 1)) == ["mail__sendMessage"]


def test_each_sentence_of_a_long_request_brings_its_own_tool(index: Index) -> None:
    hits = names(index.search("Read the file with the numbers. Look up the weather forecast. Close the issue.", 3))
    assert set(hits) == {"files__read_file", "weather__get_forecast", "github__close_issue"}


def test_entries_are_read_at_the_first_search_and_not_before() -> None:
    read: list[str] = []

    def entries() -> Iterator[IndexEntry]:
        for one in CATALOG:
            read.append(one.name)
            yield one

    index = Index(entries())
    assert read == []
    index.search("issue")
    index.search("weather")
    assert read == [one.name for one in CATALOG]


def test_of_several_entries_with_one_name_the_last_counts() -> None:
    index = Index([entry("a__x", "one thing"), entry("a__x", "another matter")])
    assert (len(index), index.search("thing"), names(index.search("matter"))) == (1, [], ["a__x"])


def test_a_tool_added_again_is_read_anew() -> None:
    index = Index([entry("a__x", "one thing"), entry("a__y", "other things")])
    index.add(entry("a__x", "another matter"))
    assert len(index) == 2
    assert (names(index.search("thing")), names(index.search("matter"))) == (["a__y"], ["a__x"])


def test_removing_a_tool_that_is_not_there_is_refused(index: Index) -> None:
    with pytest.raises(UsageError, match=r"nobody__home: no such tool"):
        index.remove("nobody__home")


def test_an_empty_index_answers_nothing_and_can_be_filled() -> None:
    index = Index()
    assert (len(index), index.search("issue")) == (0, [])
    index.update(added=CATALOG)
    assert names(index.search("close issue", 1)) == ["github__close_issue"]
    index.update(removed=[one.name for one in CATALOG])
    assert (len(index), index.search("issue")) == (0, [])


def test_hostile_entries_are_indexed_without_harm() -> None:
    deep: dict[str, Any] = {"properties": {}}
    for _ in range(2000):
        deep = {"properties": {"a": deep}, "anyOf": [deep, 5, None]}
    wild: dict[str, Any] = {
        "properties": {"x": 7, "y": {"enum": [1, None, "z"], "description": 9}, "w": {"items": [], "anyOf": {}}}
    }
    index = Index(
        [
            entry("a__deep", schema=deep),
            entry("a__wild", "\0\ud800 \u202e" + "x" * 100_000, schema=wild),
            entry("a__none", schema={"properties": None}),
            IndexEntry(name="", leaf="", source=""),
        ]
    )
    assert names(index.search("wild")) == ["a__wild"]


WORDS = st.sampled_from("create list issue file mail send weather Repo readFile 农历查询 v2 running the".split())
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)
ENTRIES = st.builds(
    IndexEntry,
    name=st.sampled_from([f"t{n}" for n in range(12)]),
    leaf=st.lists(WORDS, min_size=1, max_size=3).map("_".join),
    source=st.sampled_from(["a", "b", "mail"]),
    source_title=st.sampled_from(["", "Mail server"]),
    description=TEXTS,
    schema=st.dictionaries(WORDS, st.fixed_dictionaries({"description": TEXTS}), max_size=2).map(
        lambda properties: {"properties": properties}
    ),
)


@pytest.mark.long
@pytest.mark.slow
@given(
    start=st.lists(ENTRIES, max_size=6),
    changes=st.lists(ENTRIES | st.sampled_from([f"t{n}" for n in range(12)]), max_size=12),
    queries=st.lists(TEXTS, min_size=1, max_size=3),
)
def test_an_index_changed_in_place_answers_like_one_built_anew(
    start: list[IndexEntry],
    changes: list[IndexEntry | str],
    queries: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    index, expected = Index(start), {one.name: one for one in start}
    for change in changes:
        if isinstance(change, IndexEntry):
            index.add(change)
            expected[change.name] = change
        elif change in expected:
            index.remove(change)
            del expected[change]
    path = tmp_path_factory.mktemp("index") / "x"
    index.save(path, "1")
    rebuilt, opened = Index(expected.values()), Index(path=path, stamp="1")
    for query in queries:
        answer = rebuilt.search(query)
        assert index.search(query) == answer
        assert opened.search(query) == answer
    assert len(index) == len(rebuilt) == len(opened) == len(expected)


def refuse() -> Iterator[IndexEntry]:
    raise AssertionError("the file should have been opened instead")
    yield


def test_an_index_on_disk_is_opened_without_reading_the_entries(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "catalog.index"
    answer = Index(CATALOG, path=path, stamp="v1").search("open an issue")
    assert answer
    assert Index(refuse(), path=path, stamp="v1").search("open an issue") == answer
    assert path.stat().st_mode & 0o077 == 0
    assert list(path.parent.iterdir()) == [path]


def test_an_opened_index_can_be_changed_without_changing_the_file(tmp_path: Path) -> None:
    path = tmp_path / "catalog.index"
    Index(CATALOG, path=path, stamp="v1").build()
    opened = Index(path=path, stamp="v1")
    opened.remove("github__create_issue")
    opened.add(entry("knitting__scarf", "Knit a woollen scarf"))
    assert names(opened.search("knit a scarf")) == ["knitting__scarf"]
    assert names(opened.search("create_issue", 1)) == ["gitlab__create_issue"]
    assert Index(refuse(), path=path, stamp="v1").search("knit a scarf") == []


def test_the_file_of_another_catalog_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "catalog.index"
    Index(CATALOG, path=path, stamp="v1").build()
    assert names(Index([entry("a__scarf")], path=path, stamp="v2").search("scarf")) == ["a__scarf"]
    assert names(Index(refuse(), path=path, stamp="v2").search("scarf")) == ["a__scarf"]


@pytest.mark.parametrize("harm", ["empty", "cut", "foreign", "head", "sections"])
def test_a_damaged_file_counts_as_absent(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "catalog.index"
    Index(CATALOG, path=path, stamp="v1").build()
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "cut": whole[: len(whole) // 2],
            "foreign": b"PK\x03\x04" * 100,
            "head": whole.replace(b'"places"', b'"placed"'),
            "sections": whole.replace(b'"pairs_at":[', b'"pairs_at":[8'),
        }[harm]
    )
    assert names(Index(CATALOG, path=path, stamp="v1").search("export", 1)) == ["files__export"]
    assert names(Index(refuse(), path=path, stamp="v1").search("export", 1)) == ["files__export"]


def test_a_place_that_cannot_be_written_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    index = Index(CATALOG, path=tmp_path / "file" / "catalog.index", stamp="v1")
    assert names(index.search("export", 1)) == ["files__export"]
    with pytest.raises(OSError, match="file"):
        index.save(tmp_path / "file" / "catalog.index", "v1")


def test_a_file_without_a_stamp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stamp"):
        Index(CATALOG, path=tmp_path / "catalog.index")


def test_a_namesake_of_another_source_steps_back_behind_other_tools_that_fit_about_as_well() -> None:
    same = [entry(f"s{n}__search_papers", "Search papers about physics") for n in range(3)]
    other = entry("lib__find_papers", "Search papers about physics")
    hits = names(Index([*same, other]).search("search papers about physics", 4))
    assert hits.index("lib__find_papers") <= 2
    assert set(hits) == {"lib__find_papers", *(one.name for one in same)}


def test_a_long_request_for_several_things_brings_a_tool_for_each() -> None:
    mail = [
        entry(f"mail{n}__send_{word}", "Send an email message with text to people") for n, word in enumerate("abcd")
    ]
    chart = entry("plot__draw", "Draw a bar chart of sales by month")
    request = (
        "send an email message with the text of our greeting to all the people of the team in the office this morning,"
        " and draw a bar chart of the sales"
    )
    assert "plot__draw" in names(Index([*mail, chart]).search(request, 2))


def test_a_boost_moves_tools_that_fit_alike_and_no_further_than_its_bounds(index: Index) -> None:
    def boosted(factor: float, k: int = 10) -> list[Hit]:
        return index.search("open a new issue", k, boost=lambda name: factor if name == "gitlab__create_issue" else 1.0)

    plain = {hit.name: hit.score for hit in index.search("open a new issue")}
    assert boosted(1.9, 1)[0].name == "gitlab__create_issue"
    assert boosted(0.6)[0].name == "github__create_issue"
    assert boosted(1e9, 1)[0].score == pytest.approx(2 * plain["gitlab__create_issue"], rel=0.2)
    assert "gitlab__create_issue" in names(boosted(-5.0))


def test_scores_fall_from_one_hit_to_the_next(index: Index) -> None:
    scores = [hit.score for hit in index.search("create or list or close the issues of a repository, or export data")]
    assert scores == sorted(scores, reverse=True)


def test_what_fits_too_little_is_found_only_when_that_is_asked_for() -> None:
    filler = [entry(f"s{n}__do", " ".join(f"word{n}x{at}" for at in range(40))) for n in range(9)]
    index = Index([*filler, entry("yard__sweep", " ".join(f"leaf{at}y" for at in range(40)) + " rope")])
    query = "juggle torches, tame lions, carve pumpkins, swallow swords, mend kites, churn butter, braid a rope"
    assert index.search(query) == []
    assert names(index.search(query, weak=True)) == ["yard__sweep"]
    assert names(index.search("a rope")) == ["yard__sweep"]


def test_more_must_fit_where_there_are_more_tools_of_more_words() -> None:
    query = "juggle torches, tame lions, carve pumpkins and sweep leaves"
    sweep = entry("yard__sweep", "Sweep the yard")
    verbose = [entry(f"s{n}__do", " ".join(f"word{n}x{at}" for at in range(40))) for n in range(60)]
    terse = [entry(f"s{n}__do{n}", f"Word{n}") for n in range(60)]
    assert names(Index([sweep]).search(query)) == ["yard__sweep"]
    assert names(Index([sweep, *terse]).search(query)) == ["yard__sweep"]
    assert names(Index([sweep, *verbose]).search(query)) == []


def test_a_tool_that_has_every_word_of_a_query_fits_however_much_else_is_there() -> None:
    verbose = [entry(f"s{n}__do", " ".join(f"word{n}x{at}" for at in range(100))) for n in range(300)]
    hidden = entry("yard__sweep", " ".join(f"leaf{at}y" for at in range(99)) + " rope")
    index = Index([*verbose, hidden])
    assert names(index.search("a rope")) == ["yard__sweep"]
    assert names(index.search("a rope and a pumpkin to juggle")) == []


def test_words_that_callers_make_up_leave_nothing_in_memory() -> None:
    index = Index(CATALOG)

    def search(first: int) -> None:
        for number in range(first, first + 250):
            index.search(f"nothing_{number} madeUp{number}Word")

    search(0)
    tracemalloc.start()
    try:
        search(250)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 13_000  # the words alone have 18,000 bytes
