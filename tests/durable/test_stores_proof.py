"""One store, whatever keeps it: tampering is found, what is old is dropped and the rest still proves, exports too."""

import io
import json
import random
import time
from collections.abc import Callable, Sequence

import pytest

from durable.places import DONE, Place, everywhere, make_call, shared
from rig import eventually
from toolcrib.store.calls import verify_lines
from toolcrib.store.chain import COLUMNS, Head, Verification
from toolcrib.store.settings import Retention
from toolcrib.store.store import Store

# Tampering


@shared
@pytest.mark.parametrize(
    ("tamper", "where"),
    [
        ("UPDATE calls SET outcome = 'denied' WHERE seq = 2", 2),
        ("UPDATE calls SET finished = finished + 1 WHERE seq = 1", 1),
        ("DELETE FROM calls WHERE seq = 2", 2),
        ("DELETE FROM calls WHERE seq = 4", 4),
        ("DELETE FROM calls", 1),
        ("UPDATE calls SET seq = 9 WHERE seq = 4", 4),
        ("UPDATE calls SET seq = CASE seq WHEN 1 THEN -2 WHEN 2 THEN -1 END WHERE seq < 3", 1),
        ("DELETE FROM meta WHERE key = 'head'", 5),
        ("UPDATE meta SET value = '?' WHERE key = 'head'", 1),
        ("INSERT INTO meta SELECT 'floor', value FROM meta WHERE key = 'head'", 5),
    ],
)
async def test_verify_finds_where_a_row_was_changed_cut_or_moved(place: Place, tamper: str, where: int) -> None:
    async with place.open() as store:
        for number in range(4):
            store.calls.note(make_call(number), DONE)
        await store.flush()
        place.tamper(tamper)

        found = await store.calls.verify()

    assert (found.seq, bool(found.problem)) == (where, True)


def _flip(random_: random.Random, seq: int) -> Sequence[str]:
    """Change one character of one column of one row."""
    column = random_.choice([*COLUMNS, "prev", "hash"])
    if column in ("started", "finished", "latency_ms", "result_bytes"):
        return [f"UPDATE calls SET {column} = {column} + 1 WHERE seq = {seq}"]
    return [f"UPDATE calls SET {column} = {_flipped(column, random_.randrange(1, 9))} WHERE seq = {seq}"]


def _flipped(column: str, at: int) -> str:
    """The column with another character at this place, or one more when it is shorter."""
    return (
        f"substr({column}, 1, {at - 1}) || CASE substr({column}, {at}, 1) WHEN 'x' THEN 'y' ELSE 'x' END"
        f" || substr({column}, {at + 1})"
    )


def _drop(random_: random.Random, seq: int) -> Sequence[str]:
    return [f"DELETE FROM calls WHERE seq = {seq}"]


def _swap(random_: random.Random, seq: int) -> Sequence[str]:
    other = seq % 20 + 1
    return [
        f"UPDATE calls SET seq = -1 WHERE seq = {seq}",
        f"UPDATE calls SET seq = {seq} WHERE seq = {other}",
        f"UPDATE calls SET seq = {other} WHERE seq = -1",
    ]


def _cut(random_: random.Random, seq: int) -> Sequence[str]:
    return [f"DELETE FROM calls WHERE seq >= {seq}"]


@shared
@pytest.mark.parametrize(
    ("change", "times"), [(_flip, 200), (_drop, 20), (_swap, 20), (_cut, 20)], ids=["flip", "drop", "swap", "cut"]
)
async def test_no_flipped_dropped_swapped_or_cut_row_goes_unnoticed(
    place: Place, change: Callable[[random.Random, int], Sequence[str]], times: int
) -> None:
    """T26: the journal of twenty calls, changed at random places; the chain says so every time."""
    random_ = random.Random(26)
    missed: list[Sequence[str]] = []
    async with place.open() as store:
        for number in range(20):
            store.calls.note(make_call(number), DONE)
        assert (await store.calls.verify()).problem == ""
        place.tamper("CREATE TABLE kept AS SELECT * FROM calls")
        for turn in range(times):
            statements = change(random_, random_.randrange(1, 21) if times == 200 else turn + 1)
            place.tamper(*statements)
            if not (await store.calls.verify()).problem:
                missed.append(statements)
            place.tamper("DELETE FROM calls", "INSERT INTO calls SELECT * FROM kept")
        assert (await store.calls.verify()).problem == ""

    assert missed == []


async def test_an_untouched_chain_verifies_and_names_its_head(store: Store) -> None:
    for number in range(3):
        store.calls.note(make_call(number), DONE)

    found = await store.calls.verify()

    assert found == Verification(rows=3, head=Head(seq=3, hash=found.head.hash))
    assert await store.calls.head() == found.head


@shared
async def test_a_head_that_was_kept_elsewhere_shows_what_was_cut_with_the_stored_head(place: Place) -> None:
    async with place.open() as store:
        for number in range(4):
            store.calls.note(make_call(number), DONE)
        known = await store.calls.head()
        older = await store.calls.get("call-1")
        assert older is not None
        place.tamper("DELETE FROM calls WHERE seq > 2", "DELETE FROM meta WHERE key = 'head'")
        second = place.hash_of(2)
        head = json.dumps({"seq": 2, "hash": second})
        place.tamper(f"INSERT INTO meta VALUES ('head', '{head}')")

        unaware, aware = await store.calls.verify(), await store.calls.verify(known)
        fits = await store.calls.verify(Head(seq=2, hash=second))
        other = await store.calls.verify(Head(seq=2, hash="0" * 64))

    assert (unaware.problem, fits.problem) == ("", "")
    assert (aware.problem, aware.seq) == (
        "the chain ends at row 2, the head that you know is row 4: rows are missing",
        3,
    )
    assert (other.problem, other.seq) == ("row 2 is not the one that you know", 2)


