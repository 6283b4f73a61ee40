"""Settings of the telemetry: where spans and metrics go, and what they hold."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, PlainValidator

from ..core.settings import Flag, Section, Text, expected, setting

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider as _MeterProvider
    from opentelemetry.trace import TracerProvider as _TracerProvider
else:  # slow to load: programs hand over providers, the configuration of a command does not
    _MeterProvider = _TracerProvider = Any


def _collector(value: Any) -> str | bool:
    if isinstance(value, bool) or (isinstance(value, str) and value.startswith(("http://", "https://"))):
        return value
    raise expected("the http:// or https:// URL of a collector, or true")


def _tracers(value: Any) -> Any:
    if value is not None:
        from opentelemetry.trace import TracerProvider  # slow to load

        if not isinstance(value, TracerProvider):
            raise expected("a TracerProvider of OpenTelemetry")
    return value


def _meters(value: Any) -> Any:
    if value is not None:
        from opentelemetry.metrics import MeterProvider  # slow to load

        if not isinstance(value, MeterProvider):
            raise expected("a MeterProvider of OpenTelemetry")
    return value


class TelemetryOptions(Section):
    """Settings of the section `telemetry`."""

    otlp: Annotated[str | bool, PlainValidator(_collector)] = setting(False, hidden=True)
    """The base URL of an OTLP/HTTP collector; True reads `OTEL_EXPORTER_OTLP_ENDPOINT`."""
    service_name: Text = ""
    """Empty is the environment's `OTEL_SERVICE_NAME`, else `toolcrib`."""
    content: Flag = False
    """Arguments and results go into the spans too, redacted."""
    prometheus: Flag = False
    """`toolcrib serve --http` serves the metrics at `/metrics`."""
    tracers: Annotated[_TracerProvider | None, BeforeValidator(_tracers)] = setting(None, in_code=True)
    """Providers of the embedding program, beside or instead of the global ones."""
    meters: Annotated[_MeterProvider | None, BeforeValidator(_meters)] = setting(None, in_code=True)
    readers: tuple[Any, ...] = setting((), in_code=True)
    """Further readers of the metrics (`MetricReader` of the SDK); with one `meters` is not used."""
