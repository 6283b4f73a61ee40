"""Permissions of single tools: what they say, which entry speaks, and how they stand among the written rules."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from toolcrib.core.permission import Decision, Effect
from toolcrib.core.session import SessionApprovals, SessionState
from toolcrib.core.tool import Annotations, Tool
from toolcrib.policy.decision import Policy
from toolcrib.policy.modes import Mode, ModeSettings, permitted
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.rules import parse_rules

PUSH = Tool(name="git__push", local_name="push", source="git", aliases=("shove",))


@pytest.mark.parametrize("name", ["git__push", "push*", "shove", "mcp__git__push", "git__*", "*", "g?t__push"])
def test_an_entry_means_a_tool_by_each_of_its_names_and_by_patterns(name: str) -> None:
    found = permitted(PUSH, {name: "ask"}, {}, "mine")
    rule = f"ask {name} (tools of mode mine)"
    expected = Decision(effect="ask", rule=rule, named=not {"*", "?"} & set(name))
    assert found == (None if name == "push*" else expected)


def test_a_name_beats_a_pattern_and_a_longer_pattern_a_shorter_one() -> None:
    said: dict[str, Effect] = {"*": "deny", "git__*": "ask", "git__push": "allow"}
    pull = Tool(name="git__pull", local_name="pull", source="git")
    other = Tool(name="fs__read", local_name="read", source="fs")
    effects = [found.effect for tool in (PUSH, pull, other) if (found := permitted(tool, {}, said, ""))]
    assert effects == ["allow", "ask", "deny"]


def test_of_two_entries_that_fit_equally_the_stricter_one_speaks() -> None:
    found = permitted(PUSH, {}, {"git__pus*": "allow", "*it__push": "deny"}, "")
    assert found is not None and found.effect == "deny"


@pytest.mark.parametrize("mode", ["deny", "ask", "allow"])
@pytest.mark.parametrize("everywhere", ["deny", "ask", "allow"])
def test_what_the_mode_says_replaces_what_all_modes_say(mode: Effect, everywhere: Effect) -> None:
    assert decided(mode={"git__push": mode}, everywhere={"git__push": everywhere}).effect == mode


def test_a_pattern_of_the_mode_replaces_a_name_of_all_modes() -> None:
    assert decided(mode={"git__*": "allow"}, everywhere={"git__push": "deny"}).effect == "allow"


@pytest.mark.parametrize(
    ("written", "entered", "effect", "rule"),
    [
        ({"deny": ["git__push"]}, "allow", "deny", "deny git__push (config)"),
        ({"ask": ["git__push"]}, "allow", "ask", "ask git__push (config)"),
        ({"allow": ["git__push"]}, "deny", "deny", "deny git__push (tool_permissions)"),
        ({"allow": ["git__push"]}, "ask", "ask", "ask git__push (tool_permissions)"),
        ({"allow": ["git__push"]}, "allow", "allow", "allow git__push (config)"),
        ({"deny": ["other"]}, "allow", "allow", "allow git__push (tool_permissions)"),
    ],
)
def test_the_merged_permission_is_one_entry_in_the_table_of_rules(
    written: Mapping[Effect, list[str]], entered: Effect, effect: Effect, rule: str
) -> None:
    assert decided(written, everywhere={"git__push": entered}) == Decision(effect=effect, rule=rule, named=True)


def test_a_never_comes_before_what_is_permitted() -> None:
    decision = decided(everywhere={"git__push": "allow"}, remembered={"git__push": "deny"})
    assert decision.rule == "the answer 'never' for git__push in this session"


def test_a_wary_session_takes_what_says_it_reads_for_a_write() -> None:
    tool = Tool(
        name="t",
        local_name="t",
        source="s",
        origin="mcp",
        category="c",
        annotations=Annotations(read_only=True, destructive=False),
    )
    effects = {
        (mode, origins): Policy()
        .decide(tool, {}, SessionState(key="k", mode=mode, treat_as_write=frozenset(origins)))
        .effect
        for mode in ("cautious", "autonomous", "manual")
        for origins in ((), ("mcp",), ("openapi",), ("c",), ("t",))
    }
    assert [key for key, effect in effects.items() if effect == "allow"] == [
        ("cautious", ()),
        ("cautious", ("openapi",)),
        ("autonomous", ()),
        ("autonomous", ("mcp",)),
        ("autonomous", ("openapi",)),
        ("autonomous", ("c",)),
        ("autonomous", ("t",)),
    ]


def test_a_mode_says_of_single_tools_what_they_do() -> None:
    mode = Mode.of("mine", ModeSettings(read="allow", tools={"git__push": "deny"}))
    assert (mode.tools, mode.write) == ({"git__push": "deny"}, "ask")


def decided(
    written: Mapping[Effect, list[str]] | None = None,
    *,
    mode: Mapping[str, Effect] | None = None,
    everywhere: Mapping[str, Effect] | None = None,
    remembered: Mapping[str, Effect] | None = None,
) -> Decision:
    mine = Mode(name="mine", read="ask", write="ask", destructive="ask", tools=mode or {})
    policy = Policy(RuleLayers(parse_rules(written or {})), {"mine": mine}, everywhere or {})
    return policy.decide(
        PUSH, {}, SessionState(key="k", mode="mine", approvals=SessionApprovals(remembered=dict(remembered or {})))
    )