# Retention


@everywhere
async def test_old_records_are_dropped_from_the_beginning_and_the_rest_still_proves(place: Place) -> None:
    now = time.time()
    async with place.open(clock=lambda: now + 100, retention=Retention.model_construct(max_rows=10)) as store:
        for number in range(25):
            store.calls.note(make_call(number), DONE)
        await store.flush()
        before = await store.calls.list(limit=99)
    if place.where is None:
        return  # what memory holds is gone with it
    async with place.open(clock=lambda: now + 100, retention=Retention.model_construct(max_rows=10)) as store:
        await store.flush()
        rows = await store.calls.list(limit=99)
        found = await store.calls.verify()

    assert [row.seq for row in rows] == list(range(26, 16, -1))
    assert (found.rows, found.dropped, found.problem) == (10, 16, "")
    drop = rows[0]
    gone = next(row for row in before if row.seq == 16)
    assert (drop.origin, drop.rule, drop.outcome) == ("retention", "records: max_rows 10", "ok")
    assert json.loads(drop.arguments).items() >= {"first": 1, "last": 16}.items()
    assert gone.id not in [row.id for row in rows]


@shared
async def test_a_store_with_as_many_records_as_it_may_have_keeps_them_all(place: Place) -> None:
    async with place.open() as store:
        for number in range(10):
            store.calls.note(make_call(number), DONE)
    async with place.open(retention=Retention.model_construct(max_rows=10)) as store:
        await store.flush()
        rows = await store.calls.list()

    assert [row.seq for row in rows] == list(range(10, 0, -1))


@shared
async def test_records_go_by_their_age_in_as_many_steps_as_it_takes(place: Place) -> None:
    now = time.time()
    async with place.open() as store:
        for number in range(2500):
            store.calls.note(make_call(number), DONE)
    async with place.open(clock=lambda: now + 1000, retention=Retention.model_construct(keep=500)) as store:
        await eventually(lambda: place.tamper("SELECT count(*) FROM calls") == [(3,)])
        store.calls.note(make_call(9999), DONE)
        rows = await store.calls.list()
        found = await store.calls.verify()

    assert [row.origin for row in rows] == ["mcp", "retention", "retention", "retention"]
    assert (found.rows, found.problem) == (4, "")


@shared
async def test_records_that_do_not_prove_are_not_dropped(place: Place) -> None:
    async with place.open() as store:
        for number in range(20):
            store.calls.note(make_call(number), DONE)
    place.tamper("UPDATE calls SET outcome = 'denied' WHERE seq = 3")
    async with place.open(retention=Retention.model_construct(max_rows=5)) as store:
        await store.flush()
        found = await store.calls.verify()
        rows = await store.calls.list()

    assert (len(rows), found.seq, found.problem) == (20, 3, "row 3 was changed after it was recorded")


@shared
async def test_whoever_cuts_the_beginning_and_calls_it_retention_is_found(place: Place) -> None:
    async with place.open() as store:
        for number in range(6):
            store.calls.note(make_call(number), DONE)
        await store.flush()
        floor = json.dumps({"seq": 3, "hash": place.hash_of(3)})
        place.tamper("DELETE FROM calls WHERE seq < 4", f"INSERT INTO meta VALUES ('floor', '{floor}')")

        found = await store.calls.verify()

    assert found.problem == "the rows up to 3 are missing, and no row records that they were dropped"


@shared
async def test_a_known_head_that_was_dropped_since_says_so(place: Place) -> None:
    async with place.open() as store:
        for number in range(3):
            store.calls.note(make_call(number), DONE)
        known = await store.calls.head()
        for number in range(3, 20):
            store.calls.note(make_call(number), DONE)
    async with place.open(retention=Retention.model_construct(max_rows=5)) as store:
        await store.flush()
        found = await store.calls.verify(known)

    assert found.problem == "row 3 was dropped since, with all up to row 16: compare with a newer head"


# Export


async def test_an_export_verifies_by_itself_and_holds_every_row_in_order(store: Store) -> None:
    for number in range(2100):
        store.calls.note(make_call(number), DONE)
    lines = io.BytesIO()

    exported = await store.calls.export(lines)
    found = verify_lines(io.BytesIO(lines.getvalue()), exported.head)

    rows = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert (exported.rows, exported.first, exported.head) == (2100, 1, await store.calls.head())
    assert found == Verification(rows=2100, head=exported.head)
    assert list(rows[0]) == ["seq", *COLUMNS, "prev", "hash"]
    assert [row["id"] for row in rows] == [f"call-{number}" for number in range(2100)]


async def test_an_export_begins_where_it_is_told_to(store: Store) -> None:
    store.calls.note(make_call(1), DONE)
    await store.flush()
    (first,) = await store.calls.list()
    store.calls.note(make_call(2), DONE)
    store.calls.note(make_call(3), DONE)
    lines, none = io.BytesIO(), io.BytesIO()

    exported = await store.calls.export(lines, since=first.finished + 1e-6)
    empty = await store.calls.export(none, since=time.time() + 60)
    found = verify_lines(io.BytesIO(lines.getvalue()))

    assert (exported.rows, exported.first, empty.rows, none.getvalue()) == (2, 2, 0, b"")
    assert (found.rows, found.dropped, found.head, found.problem) == (2, 1, exported.head, "")
