"""Profiles are data, and what they show stands still."""

from __future__ import annotations

import pytest

from toolcrib.catalog.registry import Registry
from toolcrib.core.session import Audience, Scope, SessionState
from toolcrib.core.tool import Tool
from toolcrib.disclosure import profiles
from toolcrib.disclosure.aliases import ToolAliases
from toolcrib.disclosure.base import Profile, View, VisibleCatalog, estimate_tokens
from toolcrib.errors import ConfigError
from toolcrib.telemetry.tokens import definition_text, estimate, tokenizer

VERBS = ["search_tools", "describe_tools", "call_tool", "call_tool_readonly", "read_artifact"]


def registry(count: int) -> Registry:
    filled = Registry()
    described = "It does something that takes a sentence of quite some length to describe. " * 3
    tools = [Tool(name=f"t{i}", source="s", local_name=f"t{i}", description=described) for i in range(count)]
    filled.put("s", tools)
    return filled


def shown(count: int, session: SessionState | None = None, **changes: object) -> View:
    profile = profiles.load("adaptive").with_values(changes)
    return view_of(profile, registry(count), session or SessionState(key="k", audience=Audience(grows=False)))


def view_of(profile: Profile, filled: Registry, session: SessionState) -> View:
    aliases = ToolAliases(filled.catalog, profile.naming)
    visible = VisibleCatalog(profile=profile, catalog=filled.catalog, session=session, aliases=aliases)
    return profiles.strategy_of(profile).view(visible)


def names(view: View) -> list[str]:
    return [tool.name for tool in view.tools]


def test_a_small_catalog_is_shown_whole_because_discovery_would_cost_more() -> None:
    assert names(shown(5)) == [*(f"s__t{i}" for i in range(5)), "read_artifact"]


def test_a_large_catalog_is_behind_the_verbs() -> None:
    assert names(shown(100)) == VERBS


@pytest.mark.parametrize(("count", "first"), [(3, "Tools of git, s1, s2"), (13, "Tools of 13 sources")])
def test_the_first_line_of_the_instructions_names_the_servers_and_not_our_own_tools(count: int, first: str) -> None:
    """Codex shows no more than this line, in place of a line for each server."""
    filled = Registry()
    for source in ("git", "resources", "jobs", *(f"s{i}" for i in range(1, count))):
        filled.put(source, [Tool(name="t", source=source, local_name="t", description="It does something.")])
    profile = profiles.load("adaptive").with_values({"budget_tokens": 0})
    view = view_of(profile, filled, SessionState(key="k", audience=Audience(grows=False)))

    assert view.instructions.splitlines()[0] == first


def test_near_the_budget_definitions_are_counted_in_tokens_of_o200k() -> None:
    texts = [definition_text(face) for face in shown(20, budget_tokens=100_000).tools[:-1]]
    counted, estimated = sum(map(tokenizer().count, texts)), sum(map(estimate, texts))
    assert tokenizer().exact
    assert estimated * 0.8 < counted < estimated - 20

    assert names(shown(20, budget_tokens=counted))[:-1] == [f"s__t{i}" for i in range(20)]
    assert names(shown(20, budget_tokens=counted - 1)) == VERBS


def test_the_surface_of_a_large_catalog_stays_below_its_ceiling() -> None:
    view = shown(2000)
    spent = sum(map(estimate_tokens, view.tools)) + len(view.instructions.encode()) // 4
    assert spent <= 900


def test_core_tools_come_first_and_only_as_far_as_the_ceiling_allows() -> None:
    view = shown(100, core=tuple(f"s__t{i}" for i in range(50)))
    assert (names(view)[0], names(view)[-5:]) == ("s__t0", VERBS)
    assert sum(map(estimate_tokens, view.tools)) + len(view.instructions.encode()) // 4 <= 900


def test_over_mcp_nothing_that_a_session_does_changes_what_it_is_shown() -> None:
    session = SessionState(key="k", audience=Audience(grows=False))
    before = shown(100, session)
    session.history.activated["s__t7"] = None
    assert shown(100, session) == before


def test_in_a_library_session_what_was_activated_is_appended() -> None:
    session = SessionState(key="k")
    session.history.activated.update({"s__t7": None, "s__t3": None})
    assert names(shown(100, session)) == [*VERBS, "s__t7", "s__t3"]


def test_the_most_important_of_the_instructions_is_in_their_first_200_characters() -> None:
    first = shown(100).instructions[:200]
    assert "search_tools" in first
    assert "call_tool" in first


def test_the_verbs_ask_clients_that_hold_definitions_back_to_show_them() -> None:
    assert {tool.meta["anthropic/alwaysLoad"] for tool in shown(100).tools} == {True}


@pytest.mark.parametrize("name", ["adaptive", "flat", "gateway", "introspection", "selection", "tiered"])
def test_no_placeholder_is_left_in_the_definition_of_a_meta_tool(name: str) -> None:
    for grows in (True, False):
        session = SessionState(key="k", audience=Audience(grows=grows))
        text = str(
            [(tool.description, tool.input_schema) for tool in view_of(profiles.load(name), registry(1), session).tools]
        )
        assert not [verb for verb in ("search", "list", "load", "select") if f"{{{verb}}}" in text]


def test_flat_shows_what_is_in_scope_in_the_catalogs_order_and_how_to_read_on() -> None:
    session = SessionState(key="k", scope=Scope(allowed=frozenset({"s__t2", "s__t1"})))
    assert names(view_of(profiles.load("flat"), registry(5), session)) == ["s__t1", "s__t2", "read_artifact"]


@pytest.mark.parametrize("name", [None, "my profile!"])
def test_a_profile_has_a_name_of_its_own(name: str | None) -> None:
    with pytest.raises(ConfigError, match=r"p\.yaml: name: (a profile needs|takes 1 to 64 letters)"):
        profiles.build({"extends": "flat", **({"name": name} if name else {})}, file="p.yaml")


def test_an_unknown_profile_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean adaptive"):
        profiles.load("adaptiv")
    with pytest.raises(ConfigError, match=f"unknown profile 'zzz'; there are {', '.join(profiles.BUILT_IN)}$"):
        profiles.load("zzz")


def test_instructions_and_grown_tools_tell_nothing_of_what_is_out_of_scope() -> None:
    session = SessionState(key="k", scope=Scope(allowed=frozenset({"s__t1"})))
    session.history.activated.update({"s__t7": None, "s__t1": None})
    view = shown(100, session, budget_tokens=0)
    first, *_, last = view.instructions.splitlines()
    assert (names(view), first, last) == ([*VERBS, "s__t1"], "Tools of s", "1 tools in all.")
