"""kill -9 of servers, workers and the gateway at random under load: nothing accepted is lost, no call doubled."""

from __future__ import annotations

from pathlib import Path

from rig.chaos import Account, Plant, storm

SEED = 20261121


def check(account: Account, *, calls: int) -> None:
    assert len(account.told) == calls, "every piece of work came to an end"
    assert account.lost == []
    assert account.doubled == {}
    assert account.mislabelled == []
    assert account.unrecorded == []
    assert account.proof.startswith("0 "), account.proof
    assert account.orphans == ()
    # A task whose server was killed too often has not run, and says so.
    assert set(account.outcomes) <= {"ok", "outcome_unknown", "unavailable"}, account.outcomes
    assert account.outcomes["ok"] > calls * 0.6, "most calls are not there when somebody is killed"


async def test_a_gateway_and_its_servers_lose_and_double_nothing_when_they_are_killed(
    tmp_path: Path, full_size: bool
) -> None:
    calls, kills = (4000, 200) if full_size else (140, 10)
    plant = Plant(tmp_path, servers=4)

    async with plant.running():
        account = await storm(plant, calls=calls, clients=8, kills=kills, seed=SEED)

    check(account, calls=calls)
    assert sum(account.kills.values()) >= kills - 2
    assert set(account.kills) == {"gateway", "server"}


async def test_workers_that_are_killed_lose_and_double_nothing(
    tmp_path: Path, postgres_url: str, full_size: bool
) -> None:
    calls, kills = (2000, 100) if full_size else (80, 8)
    plant = Plant(tmp_path, servers=2, workers=2, url=postgres_url)

    async with plant.running():
        account = await storm(plant, calls=calls, clients=8, kills=kills, seed=SEED)

    check(account, calls=calls)
    assert set(account.kills) == {"gateway", "server", "worker"}
