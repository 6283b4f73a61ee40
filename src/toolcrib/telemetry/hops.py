"""Spans of requests to MCP servers: kind CLIENT, below the span of the call that makes them.

The server gets the trace context in `_meta`, so that its own spans are children of this one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, StatusCode

from . import names
from .otel import Kit, current_kit

__all__ = ["Hop", "hop"]


def hop(method: str, tool: str, *, version: str, transport: str) -> AbstractContextManager[Hop | None]:
    """Return the context manager to enter around the request; it yields None while no call is traced.

    `version` is the protocol's, `transport` is `pipe` or `tcp`.
    """
    kit = current_kit()
    if kit is None:
        return nullcontext()
    marks = {
        names.MCP_METHOD: method,
        names.TOOL_NAME: tool,
        names.MCP_VERSION: version,
        names.NETWORK_TRANSPORT: transport,
    }
    return Hop(kit, f"{method} {tool}", marks)


class Hop(AbstractContextManager["Hop"]):
    """One request. Without a reported failure or an exception it is a success."""

    __slots__ = ("_begun", "_kit", "_marks", "_span", "meta")

    def __init__(self, kit: Kit, name: str, marks: dict[str, Any]) -> None:
        """Start the span.

        It has no `gen_ai.operation.name`: the span above it is the execution, and consumers count those.
        """
        self._kit = kit
        self._marks = marks
        self._begun = time.monotonic()
        self._span = kit.tracer.start_span(name, kind=SpanKind.CLIENT, attributes=marks)
        sent: dict[str, str] = {}
        propagate.inject(sent, trace.set_span_in_context(self._span))
        self.meta: Mapping[str, str] = {key: sent[key] for key in names.CONTEXT_KEYS if key in sent}
        """The trace context to send, under the keys of `_meta`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._fail(error)
        self._kit.hops.record(time.monotonic() - self._begun, self._marks)
        self._span.end()

    def failed(self, error: str) -> None:
        """Record the kind of failure: `tool_error` for an error result."""
        self._marks[names.ERROR_TYPE] = error
        self._span.set_attribute(names.ERROR_TYPE, error)
        self._span.set_status(StatusCode.ERROR)

    def _fail(self, error: BaseException) -> None:
        """JSON-RPC errors have a number as their code, our failures a word; a cancellation is not an Exception."""
        code = getattr(error, "code", None)
        if isinstance(code, int):
            self._marks[names.RPC_STATUS] = str(code)
            self._span.set_attribute(names.RPC_STATUS, str(code))
        named = type(error).__name__ if code is None else str(code)
        self.failed(named if isinstance(error, Exception) else "cancelled")
