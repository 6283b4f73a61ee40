"""kill -9 at any point: no accepted job is lost, and nothing that may not be repeated runs twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .crashing import Aftermath, Crashes

WORKING = 8
"""Calls that a process makes at the same time."""
BETWEEN = 2
"""Kills between two steps of a chain."""
STEPS = ("put", "look", "charge", "thank")


@pytest.fixture
def kills(full_size: bool) -> int:
    """How often the program is killed; it makes 21 jobs, or ten chains, for each."""
    return 10 if full_size else 5


def check(after: Aftermath, kills: int) -> None:
    """Judge what the tools did, by their own ledger, against what the store says."""
    assert {n: id for n, id in after.accepted.items() if id not in after.jobs} == {}, "lost"
    assert {id: job for id, job in after.jobs.items() if job[1] not in ("completed", "failed")} == {}
    assert after.problem == ""
    charged = {body: times for body, times in after.begun.items() if body.startswith("charge") and times > 1}
    assert charged == {}, "ran twice"
    by_number = {n: after.jobs[id] for n, id in after.accepted.items()}
    for n, (tool, status, outcome) in by_number.items():
        body = f"{tool} {n}"
        if status == "completed":
            assert after.ended[body] >= 1, "said to be done, and never was"
        else:
            assert (tool, outcome) == ("charge", "outcome_unknown"), f"{body} may be repeated, and was not"
    again = {body: times for body, times in after.ended.items() if times > 1}
    most = kills * WORKING + len(after.jobs) - len(after.accepted)  # reads, which reserve no key, are submitted again
    assert sum(again.values()) - len(again) <= most, "ran again although its end was written down"


async def test_another_process_takes_over_what_a_killed_one_carried(tmp_path: Path, postgres_url: str) -> None:
    crashes = Crashes(tmp_path, count=60, url=postgres_url)

    after = crashes.kill_one_of(3, after=30)

    assert Counter(tool for tool, _, _ in after.jobs.values() if tool != "look") == {"charge": 20, "put": 20}
    check(after, kills=1)


async def test_jobs_survive_kill_9_again_and_again(tmp_path: Path, kills: int) -> None:
    each = 7 * kills
    crashes = Crashes(tmp_path, count=3 * each)

    killed = crashes.kill(kills, most=30)
    after = crashes.finish()

    made = Counter(tool for tool, _, _ in after.jobs.values())
    assert (killed, made["charge"], made["put"]) == (kills, each, each)
    assert made["look"] >= each
    check(after, kills)


async def test_a_workflow_goes_on_after_kill_9_and_no_step_of_it_that_may_not_be_repeated_runs_twice(
    tmp_path: Path, kills: int
) -> None:
    chains = 10 * kills
    crashes = Crashes(tmp_path, count=chains, what="workflows")

    killed = crashes.kill(kills, most=25)
    for _ in range(BETWEEN):  # else all that were begun may be where nothing is repeated, or one step further by now
        crashes.kill_after("end put")
    after = crashes.finish()

    assert (killed, len(after.jobs), after.problem) == (kills, chains, "")
    twice = {body: times for body, times in after.begun.items() if times > 1}
    assert {body for body in twice if body.startswith(("charge", "thank"))} == set(), "ran twice"
    assert sum(twice.values()) - len(twice) <= (kills + BETWEEN) * WORKING, (
        "ran again although its end was written down"
    )
    for n, id in after.accepted.items():
        ran = {name for name in STEPS if after.ended[f"{name} {n}"]}
        status, outcome = after.jobs[id][1:]
        assert (status, outcome) in (("completed", "ok"), ("failed", "outcome_unknown")), f"chain {n}: {outcome}"
        assert status == "failed" or ran == set(STEPS), f"chain {n} is said to be done, and never was"
        assert status == "completed" or "look" in ran, f"chain {n} was in a step that may be repeated"
    done = [id for id, tool, outcome in after.rows if tool == "chain" and outcome == "ok"]
    gone_on = [id for id in done if "." in id]  # `.2` from the second process on, `.3` in the third …
    assert gone_on, "no chain was gone on with"
