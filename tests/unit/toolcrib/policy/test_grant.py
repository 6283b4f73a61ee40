"""Grants: the right to run exactly one call, once."""

from __future__ import annotations

from toolcrib.core.permission import Grant
from toolcrib.core.tool import Tool
from toolcrib.policy.grant import covers, mint, spend

TOOL = Tool(name="fs__write", source="fs", local_name="write")


def test_a_grant_covers_its_own_call_alone() -> None:
    grant = mint("call-1", TOOL, {"path": "a"}, "rule")
    other = Tool(name="fs__write", source="fs", local_name="write", description="changed")

    assert covers(grant, TOOL, {"path": "a"}, "call-1")
    assert not covers(grant, TOOL, {"path": "b"}, "call-1")
    assert not covers(grant, TOOL, {"path": "a"}, "call-2")
    assert not covers(grant, other, {"path": "a"}, "call-1")


def test_a_grant_is_spent_once() -> None:
    grant = mint("call-1", TOOL, {}, "rule")

    assert [spend(grant, TOOL, {}, "call-1") for _ in range(2)] == [True, False]


def test_a_grant_that_was_not_minted_covers_nothing() -> None:
    real = mint("call-1", TOOL, {}, "rule")
    forged = Grant(call_id=real.call_id, tool=real.tool, arguments=real.arguments, rule=real.rule)

    assert forged == real
    assert not covers(forged, TOOL, {}, "call-1")


def test_equal_arguments_in_another_order_are_the_same_call() -> None:
    assert covers(mint("call-1", TOOL, {"a": 1, "b": 2}, "rule"), TOOL, {"b": 2, "a": 1}, "call-1")
