"""What past calls say of tools: bounded, forgotten in time, apart for everybody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.catalog.success_rates import BOUND, HALF_LIFE, MEMORY, SuccessRates


class Clock:
    """Seconds since 1970, as a test wants them."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def taught(*outcomes: str, clock: Clock | None = None) -> SuccessRates:
    success_rates = SuccessRates(clock or Clock())
    for outcome in outcomes:
        success_rates.note("ada", "t", outcome)
    return success_rates


def test_a_tool_that_works_rises_and_one_that_fails_sinks_within_the_bound() -> None:
    assert (taught(*["ok"] * 1000).points("ada"), taught(*["tool_error"] * 1000).points("ada")) == (
        {"t": BOUND},
        {"t": -BOUND},
    )


def test_nothing_is_known_of_a_tool_that_was_never_called() -> None:
    assert SuccessRates().points("ada") == {}


def test_a_few_calls_move_less_than_many() -> None:
    few, many = taught("tool_error").points("ada")["t"], taught(*["tool_error"] * 20).points("ada")["t"]
    assert many < few < 0


def test_what_was_learned_halves_with_every_half_life_and_is_gone_after_four_of_them() -> None:
    clock = Clock()
    success_rates = taught(*["timeout"] * 5, clock=clock)
    seen = [success_rates.points("ada").get("t", 0)]
    for _ in range(8):
        clock.now += HALF_LIFE
        seen.append(success_rates.points("ada").get("t", 0))
    assert (seen == sorted(seen), seen[0] < -4, seen[-1]) == (True, True, 0)


def test_a_tool_that_was_mended_comes_back() -> None:
    clock = Clock()
    success_rates = taught(*["tool_error"] * 10, clock=clock)
    clock.now += 2 * HALF_LIFE
    for _ in range(30):
        success_rates.note("ada", "t", "ok")
    assert success_rates.points("ada")["t"] > 0


def test_what_is_not_the_fault_of_a_tool_is_not_counted() -> None:
    success_rates = taught("denied", "invalid_arguments", "cancelled", "not_in_scope", "budget_exceeded", "conflict")
    assert success_rates.points("ada") == {}


def test_one_identity_learns_nothing_of_another_unless_all_learn_together() -> None:
    success_rates = taught(*["tool_error"] * 50)
    assert success_rates.points("bob") == {}
    assert success_rates.points("bob", "global") == success_rates.points("ada", "global") == success_rates.points("ada")


def test_learning_can_be_switched_off() -> None:
    assert taught(*["ok"] * 50).points("ada", "off") == {}


def test_the_records_of_an_earlier_run_teach_the_same() -> None:
    clock = Clock()
    rows = [("ada", "t", "tool_error", clock.now - MEMORY / 4), ("ada", "u", "ok", clock.now)] * 6
    replayed = SuccessRates(clock)
    replayed.replay(sorted(rows, key=lambda row: row[3]))
    points = replayed.points("ada")
    assert (points["t"] < 0 < points["u"], set(points)) == (True, {"t", "u"})


@pytest.mark.slow
def test_what_is_remembered_is_bounded_and_the_least_used_goes_first() -> None:
    success_rates = SuccessRates(Clock())
    for number in range(25_000):
        success_rates.note("ada", f"t{number}", "tool_error")
    points = success_rates.points("ada")
    assert (len(points) <= 20_000, "t0" in points, "t24999" in points) == (True, False, True)


@pytest.mark.slow
@given(st.lists(st.sampled_from(["ok", "tool_error", "timeout", "denied", "unavailable"]), max_size=60))
def test_no_history_moves_a_tool_beyond_the_bound(outcomes: list[str]) -> None:
    assert all(-BOUND <= points <= BOUND for points in taught(*outcomes).points("ada").values())
