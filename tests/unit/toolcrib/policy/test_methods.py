"""A tool that sends requests is decided on by the method of each; no other tool is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.core.session import SessionState
from toolcrib.core.taint import Taint
from toolcrib.core.tool import Annotations, Capability, Tool
from toolcrib.policy.decision import Policy
from toolcrib.policy.modes import kind_of

SENDS = Tool(name="send", source="s", local_name="send", traits=("by_method", "outbound"))
OTHER = replace(SENDS, traits=("outbound",))


WORKS = Tool(
    name="work",
    source="s",
    local_name="work",
    annotations=Annotations(destructive=False),
    capability=Capability(metadata={"reads": {"action": ["look"]}}),
    traits=("by_action",),
)


@pytest.mark.parametrize(
    ("arguments", "effect"),
    [({"action": "look"}, "allow"), ({"action": "click"}, "ask"), ({"action": ["look"]}, "ask"), ({}, "ask")],
)
def test_an_action_that_looks_is_allowed_where_one_that_changes_something_asks(
    arguments: dict[str, Any], effect: str
) -> None:
    session = SessionState(key="s", principal="p", mode="autonomous", taint=Taint(source="page"))
    assert Policy().decide(WORKS, arguments, session).effect == effect
    assert kind_of(replace(WORKS, traits=()), arguments) == "write"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"method": "GET"}, "read"),
        ({"method": " head "}, "read"),
        ({"method": "options"}, "read"),
        ({"method": "POST"}, "write"),
        ({"method": "Put"}, "write"),
        ({"method": "PATCH"}, "write"),
        ({"method": "DELETE"}, "destructive"),
        ({"method": "PURGE"}, "destructive"),
        ({"method": ""}, "destructive"),
        ({"method": ["GET"]}, "destructive"),
        ({"method": None}, "destructive"),
        ({}, "destructive"),
        ({"METHOD": "GET"}, "destructive"),
    ],
)
def test_the_method_says_what_a_request_may_do(arguments: dict[str, Any], kind: str) -> None:
    assert (kind_of(SENDS, arguments), kind_of(OTHER, arguments)) == (kind, "destructive")


def test_a_tool_that_only_reads_is_not_made_more_by_a_method() -> None:
    reads = replace(OTHER, annotations=Annotations(read_only=True))

    assert kind_of(reads, {"method": "DELETE"}) == "read"


@pytest.mark.parametrize(
    ("tool", "method", "effect"), [(SENDS, "GET", "allow"), (SENDS, "POST", "ask"), (OTHER, "GET", "ask")]
)
def test_a_mode_that_asks_before_what_changes_something_lets_reading_requests_through(
    tool: Tool, method: str, effect: str
) -> None:
    session = SessionState(key="k", mode="cautious")

    assert Policy().decide(tool, {"method": method}, session).effect == effect


def test_in_a_session_that_strangers_wrote_to_a_reading_request_asks_for_what_it_carries_out() -> None:
    session = SessionState(key="k", mode="autonomous", taint=Taint(source="web_fetch"))
    decision = Policy().decide(SENDS, {"method": "GET"}, session)

    assert (decision.effect, "a read that can carry data out asks" in decision.rule) == ("ask", True)
