"""Layers of rules: which hold for a session, in which order they are named, and that none takes back another's no."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from toolcrib import SessionOptions, Toolcrib, tool
from toolcrib.config import Settings, load
from toolcrib.core.permission import Decision
from toolcrib.core.saved_call import SavedSession
from toolcrib.errors import ConfigError, UsageError

CONFIG = """
rules:
  allow: [push]
modes:
  calm: {extends: cautious, rules: {ask: [push]}}
profiles:
  mine: {extends: flat, rules: {ask: ["push(branch=main)"]}}
identities:
  alice:
    mode: autonomous
    profile: mine
    rules:
      deny:
        - push(branch=prod)
    limits: {calls: 2}
    allowed_tools: [push, look]
"""


@tool
def push(branch: str) -> str:
    """Push."""
    return branch


@tool(kind="read")
def look() -> str:
    """Look."""
    return "seen"


@tool
def other() -> str:
    """Do something else."""
    return "done"


def settings(folder: Path, text: str = CONFIG) -> Settings:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return load([file], {"builtins": False}, {"HOME": str(folder)})


def decided(crib: Toolcrib, branch: str, **session: Any) -> Decision:
    found = crib.catalog.find("push")
    assert found is not None
    return crib.policy.decide(found, {"branch": branch}, crib.session(**session).state)


@pytest.mark.parametrize(
    ("session", "branch", "effect", "rule"),
    [
        ({}, "dev", "allow", "allow push (config {}:3)"),
        ({"mode": "calm"}, "dev", "ask", "ask push (mode calm)"),
        ({"profile": "mine"}, "dev", "allow", "allow push (config {}:3)"),
        ({"profile": "mine"}, "main", "ask", "ask push(branch=main) (profile mine)"),
        ({"profile": "mine", "mode": "calm"}, "main", "ask", "ask push(branch=main) (profile mine)"),
        ({"rules": {"deny": ["push(branch=x)"]}}, "x", "deny", "deny push(branch=x) (session)"),
        ({"rules": {"allow": ["push"]}, "mode": "calm"}, "x", "ask", "ask push (mode calm)"),
        ({"principal": "alice"}, "prod", "deny", "deny push(branch=prod) (identity alice {}:14)"),
        ({"principal": "alice"}, "main", "ask", "ask push(branch=main) (profile mine)"),
        (
            {"principal": "alice", "rules": {"allow": ["push"]}},
            "prod",
            "deny",
            "deny push(branch=prod) (identity alice {}:14)",
        ),
        ({"principal": "bob"}, "prod", "allow", "allow push (config {}:3)"),
    ],
)
async def test_every_layer_speaks_and_the_strictest_is_named_with_its_line(
    tmp_path: Path, session: dict[str, Any], branch: str, effect: str, rule: str
) -> None:
    async with Toolcrib(settings(tmp_path), memory=True) as crib:
        crib.add(push)

        place = f"{tmp_path.name}/config.yaml"
        decision = decided(crib, branch, **session)
        assert (decision.effect, decision.rule) == (effect, rule.format(place))


@pytest.mark.parametrize(
    ("allowed", "reason"),
    [
        (["look", "pu*"], "allowed_tools takes whole names, not the pattern 'pu*'"),
        ([look], "allowed_tools takes names of tools, not function"),
    ],
)
async def test_a_session_is_not_limited_by_what_is_not_a_name(allowed: Any, reason: str) -> None:
    async with Toolcrib(memory=True) as crib:
        crib.add(push, look, other)

        with pytest.raises(UsageError, match=f"^{re.escape(reason)}"):
            crib.session(allowed_tools=allowed)


async def test_a_misspelt_name_that_allows_or_denies_nothing_is_logged_once_with_the_tool_that_it_means(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = {"deny": ["pussh(branch=main)", "comes_later", "pu*", "kind:write", "Bash(rm:*)", "mcp__git"]}
    async with Toolcrib(memory=True, rules=rules) as crib:
        options: SessionOptions = {"allowed_tools": ["loook", "comes_later", "other"], "rules": {"ask": ["othr"]}}
        sessions = [crib.session(**options) for _ in range(2)]
        crib.add(push, look, other)
        for session in sessions:
            await session.call("look")

    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        "allowed_tools loook: there is no tool 'loook'; did you mean 'look'?",
        "rule deny pussh(branch=main) (config): there is no tool 'pussh'; did you mean 'push'?",
        "rule ask othr (session): there is no tool 'othr'; did you mean 'other'?",
    ]


async def test_a_name_that_was_compared_before_its_tool_came_is_compared_anew_for_the_doctor() -> None:
    async with Toolcrib(memory=True, rules={"deny": ["pussh"]}) as crib:
        crib.add(look)
        session = crib.session()
        await session.call("look")
        crib.add(push)

        meant = "rule deny pussh (config): there is no tool 'pussh'; did you mean 'push'?"
        assert crib.views.misspelt(session.state) == (meant,)


async def test_an_identity_brings_its_mode_its_profile_its_limits_and_the_most_it_may_have(tmp_path: Path) -> None:
    async with Toolcrib(settings(tmp_path), memory=True) as crib:
        crib.add(push, look, other)
        alice = crib.session(principal="alice")
        less = crib.session(principal="alice", key="less", allowed_tools=["look", "other"])

        assert (alice.state.mode, alice.state.profile, alice.state.limits.calls) == ("autonomous", "mine", 2)
        known = {"look", "push", "other"}
        assert known.intersection(tool.name for tool in alice.tools) == {"look", "push"}
        assert known.intersection(tool.name for tool in less.tools) == {"look"}
        refused = await less.call("other")
        assert refused.error is not None
        assert refused.error.code == "not_in_scope"


async def test_a_session_with_rules_that_cannot_be_read_is_not_opened() -> None:
    async with Toolcrib() as crib:
        with pytest.raises(UsageError, match="the bracket is not closed"):
            crib.session(rules={"deny": ["push("]})
        with pytest.raises(UsageError, match="deny, ask or allow with a list of rules was expected"):
            crib.session(rules={"deny": "push"})
        with pytest.raises(UsageError, match=r"rules\.deni"):
            crib.session(rules=cast("Any", {"deni": ["push"]}))
        with pytest.raises(UsageError, match=r"rules\.deny\.0"):
            crib.session(rules=cast("Any", {"deny": [1]}))


async def test_the_rules_of_a_session_are_kept_with_a_call_that_is_made_later() -> None:
    async with Toolcrib() as crib:
        state = crib.session(rules={"deny": ["push"]}).state

        assert SavedSession.of(state).rules == (("deny", ("push",)),)


BROKEN = "rules:\n  deny:\n    - other\n    - 'push('\nmode: autonomous\n"


async def test_a_rule_that_cannot_be_read_is_told_of_and_denies_everything_but_local_reads(tmp_path: Path) -> None:
    read = settings(tmp_path, BROKEN)
    message = f"{tmp_path}/config.yaml:4: deny: rule 'push(': the bracket is not closed"
    assert [(problem.source, problem.message) for problem in read.problems] == [("rules", message)]
    async with Toolcrib(read, memory=True) as crib:
        crib.add(push, look, other)
        session = crib.session(profile="flat")

        assert (await session.call("look")).text == "seen"
        refused = await session.call("push", {"branch": "x"})
        assert refused.error is not None
        assert (refused.error.code, "the bracket is not closed" in refused.text) == ("denied", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("identities: {a: {mode: calmer}}", "identities.a.mode: there is no mode 'calmer', only"),
        (
            "identities: {a: {allowed_tools: [x, 'y__*']}}",
            "identities.a.allowed_tools.1: names of tools without patterns",
        ),
        ("identities: {a: {moed: x}}", "identities.a.moed: unknown key; did you mean 'mode'?"),
        ("identities: {a: {limits: {calls: -1}}}", "identities.a.limits.calls: a whole number from 0 on was expected"),
        ("identities: {a: {rules: {dney: []}}}", "identities.a.rules.dney: unknown key; did you mean 'deny'?"),
        ("modes: {a: {rules: {deny: x}}}", "modes.a.rules.deny: a list of strings was expected"),
        ("modes: {a: {rules: {deny: ['x(']}}}", "the bracket is not closed"),
    ],
)
def test_what_cannot_be_taken_is_named_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, text)

    assert message in str(caught.value)
