"""Watch over the calls of one crib. Spans and metrics (`spans`) load with the first listener: few programs have one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from ..core.call import Call
from ..core.result import ToolResult
from .values import CURRENT, ShownValues

if TYPE_CHECKING:  # slow to load
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from .spans import Kit

_PROVIDER_CHECK_SECONDS: Final = 1.0
"""Seconds after which it is looked again whether the program has set up an SDK meanwhile."""
_TRACE_HEADERS: Final = ("traceparent", "tracestate")


class Telemetry:
    """Watches the calls of one crib. Used from one event loop.

    The crib makes one; the providers are its own, from the configuration (`sdk`), or the program's.
    """

    def __init__(
        self,
        *,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
        content: bool = False,
        redact: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        """`tracers` and `meters` are ours alone; without them those of the program count, whenever it sets them up.

        `content`: arguments and results go into the spans too, as `redact` leaves them.
        """
        self.values = ShownValues(redact, content=content)
        self._tracers = tracers
        self._meters = meters
        self.kit: Kit | None = None
        """The instruments; None while nothing listens."""
        self.silent_until = 0.0
        """No call needs a span before, on the clock of `time.monotonic`."""

    def watch(self, call: Call) -> AbstractContextManager[None] | None:
        """Return the context manager to enter around the call, on its way to a result; None without a listener."""
        kit = self.kit or self._find_providers()
        return None if kit is None else kit.watch(self.values, call)

    def watch_job(self, call: Call) -> AbstractContextManager[None] | None:
        """Return the context manager for the work of a job that `with_trace_context` announced; None without an SDK."""
        kit = self.kit or self._find_providers()
        return None if kit is None else kit.watch_job(self.values, call)

    def with_trace_context(self, call: Call) -> Call:
        """Return a call that may become a job, with its trace context: a job may run in another process."""
        span = CURRENT.get()
        return call if span is None or span.values is not self.values else span.with_trace_context(call)

    def ended(self, call: Call, result: ToolResult) -> None:
        """Record the outcome of `call`. Its span, if it has one, is the current one."""
        span = CURRENT.get()
        if span is not None and span.values is self.values:
            span.set_outcome(call, result)

    def _find_providers(self) -> Kit | None:
        """Look for providers that do something, at most once a second.

        Once found, the instruments stay: a program that sets up its SDK later has spans from the next look on.
        """
        now = time.monotonic()
        if now < self.silent_until:
            return None
        # What is not loaded has no SDK.
        if self._tracers is not None or self._meters is not None or "opentelemetry" in sys.modules:
            from .spans import kit_of

            self.kit = kit_of(self._tracers, self._meters)
        self.silent_until = now + _PROVIDER_CHECK_SECONDS if self.kit is None else 0.0
        return self.kit


def current_kit() -> Kit | None:
    """Return the instruments of the call that runs in this task; None outside a watched call."""
    span = CURRENT.get()
    return None if span is None else span.kit


def trace_headers() -> dict[str, str]:
    """Return the headers of an HTTP request that make its receiver's spans children of the call's; empty untraced.

    Baggage is not among them: a program's own values are for its servers, an API often belongs to a third party.
    """
    if current_kit() is None:
        return {}
    from .spans import sent_context  # loaded with the kit

    sent = sent_context()
    return {key: sent[key] for key in _TRACE_HEADERS if key in sent}


def trace_variables() -> dict[str, str]:
    """Return the environment variables that make a program's spans children of the call's; empty untraced.

    They are the headers of `trace_headers` under the names of OpenTelemetry's carrier for environment variables.
    """
    return {key.upper(): value for key, value in trace_headers().items()}
