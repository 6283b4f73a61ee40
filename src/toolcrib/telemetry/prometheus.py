"""Metrics in the text format of Prometheus. Needs the extra `otel`."""

from __future__ import annotations

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, generate_latest

__all__ = ["PrometheusMetrics"]


class PrometheusMetrics:
    """Metrics of one crib, fetched over HTTP. Its `reader` belongs to `TelemetryOptions.readers`."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        """Start without a metric."""
        self._registry = CollectorRegistry()
        self.reader = PrometheusMetricReader(scope_info_enabled=False, registry=self._registry)

    def page(self) -> bytes:
        """Return the metrics of this moment; all label values of a metric are in memory, so that it takes some ms."""
        return generate_latest(self._registry)
