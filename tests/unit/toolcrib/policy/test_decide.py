"""The decision: rules, then memory, then the mode; and a gate that stays shut when it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import pytest
from msgspec.structs import replace

from toolcrib.core.permission import Decision, Effect
from toolcrib.core.session import UNSANDBOXED, Scope, SessionApprovals, SessionState
from toolcrib.core.tool import Annotations, Availability, Tool
from toolcrib.errors import UsageError
from toolcrib.policy.decision import Policy, approved_as
from toolcrib.policy.modes import MODES, Mode, ModeSettings
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.rules import Rule, parse_rules

READ = Annotations(read_only=True, destructive=False)
WRITE = Annotations(destructive=False)
DESTROY = Annotations()


def tool(annotations: Annotations = WRITE, approval: Literal["never", "mode", "always"] = "mode") -> Tool:
    return Tool(name="fs__do", source="fs", local_name="do", annotations=annotations, approval=approval)


def decide(
    target: Tool, mode: str = "cautious", remembered: Mapping[str, Effect] | None = None, **rules: Any
) -> Decision:
    session = SessionState(key="k", mode=mode, approvals=SessionApprovals(remembered=dict(remembered or {})))
    return Policy(RuleLayers(parse_rules(cast("Mapping[Effect, list[str]]", rules)))).decide(target, {}, session)


@pytest.mark.parametrize(
    ("mode", "effects"),
    [
        ("cautious", ["allow", "ask", "ask"]),
        ("autonomous", ["allow", "allow", "allow"]),
        ("manual", ["ask", "ask", "ask"]),
    ],
)
def test_a_mode_decides_by_the_kind_of_tool(mode: str, effects: list[Effect]) -> None:
    assert [decide(tool(kind), mode).effect for kind in (READ, WRITE, DESTROY)] == effects


def test_an_argument_named_command_makes_a_read_of_shell_tools_only() -> None:
    session = SessionState(key="k", mode="cautious")
    tools = [replace(tool(), category=category, origin="python") for category in ("shell", "deploy")]

    effects = [Policy(RuleLayers(())).decide(one, {"command": "ls"}, session).effect for one in tools]

    assert effects == ["allow", "ask"]


def test_the_decision_of_a_mode_names_it() -> None:
    assert decide(tool(WRITE)) == Decision(effect="ask", rule="mode cautious: a write tool is asked for")


@pytest.mark.parametrize("mode", list(MODES))
def test_a_tool_that_asks_always_asks_in_every_mode(mode: str) -> None:
    assert decide(tool(READ, "always"), mode).effect == "ask"


@pytest.mark.parametrize("mode", list(MODES))
def test_a_tool_that_never_asks_runs_unless_a_rule_speaks(mode: str) -> None:
    assert decide(tool(DESTROY, "never"), mode).effect == "allow"
    assert decide(tool(DESTROY, "never"), mode, ask=["fs__do"]).effect == "ask"


def test_rules_come_before_the_mode() -> None:
    assert decide(tool(READ), deny=["fs__*"]).rule == "deny fs__* (config)"
    assert decide(tool(DESTROY), allow=["fs__do"]).effect == "allow"


def test_a_remembered_answer_comes_before_the_mode() -> None:
    assert decide(tool(), remembered={approved_as(tool()): "allow"}) == Decision(
        effect="allow", rule="the answer 'always' for fs__do in this session", named=True
    )
    assert decide(tool(), "autonomous", {"fs__do": "deny"}).effect == "deny"


def test_a_remembered_always_does_not_speak_for_another_definition_of_the_name() -> None:
    assert decide(tool(DESTROY), remembered={approved_as(tool()): "allow"}).effect == "ask"


def test_a_remembered_never_comes_before_rules_that_permit() -> None:
    assert decide(tool(), remembered={"fs__do": "deny"}, allow=["fs__do"]).effect == "deny"


def test_a_remembered_always_permits_nothing_that_a_rule_or_the_tool_asks_for() -> None:
    assert decide(tool(), remembered={approved_as(tool()): "allow"}, ask=["fs__do"]).effect == "ask"
    assert decide(tool(approval="always"), remembered={approved_as(tool(approval="always")): "allow"}).effect == "ask"


def test_a_remembered_answer_holds_for_its_tool_alone() -> None:
    assert decide(tool(), remembered={"fs__other": "allow"}).effect == "ask"


@pytest.mark.parametrize(("needs", "kind"), [("language_server", READ), ("shell", WRITE)])
def test_where_no_sandbox_holds_it_what_runs_programs_of_the_workspace_asks_in_every_mode(
    needs: str, kind: Annotations
) -> None:
    runs = replace(tool(kind), availability=Availability(needs=(needs,)))
    for mode in MODES:
        state = SessionState(key="k", mode=mode, scope=Scope(provided=frozenset({needs, UNSANDBOXED})))
        policy = Policy(RuleLayers(parse_rules({"allow": ["fs__do"]})))

        assert policy.decide(runs, {}, state).rule == "no sandbox: fs__do asks in every mode"


def test_what_cannot_be_decided_is_denied() -> None:
    def broken(_: Tool) -> bool:
        raise RuntimeError("boom")

    policy = Policy(RuleLayers([Rule(effect="allow", text="x", layer="config", concerns=broken)]))

    assert policy.decide(tool(READ), {}, SessionState(key="k")).effect == "deny"


def test_an_unknown_mode_denies_and_is_named_when_it_is_asked_for() -> None:
    assert decide(tool(READ), "cuatious").effect == "deny"
    with pytest.raises(UsageError) as refused:
        Policy().mode("cuatious")
    for name in ("'cuatious'", "audit, autonomous, cautious, manual, plan, review", "did you mean 'cautious'"):
        assert name in str(refused.value)


def test_a_mode_of_ones_own_is_data() -> None:
    mode = Mode.of("readonly", ModeSettings(read="allow", write="deny"))
    policy = Policy(modes={**MODES, "readonly": mode})
    session = SessionState(key="k", mode="readonly")

    effects = [policy.decide(tool(kind), {}, session).effect for kind in (READ, WRITE, DESTROY)]
    assert effects == ["allow", "deny", "ask"]
    assert policy.decide(tool(WRITE, "never"), {}, session).effect == "deny"
