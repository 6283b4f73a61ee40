"""Tracer and instruments for calls."""

from __future__ import annotations

from typing import Final

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from . import names

__all__ = ["Kit", "does_something"]

_API: Final = ("opentelemetry.trace", "opentelemetry.metrics")
"""Modules of the no-op providers that are active until an SDK is set up."""


class Kit:
    """Instruments of one pair of providers. Lives as long as they do."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        """Make the instruments, once."""
        meter = meters.get_meter(names.SCOPE)
        buckets = list(names.DURATION_BUCKETS)
        self.tracer = tracers.get_tracer(names.SCOPE)
        self.durations = meter.create_histogram(
            names.DURATION, "s", "Duration of tool executions", explicit_bucket_boundaries_advisory=buckets
        )
        self.hops = meter.create_histogram(
            names.MCP_DURATION,
            "s",
            "Duration of MCP requests, from sending to the response",
            explicit_bucket_boundaries_advisory=buckets,
        )
        self.calls = meter.create_counter(names.CALLS, "{call}", "Calls that ended, by decision and outcome")
        self.approvals = meter.create_counter(names.APPROVALS, "{approval}", "Calls that needed an approval")
        self.jobs = meter.create_up_down_counter(names.ACTIVE_JOBS, "{job}", "Calls that work as jobs now")


def does_something(provider: TracerProvider | MeterProvider) -> bool:
    """Whether `provider` is more than the API's no-op."""
    return not type(provider).__module__.startswith(_API)
