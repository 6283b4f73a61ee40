"""Keep the claim of a worker while it works: the lease is renewed, and work whose claim has ended is cancelled.

    0 s        every 2 s          every 60 s        290 s                            300 s
    renewed    claim looked at    renewed again     work ends if no renewal worked   others may claim the task

A store that fails for a while therefore costs nothing, and at no time do two workers change the same task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from toolcrib.plugin import Context, Rows, ToolFailure

from ..operations import storage_of
from ..state import LEASE_SECONDS, get_claimed, renew

T = TypeVar("T")

_LOOK_SECONDS: Final = 2.0
"""Time after which work ends whose task a person stopped, or another worker took over."""
_BEAT_SECONDS: Final = LEASE_SECONDS / 5
_LAST_SECONDS: Final = LEASE_SECONDS - 5 * _LOOK_SECONDS
"""Time after the last renewal at which work ends for which the store cannot be asked: before others may claim it."""


async def keep_claim(ctx: Context, task_id: str, generation: int, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `work`, during which the claim is renewed.

    Raises `ToolFailure("conflict")`, with the work cancelled, where the claim ended: its task was stopped, deleted or
    taken over, its lease ran out, or the store could not be asked until shortly before that.
    """
    ended: list[T] = []
    failed: list[ToolFailure] = []

    async def watch(scope: anyio.CancelScope, renewed: float) -> None:
        while True:
            await anyio.sleep(_LOOK_SECONDS)
            begun = anyio.current_time()
            is_due = begun - renewed >= _BEAT_SECONDS
            try:
                with anyio.fail_after(max(0.0, renewed + _LAST_SECONDS - begun)):
                    await _look(ctx, task_id, generation, is_renewed=is_due)
                renewed = begun if is_due else renewed
            except TimeoutError:
                message = f"the claim of task {task_id} could not be renewed for {_LAST_SECONDS:g} s"
                failed.append(ToolFailure("conflict", message, hint="look at the store: `toolcrib doctor`"))
            except ToolFailure as failure:  # any other: the store is asked again at the next look
                if failure.code in ("conflict", "not_found"):
                    failed.append(failure)
            if failed:
                scope.cancel()
                return

    begun = anyio.current_time()
    await _look(ctx, task_id, generation, is_renewed=True)
    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope, begun)
        try:
            ended.append(await work())
        except ToolFailure as failure:  # the group would wrap it
            failed.append(failure)
        group.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return ended[0]


async def _look(ctx: Context, task_id: str, generation: int, *, is_renewed: bool) -> None:
    """Raise `ToolFailure` for a claim that has ended; renew it if that is due."""

    def work(rows: Rows) -> None:
        task = get_claimed(rows, task_id, generation)
        if is_renewed and task["status"] != "WAITING_INPUT":  # a question has its own, longer time
            renew(rows, task)

    storage = storage_of(ctx)
    await (storage.write(work) if is_renewed else storage.read(work))
