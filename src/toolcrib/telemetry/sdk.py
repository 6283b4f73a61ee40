"""OpenTelemetry's SDK, set up from our configuration: spans and metrics go to a collector by OTLP over HTTP.

Needs the extra `otel`. The providers belong to one crib: those of the program, if it has any, are left alone, and do
not see our spans then. What the SDK reads from the environment itself (`OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_TRACES_SAMPLER`, `OTEL_BSP_…`, `OTEL_RESOURCE_ATTRIBUTES`) counts here too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from ..core.extras import install_extra
from ..errors import ConfigError
from .collector_log import refusal, watch
from .settings import TelemetryOptions

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TracerProvider

_logger = logging.getLogger(__name__)

_SERVICE_NAME: Final = "toolcrib"
_UNNAMED_SERVICE: Final = "unknown_service"
"""Service name of the SDK when neither the environment nor the program sets one."""
_CLOSE_SECONDS: Final = 5.0
"""Seconds that the end may take to send what waits; a collector that does not answer costs no more."""
_RETRY_SECONDS: Final = 1.0
"""Of them, seconds in which a refused or failed request is made again: the SDK would do so for all of them."""


class TelemetryExport:
    """The providers of one crib, and the threads behind them that send.

    `exporting` makes it when a crib opens; it is closed behind jobs and sources, so that their last spans are sent.
    """

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider, exporters: Sequence[Any]) -> None:
        """Without `tracers` the spans are the program's."""
        self.tracers = tracers
        self.meters = meters
        self._providers: tuple[Any, ...] = (tracers, meters) if tracers else (meters,)
        self._exporters = exporters

    async def close(self) -> None:
        """Send what waits, at most 5 seconds; where no collector listens, about one.

        In threads, since `shutdown` of a provider blocks as long as its exporter repeats a request.
        """
        threads = [threading.Thread(target=provider.shutdown, daemon=True) for provider in self._providers]
        for thread in threads:
            thread.start()
        if await to_thread.run_sync(_join_threads, threads, _RETRY_SECONDS):
            return
        for exporter in self._exporters:
            exporter.shutdown()  # ends waits before a repetition; a request on its way goes on
        if not await to_thread.run_sync(_join_threads, threads, _CLOSE_SECONDS - _RETRY_SECONDS):
            _logger.warning("the collector does not answer: spans and metrics of the last seconds are lost")


def exporting(options: TelemetryOptions) -> TelemetryExport | None:
    """Return the providers that send to the collector and have the readers; None without either.

    Raises `ConfigError` when the extra `otel` is not installed.
    """
    if not options.otlp and not options.readers:
        return None
    try:
        # Of the extra `otel`, and slow to load.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise _missing() from error
    resource = _resource(options)
    if not options.otlp:
        meters = MeterProvider(metric_readers=options.readers, resource=resource, shutdown_on_exit=False)
        return TelemetryExport(options.tracers, meters, ())
    base = options.otlp.rstrip("/") if isinstance(options.otlp, str) else None
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    spans = OTLPSpanExporter(endpoint=base and f"{base}/v1/traces")
    tracers.add_span_processor(BatchSpanProcessor(spans))
    figures = OTLPMetricExporter(endpoint=base and f"{base}/v1/metrics")
    watch(spans, "spans")
    watch(figures, "metrics")
    readers = [PeriodicExportingMetricReader(figures), *options.readers]
    meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
    return TelemetryExport(tracers, meters, (spans, figures))


def collector_refusal(options: TelemetryOptions) -> str:
    """Return why the collector takes no spans; empty when it does, or when none is configured.

    Raises `ConfigError` when the extra `otel` is not installed.
    """
    if not options.otlp:
        return ""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # as above
    except ImportError as error:
        raise _missing() from error
    endpoint = f"{options.otlp.rstrip('/')}/v1/traces" if isinstance(options.otlp, str) else None
    return refusal(OTLPSpanExporter(endpoint=endpoint, timeout=_CLOSE_SECONDS))


def _missing() -> ConfigError:
    return ConfigError(f"an exporter is missing; {install_extra('otel')}", key="telemetry.otlp")


def _join_threads(threads: Iterable[threading.Thread], seconds: float) -> bool:
    """Wait for the threads; return whether all of them have ended in time."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _resource(options: TelemetryOptions) -> Resource:
    from opentelemetry.sdk.resources import Resource  # of the extra `otel`

    resource = Resource.create({"service.version": version("toolcrib")})
    named = options.service_name
    if not named and str(resource.attributes.get("service.name", _UNNAMED_SERVICE)).startswith(_UNNAMED_SERVICE):
        named = _SERVICE_NAME
    return resource.merge(Resource({"service.name": named})) if named else resource
