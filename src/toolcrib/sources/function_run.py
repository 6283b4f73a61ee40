"""Execution of functions: on the loop, in a thread, as a stream; every exception becomes a failure."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, closing
from typing import Any, Final, NoReturn, cast

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token

from ..core.context import Context
from ..errors import ToolFailure
from ..system.tasks import Threads

_logger = logging.getLogger(__name__)
_MESSAGE: Final = 500
"""Characters of an exception's text that reach the model."""

_REASONS: Final = 3
"""Exceptions of a group that reach the model."""

_CODES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (TimeoutError, "timeout"),
    (PermissionError, "denied"),
    (FileNotFoundError, "not_found"),
    (ConnectionError, "unavailable"),
)

Run = Callable[[Callable[[], Any], Context, Threads], Awaitable[Any]]
"""Runs a function that has its arguments, and returns its result."""
Body = Callable[[Mapping[str, Any], Context, Threads], Any]
"""Runs the function with keyword arguments; awaited for its result. Raises `ToolFailure` and nothing else."""


def run_of(function: Callable[..., Any]) -> Run | None:
    """Return the caller of `function`, by its kind; None for one that is awaited."""
    inner = _unwrapped(function)
    if inspect.isasyncgenfunction(inner):
        return _stream
    if inspect.isgeneratorfunction(inner):
        return _stream_in_thread
    return None if inspect.iscoroutinefunction(inner) else _in_thread


def body_of(function: Callable[..., Any], name: str) -> Body:
    """Return the execution of `function`, by what kind of function it is."""
    run = run_of(function)

    async def body(arguments: Mapping[str, Any], context: Context, threads: Threads) -> Any:
        try:
            if run is None:
                return await function(**arguments)
            return await run(functools.partial(function, **arguments), context, threads)
        except BaseException as error:  # noqa: BLE001 - it is raised again, as a failure or as it is
            raise_as_failure(error, name, context, is_awaited=run is None)

    return body


def raise_as_failure(error: BaseException, name: str, context: Context, *, is_awaited: bool) -> NoReturn:
    """Raise the `ToolFailure` for an exception of a function, from within its `except`; cancellation is raised again.

    `is_awaited`: it ran on the event loop.
    """
    while len(parts := _parts(error)) == 1:  # what a task group makes of a failure
        error = parts[0]
    if isinstance(error, ToolFailure):
        raise error
    if isinstance(error, anyio.get_cancelled_exc_class()):
        raise  # noqa: PLE0704 - the caller handles `error`
    if isinstance(error, KeyboardInterrupt) and is_awaited:
        raise  # noqa: PLE0704 - that may be a person's interrupt; an exception from a thread is the function's own
    _logger.error("tool %s failed in call %s", name, context.call_id, exc_info=error)
    raise ToolFailure(_code_of(error), f"{name} failed: {_short(error)}") from error


def is_stream(function: Callable[..., Any]) -> bool:
    """Whether `function` yields its result in pieces."""
    inner = _unwrapped(function)
    return inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner)


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function if inspect.isroutine(function) else type(function).__call__


def _code_of(error: BaseException) -> str:
    """Return the code of a function's exception: the standard library's own kinds of failure keep their meaning."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), "tool_error")


def _short(error: BaseException) -> str:
    if parts := _parts(error):  # the group's own text has no reason: "unhandled errors in a TaskGroup (2 …"
        return "; ".join(map(_short, parts[:_REASONS]))
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - of the exception's own `__str__`
        text = ""
    shown = text if len(text) <= _MESSAGE else text[:_MESSAGE] + "…"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def _parts(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions of a group; none of any other exception."""
    return cast("BaseExceptionGroup", error).exceptions if isinstance(error, BaseExceptionGroup) else ()


async def _in_thread(call: Callable[[], Any], context: Context, threads: Threads) -> Any:
    value = await threads.run(call, context.signal)
    return await value if inspect.isawaitable(value) else value  # of a plain function that returns a coroutine


async def _stream(call: Callable[[], AsyncGenerator[Any, None]], context: Context, threads: Threads) -> Any:
    chunks: list[Any] = []
    async with aclosing(call()) as stream:
        async for chunk in stream:
            chunks.append(chunk)
            await context.output(chunk)
    return _join(chunks)


async def _stream_in_thread(call: Callable[[], Generator[Any]], context: Context, threads: Threads) -> Any:
    is_heard = context.listener is not None or context.peer is not None
    token = current_token()

    def run() -> list[Any]:
        chunks: list[Any] = []
        with closing(call()) as stream:
            for chunk in stream:
                chunks.append(chunk)
                if context.signal.aborted:
                    break
                if is_heard:
                    from_thread.run(context.output, chunk, token=token)
        return chunks

    return _join(await threads.run(run, context.signal))


def _join(chunks: list[Any]) -> Any:
    """Texts become one text; anything else stays a list."""
    return "".join(chunks) if all(isinstance(chunk, str) for chunk in chunks) else chunks
