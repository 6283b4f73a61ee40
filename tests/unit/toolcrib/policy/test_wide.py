"""Answers that cover more than the call that was asked about, and what none of them covers."""

from __future__ import annotations

import pytest

from toolcrib.core.permission import Answer, Decision, Verdict
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.policy.decision import Policy
from toolcrib.policy.remembered_answers import remember

TOOL = Tool(name="fs__write", source="fs", local_name="write")
ALWAYS = Tool(name="fs__wipe", source="fs", local_name="wipe", approval="always")
SHELL = Tool(name="sh", source="x", local_name="sh", tags=("shell",))
WIDE = pytest.mark.parametrize("verdict", ["all", "turn", "idle"])
WIDE_OR_ALWAYS = pytest.mark.parametrize("verdict", ["all", "turn", "idle", "always"])


def answered(verdict: Verdict, tool: Tool = TOOL) -> SessionState:
    session = SessionState(key="k")
    remember(session, tool, {}, Answer(verdict=verdict))
    return session


@WIDE
def test_a_wide_yes_lets_every_later_call_run(verdict: Verdict) -> None:
    other = Tool(name="fs__remove", source="fs", local_name="remove")

    decision = Policy().decide(other, {}, answered(verdict))

    assert decision == Decision(effect="allow", rule=f"the answer '{verdict}' in this session")


@WIDE_OR_ALWAYS
def test_no_wide_yes_covers_what_always_asks_or_cannot_be_taken_back(verdict: Verdict) -> None:
    session, policy = answered(verdict), Policy()

    assert policy.decide(ALWAYS, {}, session).effect == "ask"
    assert policy.decide(SHELL, {"command": "rm -rf /"}, session).effect == "ask"


@WIDE_OR_ALWAYS
def test_a_wide_yes_to_what_always_asks_is_a_yes_for_this_time(verdict: Verdict) -> None:
    session = answered(verdict, ALWAYS)
    remember(session, SHELL, {"command": "rm -rf /"}, Answer(verdict=verdict))

    assert (session.approvals.remembered, session.approvals.blanket) == ({}, {})


def test_a_never_holds_against_every_wide_yes() -> None:
    session = answered("all")
    remember(session, TOOL, {}, Answer(verdict="never"))

    assert Policy().decide(TOOL, {}, session).effect == "deny"
