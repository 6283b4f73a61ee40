"""Changes that wait for review are kept the same way on every store."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from toolcrib.core.workspace import MAX_PENDING, PendingChange, PendingKey, PendingSet
from toolcrib.errors import ToolFailure
from toolcrib.store.store import Store

KEY = PendingKey(principal="ada", workspace="/srv/project", owner="task t")
FILE = PendingChange(
    path="/srv/project/ä b.txt",
    kind="file",
    content="digest-1",
    size=3,
    mode=0o750,
    base="digest-0",
    before="digest-0",
    changed=1_700_000_000.25,
)
FOLDER = PendingChange(path="/srv/project/new", kind="folder", implied=True)
GONE = PendingChange(path="/srv/project/old", kind="gone", base="digest-9", applying=True)
CONTENTS = {"digest-0": b"was", "digest-1": bytes(range(256)) * 300}


async def put(store: Store, *changes: PendingChange, version: int = 1, key: PendingKey = KEY) -> bool:
    new = PendingSet(key=key, files="audit", version=version, changes=changes)
    return await store.pending.replace(new, CONTENTS)


async def test_a_set_is_read_as_it_was_written(store: Store) -> None:
    assert await store.pending.get(KEY) == PendingSet(key=KEY)
    assert await put(store, FILE, FOLDER, GONE)
    found = await store.pending.get(KEY)
    assert found == PendingSet(
        key=KEY,
        files="audit",
        version=1,
        changed=found.changed,
        changes=tuple(sorted((FILE, FOLDER, GONE), key=by_bytes)),
    )
    assert (found.changed > 0, await store.pending.version(KEY)) == (True, 1)
    assert [await store.pending.content(KEY, digest) for digest in CONTENTS] == list(CONTENTS.values())


def by_bytes(change: PendingChange) -> bytes:
    return change.path.encode()


async def test_who_read_an_older_version_writes_nothing(store: Store) -> None:
    assert await put(store, FILE)
    assert not await put(store, GONE)
    assert not await put(store, GONE, version=3)
    assert (await store.pending.get(KEY)).changes == (FILE,)
    assert await put(store, replace(FILE, size=4), GONE, version=2)
    assert [change.size for change in (await store.pending.get(KEY)).changes] == [0, 4]


async def test_contents_go_with_the_last_change_that_holds_them(store: Store) -> None:
    await put(store, FILE, replace(FILE, path="/srv/project/copy"))
    await put(store, FILE, version=2)
    assert await store.pending.content(KEY, "digest-1") == CONTENTS["digest-1"]
    await put(store, GONE, version=3)
    with pytest.raises(ToolFailure) as failure:
        await store.pending.content(KEY, "digest-1")
    assert failure.value.code == "not_found"


async def test_sets_are_apart_and_those_that_hold_nothing_are_not_listed(store: Store) -> None:
    others = [replace(KEY, principal="bob"), replace(KEY, workspace="/srv/else"), replace(KEY, owner="task u")]
    for key in (KEY, *others):
        await put(store, FILE, key=key)
    await put(store, version=2, key=others[2])
    assert {one.key for one in await store.pending.sets("ada")} == {KEY, others[1]}
    assert [one.key for one in await store.pending.sets("bob")] == [others[0]]


async def test_more_than_the_cap_is_refused_as_a_whole(store: Store) -> None:
    await put(store, FILE)
    half = os.urandom(1 << 10) * (MAX_PENDING >> 11)
    changes = tuple(replace(FILE, path=f"/srv/project/{name}", content=name, before="") for name in ("a", "b"))
    new = PendingSet(key=KEY, files="audit", version=2, changes=changes[:1])
    assert await store.pending.replace(new, {"a": half})
    with pytest.raises(ToolFailure) as failure:
        await store.pending.replace(replace(new, version=3, changes=changes), {"b": half + b"x"})
    assert (failure.value.code, await store.pending.version(KEY)) == ("too_large", 2)
    with pytest.raises(ToolFailure):
        await store.pending.content(KEY, "b")
