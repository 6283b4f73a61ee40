"""Modes are data: what they extend, what they tell the model, where changes of files go."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.core.permission import Decision
from toolcrib.core.tool import Annotations, Tool
from toolcrib.errors import ConfigError
from toolcrib.policy.modes import MODES, Mode, ModeSettings, resolve_modes

WRITES = Tool(name="put", source="s", local_name="put", annotations=Annotations(destructive=False))
WRITES_FILES = replace(WRITES, name="write_file", traits=("file_writer",))


def test_a_mode_that_extends_another_says_only_what_differs() -> None:
    modes = resolve_modes(
        {"careful": ModeSettings(extends="review", prompt="Small steps.", tools={"git_push": "deny"})}
    )
    assert modes["careful"] == replace(
        MODES["review"], name="careful", prompt="Small steps.", tools={"git_push": "deny"}
    )


def test_modes_extend_one_another_in_any_order_and_add_to_their_tools() -> None:
    modes = resolve_modes(
        {
            "c": ModeSettings(extends="b", tools={"x": "ask"}),
            "b": ModeSettings(extends="a", write="deny"),
            "a": ModeSettings(read="allow", tools={"x": "deny", "y": "allow"}),
        }
    )
    assert modes["c"] == Mode(name="c", read="allow", write="deny", destructive="ask", tools={"x": "ask", "y": "allow"})


def test_a_built_in_mode_can_be_changed_by_extending_itself() -> None:
    assert resolve_modes({"cautious": ModeSettings(extends="cautious", destructive="deny")})["cautious"] == replace(
        MODES["cautious"], destructive="deny"
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"a": {"extends": "b"}, "b": {"extends": "a"}}, "modes.a.extends: these modes extend one another: a, b"),
        ({"a": {"extends": "a"}}, "modes.a.extends: these modes extend one another: a"),
        ({"a": {"extends": "cautios"}}, "modes.a.extends: unknown mode 'cautios' to extend"),
    ],
)
def test_what_is_wrong_with_a_mode_is_named_with_its_key(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve_modes({name: ModeSettings(**one) for name, one in given.items()})
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize("mode", ["review", "audit"])
def test_what_waits_for_review_is_not_asked_for_and_every_other_write_is(mode: str) -> None:
    diverted = MODES[mode].decide(WRITES_FILES, diverted=True)
    assert diverted == Decision(effect="allow", rule=f"mode {mode}: changes of files wait for review")
    assert MODES[mode].decide(WRITES, diverted=True).effect == "ask"
    assert MODES[mode].decide(WRITES_FILES, diverted=False).effect == "ask", "nothing is diverted without a workspace"


def test_only_what_asks_the_user_runs_before_a_plan_is_approved() -> None:
    asks = replace(WRITES, traits=("asks_user",))
    effects = [MODES["plan"].before_plan(tool).effect for tool in (WRITES, asks, replace(asks, approval="always"))]
    assert effects == ["deny", "allow", "ask"]


@pytest.mark.parametrize("own", MODES)
@pytest.mark.parametrize("other", MODES)
def test_two_modes_together_hold_back_what_either_holds_back(own: str, other: str) -> None:
    both = MODES[own].restricted_by(MODES[other])
    parts = (MODES[own], MODES[other])

    for kind in ("read", "write", "destructive"):
        effects = {getattr(one, kind) for one in parts}
        assert getattr(both, kind) == ("ask" if "ask" in effects else "allow")
    assert (both.plan, both.diverts) == (any(one.plan for one in parts), any(one.diverts for one in parts))
    assert both in parts or both.name == f"{own}+{other}"


def test_entries_and_rules_of_two_modes_together_are_the_stricter_ones() -> None:
    a = Mode(
        name="a",
        read="allow",
        write="allow",
        destructive="allow",
        tools={"x": "allow", "y*": "deny"},
        rules={"deny": ("p",), "allow": ("r", "s")},
    )
    b = Mode(
        name="b",
        read="allow",
        write="ask",
        destructive="ask",
        tools={"y1": "allow"},
        shadow=True,
        rules={"allow": ("q", "r")},
    )

    both = a.restricted_by(b, {"x": "ask"})

    assert (both.name, both.shadow) == ("a+b", True)
    assert both.tools == {"x": "ask", "y*": "deny", "y1": "deny"}
    assert both.rules == {"deny": ("p",), "allow": ("r",)}


def test_a_mode_that_only_adds_care_stays_itself() -> None:
    careful = Mode.of("careful", ModeSettings(extends="cautious", tools={"git_push": "deny"}))

    assert careful.restricted_by(MODES["autonomous"], {"rm": "ask"}) is careful
    assert MODES["autonomous"].restricted_by(careful, {"rm": "ask"}) is careful
