"""A crib whose spans and metrics stay in memory, in OpenTelemetry's own SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolcrib.config import Directories, bare
from toolcrib.crib import Toolcrib
from toolcrib.telemetry.settings import TelemetryOptions


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A crib and what it told."""

    crib: Toolcrib
    tracers: TracerProvider
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended, in the order of their ends."""
        return self.exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [span.name for span in self.spans]

    def span(self, name: str) -> ReadableSpan:
        """The only span of that name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def points(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Attributes and value (of a histogram: the count) of every point of one metric."""
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        metrics = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        points = [point for metric in metrics for point in metric.data.data_points]
        numbers = [(point, point.value) for point in points if isinstance(point, NumberDataPoint)]
        counts = [(point, point.count) for point in points if isinstance(point, HistogramDataPoint)]
        return [(dict(point.attributes or {}), value) for point, value in (*numbers, *counts)]


@asynccontextmanager
async def watched_crib(*, content: bool = False, home: Path | None = None, **settings: Any) -> AsyncGenerator[Watched]:
    """Open a crib with providers of its own; with a `home` it keeps its records there."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    resource = Resource({"service.name": "test"})
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
    options = TelemetryOptions(tracers=tracers, meters=meters, content=content)
    chosen = bare().with_values(telemetry=options, **settings)
    if home is not None:
        chosen = replace(chosen, directories=Directories.of({"HOME": str(home)}))
    async with Toolcrib(chosen, memory=home is None) as crib:
        yield Watched(crib=crib, tracers=tracers, exporter=exporter, reader=reader)
    tracers.shutdown()
    meters.shutdown()


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """What a span says, as a plain mapping."""
    return dict(span.attributes or {})
