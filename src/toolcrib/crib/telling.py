"""How a crib's telemetry is set up: by its settings, else by the program that it runs in."""

from __future__ import annotations

from contextlib import AsyncExitStack

from ..results.redact import Redactor, guard_logs
from ..telemetry.otel import Telemetry
from ..telemetry.sdk import TelemetryOptions, exporting

__all__ = ["open_telemetry"]


def open_telemetry(stack: AsyncExitStack, options: TelemetryOptions, redactor: Redactor) -> Telemetry:
    """Return what watches the calls; what waits to be sent is sent when `stack` ends. Raises `ConfigError`.

    Until then our log records are clean of what `redactor` knows.
    """
    stack.callback(guard_logs(redactor))
    ours = exporting(options)
    if ours is None:
        return Telemetry(tracers=options.tracers, meters=options.meters, content=options.content, redact=redactor.value)
    stack.push_async_callback(ours.close)
    return Telemetry(tracers=ours.tracers, meters=ours.meters, content=options.content, redact=redactor.value)
