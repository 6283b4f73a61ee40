"""`/metrics` in the text format of Prometheus, for every caller that may call tools. Needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from ..mcp.server.http_messages import Receive, Refusal, Send, send_body
from .request_checks import RequestLimits

_PATH: Final = "/metrics"
_CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class PrometheusMetrics:
    """Metrics of one crib. Its `reader` belongs to `TelemetryOptions.readers`."""

    def __init__(self) -> None:
        """Start without a metric."""
        self._registry = CollectorRegistry()
        self.reader = PrometheusMetricReader(scope_info_enabled=False, registry=self._registry)

    def page(self) -> bytes:
        """Return the metrics of this moment; all label values of a metric are in memory, so that it takes some ms."""
        return generate_latest(self._registry)


class MetricsRoute:
    """Serves one page of text. Lives as long as the HTTP server."""

    def __init__(self, metrics: PrometheusMetrics, edge: RequestLimits) -> None:
        self._metrics = metrics
        self._edge = edge

    def serves(self, path: str) -> bool:
        """Whether a path is the page."""
        return path == _PATH

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer any request."""
        try:
            self._edge.admit(scope)
            if scope["method"] != "GET":
                raise Refusal(405, "Method not allowed", headers=[(b"allow", b"GET")])
        except Refusal as refusal:
            body = f"{refusal.message}\n".encode()
            await send_body(send, body, b"text/plain", status=refusal.status, headers=refusal.headers)
        else:
            await send_body(send, self._metrics.page(), _CONTENT_TYPE)
