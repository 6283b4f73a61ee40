"""The way back to the event loop for a function that runs in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken

from ..errors import ToolFailure, UsageError
from .builds import has_loop
from .call_guards import Signal
from .exceptions import innermost

T = TypeVar("T")

LOOP: Final = ContextVar[EventLoopToken | None]("toolcrib event loop of a thread", default=None)
"""The event loop that waits for the function; set by what starts it in a thread."""


def run_from_thread(work: Callable[..., Awaitable[T]], args: tuple[Any, ...], signal: Signal) -> T:
    """Return or raise the result of `work(*args)`, which the event loop runs until `signal` is given.

    Raises `UsageError` outside of a thread that the event loop waits for, and `ToolFailure("cancelled")` after the
    signal.
    """
    token = LOOP.get()
    if token is None or has_loop():
        raise UsageError("from_thread is for tools that are plain functions; an `async` one awaits instead")
    return from_thread.run(_wanted, work, args, signal, token=token)


async def _wanted(work: Callable[..., Awaitable[T]], args: tuple[Any, ...], signal: Signal) -> T:
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_after, signal, group.cancel_scope)
            result = await work(*args)
            group.cancel_scope.cancel()
            return result
    except ExceptionGroup as error:  # made by the group, of the one error of `work`
        raise innermost(error) from None
    raise ToolFailure("cancelled", "the call has ended")


async def _cancel_after(signal: Signal, scope: anyio.CancelScope) -> None:
    await signal.wait()
    scope.cancel()
