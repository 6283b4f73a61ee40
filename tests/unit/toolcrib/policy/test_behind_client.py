"""Behind a client that asks its user itself: its prompt counts for tools that it was shown by their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from toolcrib.core.call import Call, Options, Route
from toolcrib.core.session import Audience, SessionState
from toolcrib.core.tool import Annotations, Tool
from toolcrib.policy.decision import Policy
from toolcrib.policy.modes import MODES
from toolcrib.policy.rules import Rules, RuleTexts, parse_rules

DROP = Tool(name="db__drop", source="db", local_name="drop", origin="mcp", annotations=Annotations(destructive=True))
LOOK = replace(DROP, name="db__look", local_name="look", annotations=Annotations(read_only=True, destructive=False))


def call(tool: Tool, verb: str = "call", *, only: Any = None, is_client: bool = True) -> Call:
    session = SessionState(key="k", mode="autonomous", audience=Audience(is_client=is_client))
    return Call(
        id="c",
        name=tool.name,
        arguments={},
        session=session,
        tool=tool,
        route=Route(verb=verb),
        options=Options(only=only),
    )


def effect(made: Call, *, behind_client: bool = True, rules: RuleTexts | None = None) -> str:
    return Policy(Rules(parse_rules(rules or {})), behind_client=behind_client).decide_call(made).effect


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call(DROP), "ask"),
        (call(LOOK), "ask"),
        (call(LOOK, only="read"), "allow"),
        (call(DROP, verb=""), "allow"),
        (call(DROP, is_client=False), "allow"),
        (call(replace(LOOK, origin="python")), "allow"),
        (call(replace(DROP, approval="never")), "allow"),
    ],
    ids=["drop", "look", "look, read only", "by its name", "no client", "a local read", "asks never"],
)
def test_a_call_through_a_meta_tool_asks_where_the_clients_prompt_was_not_about_the_tool(
    made: Call, expected: str
) -> None:
    assert effect(made) == expected
    assert effect(made, behind_client=False) == "allow"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"allow": ["call_tool(name=db__*)"]}, "allow"),
        ({"allow": ["call_tool(name=other__*)"]}, "ask"),
        ({"allow": ["call_tool(name=db__*)"], "ask": ["call_tool(name=db__drop)"]}, "ask"),
        ({"deny": ["call_tool(name=db__drop)"]}, "deny"),
        ({"allow": ["db__drop"]}, "allow"),
        ({"allow": ["db__*"], "ask": ["call_tool(name=db__drop)"]}, "ask"),
        ({"allow": ["db__*"], "deny": ["call_tool(name=db__drop)"]}, "deny"),
        ({"deny": ["kind:read"]}, "ask"),
    ],
)
def test_rules_about_call_tool_and_about_the_tool_decide_before(rules: RuleTexts, expected: str) -> None:
    assert effect(call(DROP), rules=rules) == expected


def test_a_mode_that_denies_is_not_softened() -> None:
    modes = {**MODES, "autonomous": replace(MODES["autonomous"], destructive="deny")}

    assert Policy(modes=modes, behind_client=True).decide_call(call(DROP)).effect == "deny"
