"""Idempotency keys: the same request once, whatever happens to its caller."""

from toolcrib.core.result import ToolResult
from toolcrib.store.receipts import Conflict, Fresh, Replay
from toolcrib.store.store import Store

DONE = ToolResult(content=({"type": "text", "text": "done"},), structured_content={"n": 1}, meta={"call": "c1"})


async def test_a_settled_request_is_replayed_as_it_was() -> None:
    failed = ToolResult.failed("conflict", "no", hint="wait", details={"a": [1]})
    async with Store.open(None) as store:
        assert await store.receipts.reserve("ada", "k", b"hash", "c1") == Fresh()
        await store.receipts.settle("ada", "k", DONE)
        await store.receipts.reserve("ada", "k2", b"hash", "c2")
        await store.receipts.settle("ada", "k2", failed)

        assert await store.receipts.reserve("ada", "k", b"hash", "c3") == Replay(DONE)
        assert await store.receipts.reserve("ada", "k2", b"hash", "c4") == Replay(failed)


async def test_a_twin_of_a_running_call_is_told_to_wait() -> None:
    async with Store.open(None) as store:
        await store.receipts.reserve("ada", "k", b"hash", "c1")

        twin = await store.receipts.reserve("ada", "k", b"hash", "c2")

    assert twin == Conflict("call c1 with this idempotency key is still running: wait for its result")


async def test_a_key_with_another_request_under_it_is_refused() -> None:
    async with Store.open(None) as store:
        await store.receipts.reserve("ada", "k", b"hash", "c1")
        await store.receipts.settle("ada", "k", DONE)

        changed = await store.receipts.reserve("ada", "k", b"other", "c2")

    assert changed == Conflict("this idempotency key was used for another tool or other arguments: use a new key")


async def test_keys_of_different_principals_are_different_keys() -> None:
    async with Store.open(None) as store:
        await store.receipts.reserve("ada", "k", b"hash", "c1")

        assert await store.receipts.reserve("bob", "k", b"hash", "c2") == Fresh()


async def test_a_released_key_can_be_used_again_and_a_settled_one_cannot_be_released() -> None:
    async with Store.open(None) as store:
        await store.receipts.reserve("ada", "k", b"hash", "c1")
        await store.receipts.release("ada", "k")
        assert await store.receipts.reserve("ada", "k", b"hash", "c2") == Fresh()

        await store.receipts.settle("ada", "k", DONE)
        await store.receipts.release("ada", "k")
        assert await store.receipts.reserve("ada", "k", b"hash", "c3") == Replay(DONE)


async def test_a_receipt_expires_after_24_hours() -> None:
    now = 1_000_000.0
    async with Store.open(None, clock=lambda: now) as store:
        await store.receipts.reserve("ada", "k", b"hash", "c1")
        await store.receipts.settle("ada", "k", DONE)
        now += 24 * 3600 - 1
        assert await store.receipts.reserve("ada", "k", b"hash", "c2") == Replay(DONE)
        now += 2
        assert await store.receipts.reserve("ada", "k", b"hash", "c3") == Fresh()
