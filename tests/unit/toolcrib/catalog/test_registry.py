"""The registry publishes catalogs: immutable, versioned, the same after a restart."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolcrib.catalog.catalog import About
from toolcrib.catalog.overlay import Overlay
from toolcrib.catalog.registry import Registry
from toolcrib.core.builds import build_at_once
from toolcrib.core.events import Problem
from toolcrib.core.tool import Tool


def tool(name: str, source: str = "a", description: str = "") -> Tool:
    return Tool(name=name, source=source, local_name=name, description=description or f"{name} does it")


def names(registry: Registry) -> list[str]:
    return list(registry.catalog.tools)


def test_tools_get_the_name_of_their_source() -> None:
    registry = Registry()
    registry.put("git", [tool("status", "git")])
    assert names(registry) == ["git__status"]


def test_sources_stand_in_the_order_in_which_they_were_declared_whoever_arrives_first() -> None:
    registry = Registry()
    registry.declare("slow")
    registry.declare("fast")
    registry.put("fast", [tool("y", "fast")])
    registry.put("slow", [tool("x", "slow")])
    assert names(registry) == ["slow__x", "fast__y"]


def test_what_yields_leaves_its_name_to_whoever_wants_it_and_has_it_back_when_that_is_gone() -> None:
    registry = Registry()
    registry.declare("builtin", prefix=False, yields=True)
    registry.declare("mine", prefix=False)
    registry.put("builtin", [tool("status", "builtin"), tool("other", "builtin")])
    registry.put("mine", [tool("status", "mine")])
    taken = [(name, found.source) for name, found in registry.catalog.tools.items()]
    problems = registry.problems
    registry.remove("mine")

    assert sorted(taken) == [("other", "builtin"), ("status", "mine")]
    assert problems == ()
    assert registry.catalog.tools["status"].source == "builtin"


def test_a_catalog_does_not_change_when_the_registry_does() -> None:
    registry = Registry()
    registry.put("a", [tool("x")])
    before = registry.catalog
    registry.put("a", [tool("x"), tool("y")])
    assert list(before.tools) == ["a__x"]
    assert registry.last_change.added == ("a__y",)


def test_the_same_listing_again_gives_the_same_catalog_object() -> None:
    registry = Registry()
    registry.put("a", [tool("x")])
    before = registry.catalog
    assert registry.put("a", [tool("x")]) is False
    assert registry.catalog is before


def test_a_changed_description_changes_the_version() -> None:
    registry = Registry()
    registry.put("a", [tool("x")])
    before = registry.catalog
    registry.put("a", [tool("x", description="something else")])
    assert registry.catalog.version != before.version
    assert registry.last_change.changed == ("a__x",)


def test_a_changed_op_changes_the_version() -> None:
    registry = Registry()
    registry.put("a", [tool("x")])
    before = registry.catalog.version
    registry.put("a", [replace(tool("x"), op="onto.x.get")])
    assert registry.catalog.version != before


LISTINGS = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from(["x", "y", "z", "w"]), unique=True)), max_size=12
)


@pytest.mark.slow
@given(LISTINGS)
def test_a_catalog_changed_step_by_step_equals_one_built_at_once(
    listings: list[tuple[str, list[str]]],
) -> None:
    def fresh() -> Registry:
        registry = Registry()
        for source in "abc":
            registry.declare(source, prefix=False)
        return registry

    grown, last = fresh(), dict[str, list[str]]()
    for source, listed in listings:
        grown.put(source, [tool(name, source) for name in listed])
        last[source] = listed
    built = fresh()
    for source in sorted(last):
        built.put(source, [tool(name, source) for name in last[source]])
    assert grown.catalog.version == built.catalog.version
    assert dict(grown.catalog.tools) == dict(built.catalog.tools)


@pytest.mark.slow
@given(LISTINGS)
def test_a_listing_made_ready_before_others_came_is_taken_as_if_it_were_listed_now(
    listings: list[tuple[str, list[str]]],
) -> None:
    def fresh() -> Registry:
        registry = Registry()
        for source in "abc":
            registry.declare(source, prefix=False)
        return registry

    taken, put = fresh(), fresh()
    tools = [(source, [tool(name, source) for name in listed]) for source, listed in listings]
    for early, late in zip(tools[::2], tools[1::2], strict=False):
        claim = build_at_once(taken.claim(*early))
        taken.put(*late)
        taken.take(early[0], claim)
        put.put(*late)
        put.put(*early)
        assert list(taken.catalog.tools.items()) == list(put.catalog.tools.items())
        assert [part.tools for part in taken.catalog.parts] == [part.tools for part in put.catalog.parts]
        assert taken.problems == put.problems
        assert taken.catalog.version == put.catalog.version


def test_of_two_tools_with_one_name_the_source_declared_first_has_it_and_the_other_is_reported() -> None:
    registry = Registry()
    registry.declare("first", prefix=False)
    registry.declare("second", prefix=False)
    registry.put("second", [tool("x", "second")])
    registry.put("first", [tool("x", "first")])
    assert registry.catalog.tools["x"].source == "first"
    assert [(problem.source, problem.tool, problem.code) for problem in registry.problems] == [
        ("second", "x", "collision")
    ]


def test_the_loser_of_a_collision_comes_back_when_the_winner_goes() -> None:
    registry = Registry()
    registry.declare("first", prefix=False)
    registry.declare("second", prefix=False)
    registry.put("first", [tool("x", "first")])
    registry.put("second", [tool("x", "second")])
    registry.remove("first")
    assert registry.catalog.tools["x"].source == "second"
    assert registry.problems == ()


def test_a_reserved_name_is_refused_and_reported() -> None:
    registry = Registry(reserved=["call_tool"])
    registry.declare("evil", prefix=False)
    registry.put("evil", [tool("call_tool", "evil"), tool("ok", "evil")])
    assert names(registry) == ["ok"]
    assert [problem.code for problem in registry.problems] == ["reserved"]


def test_withheld_tools_are_named_with_their_reason_and_not_offered() -> None:
    registry = Registry()
    reason = Problem(source="a", tool="x", code="definition_changed", message="changed")
    registry.put("a", [tool("y")], withheld={"x": reason})
    assert names(registry) == ["a__y"]
    assert registry.catalog.withheld == {"a__x": reason}
    assert registry.problems == (reason,)


def test_search_sees_what_came_and_not_what_went() -> None:
    registry = Registry()
    registry.put("a", [tool("weather", description="Weather forecast of a city")])
    assert [hit.name for hit in registry.catalog.search("weather forecast")] == ["a__weather"]
    registry.put("a", [tool("translate", description="Translate a text")])
    assert registry.catalog.search("weather forecast") == []
    assert [hit.name for hit in registry.catalog.search("translate text")] == ["a__translate"]


def test_a_tool_is_found_by_any_spelling_that_only_it_has() -> None:
    registry = Registry()
    registry.put("git", [replace(tool("read_file", "git"), aliases=("readFile", "cat"))])
    catalog = registry.catalog
    assert {catalog.find(form) for form in ("git__read_file", "GIT__Read-File", "readfile", "cat")} == {
        catalog.tools["git__read_file"]
    }


def test_a_spelling_that_two_tools_share_finds_neither_and_offers_both() -> None:
    registry = Registry()
    registry.put("a", [tool("run", "a")])
    registry.put("b", [tool("run", "b")])
    assert registry.catalog.find("run") is None
    assert registry.catalog.nearest("run")[:2] == ["a__run", "b__run"]


def test_an_instance_sees_its_own_tools_and_nobody_else_does() -> None:
    registry = Registry()
    registry.put("a", [tool("x")])
    mine, other = Overlay(registry), Overlay(registry)
    mine.put("rest", [tool("api_weather", "rest")])
    assert list(mine.catalog.tools) == ["a__x", "api_weather"]
    assert list(other.catalog.tools) == ["a__x"]
    assert other.catalog.version == registry.catalog.version != mine.catalog.version


def test_an_instance_cannot_take_a_name_of_the_lower_layer() -> None:
    registry = Registry()
    registry.put("a", [tool("x")])
    mine = Overlay(registry)
    mine.put("rest", [tool("a__x", "rest")])
    assert mine.catalog.tools["a__x"].source == "a"
    assert [problem.code for problem in mine.problems] == ["collision"]


def test_tools_that_arrive_late_in_the_lower_layer_reach_every_instance() -> None:
    registry = Registry()
    mine = Overlay(registry)
    assert list(mine.catalog.tools) == []
    registry.put("a", [tool("x")])
    assert list(mine.catalog.tools) == ["a__x"]


def test_a_source_declared_after_another_went_stands_last_whoever_arrives_first() -> None:
    def winner(*arrivals: str) -> str:
        registry = Registry()
        for source in ("a", "b", "c"):
            registry.declare(source, prefix=False)
        registry.remove("a")
        registry.declare("d", prefix=False)
        for source in arrivals:
            registry.put(source, [tool("x", source)])
        return registry.catalog.tools["x"].source

    assert (winner("c", "d"), winner("d", "c")) == ("c", "c")


def test_tools_keep_their_places_when_their_source_lists_them_in_another_order() -> None:
    registry = Registry()
    registry.put("a", [tool("x"), tool("y")])
    registry.put("a", [tool("y"), tool("x")])
    registry.put("b", [tool("z", "b")])
    assert names(registry) == ["a__x", "a__y", "b__z"]
    registry.put("a", [tool("new"), tool("y", description="changed"), tool("x")])
    assert names(registry) == ["a__x", "a__y", "a__new", "b__z"]


def test_no_source_answers_to_the_name_of_anothers_tool() -> None:
    registry = Registry()
    registry.put("evil", [tool("fs_write", "evil")])
    assert registry.catalog.find("fs__write") is None
    reason = Problem(source="fs", tool="write", code="definition_changed", message="changed")
    registry.put("fs", [], withheld={"write": reason})
    assert registry.catalog.find("fs__write") is None


def test_a_spelling_that_begins_with_the_name_of_one_source_means_no_tool_of_another() -> None:
    registry = Registry()
    registry.put("a", [tool("b__c"), tool("b_d")])
    registry.put("a__b", [tool("c", "a__b"), tool("e", "a__b")])
    found = {name: registry.catalog.find(name) for name in ("a__b__c", "a/b__c", "a__b/c", "a__b.e", "a__bD")}

    assert {name: one.source if one else "" for name, one in found.items()} == {
        "a__b__c": "a",
        "a/b__c": "a",
        "a__b/c": "",
        "a__b.e": "a__b",
        "a__bD": "a",
    }


def test_a_name_of_separators_or_of_other_letters_is_no_spelling_of_an_alias() -> None:
    registry = Registry()
    registry.put("a", [replace(tool("weather"), aliases=("天气", "--"))])
    found = {name: registry.catalog.find(name) for name in ("天气", "删除", "---")}
    assert found == {"天气": registry.catalog.tools["a__weather"], "删除": None, "---": None}


def test_the_nearest_names_are_chosen_among_those_that_may_be_known() -> None:
    registry = Registry()
    registry.put("a", [tool(name) for name in ("reads", "reada", "readb", "readc", "ready_made")])
    assert registry.catalog.nearest("a__read", allowed={"a__ready_made"}.__contains__) == ["a__ready_made"]


def test_a_wrong_name_of_any_length_is_answered_with_names_that_are_alike() -> None:
    registry = Registry()
    registry.put("a", [tool(f"tool_number_{number}") for number in range(1500)])
    assert registry.catalog.nearest("a__tool_numbr_77")[0] == "a__tool_number_77"
    assert registry.catalog.nearest("q" * 1_000_000) == []


def test_a_wrong_name_is_compared_with_the_names_next_to_it_in_its_own_source_first() -> None:
    registry = Registry()
    for source in ("s1", "s10", "s100"):
        registry.put(source, [tool(f"count_{number}_stars", source=source) for number in range(1000)])
    wrong = ("s1__count_888_satrs", "s100__count_777_satrs")
    assert [registry.catalog.nearest(name, 1) for name in wrong] == [["s1__count_888_stars"], ["s100__count_777_stars"]]


def found(registry: Registry, query: str) -> list[str]:
    return [hit.name for hit in registry.catalog.search(query)]


def test_a_tool_is_found_by_what_its_source_says_of_itself_now() -> None:
    registry = Registry()
    registry.put("carto", [tool("find", "carto")], about=About(title="Atlas", description="Geography and navigation"))
    registry.put("other", [tool("find", "other")])
    registry.put("third", [tool("find", "third")])
    assert found(registry, "find with the atlas")[0] == found(registry, "find for navigation")[0] == "carto__find"
    registry.put("carto", [tool("find", "carto")])
    registry.put("other", [tool("find", "other")], about=About(instructions="Good for navigation"))
    assert (found(registry, "atlas"), found(registry, "find for navigation")[0]) == ([], "other__find")


def many(count: int = 1_000) -> list[Tool]:
    return [tool(f"t{number}", "many", f"Handle matter{number}x of the archive") for number in range(count)]


def test_a_large_index_outlives_a_restart_and_is_kept_again_when_the_catalog_changed(tmp_path: Path) -> None:
    path = tmp_path / "ranking.index"
    first = Registry(kept=path)
    first.put("many", many())
    answer = first.catalog.search("matter17x")
    assert [hit.name for hit in answer] == ["many__t17"]
    os.utime(path, (1, 1))  # whatever writes it again has another time, in the same tick of the clock of files too
    again = Registry(kept=path)
    again.put("many", many())
    assert again.catalog.search("matter17x") == answer
    again.index.keep()
    assert path.stat().st_mtime == 1
    again.put("late", [tool("knit", "late")])
    again.index.keep()
    assert path.stat().st_mtime > 1
    third = Registry(kept=path)
    third.put("many", many())
    third.put("late", [tool("knit", "late")])
    assert found(third, "knit") == ["late__knit"]


def test_the_index_of_a_source_that_says_something_else_is_not_taken_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "ranking.index"
    for about in ("Navigation", "Cooking"):
        registry = Registry(kept=path)
        registry.put("many", many(), about=About(title=about))
        assert len(found(registry, about)) == 10


def test_the_index_of_a_small_catalog_is_not_kept(tmp_path: Path) -> None:
    registry = Registry(kept=tmp_path / "ranking.index")
    registry.put("a", [tool("x")])
    assert found(registry, "x") == ["a__x"]
    registry.index.keep()
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_nothing_fits_is_pointed_to_the_nearest_categories() -> None:
    registry = Registry()
    small_print = " ".join(f"detail{number}" for number in range(30))
    parameter = {"properties": {"to": {"description": f"Where it lies on disk: {small_print}"}}}
    registry.put("mail", [replace(tool("send", "mail"), input_schema=parameter), tool("drop", "mail")])
    registry.put("sky", [tool("outlook", "sky", "Tell the weather")])
    registry.put("desk", [replace(tool("tidy", "desk"), category="chores")])
    catalog = registry.catalog
    query = (
        "juggle torches, tame lions, carve pumpkins, braid ropes, swallow swords, mend kites, churn butter by the disk"
    )
    assert catalog.search(query) == []
    assert catalog.nearest_categories(query) == {"mail": 2}
    assert catalog.nearest_categories("编织", 2) == {"mail": 2, "chores": 1}
    assert catalog.nearest_categories(query, allowed=lambda name: name == "sky__outlook") == {"sky": 1}


def test_a_boost_reaches_the_tools_of_both_layers() -> None:
    registry = Registry()
    registry.put("a", [tool("save_note", "a", "Save a note")])
    overlay = Overlay(registry)
    overlay.put("mine", [tool("save_text", "mine", "Save a note")])
    query = "save a note"
    for best in ("a__save_note", "save_text"):
        hits = overlay.catalog.search(query, boost=lambda name, best=best: 2.0 if name == best else 0.5)
        assert hits[0].name == best


def test_amending_gives_the_catalog_that_a_whole_listing_gives() -> None:
    amended, whole = Registry(), Registry()
    amended.put("a", [tool("x"), tool("y"), tool("z")])
    amended.amend("a", [tool("y", description="other"), tool("w")], removed=["x", "never"])
    whole.put("a", [tool("y", description="other"), tool("z"), tool("w")])
    assert dict(amended.catalog.tools) == dict(whole.catalog.tools)
    assert amended.catalog.version == whole.catalog.version
    change = amended.last_change
    assert (change.added, change.removed, change.changed) == (("a__w",), ("a__x",), ("a__y",))
    assert change.version == amended.catalog.version


def test_amending_with_what_is_there_changes_nothing() -> None:
    registry = Registry()
    registry.put("a", [tool("x")])
    before = registry.catalog
    assert registry.amend("a", [tool("x")], removed=["y"]) is False
    assert registry.catalog is before


def test_a_tool_that_is_taken_back_gives_its_name_to_the_source_that_waited_for_it() -> None:
    registry = Registry()
    for source in ("a", "b"):
        registry.declare(source, prefix=False)
        registry.amend(source, [tool("x", source)])
    assert [problem.source for problem in registry.problems] == ["b"]
    registry.amend("a", removed=["x"])
    assert (registry.catalog.tools["x"].source, registry.problems) == ("b", ())
    assert registry.last_change.changed == ("x",)


def test_a_catalog_is_a_mapping_of_exact_names() -> None:
    registry = Registry()
    registry.put("git", [tool("status", "git"), tool("log", "git")])
    catalog = registry.catalog

    assert (len(catalog), list(catalog)) == (2, ["git__status", "git__log"])
    assert ("git__log" in catalog, "log" in catalog, 3 in catalog) == (True, False, False)
    assert dict(catalog) == dict(catalog.items()) == dict(catalog.tools)
    assert catalog["git__log"] is catalog.find("log") is catalog.get("git__log")
    assert (catalog.get("log"), catalog.get("log", "none")) == (None, "none")


def test_a_name_that_a_catalog_lacks_is_a_key_error_with_the_nearest_ones() -> None:
    registry = Registry()
    registry.put("git", [tool("status", "git"), tool("log", "git")])

    with pytest.raises(KeyError, match="git__status"):
        registry.catalog["git__statsu"]
    with pytest.raises(KeyError, match="no tool 'x'"):
        Registry().catalog["x"]


def test_catalogs_are_told_apart_by_identity_and_compared_by_version() -> None:
    first, second = Registry(), Registry()
    for registry in (first, second):
        registry.put("git", [tool("status", "git")])

    assert first.catalog.version == second.catalog.version
    assert first.catalog != second.catalog
    assert len({first.catalog, second.catalog, first.catalog}) == 2


def test_a_large_catalog_that_changed_a_little_is_like_one_made_anew() -> None:
    changed, fresh = Registry(), Registry()
    many = [tool(f"t{number}") for number in range(3_000)]
    changed.put("a", many)
    changed.put("b", [tool("first", "b"), tool("last", "b")])
    before = changed.catalog
    changed.amend("a", [tool("t7", "a", "Another one"), tool("new")], ["t9"])
    changed.remove("b")

    other = [tool("t7", "a", "Another one") if one.name == "t7" else one for one in many if one.name != "t9"]
    fresh.put("a", [*other, tool("new")])
    now, anew = changed.catalog, fresh.catalog
    assert [*now.tools] == [*anew.tools]
    assert [*now.tools.items()] == [*anew.tools.items()]
    assert [*now.tools.values()] == [*anew.tools.values()]
    assert (len(now), now.version) == (len(anew), anew.version)
    assert (now["a__t7"].description, now.get("a__t9"), "b__first" in now) == ("Another one", None, False)
    assert (before["a__t7"].description, "a__t9" in before, "b__last" in before) == ("t7 does it", True, True)
