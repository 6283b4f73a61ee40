"""An OTLP/HTTP collector on loopback: it keeps what it is sent, decoded."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What came in, by kind."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 200
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[Mapping[str, str]] = []

    def take(self, path: str, body: bytes) -> None:
        """Decode one request."""
        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))

    @property
    def spans(self) -> list[tuple[str, dict[str, str]]]:
        """Name and string attributes of every span."""
        return [
            (span.name, {pair.key: pair.value.string_value for pair in span.attributes})
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def services(self) -> set[str]:
        """What the senders call themselves."""
        found: list[Any] = [resource for request in self.traces for resource in request.resource_spans]
        found += [resource for request in self.metrics for resource in request.resource_metrics]
        pairs = [pair for each in found for pair in each.resource.attributes]
        return {pair.value.string_value for pair in pairs if pair.key == "service.name"}

    @property
    def instruments(self) -> set[str]:
        """Names of the metrics."""
        return {
            metric.name
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def collecting() -> Generator[Collector]:
    """Run a collector that answers with its `status`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.take(self.path, body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
