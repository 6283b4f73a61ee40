"""Overload: who runs, who waits, who is refused."""

import anyio
import pytest

from toolcrib.mcp.server.admission import Admission, Overloaded


async def test_calls_beyond_the_queue_are_refused_at_once_and_the_others_all_run() -> None:
    gate, hold = Admission(running=4, queue=8), anyio.Event()
    ran: list[int] = []
    refused: list[int] = []

    async def one(number: int) -> None:
        try:
            await gate.enter("a")
        except Overloaded:
            refused.append(number)
            return
        await hold.wait()
        ran.append(number)
        gate.leave()

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
        await anyio.wait_all_tasks_blocked()
        assert (gate.running, gate.waiting, len(refused)) == (4, 8, 8)
        hold.set()
    assert sorted(ran + refused) == list(range(20))
    assert (gate.running, gate.waiting) == (0, 0)


async def test_callers_take_turns_however_much_each_has_waiting() -> None:
    gate = Admission(running=1, queue=100)
    order: list[str] = []

    async def one(caller: str) -> None:
        await gate.enter(caller)
        order.append(caller)
        await anyio.lowlevel.checkpoint()
        gate.leave()

    await gate.enter("holder")
    async with anyio.create_task_group() as tasks:
        for caller in ["greedy"] * 6 + ["modest"] * 2:
            tasks.start_soon(one, caller)
        await anyio.wait_all_tasks_blocked()
        gate.leave()
    assert order == ["greedy", "modest", "greedy", "modest", "greedy", "greedy", "greedy", "greedy"]


async def test_a_full_queue_makes_room_for_a_caller_with_less_waiting() -> None:
    gate = Admission(running=1, queue=4)
    outcome: list[str] = []

    async def one(caller: str) -> None:
        try:
            await gate.enter(caller)
        except Overloaded:
            outcome.append(f"{caller} refused")
            return
        outcome.append(caller)
        gate.leave()

    await gate.enter("holder")
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(one, "greedy")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(one, "modest")
        await anyio.wait_all_tasks_blocked()
        assert outcome == ["greedy refused"]
        gate.leave()
    assert sorted(outcome) == ["greedy", "greedy", "greedy", "greedy refused", "modest"]


async def test_a_waiting_call_that_is_cancelled_gives_its_place_to_nobody_and_blocks_nobody() -> None:
    gate = Admission(running=1, queue=4)
    await gate.enter("a")
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:

            async def give_up() -> None:
                await anyio.wait_all_tasks_blocked()
                scope.cancel()

            tasks.start_soon(give_up)
            await gate.enter("b")
    assert (gate.running, gate.waiting) == (1, 0)
    gate.leave()
    assert gate.try_enter()


async def test_a_call_that_waits_for_a_person_lends_its_place_out() -> None:
    gate = Admission(running=1, queue=0)
    await gate.enter("a")
    with pytest.raises(Overloaded):
        await gate.enter("b")
    async with gate.outside():
        await gate.enter("b")
    assert gate.running == 2
    gate.leave()
    gate.leave()
    await gate.idle()


@pytest.mark.parametrize(
    "demand",
    [
        {f"caller {number}": 125 for number in range(8)},
        {"greedy": 900, **{f"modest {number}": 10 for number in range(10)}},
        {f"modest {number}": 10 for number in range(10)} | {"greedy": 900},
        {"greedy": 500, "greedy too": 400, **{f"single {number}": 1 for number in range(100)}},
    ],
    ids=["equal", "greedy first", "greedy last", "many callers with one call"],
)
async def test_of_a_thousand_calls_at_once_no_caller_gets_less_than_half_of_its_fair_share(
    demand: dict[str, int],
) -> None:
    gate, hold, decided = Admission(running=64, queue=256), anyio.Event(), 0
    ran, refused = dict.fromkeys(demand, 0), dict.fromkeys(demand, 0)

    async def one(caller: str) -> None:
        try:
            await gate.enter(caller)
        except Overloaded:
            refused[caller] += 1
            return
        await hold.wait()
        ran[caller] += 1
        gate.leave()

    async with anyio.create_task_group() as tasks:
        for caller, count in demand.items():  # each caller's calls in one burst, the worst order for those behind it
            for _ in range(count):
                tasks.start_soon(one, caller)
        await anyio.wait_all_tasks_blocked()
        decided = sum(refused.values())
        hold.set()

    assert (sum(ran.values()), decided) == (64 + 256, 1000 - 64 - 256)  # refused at once, nothing lost
    share = _fair_share(demand, 64 + 256)
    assert {caller: ran[caller] for caller in demand if ran[caller] < min(demand[caller], share) / 2} == {}


def _fair_share(demand: dict[str, int], places: int) -> float:
    """Return the places of a caller that wants more than all can have; those that want less leave theirs to others."""
    left, open_callers = float(places), sorted(demand.values())
    while open_callers and open_callers[0] <= left / len(open_callers):
        left -= open_callers.pop(0)
    return left / len(open_callers) if open_callers else float(places)
